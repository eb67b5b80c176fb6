"""Files of older versions, with their tables as they were."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import astuple
from pathlib import Path

import pytest

from sbnotebook.emulator.entities.changes import MessageRemoved
from sbnotebook.emulator.entities.message import BrokeredMessage, MessageState
from sbnotebook.emulator.entities.snapshot import StoredEntity
from sbnotebook.emulator.store import FILE_NAME, Store
from sbnotebook.emulator.store.opening import MIGRATIONS
from sbnotebook.errors import EmulatorError

VERSION_1 = """
BEGIN;
CREATE TABLE queue (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    created_time INTEGER NOT NULL,
    lock_duration INTEGER NOT NULL,
    max_delivery_count INTEGER NOT NULL,
    last_sequence_number INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE message (
    queue INTEGER NOT NULL REFERENCES queue (id) ON DELETE CASCADE,
    sequence_number INTEGER NOT NULL,
    enqueued_sequence_number INTEGER NOT NULL,
    enqueued_time INTEGER NOT NULL,
    scheduled_time INTEGER,
    state INTEGER NOT NULL,
    delivery_count INTEGER NOT NULL,
    is_dead_lettered INTEGER NOT NULL,
    payload BLOB NOT NULL,
    PRIMARY KEY (queue, sequence_number)
);
PRAGMA application_id = 1396862562;
PRAGMA user_version = 1;
COMMIT;
"""


def payload(number: int) -> bytes:
    return bytes([number % 256]) * (number * 10)


def make_version_1(directory: Path) -> Path:
    """Two queues, the second without messages; a third of the messages is dead-lettered."""
    path = directory / FILE_NAME
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(VERSION_1)
        database.execute("INSERT INTO queue VALUES (3, 'Orders', 77, 30000, 5, 2500)")
        database.execute("INSERT INTO queue VALUES (4, 'empty', 78, 60000, 10, 0)")
        rows = [
            (3, n, n - 1, 100 + n, 900 + n if n % 3 == 2 else None, n % 3, n % 7, n % 3 == 0, payload(n))
            for n in range(1, 2001)
        ]
        database.executemany("INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    return path


def test_a_file_of_version_1_has_everything_in_version_2(tmp_path: Path) -> None:
    path = make_version_1(tmp_path)
    for _ in range(2):  # the second time it is migrated already
        with Store(tmp_path) as store:
            snapshot = store.load(0)
            assert snapshot.entities == [
                StoredEntity(3, "queue", "Orders", {"lock_duration": 30_000, "max_delivery_count": 5}, 77, 77, 2500),
                StoredEntity(4, "queue", "empty", {"lock_duration": 60_000, "max_delivery_count": 10}, 78, 78, 0),
            ]
            assert set(snapshot.boxes) == {12, 13}
            numbers = [number for box in (12, 13) for number in found(store, box)]
            assert sorted(numbers) == list(range(1, 2001))
            assert snapshot.boxes[12].scheduled == [(900 + n, n) for n in range(2, 2001, 3)]
    assert path.read_bytes()[60:64] == b"\0\0\0\2"
    with Store(tmp_path) as store:
        store.load(0)
        store.apply([MessageRemoved(12, 1)])
        assert 1 not in found(store, 12)


def found(store: Store, box: int) -> list[int]:
    """The numbers in a box, every message checked."""
    messages = [message for shelf in range(2) for message in store.load_shelf(box, shelf)]
    for message in messages:
        n = message.sequence_number
        message.payload = store.load_payload(box, n)
        assert box == (13 if n % 3 == 0 else 12)
        scheduled_time = 900 + n if n % 3 == 2 else None
        expected = BrokeredMessage(n, n - 1, 100 + n, payload(n), 10 * n, MessageState(n % 3), scheduled_time, n % 7)
        assert astuple(message) == astuple(expected)
    return [message.sequence_number for message in messages]


def test_a_damaged_file_of_version_1_is_left_as_it_is(tmp_path: Path) -> None:
    path = make_version_1(tmp_path)
    content = bytearray(path.read_bytes())
    content[40 * 4096 : 41 * 4096] = b"\xee" * 4096
    path.write_bytes(content)
    with pytest.raises(EmulatorError, match="cannot be read"):
        Store(tmp_path)
    assert path.read_bytes() == bytes(content)


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_migration_that_was_killed_is_done_once(tmp_path: Path, is_committed: bool) -> None:
    """Its result may be only in the write-ahead log: then the header of the file still says 1."""
    left = {}
    path = make_version_1(tmp_path)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA wal_autocheckpoint = 0")
        database.execute("PRAGMA cache_size = 10")  # so that it writes before it commits
        database.executescript(MIGRATIONS[1] if is_committed else MIGRATIONS[1].replace("COMMIT;", ""))
        left = {each: each.read_bytes() for each in (path, path.with_name(FILE_NAME + "-wal"))}
    for each, content in left.items():
        each.write_bytes(content)
    assert left[path][60:64] == b"\0\0\0\1"
    assert len(left[path.with_name(FILE_NAME + "-wal")]) > 100_000
    with Store(tmp_path) as store:
        store.load(0)
        assert len(found(store, 12)) + len(found(store, 13)) == 2000
