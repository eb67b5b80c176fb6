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
from collections.abc import Iterable
from typing import Final

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
    "near_match",
]

_SEPARATORS: Final = re.compile(r"[\s._-]")
_LONGEST: Final = 100


class SbNotebookError(Exception):
    """The root of the exceptions that sbnotebook raises by itself."""


class ConfigurationError(SbNotebookError, ValueError):
    """A setting, an argument or a connection target that cannot be used."""


class InvalidEntityAddressError(ConfigurationError):
    """A text that is not the address of a queue, topic, subscription or sub-queue."""


class MissingExtraError(SbNotebookError, ImportError):
    """A part of sbnotebook needs packages that are not installed.

    Attributes:
        extra: the name in ``pip install 'sbnotebook[extra]'``.
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs packages that are not installed: pip install 'sbnotebook[{extra}]'.")
        self.extra = extra


class DecisionError(SbNotebookError, ValueError):
    """A decision that cannot be carried out on these messages; nothing was done."""


class ReadOnlyError(DecisionError):
    """The connection is read-only, and this would have sent, locked, settled, created or removed something."""

    def __init__(self, host: str | None) -> None:
        super().__init__(
            f"The connection to {host} is read-only, so nothing was done: turn writing on with %sb_connect --write, or "
            "in Python connect with read_only=False."
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
    """The journal cannot be written or read, so what has to be written down first was not done."""


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


def near_match(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name that a misspelt one most likely means; None if no name is similar.

    Every error that says 'did you mean …?' uses it. Case, spaces, dots, dashes and underscores do not count.

    Args:
        name: what the user wrote.
        known: what could be meant, such as the options of a magic; the first wins between equals.
        cutoff: from 0 for any two names to 1 for equal ones.

    Example:
        >>> near_match("--readonly", ["--write", "--read-only"])
        '--read-only'
        >>> near_match("SubjectId", ["message_id", "session_id", "subject"])
        'subject'
    """
    spelled = {_SEPARATORS.sub("", each).lower(): each for each in reversed(list(known))}
    meant = _SEPARATORS.sub("", name[:_LONGEST]).lower()
    found = difflib.get_close_matches(meant, spelled, n=1, cutoff=cutoff)
    return spelled[found[0]] if found else None
