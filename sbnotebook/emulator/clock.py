"""Time: the system's, or one that a test turns by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Final

_MS_BEFORE_1970: Final = 62_135_596_800_000  # since the first moment of .NET, in the year 1
_TICKS_OF_MS: Final = 10_000


def ticks_of(milliseconds: int) -> int:
    """Return a time as .NET counts it: in steps of 100 ns since the year 1."""
    return (milliseconds + _MS_BEFORE_1970) * _TICKS_OF_MS


class SystemClock:
    """The clock of the machine, which never goes back.

    When the machine's clock is set back, this one runs on, so that no lock lasts longer. It follows the machine's clock
    forward, and so catches up the time that the machine was asleep.
    """

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.monotonic_ns()

    def now(self) -> int:
        # In this order: a pause between the two readings makes the offset smaller, which does no harm.
        wall, steady = time.time_ns(), time.monotonic_ns()
        self._offset = max(self._offset, wall - steady)
        return (self._offset + steady) // 1_000_000

    def wake_at(self, when: int, wake: Callable[[], None]) -> Callable[[], object]:
        return asyncio.get_running_loop().call_later(max(when - self.now(), 0) / 1000, wake).cancel


class ManualClock:
    """A clock that stands still until ``advance``, which any thread may call.

    Args:
        start: ms; None for the machine's time, which clients compare a lock's end with.
    """

    def __init__(self, start: int | None = None) -> None:
        self._now = SystemClock().now() if start is None else start
        self._alarms: dict[object, tuple[int, Callable[[], object]]] = {}

    def now(self) -> int:
        """Return the time now in milliseconds since 1970-01-01 UTC."""
        return self._now

    def wake_at(self, when: int, wake: Callable[[], None]) -> Callable[[], object]:
        """Call ``wake`` in the running event loop at a moment (ms), and return a function that cancels it."""
        loop = asyncio.get_running_loop()
        key = object()
        self._alarms[key] = (when, partial(loop.call_soon_threadsafe, wake))
        self._ring()  # The clock may have been turned between the question and this.
        return partial(self._alarms.pop, key, None)

    def advance(self, seconds: float) -> None:
        """Move the clock forward by some seconds, and call every ``wake`` that is due."""
        self._now += round(seconds * 1000)
        self._ring()

    def _ring(self) -> None:
        for key, (when, wake) in list(self._alarms.items()):
            if when <= self._now and self._alarms.pop(key, None) is not None:
                wake()


Clock = SystemClock | ManualClock
