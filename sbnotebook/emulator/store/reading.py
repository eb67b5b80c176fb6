"""Reading the tables: summaries at the start, shelves and payloads when they are asked for."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from typing import Final

from sbnotebook.emulator.entities.changes import BOXES_PER_ENTITY
from sbnotebook.emulator.entities.message import BrokeredMessage, MessageState
from sbnotebook.emulator.entities.message_log import SHELF, ShelfSummary
from sbnotebook.emulator.entities.snapshot import Snapshot, StoredBox, StoredEntity, StoredMessageId, StoredSession

__all__ = ["MAX_SHELF_PAYLOAD", "read_orphans", "read_payload", "read_shelf", "read_snapshot"]

MAX_SHELF_PAYLOAD: Final = 16_384
"""Bytes of the largest payload that comes with its shelf: a shelf of larger ones could take a gigabyte."""

_SUMMARIES: Final = f"""
SELECT box, sequence_number / {SHELF}, count(*), sum(size), sum(state = {MessageState.ACTIVE:d}),
    min(CASE WHEN state = {MessageState.ACTIVE:d} THEN expires_at END), sum(state = {MessageState.DEFERRED:d})
FROM message GROUP BY 1, 2 ORDER BY 1, 2
"""  # noqa: S608 - nothing but numbers
_SCHEDULED: Final = f"""
SELECT box, scheduled_time, sequence_number FROM message WHERE state = {MessageState.SCHEDULED:d}
ORDER BY box, scheduled_time, sequence_number
"""  # noqa: S608 - nothing but numbers
_SHELF_OF_MESSAGES: Final = f"""
SELECT sequence_number, enqueued_sequence_number, enqueued_time,
    CASE WHEN size <= {MAX_SHELF_PAYLOAD} THEN (SELECT bytes FROM payload WHERE id = payload_id) END,
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


def read_snapshot(database: sqlite3.Connection, now: int) -> Snapshot:
    """Read what the entities start from; no message is read.

    Args:
        database: the open file.
        now: ms; message ids whose time has passed by then are left out.

    Raises:
        sqlite3.DatabaseError: the file is damaged.
        ValueError: it has something that the emulator never wrote.
    """
    entities = [
        StoredEntity(entity_id, kind, path, json.loads(description), *rest)
        for entity_id, kind, path, description, *rest in database.execute(
            "SELECT id, kind, path, description, created_time, updated_time, last_sequence_number FROM entity"
            " ORDER BY kind = 'subscription', id"
        )
    ]
    sessions = map(StoredSession._make, database.execute("SELECT box, session_id, state, updated_time FROM session"))
    seen = database.execute(
        "SELECT entity_id, message_id, until FROM seen WHERE until > ? ORDER BY entity_id, until", (now,)
    )
    return Snapshot(entities, _read_boxes(database), list(sessions), list(map(StoredMessageId._make, seen)))


def read_orphans(database: sqlite3.Connection) -> set[int]:
    """Numbers of entities that are gone, of which ids and sessions are left."""
    return {entity_id for (entity_id,) in database.execute(_ORPHANS)}


def read_shelf(database: sqlite3.Connection, box: int, shelf: int) -> list[BrokeredMessage]:
    """Read the messages of a shelf in order, without those payloads that are large.

    Raises:
        sqlite3.DatabaseError: the file is damaged.
        ValueError: it has something that the emulator never wrote.
    """
    return [
        BrokeredMessage(number, first_number, enqueued, _checked(payload, size), size, MessageState(state), *rest)
        for number, first_number, enqueued, payload, size, state, *rest in database.execute(
            _SHELF_OF_MESSAGES, (box, shelf * SHELF, (shelf + 1) * SHELF)
        )
    ]


def read_payload(database: sqlite3.Connection, box: int, sequence_number: int) -> bytes:
    """Read the payload of a message that is there.

    Raises:
        sqlite3.DatabaseError: the file is damaged.
        ValueError: the message is not there, or has lost its payload.
    """
    row = database.execute(_PAYLOAD, (box, sequence_number)).fetchone()
    size, payload = row or (0, None)
    if payload is None or len(payload) != size:
        raise ValueError(_LOST)
    return payload


_LOST: Final = "a message has lost its payload"


def _checked(payload: bytes | None, size: int) -> bytes | None:
    if (payload is None) != (size > MAX_SHELF_PAYLOAD) or (payload is not None and len(payload) != size):
        raise ValueError(_LOST)
    return payload


def _read_boxes(database: sqlite3.Connection) -> dict[int, StoredBox]:
    scheduled: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for box, time, number in database.execute(_SCHEDULED):
        scheduled[box].append((time, number))
    shelves: defaultdict[int, list[ShelfSummary]] = defaultdict(list)
    deferred: defaultdict[int, int] = defaultdict(int)
    for box, number, count, size, active, next_expiry, deferred_count in database.execute(_SUMMARIES):
        shelves[box].append(ShelfSummary(number, count, size, active, next_expiry))
        deferred[box] += deferred_count
    return {box: StoredBox(found, deferred[box], scheduled[box]) for box, found in shelves.items()}
