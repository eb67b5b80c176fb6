"""What a ramp adds to a resubmit: its batches are sent and watched before the others follow.

A consumer completes the clones at once. The time from the last outcome of a batch to the last look at its clones is its
wait.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import anyio

from benchmarks.emulators import emulator
from benchmarks.results import Result, show
from sbnotebook.model import Complete, EntityAddress, Message, Resubmit
from sbnotebook.settlement import AsyncNamespace, Connection, Journal, Limits, Ramp, RampStep

__all__ = ["measure"]

COUNT: Final = 5_000
BATCHES: Final = (1, 5, 20, 100)
BODY: Final = b'{"order": 12345, "total": 99.5, "carrier": "UA"}' * 10


class Waits:
    """The seconds between the last outcome of each batch and the last look at its clones."""

    def __init__(self) -> None:
        self._confirmed = 0.0
        self._batches: dict[int, tuple[float, float]] = {}

    def progress(self, _count: int) -> None:
        """Note that messages were settled."""
        self._confirmed = time.perf_counter()

    def seen(self, steps: Sequence[RampStep]) -> None:
        """Note a look at the clones of the last batch."""
        began, _ = self._batches.get(len(steps), (self._confirmed, 0.0))
        self._batches[len(steps)] = began, time.perf_counter()

    @property
    def total(self) -> float:
        """Return their sum."""
        return sum(last - began for began, last in self._batches.values())


async def resubmit(connection_string: str, folder: Path, name: str, batches: tuple[int, ...]) -> tuple[float, float]:
    """Return the seconds of a resubmit to another queue, whose consumer is at work, and those that it waited."""
    waits, elapsed = Waits(), 0.0
    async with AsyncNamespace(Connection(connection_string), journal=Journal(folder / name), archive=None) as namespace:
        await namespace.create_queue(name)
        await namespace.create_queue(f"{name}-to")
        queue = namespace.entity(name)
        (await queue.send(Message(body=BODY, message_id=f"{name}-{n}") for n in range(COUNT))).raise_for_failures()
        plan = queue.plan_resubmit(await queue.peek(), Resubmit(to=EntityAddress(f"{name}-to")))
        async with anyio.create_task_group() as consuming:
            consuming.start_soon(consume, namespace, f"{name}-to")
            started = time.perf_counter()
            if batches:
                ramp = Ramp(batches, timedelta(minutes=1))
                report = await plan.apply(Limits(ramp=ramp, seen=waits.seen), waits.progress)
            else:
                report = await plan.apply(progress=waits.progress)
            elapsed = time.perf_counter() - started
            report.raise_for_failures()
            consuming.cancel_scope.cancel()
    return elapsed, waits.total


async def consume(namespace: AsyncNamespace, name: str) -> None:
    """Complete all messages of a queue that arrive."""
    async with namespace.entity(name).batch(archived=False) as batch:
        while True:
            if await batch.receive(500, max_wait=1):
                await batch.settle(Complete())


def measure() -> list[Result]:
    """Measure a resubmit without a ramp, and with one."""
    with tempfile.TemporaryDirectory() as folder, emulator() as (connection_string, _):
        plain, _ = anyio.run(resubmit, connection_string, Path(folder), "bench-plain", ())
        whole, waited = anyio.run(resubmit, connection_string, Path(folder), "bench-ramp", BATCHES)
    return [
        Result(
            f"a ramp of {len(BATCHES)} batches in a resubmit of {COUNT:,} messages",
            f"adds {whole - plain:.2f} s, of which it waits {waited:.2f} s ({whole:.2f} s, without {plain:.2f} s)",
            "at most 1.05 x its waits",
            whole - plain <= 1.05 * waited,
        )
    ]


if __name__ == "__main__":
    show(measure())
