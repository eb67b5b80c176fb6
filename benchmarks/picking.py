"""Picking 10 messages of 10,000: at most 1.5 times what the plain SDK takes to receive the same range.

Both open their connection, lock the same 10,000 messages of a fresh copy of the queue, and close. A pick also keeps the
locks, settles the chosen messages, and releases the 9,990 others with a confirmation for each. The benchmark then
compares their delivery counts. The emulator runs in its own process.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from azure.servicebus.aio import ServiceBusClient

from benchmarks.emulators import emulator
from benchmarks.results import Result
from sbnotebook.model import Complete, Message
from sbnotebook.settlement import AsyncEntity, AsyncNamespace, Connection, Journal

__all__ = ["measure"]

_COUNT = 10_000
_CHOSEN = 10
_SIZE = 1_000
_AT_ONCE = 1_000
_ROUNDS = 5
_MOST = 1.5


class _Round(NamedTuple):
    """Seconds of one round, and how many delivery counts of others have changed."""

    bare: float
    pick: float
    look: float
    changed: int


def measure() -> list[Result]:
    """Ratio, times and counts."""
    with emulator() as running, TemporaryDirectory() as directory:
        rounds = asyncio.run(_rounds(running.connection_string, Path(directory)))
    ratio = median(each.pick / each.bare for each in rounds)
    bare, pick, look = (median(times) for times in zip(*(each[:3] for each in rounds), strict=True))
    changed = sum(each.changed for each in rounds)
    return [
        Result(
            f"pick {_CHOSEN} of {_COUNT:,} messages of {_SIZE:,} bytes, to a receive of the same range by the SDK",
            f"{ratio:.2f} ({pick:.1f} s to {bare:.1f} s; the peek of its preview before that {look:.1f} s)",
            f"at most {_MOST}",
            ratio <= _MOST,
        ),
        Result(
            f"delivery counts of others that such a pick changed, {_ROUNDS} times {_COUNT - _CHOSEN:,} messages",
            str(changed),
            "0",
            changed == 0,
        ),
    ]


async def _rounds(connection_string: str, directory: Path) -> list[_Round]:
    journal = Journal(directory / "journal.sqlite")
    async with AsyncNamespace(Connection(connection_string), journal=journal) as namespace:
        return [await _round(namespace, connection_string, number) for number in range(_ROUNDS)]


async def _round(namespace: AsyncNamespace, connection_string: str, number: int) -> _Round:
    await _filled(namespace, f"bare-{number}")
    picked = await _filled(namespace, f"picked-{number}")
    numbers = [message.sequence_number for message in await picked.peek()]
    chosen = numbers[_COUNT // _CHOSEN - 1 :: _COUNT // _CHOSEN]

    began = time.perf_counter()
    await _receive_all(connection_string, f"bare-{number}")
    received = time.perf_counter()
    plan = await picked.pick(chosen, Complete())
    looked = time.perf_counter()
    report = await plan.apply()
    ended = time.perf_counter()
    report.raise_for_failures()
    left = await picked.peek()
    changed = sum(message.delivery_count > 0 for message in left) + abs(_COUNT - _CHOSEN - len(left))
    for name in (f"bare-{number}", f"picked-{number}"):
        await namespace.delete_queue(name)
    return _Round(received - began, ended - looked, looked - received, changed)


async def _filled(namespace: AsyncNamespace, name: str) -> AsyncEntity:
    await namespace.create_queue(name)
    queue = namespace.entity(name)
    report = await queue.send((Message(body=b"x" * _SIZE) for _ in range(_COUNT)), batch_size=500)
    report.raise_for_failures()
    return queue


async def _receive_all(connection_string: str, name: str) -> None:
    async with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_receiver(name) as receiver,
    ):
        locked = 0
        while locked < _COUNT:
            locked += len(await receiver.receive_messages(min(_AT_ONCE, _COUNT - locked), max_wait_time=5))
