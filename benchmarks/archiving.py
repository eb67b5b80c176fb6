"""What the archive costs: completing messages with it and without it, by turns, each confirmation taking 20 ms.

The archive is written to the disk before each part of the messages is completed, and again when that is confirmed.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.emulators import QUEUE, emulator
from benchmarks.results import Result
from benchmarks.settling import COUNT, DELAY, IN_FLIGHT, MOST, settled
from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.settlement import Archive, Connection

__all__ = ["measure"]

ROUNDS: Final = 5


def measure() -> list[Result]:
    """Ratio of the two, and that with the archive to the limit."""
    off: list[float] = []
    on: list[float] = []
    with emulator() as running, TemporaryDirectory() as folder:
        target = Target(Connection(running.connection_string), "")
        with (
            Namespace(target, archive=False) as without,
            Namespace(target, archive=Archive(Path(folder, "archive.sqlite"))) as archived,
        ):
            for _ in range(ROUNDS):
                off.append(settled(running, without.entity(QUEUE), COUNT, IN_FLIGHT))
                on.append(settled(running, archived.entity(QUEUE), COUNT, IN_FLIGHT))
    ratio = median(each / other for each, other in zip(on, off, strict=True))
    limit = COUNT / IN_FLIGHT * DELAY
    return [
        Result(
            f"complete {COUNT:,} messages with the archive, to the same without it; 20 ms to confirm each",
            f"{ratio:.2f} ({median(on):.2f} s to {median(off):.2f} s)",
        ),
        Result(
            f"the same with the archive, {IN_FLIGHT} in flight",
            f"{median(on) / limit:.2f} x the limit of {limit:.0f} s",
            f"at most {MOST} x",
            median(on) <= MOST * limit,
        ),
    ]
