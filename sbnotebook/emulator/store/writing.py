"""Writing changes in few statements: a message that came and went within one turn is not written at all."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Final

from sbnotebook.emulator.entities.changes import BOXES_PER_ENTITY, COUNTER, Changes
from sbnotebook.emulator.entities.message import BrokeredMessage

_Key = tuple[int, int]  # Box and sequence number
_SWEPT: Final = 500  # Rows of deleted entities that a turn removes: what takes a few ms

_KEEP_ENTITY: Final = """
INSERT INTO entity (id, kind, path, description, created_time, updated_time) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET path = excluded.path, description = excluded.description,
    created_time = excluded.created_time, updated_time = excluded.updated_time
"""
_COUNT_UP: Final = f"""
UPDATE entity SET last_sequence_number = ?1 WHERE id = ?2 AND last_sequence_number & {COUNTER} < ?1 & {COUNTER}
"""  # noqa: S608 - nothing but numbers
_ADD: Final = "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
# As most messages are. To bind None takes longer than all the rest of a row: sqlite3 looks for an adapter each time.
_ADD_PLAIN: Final = """
INSERT INTO message (box, sequence_number, enqueued_sequence_number, enqueued_time, size, state, delivery_count, hops,
    payload_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_REMOVE: Final = "DELETE FROM message WHERE box = ? AND sequence_number BETWEEN ? AND ?"
_UPDATE: Final = """
UPDATE message SET enqueued_sequence_number = ?, enqueued_time = ?, size = ?, state = ?, scheduled_time = ?,
    delivery_count = ?, expires_at = ?, session_id = ?, dead_letter_source = ?, hops = ?
WHERE box = ? AND sequence_number = ?
"""
_UPDATE_PAYLOAD: Final = """
UPDATE payload SET bytes = ? WHERE id = (SELECT payload_id FROM message WHERE box = ? AND sequence_number = ?)
"""
_SWEEP_MESSAGES: Final = f"""
DELETE FROM message WHERE (box, sequence_number) IN
    (SELECT box, sequence_number FROM message WHERE box >= ? AND box < ? LIMIT {_SWEPT})
"""  # noqa: S608 - nothing but numbers
_SWEEP_SEEN: Final = f"""
DELETE FROM seen WHERE (entity_id, message_id) IN
    (SELECT entity_id, message_id FROM seen WHERE entity_id = ? LIMIT {_SWEPT})
"""  # noqa: S608 - nothing but numbers
_FORGET: Final = """
DELETE FROM seen WHERE (entity_id, message_id) IN
    (SELECT entity_id, message_id FROM seen WHERE until <= ? ORDER BY until LIMIT ?)
"""


class Writer:
    """Writes changes; the caller begins and ends the transaction."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.swept: set[int] = set()  # entities that are gone, of which something is left
        self._payload_id: int = database.execute("SELECT coalesce(max(id), 0) FROM payload").fetchone()[0]

    def write(self, changes: Changes) -> None:
        """Write these changes, and remove some of the remains of deleted entities."""
        self._write_entities(changes)
        self._write_messages(changes)
        self._write_sessions(changes)
        if changes.seen:
            self._database.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", changes.seen)
            # More are forgotten than come in, so that none stays for long.
            self._database.execute(_FORGET, (changes.seen_at, max(_SWEPT, 2 * len(changes.seen))))
        if self.swept:
            self._sweep(next(iter(self.swept)))

    def _write_entities(self, changes: Changes) -> None:
        for entity_id, row in changes.entities:
            if row is None:
                self._database.execute("DELETE FROM entity WHERE id = ?", (entity_id,))
                self.swept.add(entity_id)
                continue
            while entity_id in self.swept:  # Its number is given out again.
                self._sweep(entity_id)
            kind, path, description, *times = row
            self._database.execute(_KEEP_ENTITY, (entity_id, kind, path, json.dumps(description), *times))

    def _write_messages(self, changes: Changes) -> None:
        # Removals first, because a number may come back to its box.
        execute = self._database.executemany
        if changes.removed:
            execute(_REMOVE, _runs(changes.removed))
        if changes.last:
            execute(_COUNT_UP, [(number, entity_id) for entity_id, number in changes.last.items()])
        if changes.added:
            self._write_added(changes.added)
        if changes.updated:
            execute(_UPDATE, [(*_fields(message), *key) for key, message in changes.updated.items()])
            execute(_UPDATE_PAYLOAD, [(_payload(changes.updated[key]), *key) for key in changes.rewritten])

    def _write_added(self, added: Mapping[_Key, BrokeredMessage]) -> None:
        rows: list[tuple[object, ...]] = []
        plain_rows: list[tuple[object, ...]] = []
        payloads: list[tuple[int, bytes]] = []
        payload_id = self._payload_id
        # Most messages are plain, which makes a row that is faster to write.
        for (box, number), message in added.items():
            payload_id += 1
            payloads.append((payload_id, _payload(message)))
            if _is_plain(message):
                numbers = message.enqueued_sequence_number, message.enqueued_time, message.size, int(message.state)
                plain_rows.append((box, number, *numbers, message.delivery_count, message.hops, payload_id))
            else:
                rows.append((box, number, *_fields(message), payload_id))
        self._payload_id = payload_id
        self._database.executemany(_ADD, rows)
        self._database.executemany(_ADD_PLAIN, plain_rows)
        self._database.executemany("INSERT INTO payload VALUES (?, ?)", payloads)

    def _write_sessions(self, changes: Changes) -> None:
        for key, (state, updated_time) in changes.sessions.items():
            if state is None:
                self._database.execute("DELETE FROM session WHERE box = ? AND session_id = ?", key)
            else:
                row = (*key, state, updated_time)
                self._database.execute("INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?)", row)

    def _sweep(self, entity_id: int) -> None:
        """Remove some of the remains of a deleted entity."""
        box = entity_id * BOXES_PER_ENTITY
        boxes = (box, box + BOXES_PER_ENTITY)
        self._database.execute("DELETE FROM session WHERE box >= ? AND box < ?", boxes)
        if (
            self._database.execute(_SWEEP_MESSAGES, boxes).rowcount < _SWEPT
            and self._database.execute(_SWEEP_SEEN, (entity_id,)).rowcount < _SWEPT
        ):
            self.swept.discard(entity_id)


def _runs(keys: Iterable[_Key]) -> list[tuple[int, int, int]]:
    """Return box, first and last of numbers that follow each other, so that one statement removes them."""
    runs: list[tuple[int, int, int]] = []
    box, first, last = -1, 0, 0
    for key in sorted(keys):
        if key == (box, last + 1):
            last += 1
            continue
        if box >= 0:
            runs.append((box, first, last))
        box, first = key
        last = first
    return [*runs, (box, first, last)]


def _fields(message: BrokeredMessage) -> tuple[object, ...]:
    return (
        message.enqueued_sequence_number,
        message.enqueued_time,
        message.size,
        int(message.state),  # A number of another type is slow to bind.
        message.scheduled_time,
        message.delivery_count,
        message.expires_at,
        message.session_id,
        message.dead_letter_source,
        message.hops,
    )


def _is_plain(message: BrokeredMessage) -> bool:
    """Tell whether the store keeps only numbers of a message, besides its payload."""
    return (
        message.scheduled_time is None
        and message.expires_at is None
        and message.session_id is None
        and message.dead_letter_source is None
    )


def _payload(message: BrokeredMessage) -> bytes:
    if message.payload is None:
        text = f"the message {message.sequence_number} came without its payload"
        raise ValueError(text)
    return message.payload
