"""What was intended, sent and completed, on disk, so that a crash in between can be mended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

import platformdirs

from sbnotebook.settlement.local_database import LocalDatabase

__all__ = ["Journal", "ResubmitEntry", "ResubmitState"]

_VERSIONS: Final = (
    (
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
            state TEXT NOT NULL,
            changed TEXT NOT NULL
        )
        """,
        "CREATE INDEX resubmits_by_state ON resubmits (namespace, state)",
    ),
    (),
)


class ResubmitState(StrEnum):
    """How far one resubmit came."""

    INTENDED = "intended"
    """The clone may have been sent or not."""
    SENT = "sent"
    """The clone is confirmed, the original is not completed yet."""
    DONE = "done"
    """The clone is confirmed and the original is completed."""
    NOT_SENT = "not sent"
    """The service refused the clone; the original is where it was."""


@dataclass(frozen=True, slots=True)
class ResubmitEntry:
    """One message's resubmit.

    Args:
        namespace: the host that both entities are on.
        source: the entity that the original stands in.
        sequence_number: the original's.
        message_id: the original's.
        destination: where the clone goes.
        clone_id: the clone's message id, derived from the original's.
        enqueued_time: the original's, which tells it from one with the same number in a queue that was made anew.
        state: how far it came.
    """

    namespace: str
    source: str
    sequence_number: int
    message_id: str | None
    destination: str
    clone_id: str
    enqueued_time: str = ""
    state: ResubmitState = ResubmitState.INTENDED

    @property
    def key(self) -> tuple[str, int, str, str]:
        """What makes it the same resubmit when it is tried again."""
        return (self.source.casefold(), self.sequence_number, self.clone_id, self.enqueued_time)


class Journal:
    """The journal of one user on one machine, an SQLite file that only the owner can read.

    Args:
        path: the file; None for the one in the user's data directory.

    Raises:
        ConfigurationError: the file is not a journal, or is one of a later version; it is left as it is.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or platformdirs.user_data_path("sbnotebook") / "journal.sqlite"
        self.database = LocalDatabase(self.path, what="a journal", table="resubmits", versions=_VERSIONS)

    def intend(self, entries: Sequence[ResubmitEntry]) -> list[int]:
        """Write intentions, on disk before this returns; the ids are for :meth:`mark`."""
        now = datetime.now(UTC).isoformat()
        ids: list[int] = []
        with self.database.transaction() as database:
            for e in entries:
                cursor = database.execute(
                    "INSERT INTO resubmits (namespace, source, sequence_number, message_id, destination, clone_id,"
                    " enqueued_time, state, changed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (*_columns(e), e.state, now),
                )
                ids.append(cursor.lastrowid or 0)
        return ids

    def mark(self, ids: Iterable[int], state: ResubmitState) -> None:
        """Write how far resubmits came, on disk before this returns."""
        now = datetime.now(UTC).isoformat()
        with self.database.transaction() as database:
            database.executemany(
                "UPDATE resubmits SET state = ?, changed = ? WHERE id = ?", [(state, now, entry) for entry in ids]
            )

    def unfinished(self, namespace: str) -> list[ResubmitEntry]:
        """Resubmits of a namespace that were begun and not ended, oldest first."""
        return [entry for _, entry in self._unfinished(namespace)]

    def find_unfinished(
        self, entries: Sequence[ResubmitEntry]
    ) -> dict[tuple[str, int, str, str], tuple[int, ResubmitEntry]]:
        """Of some resubmits those that were begun before and not ended: their ids and entries, by key."""
        wanted = {entry.key for entry in entries}
        found: dict[tuple[str, int, str, str], tuple[int, ResubmitEntry]] = {}
        for namespace in {entry.namespace for entry in entries}:
            for number, entry in self._unfinished(namespace):
                if entry.key in wanted:
                    found[entry.key] = (number, entry)
        return found

    def _unfinished(self, namespace: str) -> list[tuple[int, ResubmitEntry]]:
        with self.database.transaction() as database:
            rows = database.execute(
                "SELECT id, namespace, source, sequence_number, message_id, destination, clone_id, enqueued_time, state"
                " FROM resubmits WHERE namespace = ? AND state IN (?, ?) ORDER BY id",
                (namespace, ResubmitState.INTENDED, ResubmitState.SENT),
            ).fetchall()
        return [(row[0], ResubmitEntry(*row[1:-1], state=ResubmitState(row[-1]))) for row in rows]

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self.database.close()


def _columns(e: ResubmitEntry) -> tuple[object, ...]:
    return (e.namespace, e.source, e.sequence_number, e.message_id, e.destination, e.clone_id, e.enqueued_time)
