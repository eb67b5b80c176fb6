"""Memory of actions: it grows by the outcome of each message, and not by the messages that pass through.

``SBNOTEBOOK_MESSAGES`` in the environment asks for more messages than the few of each test run, and for all jobs.
"""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import Awaitable, Callable, Generator, Iterator, Sized
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from benchmarks.emulators import emulator
from sbnotebook.model import Complete, DeadLetter, Message, MessageState, Report, Send
from sbnotebook.settlement import AsyncEntity, Connection
from sbnotebook.settlement.actions.undo import plan_undo
from sbnotebook.settlement.engine import Run
from tests.filled_queues import filled_queue
from tests.settlement.deferrals import deferrals_of
from tests.settlement.namespaces import namespace_of

COUNT: Final = int(os.environ.get("SBNOTEBOOK_MESSAGES", "1200"))
IS_SHORT: Final = "SBNOTEBOOK_MESSAGES" not in os.environ
BODY: Final = 6_000 if IS_SHORT else 3_000
"""Bytes: the queue of a send holds each message twice, and 1 GB."""
FEW: Final = 600 if IS_SHORT else 6_000
"""More than pass through at once: a consumer holds up to about 3,500, each as bytes and as a message."""
EACH: Final = 1_000
"""Bytes that a message may leave: its outcome, its place in the plan, and how its lock ended."""
FOUND: Final = BODY + 1_800
"""Bytes of a message that is the result itself."""


@pytest.fixture(scope="module")
def connection_string() -> Generator[str]:
    with emulator() as running:  # in a process of its own: its memory does not count
        yield running.connection_string


Act: TypeAlias = Callable[[], Awaitable[Sized]]
Job: TypeAlias = Callable[[AsyncEntity, int], Awaitable[Act]]


def messages(count: int) -> Iterator[Message]:
    return (Message(body=os.urandom(BODY)) for _ in range(count))


async def purge(queue: AsyncEntity, _: int) -> Act:
    return (await queue.purge()).apply


async def defer_all(queue: AsyncEntity, _: int) -> Act:
    return (await queue.defer_all()).apply


async def list_deferred(queue: AsyncEntity, _: int) -> Act:
    (await (await queue.defer_all()).apply()).raise_for_failures()

    async def act() -> Sized:
        return (await deferrals_of(queue)).messages

    return act


async def complete_deferred(queue: AsyncEntity, _: int) -> Act:
    (await (await queue.defer_all()).apply()).raise_for_failures()
    return queue.plan_deferred(await queue.peek(), Complete()).apply


async def cancel_scheduled(queue: AsyncEntity, count: int) -> Act:
    (await queue.send(messages(count), Send(delay=timedelta(days=1)))).raise_for_failures()
    return queue.plan_cancel_scheduled(await queue.peek(state=MessageState.SCHEDULED)).apply


async def send(queue: AsyncEntity, count: int) -> Act:
    return lambda: queue.send(messages(count))


async def peek(queue: AsyncEntity, _: int) -> Act:
    async def act() -> Sized:
        return range(sum([len(page) async for page in queue.peeker.pages()]))

    return act


async def lock_and_dead_letter(queue: AsyncEntity, count: int) -> Act:
    async def act() -> Sized:
        report = Report()
        async with queue.batch() as batch:
            while len(report) < count:
                report += await batch.settle(DeadLetter("bench"), await batch.receive(1_000))
        return report

    return act


async def resubmit(queue: AsyncEntity, _: int) -> Act:
    return queue.plan_resubmit(await queue.peek()).apply


async def pick(queue: AsyncEntity, _: int) -> Act:
    return (await queue.pick(await queue.peek(), Complete())).apply


async def undo(queue: AsyncEntity, _: int) -> Act:
    removed = await (await queue.purge()).apply()
    return (await plan_undo(queue.namespace, removed)).apply


async def process(queue: AsyncEntity, _: int) -> Act:
    return lambda: queue.process(lambda _: None)


LEAVES: Final[dict[Job, int]] = {
    send: 400,  # transfers in progress hold up to 32 MiB, and its report keeps outcomes compressed
    peek: 50,
    lock_and_dead_letter: EACH,
    resubmit: EACH,
    pick: EACH,
    purge: EACH,
    undo: EACH,
    defer_all: EACH,
    list_deferred: FOUND,
    complete_deferred: EACH,
    cancel_scheduled: EACH,
    process: EACH,
}
"""Bytes that each message may leave, by job."""


async def most_bytes(connection_string: str, make: Job, count: int, folder: Path) -> int:
    """Return how many bytes a job takes at most."""
    async with namespace_of(Connection(connection_string), folder) as namespace:
        queue = await filled_queue(namespace, f"{make.__name__}-{count}", 0)
        (await queue.send(messages(count))).raise_for_failures()
        act = await make(queue, count)
        gc.collect()
        gc.freeze()  # so that no collection looks at the plan again and again
        tracemalloc.start()
        try:
            done = await act()
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.unfreeze()
    if isinstance(done, Report):
        done.raise_for_failures()
    assert len(done) == count
    return most


def at_most(most: int) -> Callable[[Run, int], int]:
    return lambda _, size: min(size, most)


@pytest.mark.anyio
@pytest.mark.parametrize("make", [purge] if IS_SHORT else LEAVES)
async def test_memory_does_not_grow_with_messages(
    connection_string: str,
    make: Job,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if IS_SHORT:  # fewer messages pass through at once, so that fewer are enough
        monkeypatch.setattr(Run, "group_size", at_most(30))
        monkeypatch.setattr("sbnotebook.settlement.locking.ahead._WITH_BODY", 100)
    few, many = [await most_bytes(connection_string, make, count, tmp_path) for count in (FEW, COUNT)]
    # Of so few, those in flight at the peak weigh as much as all outcomes. Kept bodies would weigh twice this limit.
    each = BODY // 2 if IS_SHORT else LEAVES[make]
    assert many < few + (COUNT - FEW) * each
