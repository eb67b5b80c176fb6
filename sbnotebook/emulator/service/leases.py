"""Who uses an emulator that was started on demand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

__all__ = ["Leases"]

_POLL: Final = 0.5
"""Seconds between two looks."""


class Leases:
    """Counts the processes that use the emulator; each holds a connection open, which ends with it."""

    def __init__(self) -> None:
        self._count = 0

    @property
    def count(self) -> int:
        """Leases that are held now."""
        return self._count

    @contextmanager
    def held(self) -> Generator[None]:
        """Hold a lease."""
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1

    async def wait_until_unused(self, seconds: float, is_in_use: Callable[[], bool]) -> None:
        """Return once nobody has held a lease, and ``is_in_use`` was false, for this long."""
        unused_since = time.monotonic()
        while time.monotonic() - unused_since < seconds:
            await asyncio.sleep(min(_POLL, seconds))
            if self._count or is_in_use():
                unused_since = time.monotonic()
