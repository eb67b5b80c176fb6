"""The one background event loop behind the synchronous interface.

A notebook's own loop is busy with the notebook, so the library's work runs in one daemon thread with a loop of its
own. It is made on first use, and made anew after a fork (Spark's Python workers fork).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Final, Generic, Self, TypeVar

import anyio
from anyio.from_thread import BlockingPortal

from sbnotebook.model import Report
from sbnotebook.settlement.watch import Tell, Watch, untold

__all__ = ["Work", "portal", "run"]

T = TypeVar("T")

_CLEAN_UP: Final = 60.0
"""Seconds that interrupted work may take to give back what it holds."""
_HOW_TO_READ: Final = (
    "What is unconfirmed may have happened, what is skipped did not; "
    "the exception's attribute report has an outcome for each."
)


class _Loop:
    """The portal of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.portal: BlockingPortal | None = None

    def forget(self) -> None:
        # The child of a fork has the objects but not the thread.
        self.__init__()


_LOOP: Final = _Loop()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_LOOP.forget)


def portal() -> BlockingPortal:
    """The way into the background loop."""
    with _LOOP.lock:
        if _LOOP.portal is None:
            _LOOP.portal = _start()
        return _LOOP.portal


def _start() -> BlockingPortal:
    # Not anyio's start_blocking_portal: what it gives wants to be closed, and closing it in the child of a fork
    # waits for a thread that is not there.
    started: Future[BlockingPortal] = Future()

    async def serve() -> None:
        async with BlockingPortal() as portal:
            started.set_result(portal)
            await portal.sleep_until_stopped()

    threading.Thread(target=anyio.run, args=(serve,), name="sbnotebook", daemon=True).start()
    return started.result()


class Work(Generic[T]):
    """A coroutine function that runs on the background loop, watched, and cancelled when that is asked for.

    Args:
        function: an asynchronous function.
        args: its arguments.
        told: is given outcomes as they come: see :class:`sbnotebook.settlement.watch.Watch`.
    """

    def __init__(self, function: Callable[..., Awaitable[T]], *args: object, told: Tell = untold) -> None:
        self._function = function
        self._args = args
        self._watch = Watch(told)
        self._scope: anyio.CancelScope | None = None
        self._ended = threading.Event()
        self._portal = portal()
        self._future: Future[T] | None = None

    def start(self) -> Self:
        """Begin; apart from making it, so that an interrupt that comes meanwhile finds what it has to cancel."""
        self._future = self._portal.start_task_soon(self._until_the_end)
        return self

    async def _until_the_end(self) -> T:
        try:
            with self._watch, anyio.CancelScope() as self._scope:
                return await self._function(*self._args)
            raise InterruptedError("It was interrupted.")
        finally:
            self._ended.set()

    def result(self, timeout: float | None = None) -> T:
        """Wait for the result, or raise what the function raised.

        Raises:
            TimeoutError: it has not ended within so many seconds.
            InterruptedError: it was cancelled.
        """
        if self._future is None:
            raise RuntimeError("It has not been started.")
        return self._future.result(timeout)

    def cancel(self) -> None:
        """Cut it off; :meth:`wait` until it has given back what it holds."""
        self._portal.call(self._stop)

    def _stop(self) -> None:
        # The loop takes its work in turn: what did not begin before this never will.
        if self._scope is None:
            self._ended.set()
        else:
            self._scope.cancel()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended, one way or another; whether it has.

        Args:
            timeout: seconds, None for as long as it takes.
        """
        return self._ended.wait(timeout)

    @property
    def report(self) -> Report:
        """The outcomes that are known now."""
        return self._portal.call(lambda: self._watch.report)


def run(function: Callable[..., Awaitable[T]], *args: object) -> T:
    """Run a coroutine function on the background loop and wait for it.

    Interrupting (Ctrl-C, or the notebook's stop button) cancels it, waits until it has cleaned up, and raises
    KeyboardInterrupt. Its attribute ``report`` has the outcomes of what was sent or settled until then, and a note
    says the same in words: see :mod:`sbnotebook.settlement.watch`. Other exceptions that end work have one, too, where
    anything was sent or settled.

    Args:
        function: an asynchronous function.
        args: its arguments.
    """
    work = Work(function, *args)
    try:
        return work.start().result()
    except KeyboardInterrupt as interrupt:
        try:
            work.cancel()
            work.wait(_CLEAN_UP)
        finally:  # also when it is interrupted once more
            report = work.report
            interrupt.__dict__["report"] = report
            if report:
                interrupt.add_note(f"Until the interrupt - {report}. {_HOW_TO_READ}")
        raise
    except Exception as error:
        if report := work.report:
            error.__dict__.setdefault("report", report)
        raise
