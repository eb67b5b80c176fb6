"""The synchronous client against the real emulator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.settlement import Connection, Journal


@pytest.fixture(scope="module")
def shared_emulator() -> Iterator[RunningEmulator]:
    with running() as server:
        yield server


@pytest.fixture
def namespace(shared_emulator: RunningEmulator, tmp_path: Path) -> Iterator[Namespace]:
    target = Target(Connection(shared_emulator.connection_string), "a test")
    with Namespace(target, journal=Journal(tmp_path / "journal.sqlite")) as namespace:
        yield namespace
