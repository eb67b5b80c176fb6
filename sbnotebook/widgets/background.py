"""Work beside the kernel's own thread, so that a panel never blocks a cell and its errors are seen in it.

What a callback prints or raises appears in no cell, and a callback waits while a cell runs: so callbacks only start
work here, and the work says how it ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from sbnotebook.errors import SbNotebookError
from sbnotebook.settlement.connecting.connection import scrub
from sbnotebook.settlement.connecting.failures import explained

__all__ = ["sentence", "start"]

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
        except BaseException as error:  # noqa: BLE001 (nobody else would see it)
            failed(sentence(error))

    thread = threading.Thread(target=run, name="sbnotebook panel", daemon=True)
    thread.start()
    return thread


def sentence(error: BaseException) -> str:
    """What went wrong, in one sentence without secrets.

    Args:
        error: of ours, of the service, or of a user's function.
    """
    if isinstance(error, SbNotebookError):
        return scrub(str(error))
    return f"{type(error).__name__}: {explained(error)}" if isinstance(error, Exception) else type(error).__name__
