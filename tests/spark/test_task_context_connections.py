from __future__ import annotations

from collections.abc import Iterator

import pytest

from sbnotebook.emulator import running
from sbnotebook.model import EntityAddress
from sbnotebook.spark.option_parser import NamespaceTarget
from sbnotebook.spark.task_context import close_warm, warm_namespace


@pytest.fixture(autouse=True)
def nothing_is_left_open() -> Iterator[None]:
    close_warm()
    yield
    close_warm()


@pytest.fixture
def target(connection_string: str) -> NamespaceTarget:
    return NamespaceTarget(connection_string)


def test_the_next_task_has_what_the_one_before_left_open(target: NamespaceTarget) -> None:
    with warm_namespace(target) as first:
        pool = first.pool(EntityAddress("orders"))
    with warm_namespace(target) as second:
        assert second is first
        assert second.pool(EntityAddress("orders")) is pool


def test_two_at_once_have_one_each(target: NamespaceTarget) -> None:
    with warm_namespace(target) as first, warm_namespace(target) as second:
        assert first is not second


def test_after_an_error_the_next_begins_anew(target: NamespaceTarget) -> None:
    with pytest.raises(EOFError), warm_namespace(target) as first:
        raise EOFError
    with warm_namespace(target) as second:
        assert second is not first


def test_only_the_last_namespace_is_kept(target: NamespaceTarget) -> None:
    with warm_namespace(target) as first:
        pass
    with running() as other, warm_namespace(NamespaceTarget(other.connection_string)):
        pass
    with warm_namespace(target) as again:
        assert again is not first
