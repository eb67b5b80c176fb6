"""The store of an emulator: everything that it has confirmed is in one SQLite file.

All changes of one turn of the event loop are one transaction, and nothing is confirmed to a client
before it. The file is in write-ahead mode with ``synchronous=NORMAL``: committed changes survive any
end of the process (SQLite documentation, "Write-Ahead Logging").
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from sbnotebook.emulator.entities.changes import BOXES_PER_ENTITY, Changes
from sbnotebook.emulator.entities.message import BrokeredMessage, BrokeredState
from sbnotebook.emulator.entities.message_log import SHELF, ShelfSummary
from sbnotebook.emulator.entities.snapshot import Snapshot, StoredBox
from sbnotebook.emulator.store.opening import FILE_NAME, open_database, opening_error
from sbnotebook.emulator.store.writing import Writer
from sbnotebook.errors import EmulatorError

# Bytes of the largest payload that comes with its shelf: a shelf of larger ones could take a gigabyte
_MAX_SHELF_PAYLOAD: Final = 16_384

_SUMMARIES: Final = f"""
SELECT box, sequence_number / {SHELF}, count(*), sum(size), sum(state = {BrokeredState.ACTIVE:d}),
    min(CASE WHEN state = {BrokeredState.ACTIVE:d} THEN expires_at END), sum(state = {BrokeredState.DEFERRED:d})
FROM message GROUP BY 1, 2 ORDER BY 1, 2
"""  # noqa: S608 - nothing but numbers
_SCHEDULED: Final = f"""
SELECT box, scheduled_time, sequence_number FROM message WHERE state = {BrokeredState.SCHEDULED:d}
ORDER BY box, scheduled_time, sequence_number
"""  # noqa: S608 - nothing but numbers
_SHELF_OF_MESSAGES: Final = f"""
SELECT sequence_number, enqueued_sequence_number, enqueued_time,
    CASE WHEN size <= {_MAX_SHELF_PAYLOAD} THEN (SELECT bytes FROM payload WHERE id = payload_id) END,
    size, state, scheduled_time, delivery_count, expires_at, session_id, dead_letter_source, hops
FROM message WHERE box = ? AND sequence_number >= ? AND sequence_number < ? ORDER BY sequence_number
"""  # noqa: S608 - nothing but numbers
_PAYLOAD: Final = """
SELECT size, bytes FROM message LEFT JOIN payload ON id = payload_id WHERE box = ? AND sequence_number = ?
"""
_ORPHANS: Final = f"""
SELECT DISTINCT entity_id FROM seen WHERE entity_id NOT IN (SELECT id FROM entity)
UNION SELECT DISTINCT box / {BOXES_PER_ENTITY} FROM session
    WHERE box / {BOXES_PER_ENTITY} NOT IN (SELECT id FROM entity)
"""  # noqa: S608 - nothing but numbers
_LOST: Final = "a message has lost its payload"


class Store:
    """The file of one data directory; no second process can have it open at the same time."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self._failure: Exception | None = None
        try:
            with ExitStack() as stack:
                self._database = stack.enter_context(open_database(directory))
                self._writer = Writer(self._database)
                self._exit = stack.pop_all()
        except (sqlite3.DatabaseError, OSError) as error:
            raise opening_error(self.path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def load(self, now: int) -> Snapshot:
        """Read the snapshot that a registry is restored from: summaries, no messages."""
        try:
            snapshot = _read_snapshot(self._database, now)
            orphans = _read_orphans(self._database)
            known = {entity_id for entity_id, *_ in snapshot[0]}
            gone = {box // BOXES_PER_ENTITY for box in snapshot[1]} - known | orphans
            self._writer.swept |= gone
        except (sqlite3.DatabaseError, ValueError) as error:
            self.close()
            raise opening_error(self.path, error) from error
        return _without(snapshot, gone)

    @property
    def identity(self) -> str:
        """Return the identity of the namespace, which stays the same for as long as the file does."""
        return str(self._database.execute("SELECT id FROM identity").fetchone()[0])

    def save_identity(self, identity: str) -> None:
        """Write a new identity, of a namespace that was emptied."""
        self._database.execute("UPDATE identity SET id = ?", (identity,))

    def load_shelf(self, box: int, shelf: int) -> list[BrokeredMessage]:
        """Read the messages of a shelf in order; those payloads that are large are None."""
        try:
            return _read_shelf(self._database, box, shelf)
        except (sqlite3.Error, ValueError) as error:
            raise self._failed(error) from error

    def load_payload(self, box: int, sequence_number: int) -> bytes:
        try:
            return _read_payload(self._database, box, sequence_number)
        except (sqlite3.Error, ValueError) as error:
            raise self._failed(error) from error

    def apply(self, changes: Changes) -> None:
        """Write these changes, all of them or none."""
        if self._failure is not None:
            raise self._failure
        if not changes:
            return
        try:
            with self._database:
                self._database.execute("BEGIN")
                self._writer.write(changes)
        except (sqlite3.Error, ValueError) as error:
            self._failure = error
            raise

    def close(self) -> None:
        self._exit.close()

    def _failed(self, error: Exception) -> EmulatorError:
        self._failure = failure = opening_error(self.path, error)
        return failure


def _without(snapshot: Snapshot, gone: set[int]) -> Snapshot:
    """Return the snapshot without the remains of deleted entities."""
    entities, boxes, sessions, seen = snapshot
    return (
        entities,
        {box: found for box, found in boxes.items() if box // BOXES_PER_ENTITY not in gone},
        [session for session in sessions if session[0] // BOXES_PER_ENTITY not in gone],
        [each for each in seen if each[0] not in gone],
    )


def _read_snapshot(database: sqlite3.Connection, now: int) -> Snapshot:
    entities = [
        (entity_id, kind, path, json.loads(description), *rest)
        for entity_id, kind, path, description, *rest in database.execute(
            "SELECT id, kind, path, description, created_time, updated_time, last_sequence_number FROM entity"
            " ORDER BY kind = 'subscription', id"
        )
    ]
    sessions = database.execute("SELECT box, session_id, state, updated_time FROM session")
    seen = database.execute(
        "SELECT entity_id, message_id, until FROM seen WHERE until > ? ORDER BY entity_id, until", (now,)
    )
    return entities, _read_boxes(database), list(sessions), list(seen)


def _read_orphans(database: sqlite3.Connection) -> set[int]:
    """Return the numbers of deleted entities of which ids and sessions are left."""
    return {entity_id for (entity_id,) in database.execute(_ORPHANS)}


def _read_shelf(database: sqlite3.Connection, box: int, shelf: int) -> list[BrokeredMessage]:
    return [
        BrokeredMessage(number, first_number, enqueued, _checked(payload, size), size, BrokeredState(state), *rest)
        for number, first_number, enqueued, payload, size, state, *rest in database.execute(
            _SHELF_OF_MESSAGES, (box, shelf * SHELF, (shelf + 1) * SHELF)
        )
    ]


def _read_payload(database: sqlite3.Connection, box: int, sequence_number: int) -> bytes:
    row = database.execute(_PAYLOAD, (box, sequence_number)).fetchone()
    size, payload = row or (0, None)
    if payload is None or len(payload) != size:
        raise ValueError(_LOST)
    return payload


def _checked(payload: bytes | None, size: int) -> bytes | None:
    if (payload is None) != (size > _MAX_SHELF_PAYLOAD) or (payload is not None and len(payload) != size):
        raise ValueError(_LOST)
    return payload


def _read_boxes(database: sqlite3.Connection) -> dict[int, StoredBox]:
    scheduled: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for box, time, number in database.execute(_SCHEDULED):
        scheduled[box].append((time, number))
    shelves: defaultdict[int, list[ShelfSummary]] = defaultdict(list)
    deferred: defaultdict[int, int] = defaultdict(int)
    for box, number, count, size, active, next_expiry, deferred_count in database.execute(_SUMMARIES):
        shelves[box].append((number, count, size, active, next_expiry))
        deferred[box] += deferred_count
    return {box: (found, deferred[box], scheduled[box]) for box, found in shelves.items()}
