"""Waiting for a browser's answer no longer than it is worth."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

__all__ = ["Patience"]

_TICK: Final = 0.5
"""Seconds."""


class Patience:
    """Calls a function after a time in which an answer could have been taken.

    What the browser sends waits while the kernel runs a cell, so only the time counts in which the kernel's event loop
    comes round: it ticks, and a tick that comes late is not counted. Where no loop runs, as in a script, nothing is
    ever called.

    Args:
        seconds: of waiting.
        over: is called after that.

    Example:
        >>> waiting = Patience(15.0, lambda: print("nobody answered"))
        >>> waiting.stop()  # as soon as an answer comes
    """

    def __init__(self, seconds: float, over: Callable[[], object]) -> None:
        self._over = over
        self._left = max(1, round(seconds / _TICK))
        self._due = 0.0
        self._is_stopped = False
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._wait()

    def stop(self) -> None:
        """Call nothing any more."""
        self._is_stopped = True

    def _wait(self) -> None:
        self._due = self._loop.time() + _TICK
        self._loop.call_later(_TICK, self._tick)

    def _tick(self) -> None:
        if self._is_stopped:
            return
        if self._loop.time() < self._due + _TICK:
            self._left -= 1
        if self._left > 0:
            self._wait()
        else:
            self._over()
