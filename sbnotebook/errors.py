"""All exceptions that sbnotebook raises by itself.

::

    SbNotebookError
    ├── ConfigurationError(ValueError)
    │   └── InvalidEntityAddressError
    ├── MissingExtraError(ImportError)
    ├── DecisionError(ValueError)
    │   └── ReadOnlyError
    ├── BatchClosedError
    ├── SettlementFailedError
    ├── ArchiveError
    ├── JournalError(sqlite3.OperationalError)
    ├── AmqpDecodeError(ValueError)
    └── EmulatorError
        ├── EmulatorStartError
        └── ProtocolViolationError

The exceptions of ``azure.servicebus`` pass through unwrapped, because users look them up in
Microsoft's documentation.
"""

from __future__ import annotations

import difflib
import re
import sqlite3
import sys
import sysconfig
import threading
import traceback
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Final, TypeVar

__all__ = [
    "AmqpDecodeError",
    "ArchiveError",
    "BatchClosedError",
    "ConfigurationError",
    "DecisionError",
    "EmulatorError",
    "EmulatorStartError",
    "InvalidEntityAddressError",
    "JournalError",
    "MissingExtraError",
    "ProtocolViolationError",
    "ReadOnlyError",
    "SbNotebookError",
    "SettlementFailedError",
    "how_to_install",
    "near_match",
    "render_traceback",
]

_NEVER_SUGGESTED: Final = frozenset(
    {
        *("purge", "complete", "confirm"),
        *("--complete", "--cancel", "--no-archive", "--include-resubmitted", "--overwrite", "--write", "--yes"),
        *("--may-plan", "--show-bodies"),
    }
)
"""Names that remove, double or overwrite something, or let it happen unasked: a slip must not lead to them."""
_SEPARATORS: Final = re.compile(r"[\s._-]")
_LONGEST: Final = 100
_STANDARD: Final = (sysconfig.get_path("stdlib"), "<frozen ")
_INSTALLED: Final = re.compile(r"[/\\](?:site|dist)-packages[/\\]")
E = TypeVar("E", bound=BaseException)


class SbNotebookError(Exception):
    """The root of the exceptions that sbnotebook raises by itself."""

    def _render_traceback_(self) -> list[str]:  # IPython asks for it
        return render_traceback(self)


class ConfigurationError(SbNotebookError, ValueError):
    """A setting, an argument or a connection target that cannot be used."""


class InvalidEntityAddressError(ConfigurationError):
    """A text that is not the address of a queue, topic, subscription or sub-queue."""


class MissingExtraError(SbNotebookError, ImportError):
    """A part of sbnotebook needs packages that are not installed.

    Attributes:
        extra: the name of the extra.
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs packages that are not installed, the extra {extra}: {how_to_install(extra)}.")
        self.extra = extra


class DecisionError(SbNotebookError, ValueError):
    """A decision that cannot be carried out on these messages; nothing was done."""


class ReadOnlyError(DecisionError):
    """Writing is off on the connection, and this would have sent, locked, settled, created or removed something."""

    def __init__(self, host: str | None) -> None:
        super().__init__(
            f"Writing is off on the connection to {host}, so nothing was done: turn it on with %sb_connect --write, or "
            "in Python with connect(…, write=True)."
        )


class BatchClosedError(SbNotebookError):
    """The batch of locked messages is closed, its messages are no longer held."""


class SettlementFailedError(SbNotebookError):
    """Raised only by ``report.raise_for_failures()``: some messages were not settled.

    Attributes:
        outcomes: the outcomes that are not a success, one for each message.
    """

    def __init__(self, message: str, outcomes: tuple[object, ...]) -> None:
        super().__init__(message)
        self.outcomes = outcomes


class ArchiveError(SbNotebookError):
    """The archive is full, or cannot be used, so the messages that it was to keep were not removed."""


class JournalError(SbNotebookError, sqlite3.OperationalError):
    """The journal cannot be written or read, so nothing that depends on its record was done."""


class AmqpDecodeError(SbNotebookError, ValueError):
    """Bytes that are not AMQP 1.0 encoded data."""


class EmulatorError(SbNotebookError):
    """Something went wrong in, or with, the embedded emulator."""


class EmulatorStartError(EmulatorError):
    """The emulator could not be started, or could not be reached after its start."""


class ProtocolViolationError(EmulatorError):
    """A peer broke the AMQP protocol; its connection is closed with this reason.

    Attributes:
        condition: the AMQP error condition that the close frame carries.
    """

    def __init__(self, description: str, condition: str = "amqp:connection:framing-error") -> None:
        super().__init__(description)
        self.condition = condition


# ---------------------------------------------------------------- words of errors


def how_to_install(extra: str | None = None) -> str:
    """Return how to install sbnotebook, with an extra or without, where it came from: a clone or a wheel.

    No index has it yet, so its name alone does not install it.

    Args:
        extra: the name of the extra, None for none.
    """
    suffix = f"[{extra}]" if extra else ""
    return f"run pip install '.{suffix}' in a clone of sbnotebook, or pip install 'PATH/TO/WHEEL.whl{suffix}'"


def near_match(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name that a misspelt one most likely means; None if no name is similar.

    Every error that says 'did you mean …?' uses it. Case, spaces, dots, dashes and underscores do not count. It never
    returns the name of something that removes messages or turns a safeguard off: a slip must not lead there.

    Args:
        name: what the user wrote.
        known: what could be meant, such as the options of a magic; the first wins between equals.
        cutoff: from 0 for any two names to 1 for equal ones.

    Example:
        >>> near_match("--readonly", ["--write", "--read-only"])
        '--read-only'
        >>> near_match("SubjectId", ["message_id", "session_id", "subject"])
        'subject'
        >>> near_match("purg", ["purge"])
    """
    spelled = {_SEPARATORS.sub("", each).lower(): each for each in reversed(list(known))}
    written = _SEPARATORS.sub("", name[:_LONGEST]).lower()
    found = difflib.get_close_matches(written, spelled, n=1, cutoff=cutoff)
    meant = spelled[found[0]] if found else None
    return None if meant in _NEVER_SUGGESTED else meant


# ---------------------------------------------------------------- tracebacks in notebooks


def render_traceback(error: BaseException) -> list[str]:
    """Return the lines that IPython shows for an error: its text below the user's own frames.

    Left out are the frames of sbnotebook and of the libraries that it calls; the user's functions that it calls stay.
    After ``%xmode Verbose``, all frames are there.

    Args:
        error: the error, with its traceback.
    """
    ipython: Any = sys.modules.get("IPython")  # not imported: it is there if it asks
    shell: Any = ipython.get_ipython() if ipython else None
    if shell is None:
        return traceback.format_exception_only(error)
    show = shell.InteractiveTB.structured_traceback
    if shell.InteractiveTB.mode == "Verbose":
        return show(type(error), error, error.__traceback__)
    with _only_frames_of_the_user(error):
        return show(type(error), error, error.__traceback__)


def let_interrupt_pass(error: BaseException) -> None:
    """Raise an error of a user's function again if it is a Ctrl-C, which Python raises in the main thread only.

    In another thread, the function itself has raised it.
    """
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise error


def in_one_frame(error: E) -> E:
    """Return an error that IPython shows as :func:`render_traceback` does."""
    error.__dict__["_render_traceback_"] = partial(render_traceback, error)
    return error


@contextmanager
def _only_frames_of_the_user(error: BaseException) -> Generator[None]:
    """Shorten the traceback of an error, and of those that led to it, while the block runs."""
    changed: list[tuple[BaseException, TracebackType | None, BaseException | None, bool]] = []
    each: BaseException | None = error
    while each is not None and all(each is not one for one, *_ in changed):
        changed.append((each, each.__traceback__, each.__cause__, each.__suppress_context__))
        each.__traceback__ = _of_the_user(each.__traceback__, is_inside=each is not error)
        following = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
        if following is not None and _of_the_user(following.__traceback__, is_inside=True) is None:
            each.__cause__, following = None, None  # which also hides the context
        each = following
    try:
        yield
    finally:
        for one, frames, cause, suppressed in changed:
            one.__traceback__, one.__cause__, one.__suppress_context__ = frames, cause, suppressed


def _of_the_user(frames: TracebackType | None, *, is_inside: bool) -> TracebackType | None:
    """Return a traceback without the frames of sbnotebook and, below its first, of other libraries."""
    kept: list[TracebackType] = []
    while frames is not None:
        is_ours = str(frames.tb_frame.f_globals.get("__name__")).startswith("sbnotebook.")
        is_inside = is_inside or is_ours
        file = frames.tb_frame.f_code.co_filename
        if not (is_ours or (is_inside and (file.startswith(_STANDARD) or _INSTALLED.search(file)))):
            kept.append(frames)
        frames = frames.tb_next
    shown: TracebackType | None = None
    for each in reversed(kept):
        shown = TracebackType(shown, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return shown
