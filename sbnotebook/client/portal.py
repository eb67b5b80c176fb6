"""The one background event loop behind the synchronous interface.

A notebook's own loop is busy with the notebook, so the library's work runs in one daemon thread with a loop of its
own. It is made on first use, and made anew after a fork (Spark's Python workers fork).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Final, TypeVar

import anyio
from anyio.from_thread import BlockingPortal

from sbnotebook.settlement.watch import Watch

__all__ = ["portal", "run"]

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
    ended = threading.Event()
    watch = Watch()
    scope: anyio.CancelScope | None = None

    async def until_the_end() -> T:
        nonlocal scope
        try:
            with watch, anyio.CancelScope() as scope:
                return await function(*args)
            raise RuntimeError("It was interrupted.")
        finally:
            ended.set()

    def stop() -> None:
        # The loop takes its work in turn: what did not begin before this never will.
        if scope is None:
            ended.set()
        else:
            scope.cancel()

    way_in = portal()
    try:
        return way_in.start_task_soon(until_the_end).result()
    except KeyboardInterrupt as interrupt:
        try:
            way_in.call(stop)
            ended.wait(_CLEAN_UP)
        finally:  # also when it is interrupted once more
            report = way_in.call(lambda: watch.report)
            interrupt.__dict__["report"] = report
            if report:
                interrupt.add_note(f"Until the interrupt - {report}. {_HOW_TO_READ}")
        raise
    except Exception as error:
        if report := way_in.call(lambda: watch.report):
            error.__dict__.setdefault("report", report)
        raise
