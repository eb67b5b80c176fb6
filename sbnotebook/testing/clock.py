"""One clock for the emulator and for the library, advanced by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import anyio

from sbnotebook.emulator import ManualClock

__all__ = ["HandClock"]


class HandClock:
    """The library's view of the clock that an emulator goes by: both stand still until it is turned.

    Example:
        >>> clock = HandClock()
        >>> with running(clock=clock.emulators) as emulator:  # doctest: +SKIP
        ...     namespace = AsyncNamespace(Connection(emulator.connection_string), clock=clock)
    """

    def __init__(self) -> None:
        self.emulators = ManualClock()
        """The clock to start the emulator with."""
        self._turned = anyio.Event()

    def now(self) -> datetime:
        """Return the time in UTC."""
        return datetime.fromtimestamp(self.emulators.now() / 1000, UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was advanced by so many seconds."""
        until = self.now() + timedelta(seconds=seconds)
        while self.now() < until:
            await self._turned.wait()

    async def turn(self, seconds: float) -> None:
        """Advance both by a second at a time, and let every task do what is due."""
        for _ in range(round(seconds)):
            self.emulators.advance(1)
            turned, self._turned = self._turned, anyio.Event()
            turned.set()
            await anyio.sleep(0.05)
