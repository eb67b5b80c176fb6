"""Memory of actions: it grows by the outcome of each message, and not by the messages that pass through.

``SBNOTEBOOK_MESSAGES`` in the environment asks for more messages than the few of each test run.
"""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from benchmarks.emulators import emulator
from sbnotebook.model import Complete, Message, Report
from sbnotebook.settlement import Archive, AsyncEntity, AsyncNamespace, Connection, Journal
from sbnotebook.settlement.actions.undo import UndoRequest, plan_undo
from sbnotebook.settlement.engine import BESIDE, GROUP, Run

COUNT: Final = int(os.environ.get("SBNOTEBOOK_MESSAGES", "1200"))
IS_SHORT: Final = "SBNOTEBOOK_MESSAGES" not in os.environ
BODY: Final = 6_000
FEW: Final = 600 if IS_SHORT else 6_000
"""More than pass through at once: a consumer holds up to about 3,200."""
AT_ONCE: Final = 8 * BESIDE * GROUP
"""The number of messages that a run may hold at once."""
EACH: Final = 2_000
"""Bytes that a message may take when it has passed: its outcome, and what is known of it by number."""


@pytest.fixture(scope="module")
def connection_string() -> Generator[str]:
    with emulator() as running:  # in a process of its own: its memory does not count
        yield running.connection_string


Act: TypeAlias = Callable[[], Awaitable[Report]]
Job: TypeAlias = Callable[[AsyncEntity], Awaitable[Act]]


async def filled(namespace: AsyncNamespace, name: str, count: int) -> AsyncEntity:
    await namespace.create_queue(name)
    queue = namespace.entity(name)
    (await queue.send(Message(body=os.urandom(BODY)) for _ in range(count))).raise_for_failures()
    return queue


async def purge(queue: AsyncEntity) -> Act:
    return (await queue.purge()).apply


async def defer_all(queue: AsyncEntity) -> Act:
    return (await queue.defer_all()).apply


async def complete_deferred(queue: AsyncEntity) -> Act:
    (await (await queue.defer_all()).apply()).raise_for_failures()
    return queue.plan_deferred(await queue.peek(), Complete()).apply


async def send(queue: AsyncEntity) -> Act:
    count = len(await queue.peek())
    return lambda: queue.send(Message(body=os.urandom(BODY)) for _ in range(count))


async def resubmit(queue: AsyncEntity) -> Act:
    return queue.plan_resubmit(await queue.peek()).apply


async def pick(queue: AsyncEntity) -> Act:
    return (await queue.pick(await queue.peek(), Complete())).apply


async def undo(queue: AsyncEntity) -> Act:
    removed = await (await queue.purge()).apply()
    return (await plan_undo(queue.namespace, UndoRequest(removed))).apply


async def process(queue: AsyncEntity) -> Act:
    return lambda: queue.process(lambda _: None)


JOBS: Final = [purge, defer_all, complete_deferred, send, resubmit, pick, undo, process]


def at_most(most: int) -> Callable[[Run, int], int]:
    return lambda _, size: min(size, most)


@pytest.mark.anyio
@pytest.mark.parametrize("make", [purge] if IS_SHORT else JOBS)
async def test_memory_does_not_grow_with_messages(
    connection_string: str,
    make: Job,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if IS_SHORT:  # fewer messages pass through at once, so that fewer are enough
        monkeypatch.setattr(Run, "group_size", at_most(30))
        monkeypatch.setattr("sbnotebook.settlement.actions.reach._WINDOW", 100)
    grown: list[int] = []
    for count in (FEW, COUNT):
        folder = tmp_path / str(count)
        folder.mkdir()
        journal, archive = Journal(folder / "journal.sqlite"), Archive(folder / "archive.sqlite")
        async with AsyncNamespace(Connection(connection_string), journal=journal, archive=archive) as namespace:
            act = await make(await filled(namespace, f"{make.__name__}-{count}", count))
            gc.collect()
            tracemalloc.start()
            try:
                report = await act()
                _, most = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert report.settled == count, report.failures[:3]
            grown.append(most)
    few, many = grown
    assert few < AT_ONCE * (BODY + EACH)
    assert many < few + (COUNT - FEW) * EACH
