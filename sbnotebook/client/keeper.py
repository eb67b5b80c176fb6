"""Keeping an asynchronous batch open in the background loop, until it is closed or nobody holds it any more."""

from __future__ import annotations

import asyncio
import contextlib
import os
import warnings
from concurrent.futures import Future

from sbnotebook.client.portal import portal
from sbnotebook.settlement.locking.lock import LockedBatch

__all__ = ["Keeper"]


class Keeper:
    """Holds a batch open in a task of the background loop.

    Args:
        batch: not open yet.

    Raises:
        Exception: what opening the batch raises.
    """

    def __init__(self, batch: LockedBatch) -> None:
        self._batch = batch
        self._opened: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._close = asyncio.Event()
        self._is_told = False
        self._process = os.getpid()
        self._ended = portal().start_task_soon(self._hold)
        try:
            self._opened.result()
        except BaseException:  # an interrupt among them: it must not stay open behind one's back
            self._tell_to_close()
            raise

    def close(self, timeout: float | None = None) -> None:
        """Close the batch and wait until what it held is given back.

        Args:
            timeout: seconds, None for as long as it takes.

        Raises:
            TimeoutError: it has not ended within so many seconds, and goes on.
        """
        self._tell_to_close()
        self._ended.result(timeout)

    def abandon(self) -> None:
        """Close the batch of which nobody knows any more, and warn. May be called anywhere, and waits for nothing."""
        if os.getpid() != self._process:  # the child of a fork: the batch is the parent's
            return
        self._tell_to_close()
        warnings.warn(
            f"A batch of {self._batch.address} was forgotten while it was open: its {len(self._batch.messages):,} "
            "messages are released. Close it, or lock messages in a with statement.",
            ResourceWarning,
            stacklevel=2,
        )

    async def _hold(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            async with self._batch:
                self._opened.set_result(None)
                if not self._is_told:
                    await self._close.wait()
        except BaseException as error:
            if not self._opened.done():
                self._opened.set_exception(error)
                return
            raise

    def _tell_to_close(self) -> None:
        # Not through the portal: it waits for the loop, and a forgotten batch may be found by the loop itself.
        self._is_told = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the batch with it
                self._loop.call_soon_threadsafe(self._close.set)
