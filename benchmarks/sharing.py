"""A Standard namespace does 1,000 operations a second: what one notebook sends, and then each of two.

The emulator refuses the transfers after them as busy, and is 50 ms away in each direction. The second notebook begins
later. Messages have 1 kB, and a transfer of the tier Standard holds 256 kB. Both are threads of one process, in which
the refusals are counted.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final
from unittest.mock import patch

import anyio

from benchmarks.emulators import QUEUE, emulator
from benchmarks.results import Result
from sbnotebook.model import Message
from sbnotebook.settlement import AsyncNamespace, Connection
from sbnotebook.settlement.pace import Limiter

__all__ = ["measure"]

ALLOWED: Final = 1_000
DELAY_MS: Final = 50
CALMS: Final = 5.0
"""Seconds after which few operations may be refused."""
ALONE: Final = 30.0
"""Seconds after the first notebook that the second one begins."""
FINDS: Final = 10.0
"""Seconds that the second notebook has to find its share."""
_TOGETHER: Final = 20
"""Messages of a transfer, once Service Bus was busy."""
SECONDS: Final = 30.0
"""That both send beside each other then."""


def measure() -> list[Result]:
    """Return the rate of one, and the rate of both with the share of the second, after the time to find it."""
    with emulator(tier="standard") as running:
        running.set_faults(network_delay_ms=DELAY_MS, operations_per_second=ALLOWED)
        begin = time.monotonic()
        shared = begin + ALONE + FINDS
        ends = shared + SECONDS
        with _refusals() as refused, ThreadPoolExecutor(2) as notebooks:
            first = notebooks.submit(_sent, running.connection_string, begin, ends)
            second = notebooks.submit(_sent, running.connection_string, begin + ALONE, ends)
            done = [first.result(), second.result()]
    calm = begin + CALMS, begin + ALONE
    alone, lost = _rate(done[0], *calm), _rate(refused, *calm)
    part = lost / (lost + alone)
    shares = [_rate(each, shared, ends) for each in done]
    both, lost_by_both = sum(shares), _rate(refused, shared, ends)
    network = f"{ALLOWED:,} operations/s are allowed, round trips take {2 * DELAY_MS} ms"
    return [
        Result(
            f"a notebook sends; {network}",
            f"{alone:.0f}/s; {part:.1%} refused after the first {CALMS:g} s",
            "900/s; less than 2 % refused",
            alone >= 0.9 * ALLOWED and part < 0.02,
        ),
        Result(
            f"two notebooks send at once, {FINDS:g} s after the second one began; {network}",
            f"{both:.0f}/s, of which the second one {shares[1] / both:.0%}; "
            f"{lost_by_both / (lost_by_both + both):.1%} refused",
            "900/s; 40 % to 60 %",
            both >= 0.9 * ALLOWED and 0.4 <= shares[1] / both <= 0.6,
        ),
    ]


def _sent(connection_string: str, begin: float, end: float) -> list[tuple[float, int]]:
    """Send between two times; when how many messages were confirmed."""
    done: list[tuple[float, int]] = []

    async def send() -> None:
        async with AsyncNamespace(Connection(connection_string)) as namespace:
            while time.monotonic() < end:
                messages = [Message(body=bytes(1_000)) for _ in range(5 * ALLOWED)]
                await namespace.entity(QUEUE).send(
                    messages, progress=lambda count: done.append((time.monotonic(), count))
                )

    time.sleep(max(begin - time.monotonic(), 0))
    anyio.run(send)
    return done


@contextmanager
def _refusals() -> Generator[list[tuple[float, int]]]:
    """Collect when how many messages were refused."""
    refused: list[tuple[float, int]] = []
    learn = Limiter.refused

    def count(limiter: Limiter) -> None:
        refused.append((time.monotonic(), _TOGETHER))
        learn(limiter)

    with patch.object(Limiter, "refused", count):
        yield refused


def _rate(done: list[tuple[float, int]], begin: float, end: float) -> float:
    return sum(count for at, count in done if begin <= at < end) / (end - begin)
