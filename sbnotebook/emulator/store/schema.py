"""The tables of the file, and how those of older versions become the present ones."""

from __future__ import annotations

from typing import Final

__all__ = ["APPLICATION_ID", "MIGRATIONS", "SCHEMA", "VERSION"]

APPLICATION_ID: Final = 0x53426E62
"""Says in the file's header whose it is (SQLite documentation, "PRAGMA application_id")."""
VERSION: Final = 2

_TABLES: Final = """
CREATE TABLE entity (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    path TEXT NOT NULL,
    description TEXT NOT NULL,
    created_time INTEGER NOT NULL,
    updated_time INTEGER NOT NULL,
    last_sequence_number INTEGER NOT NULL DEFAULT 0
);
-- The rows are small, so that all of them are soon counted.
CREATE TABLE message (
    box INTEGER NOT NULL,
    sequence_number INTEGER NOT NULL,
    enqueued_sequence_number INTEGER NOT NULL,
    enqueued_time INTEGER NOT NULL,
    size INTEGER NOT NULL,
    state INTEGER NOT NULL,
    scheduled_time INTEGER,
    delivery_count INTEGER NOT NULL,
    expires_at INTEGER,
    session_id TEXT,
    dead_letter_source TEXT,
    hops INTEGER NOT NULL,
    payload_id INTEGER NOT NULL,
    PRIMARY KEY (box, sequence_number)
) WITHOUT ROWID;
CREATE INDEX scheduled_message ON message (box, scheduled_time) WHERE state = 2;
CREATE TABLE payload (
    id INTEGER PRIMARY KEY,
    bytes BLOB NOT NULL
);
CREATE TRIGGER message_is_gone AFTER DELETE ON message BEGIN
    DELETE FROM payload WHERE id = OLD.payload_id;
END;
CREATE TABLE session (
    box INTEGER NOT NULL,
    session_id TEXT NOT NULL,
    state BLOB NOT NULL,
    updated_time INTEGER NOT NULL,
    PRIMARY KEY (box, session_id)
) WITHOUT ROWID;
CREATE TABLE seen (
    entity_id INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (entity_id, message_id)
) WITHOUT ROWID;
CREATE INDEX seen_until ON seen (until);
"""
_STAMP: Final = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
"""

SCHEMA: Final = f"BEGIN;{_TABLES}{_STAMP}COMMIT;"

# Version 1 had queues only. Their messages did not expire, so they do not begin to.
_FROM_1: Final = f"""
BEGIN IMMEDIATE;
ALTER TABLE queue RENAME TO old_queue;
ALTER TABLE message RENAME TO old_message;
{_TABLES}
INSERT INTO entity
    SELECT id, 'queue', name,
        json_object('lock_duration', lock_duration, 'max_delivery_count', max_delivery_count),
        created_time, created_time, last_sequence_number
    FROM old_queue;
INSERT INTO payload SELECT rowid, payload FROM old_message ORDER BY rowid;
INSERT INTO message
    SELECT queue * 4 + is_dead_lettered, sequence_number, enqueued_sequence_number, enqueued_time,
        length(payload), state, scheduled_time, delivery_count, NULL, NULL, NULL, 0, rowid
    FROM old_message;
DROP TABLE old_message;
DROP TABLE old_queue;
{_STAMP}
COMMIT;
"""  # noqa: S608 - nothing but numbers

MIGRATIONS: Final = {1: _FROM_1}
"""By the version that a file has: one transaction that makes it the present one."""
