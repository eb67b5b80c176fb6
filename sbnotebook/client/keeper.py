"""Batches that stay open although different tasks open and close them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import warnings
from typing import Self

from sbnotebook.client.portal import in_background
from sbnotebook.settlement import LockedBatch


class Keeper:
    """A task that holds a batch open, for callers that open and close it in different tasks."""

    def __init__(self, batch: LockedBatch) -> None:
        self._batch = batch
        self.loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self.loop.create_future()
        self._close = asyncio.Event()
        self._process = os.getpid()
        self._task = in_background(self._hold)

    @classmethod
    async def opened(cls, batch: LockedBatch) -> Self:
        """Open a batch, and keep it open."""
        keeper = cls(batch)
        try:
            await asyncio.shield(keeper._opened)
        except BaseException:  # also an interrupt: the batch must not stay open unseen
            keeper._close.set()
            raise
        return keeper

    async def close(self, within: float | None = None) -> None:
        """Close the batch and wait until its messages are released, or for so many seconds."""
        self._close.set()
        async with asyncio.timeout(within):
            await asyncio.shield(self._task)

    def abandon(self) -> None:
        """Close a batch that has no references any more, and warn. Any thread may call this; it does not wait."""
        if os.getpid() != self._process:  # the child of a fork: the batch is the parent's
            return
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the batch with it
            self.loop.call_soon_threadsafe(self._close.set)
        warnings.warn(
            f"A batch of {self._batch.address} was forgotten while it was open: its {len(self._batch.messages):,} "
            "messages are released. Close it, or lock messages in a with statement.",
            ResourceWarning,
            stacklevel=2,
        )

    async def _hold(self) -> None:
        try:
            async with self._batch:
                if not self._opened.done():
                    self._opened.set_result(None)
                await self._close.wait()
        except BaseException as error:
            if not self._opened.done():
                self._opened.set_exception(error)
                return
            raise
