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
    """The clock of the machine; it goes on when that is set back, so that no lock lasts longer for it.

    It follows the machine's clock forward, which also catches up the time that the machine was asleep.
    """

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.monotonic_ns()

    def now(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        # In this order: a pause between the two readings makes the offset smaller, which does no harm.
        wall, steady = time.time_ns(), time.monotonic_ns()
        self._offset = max(self._offset, wall - steady)
        return (self._offset + steady) // 1_000_000

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
        self._ring()  # The clock may have been turned between the question and this.

        def cancel() -> None:
            self._alarms.pop(key, None)

        return cancel

    def advance(self, seconds: float) -> None:
        """Turn the clock on, and wake whoever waits for a moment that has come."""
        self._now += round(seconds * 1000)
        self._ring()

    def _ring(self) -> None:
        for key, (when, wake) in list(self._alarms.items()):
            if when <= self._now and self._alarms.pop(key, None) is not None:
                wake()
