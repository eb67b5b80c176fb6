"""Writing changes in few statements: a message that came and went within one turn is not written at all."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable
from typing import Any, Final

from sbnotebook.emulator.entities.changes import (
    BOXES_PER_ENTITY,
    Change,
    EntityDeleted,
    EntitySaved,
    MessageAdded,
    MessageIdSeen,
    MessageRemoved,
    MessageUpdated,
    SessionStateSet,
)
from sbnotebook.emulator.entities.message import BrokeredMessage
from sbnotebook.emulator.entities.partitions import PARTITION_SHIFT

_Key = tuple[int, int]
"""Box and sequence number."""
_COUNTER: Final = (1 << PARTITION_SHIFT) - 1
_SWEPT: Final = 500
"""Rows of deleted entities that a turn removes: what takes a few ms."""

_KEEP_ENTITY: Final = """
INSERT INTO entity (id, kind, path, description, created_time, updated_time) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET path = excluded.path, description = excluded.description,
    created_time = excluded.created_time, updated_time = excluded.updated_time
"""
_COUNT_UP: Final = f"""
UPDATE entity SET last_sequence_number = ?1 WHERE id = ?2 AND last_sequence_number & {_COUNTER} < ?1 & {_COUNTER}
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
    """Writes changes; the caller begins and ends the transaction.

    Changes of messages are collected until an entity changes, because their order counts for that only.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.swept: set[int] = set()  # entities that are gone, of which something is left
        self._payload_id: int = database.execute("SELECT coalesce(max(id), 0) FROM payload").fetchone()[0]
        self._added: dict[_Key, BrokeredMessage] = {}
        self._updated: dict[_Key, MessageUpdated] = {}
        self._removed: set[_Key] = set()
        self._last: dict[int, int] = {}
        self._sessions: dict[tuple[int, str], SessionStateSet] = {}
        self._seen: list[MessageIdSeen] = []
        self._takers: dict[type[Change], Callable[[Any], None]] = {
            EntitySaved: self._keep_entity,
            EntityDeleted: self._delete_entity,
            MessageAdded: self._add,
            MessageUpdated: self._update,
            MessageRemoved: self._remove,
            SessionStateSet: self._set_session_state,
            MessageIdSeen: self._seen.append,
        }

    def write(self, changes: Iterable[Change]) -> None:
        """Write these changes, and remove some of the remains of deleted entities."""
        takers = self._takers
        for change in changes:
            takers[type(change)](change)
        self._flush()
        if self.swept:
            self._sweep(next(iter(self.swept)))

    def _add(self, change: MessageAdded) -> None:
        message = change.message
        number = message.sequence_number
        self._added[change.box, number] = message
        entity_id = change.box // BOXES_PER_ENTITY
        if number & _COUNTER > self._last.get(entity_id, 0) & _COUNTER:
            self._last[entity_id] = number

    def _update(self, change: MessageUpdated) -> None:
        key = change.box, change.message.sequence_number
        if key in self._added:
            self._added[key] = change.message
            return
        earlier = self._updated.get(key)
        if earlier is None or change.has_new_payload or not earlier.has_new_payload:
            self._updated[key] = change
        else:
            self._updated[key] = MessageUpdated(change.box, change.message, has_new_payload=True)

    def _remove(self, change: MessageRemoved) -> None:
        key = change.box, change.sequence_number
        if self._added.pop(key, None) is None:
            self._updated.pop(key, None)
            self._removed.add(key)

    def _set_session_state(self, change: SessionStateSet) -> None:
        self._sessions[change.box, change.session_id] = change

    def _keep_entity(self, change: EntitySaved) -> None:
        self._flush()
        while change.entity_id in self.swept:  # Its number is given out again.
            self._sweep(change.entity_id)
        description = json.dumps(change.description)
        row = (change.entity_id, change.kind, change.path, description, change.created_time, change.updated_time)
        self._database.execute(_KEEP_ENTITY, row)

    def _delete_entity(self, change: EntityDeleted) -> None:
        self._flush()
        self._database.execute("DELETE FROM entity WHERE id = ?", (change.entity_id,))
        self.swept.add(change.entity_id)

    def _flush(self) -> None:
        """Write the collected changes; removals first, because a number may come back to its box."""
        execute = self._database.executemany
        if self._removed:
            execute(_REMOVE, _runs(self._removed))
        if self._last:
            execute(_COUNT_UP, [(number, entity_id) for entity_id, number in self._last.items()])
        if self._added:
            self._write_added()
        if self._updated:
            self._write_updated()
        self._write_sessions()
        if self._seen:
            self._write_seen()
        for collected in (self._removed, self._last, self._added, self._updated, self._sessions, self._seen):
            collected.clear()

    def _write_added(self) -> None:
        rows: list[tuple[object, ...]] = []
        plain_rows: list[tuple[object, ...]] = []
        payloads: list[tuple[int, bytes]] = []
        payload_id = self._payload_id
        # Most messages are plain, which makes a row that is faster to write.
        for (box, number), message in self._added.items():
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

    def _write_updated(self) -> None:
        self._database.executemany(_UPDATE, [(*_fields(change.message), *key) for key, change in self._updated.items()])
        payloads = [(_payload(change.message), *key) for key, change in self._updated.items() if change.has_new_payload]
        self._database.executemany(_UPDATE_PAYLOAD, payloads)

    def _write_sessions(self) -> None:
        for (box, session_id), change in self._sessions.items():
            if change.state is None:
                self._database.execute("DELETE FROM session WHERE box = ? AND session_id = ?", (box, session_id))
            else:
                row = (box, session_id, change.state, change.updated_time)
                self._database.execute("INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?)", row)

    def _write_seen(self) -> None:
        rows = [(change.entity_id, change.message_id, change.until) for change in self._seen]
        self._database.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", rows)
        # The newest id tells the time. More are forgotten than come in, so that none stays for long.
        now = max(change.seen_at for change in self._seen)
        self._database.execute(_FORGET, (now, max(_SWEPT, 2 * len(rows))))

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
