from __future__ import annotations

from collections.abc import Iterator

import pytest

from sbnotebook.emulator import running
from sbnotebook.model import EntityAddress
from sbnotebook.spark.options import NamespaceTarget
from sbnotebook.spark.task_context import close_warm, warm_namespace


@pytest.fixture(autouse=True)
def nothing_is_left_open() -> Iterator[None]:
    close_warm()
    yield
    close_warm()


@pytest.fixture
def target(connection_string: str) -> NamespaceTarget:
    return NamespaceTarget(connection_string)


def test_warm_namespace_is_that_of_the_task_before(target: NamespaceTarget) -> None:
    with warm_namespace(target) as first:
        pool = first.pool(EntityAddress("orders"))
    with warm_namespace(target) as second:
        assert second is first
        assert second.pool(EntityAddress("orders")) is pool


def test_two_warm_namespaces_at_once_differ(target: NamespaceTarget) -> None:
    with warm_namespace(target) as first, warm_namespace(target) as second:
        assert first is not second


def test_warm_namespace_is_new_after_an_error(target: NamespaceTarget) -> None:
    with pytest.raises(EOFError), warm_namespace(target) as first:
        raise EOFError
    with warm_namespace(target) as second:
        assert second is not first


def test_only_the_last_warm_namespace_is_kept(target: NamespaceTarget) -> None:
    with warm_namespace(target) as first:
        pass
    with running() as other, warm_namespace(NamespaceTarget(other.connection_string)):
        pass
    with warm_namespace(target) as again:
        assert again is not first
