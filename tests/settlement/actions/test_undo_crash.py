"""A process that removes messages, or sends them back, is killed, and every message is counted afterwards."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.errors import DecisionError
from sbnotebook.model import Complete, Message
from sbnotebook.settlement import AsyncNamespace, Connection, Journal
from sbnotebook.settlement.memory.archive import ArchiveState
from tests import kills
from tests.chances import IS_THOROUGH, chance, rounds
from tests.kills import Ledger

pytestmark = pytest.mark.anyio

CRASHES: Final = rounds(1, 10)
COUNT: Final = 600
"""More than an undo sends at once."""
QUEUE, ARCHIVE, UNKNOWN = "orders", "the archive", "in the archive, and said to be unknown"
ONE_WAY_MS: Final = (0, 25) if IS_THOROUGH else (25,)
"""Milliseconds between the process that dies and the emulator, and as many back."""

# Dies before or after the nth call of a method of the archive, or when it is killed.
CHILD: Final = """
import os, signal, sys
from datetime import timedelta
from pathlib import Path
import anyio
from sbnotebook.model import Complete
from sbnotebook.settlement import Archive, AsyncNamespace, Connection, Journal

text, folder, work, method, moment, nth = sys.argv[1:]
calls = 0

def dying(function):
    def call(*args, **options):
        global calls
        mine = calls = calls + 1  # threads may call it at the same time
        if mine == int(nth) and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args, **options)
        if mine == int(nth) and moment == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return call

async def main():
    archive = Archive(Path(folder, "archive.sqlite"))
    if method:
        setattr(archive, method, dying(getattr(archive, method)))
    async with AsyncNamespace(Connection(text), journal=Journal(Path(folder, "child.sqlite")), archive=archive) as ns:
        queue = ns.entity("orders")
        if work == "undo":
            plan = await ns.undo(entity="orders")
            print("begun", flush=True)
            await plan.apply()
        else:
            async with queue.batch() as batch:
                while await batch.receive(500, max_wait=1):
                    print("begun", flush=True)
                    await batch.settle(Complete())  # in groups of 200, beside each other

anyio.run(main)
"""


@pytest.fixture(scope="module")
def emulator() -> Iterator[RunningEmulator]:
    with running() as server:
        yield server


@pytest.fixture
async def namespace(emulator: RunningEmulator, tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    emulator.reset()
    emulator.create_queue("orders")
    journal = Journal(tmp_path / "journal.sqlite")
    async with AsyncNamespace(Connection(emulator.connection_string), journal=journal) as namespace:
        messages = (Message(body=b"%d" % n, message_id=f"m{n}") for n in range(COUNT))
        assert (await namespace.entity("orders").send(messages)).ok
        yield namespace


def die(emulator: RunningEmulator, folder: Path, work: str, death: tuple[str, str, int], one_way_ms: int) -> None:
    """Let a process work until it dies: at the nth call of a method, or at random."""
    method, moment, number = death
    emulator.faults.network_delay_ms = one_way_ms
    command = ["-c", CHILD, emulator.connection_string, str(folder), work, method, moment, str(number)]
    with kills.python(*command) as child:
        if not method:
            assert child.stdout is not None
            child.stdout.readline()
            with suppress(subprocess.TimeoutExpired):
                child.wait(chance(work, number).uniform(0.001, 0.8))
            child.kill()
        child.wait(120)
    emulator.faults.network_delay_ms = 0
    assert child.returncode in (-signal.SIGKILL, *(() if method else (0,)))


AT_RANDOM: Final = [("", "", number) for number in range(CRASHES)]
"""They have fixed names, because processes that share the tests must collect the same ones."""
DEATHS_OF_UNDO: Final = [("claim", "after", 2), ("note", "after", 2), *AT_RANDOM]
DEATHS_OF_REMOVAL: Final = [("keep", "after", 2), ("note", "before", 2), *AT_RANDOM]


async def counted(namespace: AsyncNamespace, ledger: Ledger) -> None:
    """Hold each message against the queue and the archive: what the archive says of it is true, or it says unknown."""
    assert namespace.archive is not None
    there = [message.message_id or "" for message in await namespace.entity(QUEUE).peek()]
    known = {each.message_id or "": each.state for each in namespace.archive.find(namespace.identity())}
    removed = [name for name, state in known.items() if state is ArchiveState.REMOVED]
    doubtful = [
        name
        for name, state in known.items()
        if state in (ArchiveState.REMOVING, ArchiveState.RETURNING) and name not in there
    ]
    ledger.count({QUEUE: there, ARCHIVE: removed, UNKNOWN: doubtful})


@pytest.mark.parametrize("one_way_ms", ONE_WAY_MS)
@pytest.mark.parametrize("death", DEATHS_OF_UNDO, ids=str)
async def test_undo_killed_sends_nothing_twice_and_forgets_nothing(
    emulator: RunningEmulator, namespace: AsyncNamespace, tmp_path: Path, death: tuple[str, str, int], one_way_ms: int
) -> None:
    ledger = Ledger()
    async with namespace.entity(QUEUE).batch() as batch:
        while await batch.receive(500, max_wait=1):
            assert (await batch.settle(Complete())).ok
    for number in range(COUNT):
        ledger.enter(f"m{number}", place=ARCHIVE)
    await counted(namespace, ledger)
    die(emulator, tmp_path, "undo", death, one_way_ms)
    with suppress(DecisionError):  # nothing is left that is known
        assert (await (await namespace.undo(entity=QUEUE)).apply()).ok
    for place in (QUEUE, UNKNOWN):
        ledger.begin(ledger.entries, place)
    await counted(namespace, ledger)
    assert not ledger.at(ARCHIVE), "all that can be sent back is back"


@pytest.mark.parametrize("one_way_ms", ONE_WAY_MS)
@pytest.mark.parametrize("death", DEATHS_OF_REMOVAL, ids=str)
async def test_removal_killed_leaves_each_in_queue_or_archive(
    emulator: RunningEmulator, namespace: AsyncNamespace, tmp_path: Path, death: tuple[str, str, int], one_way_ms: int
) -> None:
    ledger = Ledger()
    for number in range(COUNT):
        ledger.enter(f"m{number}", place=QUEUE)
    die(emulator, tmp_path, "complete", death, one_way_ms)
    for place in (ARCHIVE, UNKNOWN):
        ledger.begin(ledger.entries, place)
    await counted(namespace, ledger)
