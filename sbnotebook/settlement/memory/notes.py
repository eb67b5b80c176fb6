"""Notes on the causes of dead letters, kept in the journal for the next time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from sbnotebook.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sbnotebook.settlement.memory.local_database import LocalDatabase

__all__ = ["MAX_NOTE", "VERSION", "Notes"]

VERSION: Final = (
    """
    CREATE TABLE notes (
        namespace TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        note TEXT NOT NULL,
        changed TEXT NOT NULL,
        PRIMARY KEY (namespace, fingerprint)
    ) WITHOUT ROWID
    """,
)
"""What the journal's third version adds."""
MAX_NOTE: Final = 2_000
"""Characters of a note."""
_MAX_FINGERPRINT: Final = 100


class Notes:
    """The journal's table of notes.

    Args:
        database: the journal's.
        namespace: returns the identity of the namespace that they are about; called in the thread of each method.
    """

    def __init__(self, database: LocalDatabase, namespace: Callable[[], str]) -> None:
        self._database = database
        self._namespace = namespace

    def write(self, fingerprint: str, text: str) -> None:
        """Keep a note on a cause, on disk before this returns; an empty one is removed.

        Args:
            fingerprint: the cause's, as groups of messages have it.
            text: the note, of 2,000 characters at most; it takes the place of an earlier one.

        Raises:
            ConfigurationError: the note is too long, or is not text that can be stored.
        """
        key = (self._namespace().casefold(), _checked(fingerprint, "A fingerprint", _MAX_FINGERPRINT))
        note = _checked(text.strip(), "A note", MAX_NOTE)
        with self._database.transaction() as database:
            database.execute("DELETE FROM notes WHERE namespace = ? AND fingerprint = ?", key)
            if note:
                database.execute("INSERT INTO notes VALUES (?, ?, ?, ?)", (*key, note, datetime.now(UTC).isoformat()))

    def all(self) -> dict[str, str]:
        """Return the notes by fingerprint."""
        key = (self._namespace().casefold(),)
        with self._database.transaction() as database:
            rows = database.execute(
                "SELECT fingerprint, note FROM notes WHERE namespace = ? ORDER BY fingerprint", key
            ).fetchall()
        return dict(rows)


def _checked(text: str, what: str, longest: int) -> str:
    if len(text) > longest:
        raise ConfigurationError(f"{what} has {longest:,} characters at most, and this one has {len(text):,}.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"{what} cannot be kept: a character in it is only half of one.") from None
    return text
