"""What the journal costs: a resubmit of 10,000 messages with it, and the same with one that writes nothing.

The archive is off in both. Both run in this process, one after the other on queues of their own, and the emulator in
another.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection, Iterable, Sequence
from itertools import count
from pathlib import Path
from statistics import median
from typing import Final

import anyio

from benchmarks.emulators import emulator
from benchmarks.results import Result, show
from sbnotebook.model import EntityAddress, Message, Resubmit
from sbnotebook.model.decision import AUTO
from sbnotebook.settlement import AsyncNamespace, Connection, Journal, ResubmitEntry
from sbnotebook.settlement.memory.journal import OriginalKey, ResubmitState
from sbnotebook.settlement.pace import transfers_in_flight

__all__ = ["measure"]

COUNT: Final = 10_000
ROUNDS: Final = 3
TARGET: Final = 0.6
A_SECOND: Final = 4_000
BODY: Final = b'{"order": 12345, "total": 99.5, "carrier": "UA"}' * 10


class NoJournal(Journal):
    """Writes nothing, and so remembers nothing."""

    def intend(self, entries: Sequence[ResubmitEntry]) -> list[int]:
        """Give numbers that stand for nothing."""
        return list(range(1, len(entries) + 1))

    def mark(self, ids: Iterable[int], state: ResubmitState) -> None:
        """Write nothing."""

    def find_begun(self, namespace: str, keys: Collection[OriginalKey]) -> dict[OriginalKey, ResubmitEntry]:
        """Know nothing."""
        del namespace, keys
        return {}


async def resubmit_all(connection_string: str, journal: Journal, name: str) -> float:
    """Return the seconds to resubmit all messages from one queue to another."""
    async with AsyncNamespace(Connection(connection_string), journal=journal, archive=None) as namespace:
        await namespace.create_queue(name)
        await namespace.create_queue(f"{name}-to")
        queue = namespace.entity(name)
        report = await queue.send(Message(body=BODY, message_id=f"{name}-{n}") for n in range(COUNT))
        report.raise_for_failures()
        chosen = await queue.peek()
        await namespace.pool(EntityAddress(f"{name}-to")).warm(transfers_in_flight(AUTO))
        started = time.perf_counter()
        report = await queue.plan_resubmit(chosen, Resubmit(to=EntityAddress(f"{name}-to"))).apply()
        elapsed = time.perf_counter() - started
        report.raise_for_failures()
    return elapsed


def measure() -> list[Result]:
    """Measure both, in turns."""
    with_journal: list[float] = []
    without: list[float] = []
    names = (f"bench-{number}" for number in count())
    with tempfile.TemporaryDirectory() as directory, emulator() as (connection_string, _):
        for number in range(ROUNDS):
            folder = Path(directory) / str(number)
            without.append(anyio.run(resubmit_all, connection_string, NoJournal(folder / "none"), next(names)))
            with_journal.append(anyio.run(resubmit_all, connection_string, Journal(folder / "journal"), next(names)))
    seconds, bare = median(with_journal), median(without)
    ratio = bare / seconds
    return [
        Result(
            f"resubmit {COUNT:,} with journal",
            f"{ratio:.2f} x the speed without ({seconds:.2f} s, without {bare:.2f} s; {COUNT / seconds:,.0f}/s)",
            f"{TARGET} x the same without a journal, and {A_SECOND:,}/s",
            ratio >= TARGET and COUNT / seconds >= A_SECOND,
        )
    ]


if __name__ == "__main__":
    show(measure())
