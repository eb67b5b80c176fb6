"""One cluster and one emulator for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sbnotebook.emulator import RunningEmulator, running
from tests.cluster.nodes import Cluster, built_wheel, running_cluster


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    return built_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Iterator[Cluster]:
    """A standalone master with two workers, and a machine for drivers: see :mod:`tests.cluster.nodes`."""
    with running_cluster(tmp_path_factory.mktemp("cluster"), wheel) as cluster:
        yield cluster


@pytest.fixture
def emulator() -> Iterator[RunningEmulator]:
    """An emulator with the queue ``orders``, which the machines reach over the network."""
    with running(queues=["orders"]) as emulator:
        yield emulator
