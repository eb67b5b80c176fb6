"""Intended, sent and completed resubmits, on disk, so that you can recover from a crash."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import platformdirs

from sbnotebook.errors import JournalError
from sbnotebook.model import EntityAddress, ReceivedMessage
from sbnotebook.model.message import time_text
from sbnotebook.settlement.memory.local_database import LocalDatabase, insert_rows

if TYPE_CHECKING:
    import sqlite3

OriginalKey: TypeAlias = tuple[str, int, str]
"""The entity of an original, its number, and the time that it was enqueued at."""

_SCHEMA: Final = (
    """
    CREATE TABLE resubmits (
        id INTEGER PRIMARY KEY,
        namespace TEXT NOT NULL,
        source TEXT NOT NULL,
        sequence_number INTEGER NOT NULL,
        message_id TEXT,
        destination TEXT NOT NULL,
        clone_id TEXT NOT NULL,
        enqueued_time TEXT NOT NULL,
        destination_namespace TEXT NOT NULL,
        edited INTEGER NOT NULL,
        scheduled TEXT,
        state TEXT NOT NULL,
        changed TEXT NOT NULL
    )
    """,
    """
    CREATE INDEX unfinished_resubmits ON resubmits (namespace, sequence_number)
    WHERE state IN ('intended', 'sent')
    """,
    "CREATE INDEX resubmits_by_number ON resubmits (namespace, sequence_number)",
    """
    CREATE TABLE deferrals (
        namespace TEXT NOT NULL,
        entity TEXT NOT NULL,
        sequence_number INTEGER NOT NULL,
        message_id TEXT,
        enqueued_time TEXT NOT NULL,
        confirmed INTEGER NOT NULL,
        deferred_by TEXT NOT NULL,
        deferred_at TEXT NOT NULL,
        PRIMARY KEY (namespace, entity, sequence_number)
    )
    """,
    """
    CREATE TABLE seen (
        namespace TEXT NOT NULL,
        entity TEXT NOT NULL,
        key TEXT NOT NULL,
        done TEXT NOT NULL,
        PRIMARY KEY (namespace, entity, key)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX seen_by_time ON seen (done)",
    """
    CREATE TABLE notes (
        namespace TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        note TEXT NOT NULL,
        changed TEXT NOT NULL,
        PRIMARY KEY (namespace, fingerprint)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE resubmitted_causes (
        namespace TEXT NOT NULL,
        entity TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        messages INTEGER NOT NULL,
        time TEXT NOT NULL,
        PRIMARY KEY (namespace, entity, fingerprint)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE looks (
        namespace TEXT NOT NULL,
        entity TEXT NOT NULL,
        messages INTEGER NOT NULL,
        time TEXT NOT NULL,
        PRIMARY KEY (namespace, entity)
    ) WITHOUT ROWID
    """,
)
_COLUMNS: Final = (
    "namespace, source, sequence_number, message_id, destination, clone_id, enqueued_time, destination_namespace, "
    "edited, scheduled, state"
)
_FROM: Final = f"SELECT {_COLUMNS}, id, changed FROM resubmits"  # noqa: S608 (these are ours)
_LAST: Final = f"{_FROM} WHERE namespace = ? AND (? IS NULL OR lower(source) = ?) ORDER BY id DESC LIMIT ?"
# With the very words of the index, or SQLite does not use it.
_UNFINISHED: Final = f"{_FROM} WHERE state IN ('intended', 'sent') AND namespace = ? ORDER BY id"
_BEGUN: Final = (
    f"{_FROM} WHERE namespace = ? AND sequence_number IN (SELECT value FROM json_each(?))"  # noqa: S608 (as above)
    " AND state != 'not sent' ORDER BY id"
)
_INSERT: Final = f"INSERT INTO resubmits ({_COLUMNS}, changed)"
_MARK: Final = """
    UPDATE resubmits SET state = ?, changed = ?
    WHERE id IN (SELECT value FROM json_each(?)) AND state IN ('intended', 'sent')
"""
_MARK_EDITED: Final = "UPDATE resubmits SET edited = 1 WHERE id IN (SELECT value FROM json_each(?))"
_KEPT: Final = timedelta(days=30)


class ResubmitState(StrEnum):
    """How far one resubmit came."""

    INTENDED = "intended"
    """The clone may have been sent or not."""
    SENT = "sent"
    """The clone is confirmed, the original is not completed yet."""
    DONE = "done"
    """The clone is confirmed and the original is completed."""
    NOT_SENT = "not sent"
    """The service refused the clone, or it was not attempted; the original is where it was."""
    GONE = "gone"
    """The original is gone, and the clone's outcome is unknown; or another resubmit replaced it."""


class SentClone(NamedTuple):
    message_id: str
    sent: datetime | None = None
    """None where it is not known."""
    time_to_live: timedelta | None = None
    """Its own; None for that of the entity."""
    is_scheduled: bool = False


@dataclass(frozen=True, slots=True)
class ResubmitEntry:
    """One message's resubmit.

    Args:
        namespace: the identity of the namespace that the original is in.
        source: the entity of the original.
        sequence_number: the original's.
        message_id: the original's.
        destination: where the clone goes.
        clone_id: the clone's message id, derived from the original's.
        enqueued_time: the original's, which tells it from one with the same number in a queue that was made anew.
        destination_namespace: the identity of the namespace that the destination is in; empty for that of the original.
        edited: whether the clone was edited: then only the same edit can make it again.
        scheduled: when the clone becomes active, None for at once.
        state: how far it came.
        id: names it in the journal, 0 before it is written.
        changed: when it came as far as it is.
    """

    namespace: str
    source: str
    sequence_number: int
    message_id: str | None
    destination: str
    clone_id: str
    enqueued_time: str = ""
    destination_namespace: str = ""
    edited: bool = False
    scheduled: datetime | None = None
    state: ResubmitState = ResubmitState.INTENDED
    id: int = field(default=0, compare=False)
    changed: datetime | None = field(default=None, compare=False)

    @property
    def key(self) -> OriginalKey:
        """Return the key of the original."""
        return (self.source.casefold(), self.sequence_number, self.enqueued_time)

    @property
    def place(self) -> tuple[str, EntityAddress]:
        """Return the namespace of the destination, empty for that of the original, and its address."""
        return self.destination_namespace, EntityAddress.parse(self.destination)

    @property
    def clone(self) -> SentClone | None:
        """Return the clone; None where none was sent."""
        if self.state is ResubmitState.NOT_SENT:
            return None
        return SentClone(self.clone_id, self.changed, is_scheduled=self.scheduled is not None)

    def is_of(self, message: ReceivedMessage) -> bool:
        """Tell whether it is the resubmit of this message, and not of another that had its number before."""
        return (message.sequence_number, time_text(message.enqueued_time)) == (self.sequence_number, self.enqueued_time)


def original_key(message: ReceivedMessage) -> OriginalKey:
    """Return what tells an original from all others of its namespace."""
    return message.entity.path.casefold(), message.sequence_number, time_text(message.enqueued_time)


class Journal(LocalDatabase):
    """The journal of one user on one machine, an SQLite file that only the owner can read.

    Finished resubmits are deleted after 30 days.

    Args:
        path: the file; None for the one in the user's data directory.

    Raises:
        ConfigurationError: the file is not a journal, or is one of another version; it is left as it is.
        JournalError: by each method, where the file cannot be used.
    """

    _what, _table, _schema = "a journal", "resubmits", _SCHEMA

    def __init__(self, path: Path | None = None) -> None:
        super().__init__(path or platformdirs.user_data_path("sbnotebook") / "journal.sqlite")
        self._is_pruned = False

    def intend(self, entries: Sequence[ResubmitEntry]) -> list[int]:
        """Write intentions, on disk before this returns; the ids are for :meth:`mark`."""
        now = datetime.now(UTC)
        with self.transaction() as database:
            if not self._is_pruned:
                _prune(database, now - _KEPT)
            ids = insert_rows(database, _INSERT, [(*_values(entry), now.isoformat()) for entry in entries])
        self._is_pruned = True
        return ids

    def mark(self, ids: Iterable[int], state: ResubmitState) -> None:
        """Write the progress of resubmits, on disk before this returns; ended ones stay as they are."""
        if found := list(ids):
            self.execute(_MARK, (state, datetime.now(UTC).isoformat(), json.dumps(found)))

    def mark_edited(self, ids: Iterable[int]) -> None:
        """Write that the clones of resubmits are edited now, on disk before this returns."""
        if found := list(ids):
            self.execute(_MARK_EDITED, (json.dumps(found),))

    def unfinished(self, namespace: str, source: str | None = None) -> list[ResubmitEntry]:
        """Resubmits of a namespace that were begun and not ended, oldest first."""
        entries = [_entry(row) for row in self.execute(_UNFINISHED, (namespace,))]
        return [entry for entry in entries if source is None or entry.source.casefold() == source.casefold()]

    def resubmits(self, namespace: str, source: str | None = None, most: int = 1_000) -> list[ResubmitEntry]:
        """Return the last resubmits of a namespace in any state, the last first."""
        path = None if source is None else source.lower()
        return [_entry(row) for row in self.execute(_LAST, (namespace, path, path, most))]

    def find_begun(self, namespace: str, keys: Collection[OriginalKey]) -> dict[OriginalKey, ResubmitEntry]:
        """Return the last resubmit of each of some originals whose clone was or may have been sent, by key.

        If an original exists although its resubmit has ended, it counted as gone too early: a peek had missed it.
        """
        wanted, numbers = set(keys), json.dumps([number for _, number, _ in keys])
        begun = map(_entry, self.execute(_BEGUN, (namespace, numbers)))
        return {entry.key: entry for entry in begun if entry.key in wanted}

    def _unusable(self, error: Exception) -> JournalError:
        return JournalError(
            f"The journal {self.path} cannot be used ({error}), and nothing is done that it has to hold first: make "
            "room on its disk, or let this user read and write it."
        )


def _prune(database: sqlite3.Connection, before: datetime) -> None:
    database.execute(
        "DELETE FROM resubmits WHERE state NOT IN ('intended', 'sent') AND changed < ?", (before.isoformat(),)
    )


def _values(e: ResubmitEntry) -> tuple[object, ...]:
    scheduled = e.scheduled.isoformat() if e.scheduled else None
    return (
        e.namespace, e.source, e.sequence_number, e.message_id, e.destination, e.clone_id, e.enqueued_time,
        e.destination_namespace, e.edited, scheduled, e.state,
    )  # fmt: skip


def _entry(row: Sequence[Any]) -> ResubmitEntry:
    *texts, edited, scheduled, state, number, changed = row
    return ResubmitEntry(
        *texts,
        edited=bool(edited),
        scheduled=datetime.fromisoformat(scheduled) if scheduled else None,
        state=ResubmitState(state),
        id=number,
        changed=datetime.fromisoformat(changed),
    )
