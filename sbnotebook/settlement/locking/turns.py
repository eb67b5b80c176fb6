"""Whose turn it is to settle messages of a batch."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

__all__ = ["RunsInTurn"]


class RunsInTurn:
    """Lets groups of one run settle at once, and those of different runs one after the other.

    The groups of a run have no message in common; two runs may have. A run makes room for another between two groups.

    Example:
        >>> async def settle_some(turns: RunsInTurn, run: object) -> None:
        ...     async with turns.turn_of(run):
        ...         await anyio.sleep(1)
    """

    def __init__(self) -> None:
        self._run: object = None
        self._under_way = 0
        self._waiting: list[object] = []
        self._changed = anyio.Condition()

    @asynccontextmanager
    async def turn_of(self, run: object) -> AsyncGenerator[None]:
        """Wait for the turn of a run, and have it in the block."""
        async with self._changed:
            self._waiting.append(run)
            try:
                while not self._may_begin(run):
                    await self._changed.wait()
                self._run = run
                self._under_way += 1
            finally:
                self._waiting.remove(run)
                self._changed.notify_all()
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                async with self._changed:
                    self._under_way -= 1
                    if not self._under_way and not self._waiting:
                        self._run = None
                    self._changed.notify_all()

    def _may_begin(self, run: object) -> bool:
        if run is not self._run:
            return not self._under_way
        return all(other is run for other in self._waiting)
