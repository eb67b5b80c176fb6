"""Time: the system's, or one that a test turns by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock"]


class Clock(Protocol):
    """What the server needs of a clock."""

    def now(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        ...

    def wake_at(self, when: int, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` in the running event loop at a moment (ms); the result cancels it."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def wake_at(self, when: int, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` in the running event loop at a moment (ms); the result cancels it."""
        delay = max(when - self.now(), 0) / 1000
        return asyncio.get_running_loop().call_later(delay, wake).cancel


class ManualClock:
    """A clock that stands still until ``advance``; from any thread.

    Args:
        start: ms; None for the machine's time, which clients compare a lock's end with.
    """

    def __init__(self, start: int | None = None) -> None:
        self._now = SystemClock().now() if start is None else start
        self._alarms: dict[object, tuple[int, Callable[[], object]]] = {}

    def now(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return self._now

    def wake_at(self, when: int, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` in the running event loop at a moment (ms); the result cancels it."""
        loop = asyncio.get_running_loop()
        key = object()
        self._alarms[key] = (when, partial(loop.call_soon_threadsafe, wake))

        def cancel() -> None:
            self._alarms.pop(key, None)

        return cancel

    def advance(self, seconds: float) -> None:
        """Turn the clock on, and wake whoever waits for a moment that has come."""
        self._now += round(seconds * 1000)
        for key, (when, wake) in list(self._alarms.items()):
            if when <= self._now and self._alarms.pop(key, None) is not None:
                wake()
