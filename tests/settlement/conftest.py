"""The settlement library against the real emulator, through the real SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sbnotebook.emulator import running
from sbnotebook.emulator.server import EmulatorServer
from sbnotebook.settlement import AsyncNamespace, Connection, Journal


@pytest.fixture(scope="session")
def shared_emulator() -> Iterator[EmulatorServer]:
    with running() as server:
        yield server


@pytest.fixture
async def namespace(shared_emulator: EmulatorServer, tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    journal = Journal(tmp_path / "journal.sqlite")
    async with AsyncNamespace(Connection(shared_emulator.connection_string), journal=journal) as namespace:
        yield namespace
