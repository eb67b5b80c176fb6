"""Work beside the kernel's own thread, so that a panel never blocks a cell and its errors are seen in it.

What a callback prints or raises appears in no cell, and all callbacks share one thread (see
:mod:`sbnotebook.widgets.subshell`): so callbacks only start work here, and the work says how it ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from sbnotebook.errors import SbNotebookError
from sbnotebook.settlement.connecting.connection import scrub
from sbnotebook.settlement.connecting.failures import explained
from sbnotebook.widgets.in_marimo import thread_class

if TYPE_CHECKING:
    import threading

__all__ = ["Callbacks", "Patience", "sentence", "start"]


class Callbacks:
    """Functions to call, each until it is taken away again. One that fails keeps no other from being called.

    Args:
        failed: is given a sentence that says what went wrong in one of them.

    Example:
        >>> callbacks = Callbacks(failed=print)
        >>> end = callbacks.add(lambda name: print("hello", name))
        >>> callbacks("orders")
        hello orders
        >>> end()
        >>> callbacks("orders")
    """

    def __init__(self, failed: Callable[[str], object]) -> None:
        self._failed = failed
        self._functions: list[Callable[..., object]] = []

    def add(self, function: Callable[..., object]) -> Callable[[], None]:
        """Call a function from now on, until the function that is returned is called."""
        self._functions.append(function)

        def end() -> None:
            if function in self._functions:
                self._functions.remove(function)

        return end

    def __call__(self, *details: object) -> None:
        """Call all."""
        for function in tuple(self._functions):
            try:
                function(*details)
            except Exception as error:  # noqa: BLE001 (it would be seen nowhere else)
                self._failed(sentence(error))


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
        >>> waiting = Patience(15.0, lambda: print("no answer"))
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


T = TypeVar("T")


def start(work: Callable[[], T], *, done: Callable[[T], object], failed: Callable[[str], object]) -> threading.Thread:
    """Do work in a thread of its own.

    Args:
        work: does it.
        done: is given the result, in that thread.
        failed: is given a sentence that says what went wrong, in that thread.

    Example:
        >>> start(lambda: 6 * 7, done=print, failed=print).join()
        42
    """

    def run() -> None:
        try:
            done(work())
        except BaseException as error:  # noqa: BLE001 (it would be seen nowhere else)
            failed(sentence(error))

    thread = thread_class()(target=run, name="sbnotebook panel", daemon=True)
    thread.start()
    return thread


def sentence(error: BaseException) -> str:
    """Return what went wrong, in one sentence without secrets.

    Args:
        error: of ours, of the service, or of a user's function.
    """
    if isinstance(error, SbNotebookError):
        return scrub(str(error))
    return f"{type(error).__name__}: {explained(error)}" if isinstance(error, Exception) else type(error).__name__
