"""Consuming with a function: against locking and completing without one, and against the limit that a slow one sets.

The emulator is a process of its own. Connections are opened and closed within the time that is measured, each time. The
plain SDK's loop receives up to 500 and completes one after the other, as its samples do, and calls no function.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from azure.servicebus.aio import ServiceBusClient

from benchmarks.emulators import QUEUE, Emulator, emulator
from benchmarks.results import Result
from sbnotebook.client import Entity, Namespace
from sbnotebook.client.targets import Target
from sbnotebook.model import Complete, LockedMessage, Message
from sbnotebook.settlement import Connection

__all__ = ["measure"]

COUNT: Final = 10_000
SLOW_COUNT: Final = 2_000
WINDOW: Final = 500
AT_ONCE: Final = 20
EACH: Final = 0.05
ROUNDS: Final = 3
LEAST: Final = 0.6
A_SECOND: Final = 6_000
LEAST_OF_SDK: Final = 1.5
MOST: Final = 1.25


def measure() -> list[Result]:
    """Measure consuming with a function that does nothing, and with one that takes 50 ms."""
    with (
        TemporaryDirectory() as directory,
        emulator(Path(directory)) as running,
        Namespace(Target(Connection(running.connection_string), ""), archive=False) as names,
    ):
        queue = names.entity(QUEUE)
        plain = median(seconds(queue, COUNT, lambda: complete_by_sdk(running)) for _ in range(ROUNDS))
        bare = median(seconds(queue, COUNT, lambda: complete_all(queue)) for _ in range(ROUNDS))
        quick = median(seconds(queue, COUNT, lambda: process(queue, COUNT, 1)) for _ in range(ROUNDS))
        many = median(seconds(queue, COUNT, lambda: process(queue, COUNT, AT_ONCE)) for _ in range(ROUNDS))
        seen = seconds(queue, COUNT, lambda: process(queue, COUNT, 1, seen=True))
        slow = median(
            seconds(queue, SLOW_COUNT, lambda: process(queue, SLOW_COUNT, AT_ONCE, wait)) for _ in range(ROUNDS)
        )
    limit = SLOW_COUNT / AT_ONCE * EACH
    return [
        Result(
            f"process {COUNT:,} messages with a function that does nothing",
            f"{bare / quick:.2f} x locking and completing {WINDOW} at a time without one ({COUNT / quick:,.0f}/s); "
            f"{AT_ONCE} at once {bare / many:.2f} x, with `seen` {bare / seen:.2f} x",
            f"at least {LEAST} x",
            bare / quick >= LEAST,
        ),
        Result(
            "the same against the plain SDK's loop",
            f"{plain / quick:.2f} x receiving up to {WINDOW} and completing each "
            f"({COUNT / quick:,.0f} against {COUNT / plain:,.0f} a second)",
            f"at least {LEAST_OF_SDK} x, and {A_SECOND:,}/s",
            plain / quick >= LEAST_OF_SDK and COUNT / quick >= A_SECOND,
        ),
        Result(
            f"process {SLOW_COUNT:,} messages with a function of {EACH * 1000:.0f} ms, {AT_ONCE} at once",
            f"{slow / limit:.2f} x the limit of {limit:.0f} s",
            f"at most {MOST} x, and 2 s to open and close",
            slow <= MOST * limit + 2,
        ),
    ]


def seconds(queue: Entity, count: int, consume: Callable[[], None]) -> float:
    """Return the seconds to consume so many messages."""
    queue.send((Message(body=b"x" * 200) for _ in range(count)), show_progress=False).raise_for_failures()
    started = time.perf_counter()
    consume()
    return time.perf_counter() - started


def complete_by_sdk(running: Emulator) -> None:
    """Lock and complete with the plain SDK."""

    async def complete() -> None:
        left = COUNT
        async with (
            ServiceBusClient.from_connection_string(running.connection_string) as client,
            client.get_queue_receiver(QUEUE) as receiver,
        ):
            while left:
                for message in await receiver.receive_messages(min(WINDOW, left), max_wait_time=5):
                    await receiver.complete_message(message)
                    left -= 1

    asyncio.run(complete())


def complete_all(queue: Entity) -> None:
    """Lock and complete without a function."""
    left = COUNT
    with queue.lock(0) as batch:
        while left:
            report = batch.plan(Complete(), batch.receive(min(WINDOW, left))).apply(
                max_in_flight=50, show_progress=False
            )
            report.raise_for_failures()
            left -= len(report)


def process(
    queue: Entity,
    count: int,
    at_once: int,
    function: Callable[[LockedMessage], None] | None = None,
    *,
    seen: bool = False,
) -> None:
    """Consume with a function."""
    report = queue.process(
        function or do_nothing, max_in_flight=at_once, max_messages=count, seen=seen, show_progress=False
    )
    report.raise_for_failures()
    if len(report) != count:
        raise RuntimeError(f"Only {len(report)} of {count} messages were processed.")


def do_nothing(_message: LockedMessage) -> None:
    """Do nothing, as the quickest function."""


def wait(_message: LockedMessage) -> None:
    """Wait, as a function that calls another service."""
    time.sleep(EACH)
