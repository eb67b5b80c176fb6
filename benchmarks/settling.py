"""Settling 5,000 messages when each confirmation takes 20 ms: against the limit that round trips set.

The emulator is a process of its own that keeps messages in memory, so that no disk adds to the delay. The limit for 20
in flight is 5,000 / 20 x 20 ms = 5 s.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Final

from benchmarks.emulators import QUEUE, Emulator, emulator
from benchmarks.results import Result
from sbnotebook.client import Entity, Namespace
from sbnotebook.client.targets import Target
from sbnotebook.model import Complete, Message
from sbnotebook.settlement import Connection

__all__ = ["measure"]

COUNT: Final = 5_000
IN_FLIGHT: Final = 20
ONE_BY_ONE: Final = 100
DELAY: Final = 0.02
ROUNDS: Final = 5
MOST: Final = 1.25


def measure() -> list[Result]:
    """Measure settling with many in flight, and one by one beside it."""
    with (
        emulator() as running,
        Namespace(Target(Connection(running.connection_string), ""), archive=False) as names,
    ):
        queue = names.entity(QUEUE)
        many = median(settled(running, queue, COUNT, IN_FLIGHT) for _ in range(ROUNDS))
        single = median(settled(running, queue, ONE_BY_ONE, 1) for _ in range(ROUNDS))
    limit, single_limit = COUNT / IN_FLIGHT * DELAY, ONE_BY_ONE * DELAY
    return [
        Result(
            f"complete {COUNT:,} messages, 20 ms to confirm each, {IN_FLIGHT} in flight",
            f"{many / limit:.2f} x the limit of {limit:.0f} s",
            f"at most {MOST} x",
            many <= MOST * limit,
        ),
        Result(
            f"complete {ONE_BY_ONE} messages one by one, 20 ms to confirm each",
            f"{single / single_limit:.2f} x the limit of {single_limit:.0f} s; "
            f"{single / ONE_BY_ONE * COUNT:.0f} s for {COUNT:,} at this pace",
        ),
    ]


def settled(running: Emulator, queue: Entity, count: int, in_flight: int) -> float:
    """Return the seconds to complete messages that are locked already."""
    running.set_faults(settle_delay_ms=0)
    queue.send((Message(body=b"x" * 200) for _ in range(count)), show_progress=False).raise_for_failures()
    with queue.lock(count) as batch:
        running.set_faults(settle_delay_ms=round(DELAY * 1000))
        plan = batch.plan(Complete())
        started = time.perf_counter()
        report = plan.apply(max_in_flight=in_flight, show_progress=False)
        elapsed = time.perf_counter() - started
        running.set_faults(settle_delay_ms=0)
    report.raise_for_failures()
    if len(report) != count:
        raise RuntimeError(f"Only {len(report)} of {count} messages were locked.")
    return elapsed
