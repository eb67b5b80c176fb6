"""Messages that are about to be removed, kept on this machine with their exact bytes, so that they can be sent back."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from pathlib import Path
from typing import Final

import platformdirs

from sbnotebook.errors import ArchiveError, ConfigurationError
from sbnotebook.model import EntityAddress
from sbnotebook.settlement.memory.local_database import LocalDatabase, insert_rows
from sbnotebook.settlement.requests import alike

_SCHEMA: Final = (
    """
    CREATE TABLE archived (
        id INTEGER PRIMARY KEY AUTOINCREMENT, -- the number of a pruned message must not name another
        archived REAL NOT NULL,
        keep_until REAL NOT NULL,
        state TEXT NOT NULL,
        namespace TEXT NOT NULL COLLATE NOCASE,
        entity TEXT NOT NULL COLLATE NOCASE,
        sequence_number INTEGER NOT NULL,
        message_id TEXT,
        enqueued_time TEXT NOT NULL,
        verb TEXT NOT NULL,
        payload BLOB NOT NULL
    )
    """,
    "CREATE INDEX archived_by_place ON archived (namespace, entity, sequence_number)",
    "CREATE INDEX archived_by_time ON archived (archived)",
    "CREATE INDEX archived_by_end ON archived (keep_until)",
)
_COLUMNS: Final = (
    "namespace", "entity", "sequence_number", "message_id", "enqueued_time", "verb", "payload", "state",
)  # fmt: skip
_values: Final = attrgetter(*_COLUMNS)
_COUNTS: Final = """
    SELECT entity, verb, state, count(*), max(archived) FROM archived
    WHERE namespace = ? AND state != 'kept' GROUP BY entity, verb, state ORDER BY max(archived) DESC
"""
_MARK: Final = "UPDATE archived SET state = ? WHERE id IN (SELECT value FROM json_each(?))"
_WAYS_ON: Final = (
    "Keep more with archive=Archive(max_bytes=…), remove old messages with archive.prune(older_than=…), or use no "
    "archive: archive=False, or SBNOTEBOOK_ARCHIVE=off in the environment."
)
_ROW_BYTES, _INDEX_BYTES = 300, 200
"""What a row takes at most beside the message's bytes and the names, in the table and in its indexes."""
_PAGE: Final = 4_096
"""Bytes of a page of the file. Short rows share one; a longer row has pages of its own."""
_PRUNED_AT_ONCE: Final = 1_000
"""Rows that are removed while a caller waits to remove a message."""
_OFF, _ON = frozenset({"off", "0", "false", "no"}), frozenset({"", "on", "1", "true", "yes"})


class ArchiveState(StrEnum):
    """The state of the original of an archived message."""

    REMOVING = "removing"
    """Its removal began, and no answer was recorded: it may or may not have happened."""
    REMOVED = "removed"
    """The service confirmed that it is gone."""
    KEPT = "kept"
    """The service said that it was not removed by this."""
    RETURNING = "returning"
    """Sending it back began, and no answer was recorded: it may or may not have happened."""
    RETURNED = "returned"
    """The service confirmed that it was sent back."""


@dataclass(frozen=True, slots=True)
class ArchivedCount:
    """How many messages of one entity were removed in one way.

    Args:
        entity: that held them.
        verb: what removed them.
        state: of the originals.
        count: how many.
        last: when the last of them was removed.
    """

    entity: EntityAddress
    verb: str
    state: ArchiveState
    count: int
    last: datetime


@dataclass(frozen=True, slots=True)
class ArchivedMessage:
    namespace: str
    entity: str
    sequence_number: int
    message_id: str | None
    enqueued_time: str
    verb: str
    payload: bytes = field(repr=False)
    state: ArchiveState = ArchiveState.REMOVING
    row: int = 0
    archived: float = 0.0

    @property
    def address(self) -> EntityAddress:
        return EntityAddress.parse(self.entity)

    @property
    def place(self) -> tuple[str, int, str]:
        """Return what makes it the same message when it was archived twice."""
        return (self.entity.casefold(), self.sequence_number, self.enqueued_time)


class Archive(LocalDatabase):
    """The archive of one user on one machine, an SQLite file that only the owner can read.

    Args:
        path: the file; None for the one in the user's data directory.
        retention: how long messages are kept that are written by this object.
        max_bytes: how large the archive may become; when it is full, nothing more is removed from the service.

    Raises:
        ConfigurationError: the file is not an archive, or is one of another version; it is left as it is.

    Example:
        >>> Archive(max_bytes=10 * 1024**3).retention
        datetime.timedelta(days=7)
    """

    _what, _table, _schema = "an archive", "archived", _SCHEMA

    def __init__(
        self, path: Path | None = None, *, retention: timedelta = timedelta(days=7), max_bytes: int = 1024**3
    ) -> None:
        if retention <= timedelta(0) or max_bytes <= 0:
            raise ConfigurationError("retention and max_bytes must be positive.")
        super().__init__(path or platformdirs.user_data_path("sbnotebook") / "archive.sqlite")
        self.retention = retention
        self.max_bytes = max_bytes
        self._prune_at = 0.0

    @classmethod
    def of(cls, setting: Archive | bool | None, folder: Path) -> Archive | None:
        """Return the archive that a setting means; None for none.

        Args:
            setting: an archive, True for the one in the folder unless SBNOTEBOOK_ARCHIVE is off, False or None for
                none.
            folder: where the journal is.

        Raises:
            ConfigurationError: SBNOTEBOOK_ARCHIVE is neither on nor off.
        """
        if isinstance(setting, Archive):
            return setting
        value = os.environ.get("SBNOTEBOOK_ARCHIVE", "").strip().casefold()
        if value not in _OFF | _ON:
            raise ConfigurationError("SBNOTEBOOK_ARCHIVE is on or off.")
        return cls(folder / "archive.sqlite") if setting and value in _ON else None

    # ---------------------------------------------------------------- removing

    def keep(self, messages: Sequence[ArchivedMessage]) -> list[int]:
        """Write messages that are about to be removed; all are on disk when this returns, or none."""
        now = time.time()
        with self.transaction() as database:
            self._require_room(
                database, sum(room_for(len(each.payload), each.entity, each.message_id) for each in messages)
            )
            until = now + self.retention.total_seconds()
            insert = f"INSERT INTO archived ({', '.join(_COLUMNS)}, archived, keep_until)"
            return insert_rows(database, insert, [(*_values(each), now, until) for each in messages])

    def note(self, states: Mapping[int, ArchiveState | None]) -> None:
        """Write the states of rows; None takes out the row of a message that was not touched."""
        with self.transaction() as database:
            for rows in alike(states, states.__getitem__):
                if states[rows[0]] is None:
                    delete = "DELETE FROM archived WHERE id IN (SELECT value FROM json_each(?))"
                    database.execute(delete, (json.dumps(rows),))
                else:
                    database.execute(_MARK, (states[rows[0]], json.dumps(rows)))

    def require_room(self, size: int = 0) -> None:
        """Refuse messages that cannot be archived before any other step."""
        with self.transaction() as database:
            self._require_room(database, max(size, 1))

    # ---------------------------------------------------------------- looking, and sending back

    def find(
        self,
        namespace: str,
        entity: EntityAddress | None = None,
        *,
        since: datetime | None = None,
        numbers: Sequence[int] | None = None,
    ) -> list[ArchivedMessage]:
        """Return messages of a namespace, oldest first, without their bytes: see :meth:`payloads`."""
        query = """
            SELECT namespace, entity, sequence_number, message_id, enqueued_time, verb, x'', state, id, archived
            FROM archived WHERE namespace = :namespace AND archived >= :since
        """
        values: dict[str, object] = {"namespace": namespace, "since": since.timestamp() if since is not None else 0.0}
        if entity is not None:
            query, values["entity"] = f"{query} AND entity = :entity", entity.path
        if numbers is not None:
            query += " AND sequence_number IN (SELECT value FROM json_each(:numbers))"
            values["numbers"] = json.dumps(list(numbers))
        with self.transaction() as database:
            self._prune_a_little(database)
            found = database.execute(f"{query} ORDER BY id", values).fetchall()
        return [ArchivedMessage(*row[:7], state=ArchiveState(row[7]), row=row[8], archived=row[9]) for row in found]

    def counts(self, namespace: str) -> list[ArchivedCount]:
        """Count the removed messages of a namespace by entity and verb, the latest first.

        Args:
            namespace: its identity.
        """
        if not self.path.exists():
            return []
        with self.transaction() as database:
            self._prune_a_little(database)
            rows = database.execute(_COUNTS, (namespace,)).fetchall()
        return [
            ArchivedCount(EntityAddress.parse(path), verb, ArchiveState(state), count, datetime.fromtimestamp(at, UTC))
            for path, verb, state, count, at in rows
        ]

    def payloads(self, rows: Sequence[int]) -> dict[int, bytes]:
        """Return the AMQP bytes of messages, by row."""
        query = "SELECT id, payload FROM archived WHERE id IN (SELECT value FROM json_each(?))"
        return dict(self.execute(query, (json.dumps(rows),)))

    def claim(self, expected: Mapping[int, ArchiveState]) -> set[int]:
        """Write that messages are about to be sent back, on disk before this returns."""
        query = "SELECT id, state FROM archived WHERE id IN (SELECT value FROM json_each(?))"
        with self.transaction() as database:
            found = database.execute(query, (json.dumps(list(expected)),)).fetchall()
            claimed = {row for row, state in found if state == expected[row]}
            database.execute(_MARK, (ArchiveState.RETURNING, json.dumps([*claimed])))
        return claimed

    # ---------------------------------------------------------------- size

    @property
    def size(self) -> int:
        """Return how many bytes the archived messages take on disk."""
        if not self.path.exists():
            return 0
        with self.transaction() as database:
            return _used(database)

    def prune(self, *, older_than: timedelta | None = None) -> int:
        """Remove old messages for good, and give their room on disk back.

        Args:
            older_than: those that were archived longer ago than this; None for those whose retention is over.

        Returns:
            How many were removed.
        """
        column, before = "keep_until", time.time()
        if older_than is not None:
            column, before = "archived", before - older_than.total_seconds()
        with self.transaction() as database:
            count = database.execute(f"DELETE FROM archived WHERE {column} < ?", (before,)).rowcount  # noqa: S608
        self.vacuum()
        return count

    def _prune_a_little(self, database: sqlite3.Connection) -> None:
        if time.monotonic() < self._prune_at:
            return
        ended = "SELECT id FROM archived WHERE keep_until < ? ORDER BY keep_until LIMIT ?"
        delete = f"DELETE FROM archived WHERE id IN ({ended})"  # noqa: S608 (as above)
        if database.execute(delete, (time.time(), _PRUNED_AT_ONCE)).rowcount < _PRUNED_AT_ONCE:
            self._prune_at = time.monotonic() + 60

    def _require_room(self, database: sqlite3.Connection, size: int) -> None:
        self._prune_a_little(database)
        if _used(database) + size > self.max_bytes:
            said = f"Nothing was removed: the archive {self.path} is full, it may hold {self.max_bytes:,} bytes."
            raise ArchiveError(f"{said} {_WAYS_ON}")

    def _unusable(self, error: Exception) -> ArchiveError:
        return ArchiveError(f"Nothing was done, because the archive {self.path} cannot be used ({error}). {_WAYS_ON}")


def room_for(payload: int, entity_path: str, given_id: str | None) -> int:
    """Return how many bytes of the archive a message takes at most."""
    entity, message_id = entity_path.encode(), (given_id or "").encode(errors="replace")
    row = payload + _ROW_BYTES + len(entity) + len(message_id)
    return (_PAGE // (_PAGE // row) if row <= _PAGE else row + _PAGE) + _INDEX_BYTES + len(entity)


def _used(database: sqlite3.Connection) -> int:
    pages = "FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()"
    return database.execute(f"SELECT (page_count - freelist_count) * page_size {pages}").fetchone()[0]
