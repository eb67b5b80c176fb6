"""Renewing the locks of a batch in the background."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Protocol

import anyio

__all__ = ["Clock", "SystemClock", "renew_at"]

_RENEW_AT: Final = 0.5
"""Renew when this part of the lock is left. The promise is a third; half leaves time for a slow answer."""


class Clock(Protocol):
    """Where the time comes from; tests turn one by hand."""

    def now(self) -> datetime:
        """The time in UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The time in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait for real."""
        await anyio.sleep(seconds)


def renew_at(locked_from: datetime, locked_until: datetime) -> datetime:
    """When a lock is to be renewed: with half of its time left."""
    return locked_until - (locked_until - locked_from) * _RENEW_AT
