"""Purging a large queue without an archive: by Service Bus itself, and message by message, in the same run.

Message by message is a purge up to a sequence number, which Service Bus cannot do itself. The emulator runs in another
process, with the tier Standard: a request removes at most 500 messages.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Final

import anyio

from benchmarks.emulators import Emulator, emulator
from benchmarks.results import Result, show
from sbnotebook.model import Message
from sbnotebook.settlement import AsyncNamespace, Connection, Journal

__all__ = ["measure"]

COUNT: Final = int(os.environ.get("SBNOTEBOOK_MESSAGES", "10000"))
TARGET: Final = 0.05
BODY: Final = b'{"order": 12345, "total": 99.5, "carrier": "UA"}' * 10
DELAYS: Final = (0, 50)
"""Milliseconds of a round trip."""


async def purge(running: Emulator, folder: Path, delay: int, itself: bool) -> tuple[float, float]:
    """Fill a queue and purge it, and return the seconds to make the plan and to apply it."""
    name = f"bench-{itself}"
    async with AsyncNamespace(Connection(running.connection_string), journal=Journal(folder / "journal")) as namespace:
        await namespace.create_queue(name)
        queue = namespace.entity(name)
        (await queue.send(Message(body=BODY) for _ in range(COUNT))).raise_for_failures()
        running.set_faults(network_delay_ms=delay // 2)
        started = time.perf_counter()
        plan = await queue.purge(archived=False, to_sequence_number=None if itself else 1 << 62)
        planned = time.perf_counter()
        report = await plan.apply()
        ended = time.perf_counter()
        report.raise_for_failures()
        running.set_faults(network_delay_ms=0)
        await namespace.delete_queue(name)
    return planned - started, ended - planned


def measure() -> list[Result]:
    """Measure both ways at each distance."""
    return [_compared(delay) for delay in DELAYS]


def _compared(delay: int) -> Result:
    with tempfile.TemporaryDirectory() as folder, emulator(tier="standard") as running:
        by_one = anyio.run(purge, running, Path(folder), delay, False)
        by_service = anyio.run(purge, running, Path(folder), delay, True)
    share = sum(by_service) / sum(by_one)
    seconds = [f"{plan:.2f} + {apply:.2f} s" for plan, apply in (by_service, by_one)]
    return Result(
        f"purge of {COUNT:,} messages without an archive by Service Bus itself, round trip {delay} ms, plan + apply",
        f"{share:.3f} x one by one ({seconds[0]}, not {seconds[1]})",
        f"≤ {TARGET} x",
        share <= TARGET,
    )


if __name__ == "__main__":
    show(measure())
