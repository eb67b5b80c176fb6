"""Settling 5,000 messages when each confirmation takes 20 ms: against the limit that round trips set.

The emulator is a process of its own that keeps messages in memory, so that no disk adds to the delay. The limit for 20
in flight is 5,000 / 20 x 20 ms = 5 s.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from statistics import median
from typing import Final
from urllib.request import Request, urlopen

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
        emulator() as connection_string,
        Namespace(Target(Connection(connection_string), ""), archive=False) as names,
    ):
        queue = names.entity("bench")
        many = median(settled(connection_string, queue, COUNT, IN_FLIGHT) for _ in range(ROUNDS))
        single = median(settled(connection_string, queue, ONE_BY_ONE, 1) for _ in range(ROUNDS))
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


@contextmanager
def emulator() -> Generator[str]:
    """The emulator; its connection string."""
    command = [sys.executable, "-m", "sbnotebook.emulator", "--port", "0", "--queue", "bench", "--in-memory"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip() if process.stdout else ""
        finally:
            process.kill()


def settled(connection_string: str, queue: Entity, count: int, in_flight: int) -> float:
    """Seconds to complete messages that are locked already."""
    delay_settlements(connection_string, 0)
    queue.send((Message(body=b"x" * 200) for _ in range(count)), show_progress=False).raise_for_failures()
    with queue.lock(count) as batch:
        delay_settlements(connection_string, round(DELAY * 1000))
        plan = batch.plan(Complete())
        started = time.perf_counter()
        report = plan.apply(max_in_flight=in_flight, show_progress=False)
        elapsed = time.perf_counter() - started
        delay_settlements(connection_string, 0)
    report.raise_for_failures()
    if len(report) != count:
        raise RuntimeError(f"Only {len(report)} of {count} messages were locked.")
    return elapsed


def delay_settlements(connection_string: str, milliseconds: int) -> None:
    """Let each confirmation of a settlement take a while."""
    host = connection_string.split("//")[1].partition(";")[0].strip("/")
    body = f'{{"settle_delay_ms": {milliseconds}}}'.encode()
    request = Request(f"http://{host}/faults", body, {"Content-Type": "application/json"})
    urlopen(request).close()  # noqa: S310 (this machine)
