from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

from sbnotebook.widgets.panel import call_unless


async def until(over: Sequence[object]) -> None:
    async with asyncio.timeout(60):
        while not over:  # noqa: ASYNC110 (it grows)
            await asyncio.sleep(0.05)


def test_only_the_time_counts_in_which_the_loop_comes_round() -> None:
    over: list[float] = []

    async def kernel() -> None:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        call_unless(threading.Event(), 1.0, lambda: over.append(loop.time() - begin))
        await asyncio.sleep(0.1)
        time.sleep(1.5)  # noqa: ASYNC251 (a cell that keeps the kernel busy)
        busy_until = loop.time() - begin
        await until(over)
        assert over[0] > busy_until + 0.9, "at least two more ticks"

    asyncio.run(kernel())


def test_it_can_be_stopped_and_nothing_is_called_without_a_loop() -> None:
    over: list[str] = []

    async def kernel() -> None:
        answered = threading.Event()
        call_unless(answered, 0.5, lambda: over.append("answered"))
        answered.set()
        call_unless(threading.Event(), 0.5, lambda: over.append("waited"))
        await until(over)

    call_unless(threading.Event(), 0.5, lambda: over.append("no loop"))
    asyncio.run(kernel())
    assert over == ["waited"]
