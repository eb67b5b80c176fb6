"""The settlement library against the real emulator, through the real SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.locking.settle import Settling
from sbnotebook.settlement.place import Resources, Waits
from tests.hand_clock import HandClock
from tests.settlement.namespaces import namespace_of
from tests.settlement.proxy import Proxy

SOON = Waits(
    silence=0.3, held=1.5, first_pause=0.05, longest_pause=0.2, first_look=0.2, longest_look=0.5, idle_session=0.5
)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less where nothing comes: the emulator answers at once."""
    monkeypatch.setattr(Resources, "waits", SOON)
    monkeypatch.setattr(Settling, "finish_within", 1.0)
    monkeypatch.setattr(Settling, "released_within", 2.0)


@pytest.fixture(scope="module")  # so that two files may have entities of the same name
def shared_emulator() -> Iterator[RunningEmulator]:
    with running() as server:
        yield server


@pytest.fixture
async def namespace(shared_emulator: RunningEmulator, tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    async with namespace_of(shared_emulator, tmp_path) as namespace:
        yield namespace


@pytest.fixture
def emulator() -> Iterator[RunningEmulator]:
    """One for each test, because a broken one is broken for all its users."""
    with running() as server:
        yield server


@pytest.fixture
async def own(emulator: RunningEmulator, tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    """A namespace of :func:`emulator`."""
    async with namespace_of(emulator, tmp_path) as namespace:
        yield namespace


@pytest.fixture
async def proxy(shared_emulator: RunningEmulator) -> AsyncIterator[Proxy]:
    """A proxy before :func:`shared_emulator`."""
    proxy = Proxy(shared_emulator.connection_string)
    await proxy.start()
    yield proxy
    proxy.cut()
    proxy.server.close()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def emulator_by_hand(clock: HandClock) -> Iterator[RunningEmulator]:
    """An emulator whose time passes only when ``clock`` is turned."""
    with running(clock=clock.emulators) as server:
        yield server


@pytest.fixture
async def namespace_by_hand(
    clock: HandClock, emulator_by_hand: RunningEmulator, tmp_path: Path
) -> AsyncIterator[AsyncNamespace]:
    """A namespace of :func:`emulator_by_hand`."""
    async with namespace_of(emulator_by_hand, tmp_path, clock=clock) as namespace:
        yield namespace
