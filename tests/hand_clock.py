"""One clock for the emulator and for the library, advanced by hand."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final, cast

import anyio

from sbnotebook.emulator import ManualClock
from sbnotebook.settlement.locking.renewal import Clock

_AT_MOST: Final = 0.05
"""Seconds for which a turned clock waits for those that it has woken."""


class HandClock(Clock):
    """The library's view of the emulator's clock: both stand still until a test sets it.

    Example:
        >>> clock = HandClock()
        >>> with running(clock=clock.emulators) as emulator:  # doctest: +SKIP
        ...     namespace = AsyncNamespace(Connection(emulator.connection_string), clock=clock)
    """

    def __init__(self) -> None:
        self.emulators = ManualClock()
        """The clock to start the emulator with."""
        self._turned = anyio.Event()
        self._asleep: dict[asyncio.Task[object], datetime] = {}
        self._awake: set[asyncio.Task[object]] = set()
        self._all_asleep = anyio.Event()

    def now(self) -> datetime:
        """Return the time in UTC."""
        return datetime.fromtimestamp(self.emulators.now() / 1000, UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was advanced by so many seconds."""
        until, task = self.now() + timedelta(seconds=seconds), cast("asyncio.Task[object]", asyncio.current_task())
        self._asleep[task] = until
        self._awake.discard(task)
        if not self._awake:
            self._all_asleep.set()
        try:
            while self.now() < until:
                await self._turned.wait()
        finally:
            del self._asleep[task]

    async def turn(self, seconds: float) -> None:
        """Advance both by a second at a time, and let every task do its due work.

        A second lasts until each task that it has woken sleeps again, 50 ms at most.
        """
        if seconds > 1:
            await anyio.sleep(_AT_MOST)  # a task that has just begun reaches its first sleep
        for _ in range(round(seconds)):
            self.emulators.advance(1)
            woken = {task for task, until in self._asleep.items() if until <= self.now()}
            self._awake = {task for task in self._awake | woken if not task.done()}
            self._all_asleep, is_known = anyio.Event(), bool(self._asleep)
            turned, self._turned = self._turned, anyio.Event()
            turned.set()
            if self._awake or not is_known:
                with anyio.move_on_after(_AT_MOST):
                    await self._all_asleep.wait()
        await anyio.sleep(_AT_MOST)
