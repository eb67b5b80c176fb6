"""A limit on messages a second, kept over a whole piece of work."""

from __future__ import annotations

import anyio

__all__ = ["Pace"]


class Pace:
    """Lets a number of messages go on each second; one object serves one piece of work from its begin to its end.

    Args:
        rate: messages a second at most, None for no limit.

    Example:
        >>> Pace(200).at_once, Pace(0.5).at_once, Pace(None).at_once
        (200, 1, None)
    """

    def __init__(self, rate: float | None) -> None:
        self._seconds_each = 1.0 / rate if rate else 0.0
        self._next_at = 0.0
        self.at_once = max(1, int(rate)) if rate else None
        """Messages that may go together, a second's worth; None for any number."""

    async def wait(self, count: int) -> None:
        """Wait until the next ``count`` messages may go; without a rate it is only a chance to be cancelled."""
        now = anyio.current_time()
        await anyio.sleep(max(0.0, self._next_at - now))
        self._next_at = max(now, self._next_at) + count * self._seconds_each
