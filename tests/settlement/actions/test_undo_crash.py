"""A process that removes messages, or sends them back, is killed, and every message is counted afterwards.

``SBNOTEBOOK_CRASHES`` says how often at random (once unless said).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.errors import DecisionError
from sbnotebook.model import Complete, Message
from sbnotebook.settlement import AsyncNamespace, Connection, Journal
from sbnotebook.settlement.memory.archive import ArchiveState

pytestmark = pytest.mark.anyio

CRASHES: Final = int(os.environ.get("SBNOTEBOOK_CRASHES", "2"))
COUNT: Final = 600
"""More than an undo sends at once."""
ONE_WAY_MS: Final = (0, 25) if "SBNOTEBOOK_CRASHES" in os.environ else (25,)
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
    command = [sys.executable, "-c", CHILD, emulator.connection_string, str(folder), work, method, moment, str(number)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        if not method:
            assert child.stdout is not None
            child.stdout.readline()
            try:
                child.wait(random.uniform(0.001, 0.8))  # noqa: S311 (no secret)
            except subprocess.TimeoutExpired:
                child.kill()
        child.wait(120)
    emulator.faults.network_delay_ms = 0
    assert child.returncode in (-signal.SIGKILL, *(() if method else (0,)))


AT_RANDOM: Final = [("", "", number) for number in range(CRASHES)]
"""They have fixed names, because processes that share the tests must collect the same ones."""
DEATHS_OF_UNDO: Final = [("claim", "after", 2), ("note_returns", "after", 2), *AT_RANDOM]
DEATHS_OF_REMOVAL: Final = [("keep", "after", 2), ("note_ends", "before", 2), *AT_RANDOM]


def states(namespace: AsyncNamespace) -> dict[str | None, ArchiveState]:
    assert namespace.archive is not None
    return {each.message_id: each.state for each in namespace.archive.find(namespace.identity())}


@pytest.mark.parametrize("one_way_ms", ONE_WAY_MS)
@pytest.mark.parametrize("death", DEATHS_OF_UNDO, ids=str)
async def test_undo_killed_sends_nothing_twice_and_forgets_nothing(
    emulator: RunningEmulator, namespace: AsyncNamespace, tmp_path: Path, death: tuple[str, str, int], one_way_ms: int
) -> None:
    queue = namespace.entity("orders")
    async with queue.batch() as batch:
        while await batch.receive(500, max_wait=1):
            assert (await batch.settle(Complete())).ok
    die(emulator, tmp_path, "undo", death, one_way_ms)
    try:
        assert (await (await namespace.undo(entity="orders")).apply()).ok
    except DecisionError:  # nothing is left that is known
        assert ArchiveState.REMOVED not in states(namespace).values()
    there = Counter(message.message_id for message in await queue.peek())
    known = states(namespace)
    assert len(known) == COUNT
    assert set(there.values()) <= {1}, "nothing is there twice"
    for message_id, state in known.items():
        if state is ArchiveState.RETURNED:
            assert there[message_id] == 1
        else:
            assert state is ArchiveState.RETURNING, "what is not known is said to be unknown"


@pytest.mark.parametrize("one_way_ms", ONE_WAY_MS)
@pytest.mark.parametrize("death", DEATHS_OF_REMOVAL, ids=str)
async def test_removal_killed_leaves_each_in_queue_or_archive(
    emulator: RunningEmulator, namespace: AsyncNamespace, tmp_path: Path, death: tuple[str, str, int], one_way_ms: int
) -> None:
    die(emulator, tmp_path, "complete", death, one_way_ms)
    there = {message.message_id for message in await namespace.entity("orders").peek()}
    known = states(namespace)
    assert there | known.keys() == {f"m{n}" for n in range(COUNT)}
    assert not [each for each in there if known.get(each) is ArchiveState.REMOVED], "what is there is not removed"
    assert {known[each] for each in known.keys() - there} <= {ArchiveState.REMOVED, ArchiveState.REMOVING}
