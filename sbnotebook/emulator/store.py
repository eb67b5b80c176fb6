"""The store of an emulator: everything that it has confirmed is in one SQLite file.

All changes of one turn of the event loop are one transaction, and nothing is confirmed to a client
before it. The file is in write-ahead mode with ``synchronous=NORMAL``: committed changes survive any
end of the process (SQLite documentation, "Write-Ahead Logging").
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

from sbnotebook.emulator.entities.box import BOXES_PER_ENTITY
from sbnotebook.emulator.entities.message import BrokeredMessage, BrokeredState
from sbnotebook.emulator.entities.message_log import SHELF
from sbnotebook.emulator.entities.registry import Changes, Snapshot
from sbnotebook.errors import EmulatorError

FILE_NAME: Final = "emulator.sqlite3"
_LOCK_FILE: Final = "emulator.lock"
BUSY_TIMEOUT: Final = 5.0  # Seconds to wait for an emulator that is ending
APPLICATION_ID: Final = 0x53426E62
"""Marks the file in its header as the emulator's (SQLite documentation, "PRAGMA application_id")."""
VERSION: Final = 2

_SCHEMA: Final = f"""
BEGIN;
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
CREATE TABLE identity (id TEXT NOT NULL);
INSERT INTO identity VALUES (lower(hex(randomblob(16))));
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
COMMIT;
"""  # noqa: S608 - nothing of a client
_OPENING: Final = """
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
-- 64 MB instead of 4: it waits for the disk less often.
PRAGMA wal_autocheckpoint = 16000;
-- Some systems build SQLite so that it writes even free pages once more, to overwrite the old bytes.
PRAGMA secure_delete = FAST;
-- Beginning to write keeps SQLite's other tools out from now on.
BEGIN IMMEDIATE;
COMMIT;
"""

# Bytes of the largest payload that comes with its shelf: a shelf of larger ones could take a gigabyte
_MAX_SHELF_PAYLOAD: Final = 16_384

_ENTITIES: Final = """
SELECT id, kind, path, description, created_time, updated_time, last_sequence_number FROM entity
ORDER BY kind = 'subscription', id
"""
_SHELVES: Final = f"""
SELECT box, sequence_number / {SHELF}, count(*), sum(size), sum(state = {BrokeredState.ACTIVE:d}),
    min(CASE state WHEN {BrokeredState.SCHEDULED:d} THEN scheduled_time
        WHEN {BrokeredState.ACTIVE:d} THEN expires_at END),
    sum(state = {BrokeredState.DEFERRED:d}), sum(state = {BrokeredState.SCHEDULED:d})
FROM message GROUP BY 1, 2 ORDER BY 1, 2
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

_SWEPT: Final = 500  # Rows of deleted entities that a turn removes: what takes a few ms

# To bind None takes longer than all the rest of a row: sqlite3 looks for an adapter each time.
_NONE: Final = -0.5  # In place of None; no column has such a value
_OR_NULL: Final = f"nullif(?, {_NONE})"
_ADD: Final = f"""
INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, {_OR_NULL}, ?, {_OR_NULL}, {_OR_NULL}, {_OR_NULL}, ?, ?)
"""  # noqa: S608 - nothing of a client
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


class Store:
    """The file of one data directory; no second process can have it open at the same time."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self._failure: Exception | None = None
        self._swept: set[int] = set()  # entities that are gone, of which something is left
        try:
            with ExitStack() as stack:
                self._database = stack.enter_context(open_database(directory))
                self._payload_id = int(self._database.execute("SELECT coalesce(max(id), 0) FROM payload").fetchone()[0])
                self._exit = stack.pop_all()
        except (sqlite3.DatabaseError, OSError) as error:
            raise opening_error(self.path, error) from error

    def load(self, now: int) -> Snapshot:
        """Read the snapshot that a registry is restored from: summaries, and no messages."""
        try:
            read = self._database.execute
            entities = [(*row[:3], json.loads(row[3]), *row[4:]) for row in read(_ENTITIES)]
            sessions = read("SELECT box, session_id, state, updated_time FROM session")
            seen = read("SELECT entity_id, message_id, until FROM seen WHERE until > ? ORDER BY until", (now,))
            snapshot = Snapshot(entities, read(_SHELVES).fetchall(), sessions.fetchall(), seen.fetchall())
            known = {entity_id for entity_id, *_ in entities}
            self._swept |= {box // BOXES_PER_ENTITY for box, *_ in snapshot.shelves} - known
            self._swept |= {entity_id for (entity_id,) in read(_ORPHANS)}
        except (sqlite3.DatabaseError, ValueError) as error:
            self.close()
            raise opening_error(self.path, error) from error
        return snapshot

    @property
    def identity(self) -> str:
        """Return the identity of the namespace, which stays the same for as long as the file does."""
        return str(self._database.execute("SELECT id FROM identity").fetchone()[0])

    def save_identity(self, identity: str) -> None:
        self._database.execute("UPDATE identity SET id = ?", (identity,))

    def load_shelf(self, box: int, shelf: int) -> list[BrokeredMessage]:
        """Read the messages of a shelf in order; those payloads that are large are None."""
        with self._reading():
            rows = self._database.execute(_SHELF_OF_MESSAGES, (box, shelf * SHELF, (shelf + 1) * SHELF))
            return [
                BrokeredMessage(number, first, enqueued, _checked(payload, size), size, BrokeredState(state), *rest)
                for number, first, enqueued, payload, size, state, *rest in rows
            ]

    def load_payload(self, box: int, sequence_number: int) -> bytes:
        with self._reading():
            size, payload = self._database.execute(_PAYLOAD, (box, sequence_number)).fetchone() or (0, None)
            if payload is None or len(payload) != size:
                raise ValueError(_LOST)
            return payload

    def apply(self, changes: Changes) -> None:
        """Write these changes, all of them or none."""
        if self._failure is not None:
            raise self._failure
        if not changes:
            return
        try:
            with self._database:
                self._database.execute("BEGIN")
                self._write(changes)
        except (sqlite3.Error, ValueError) as error:
            self._failure = error
            raise

    def close(self) -> None:
        self._exit.close()

    @contextmanager
    def _reading(self) -> Generator[None]:
        try:
            yield
        except (sqlite3.Error, ValueError) as error:
            self._failure = opening_error(self.path, error)
            raise self._failure from error

    def _write(self, changes: Changes) -> None:
        self._write_entities(changes)
        self._write_messages(changes)
        for key, (state, updated_time) in changes.sessions.items():
            self._database.execute("DELETE FROM session WHERE box = ? AND session_id = ?", key)
            if state is not None:
                self._database.execute("INSERT INTO session VALUES (?, ?, ?, ?)", (*key, state, updated_time))
        if changes.seen:
            self._database.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", changes.seen)
            # More are forgotten than come in, so that none stays for long.
            self._database.execute(_FORGET, (changes.seen_at, max(_SWEPT, 2 * len(changes.seen))))
        if self._swept:
            self._sweep(next(iter(self._swept)))

    def _write_entities(self, changes: Changes) -> None:
        for entity_id, row in changes.entities:
            if row is None:
                self._database.execute("DELETE FROM entity WHERE id = ?", (entity_id,))
                self._swept.add(entity_id)
                continue
            while entity_id in self._swept:  # Its number is given out again.
                self._sweep(entity_id)
            kind, path, description, *rest = row
            self._database.execute(
                "INSERT OR REPLACE INTO entity VALUES (?, ?, ?, ?, ?, ?, ?)",
                (entity_id, kind, path, json.dumps(description), *rest),
            )

    def _write_messages(self, changes: Changes) -> None:
        # Removals first, because a number may come back to its box, with another payload.
        execute = self._database.executemany
        if changes.removed:
            execute("DELETE FROM message WHERE box = ? AND sequence_number = ?", sorted(changes.removed))
        if changes.last:
            execute(
                "UPDATE entity SET last_sequence_number = ? WHERE id = ?",
                [(number, entity_id) for entity_id, number in changes.last.items()],
            )
        if changes.added:
            added = [(at, *each) for at, each in enumerate(changes.added.items(), self._payload_id + 1)]
            self._payload_id += len(added)
            execute(_ADD, [(*key, *_fields(message), at) for at, key, message in added])
            execute("INSERT INTO payload VALUES (?, ?)", [(at, message.payload) for at, _, message in added])
        if changes.updated:
            execute(
                "UPDATE message SET state = ?, delivery_count = ? WHERE box = ? AND sequence_number = ?",
                [(int(message.state), message.delivery_count, *key) for key, message in changes.updated.items()],
            )

    def _sweep(self, entity_id: int) -> None:
        box = entity_id * BOXES_PER_ENTITY
        boxes = (box, box + BOXES_PER_ENTITY)
        self._database.execute("DELETE FROM session WHERE box >= ? AND box < ?", boxes)
        if (
            self._database.execute(_SWEEP_MESSAGES, boxes).rowcount < _SWEPT
            and self._database.execute(_SWEEP_SEEN, (entity_id,)).rowcount < _SWEPT
        ):
            self._swept.discard(entity_id)


@contextmanager
def open_database(directory: Path) -> Generator[sqlite3.Connection]:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = directory / FILE_NAME
    # Before any other check: if two emulators start at once, one waits here.
    with closing(take_lock(directory / _LOCK_FILE, BUSY_TIMEOUT)):
        if path.exists():
            _check_header(path)
        else:
            create(path)
        with closing(_connect(path, BUSY_TIMEOUT)) as database:
            database.executescript(_OPENING)
            yield database


def is_in_use(directory: Path) -> bool:
    try:
        take_lock(directory / _LOCK_FILE, timeout=0).close()
    except sqlite3.OperationalError as error:
        return "locked" in str(error)
    return False


def opening_error(path: Path, error: Exception) -> EmulatorError:
    if "locked" in str(error):
        return EmulatorError(f"Another emulator uses {path}: stop it, or choose another data directory.")
    if isinstance(error, OSError) or not path.exists():
        return EmulatorError(f"The data directory {path.parent} cannot be used ({error}): choose another.")
    return EmulatorError(f"{path} cannot be read ({error}): choose another data directory, or remove it.")


def _check_header(path: Path) -> None:
    # From the file itself, because SQLite may change what it opens (documentation, "Database File Format", 1.3).
    with path.open("rb") as file:
        header = file.read(72)
    version, application_id = int.from_bytes(header[60:64]), int.from_bytes(header[68:72])
    if not header.startswith(b"SQLite format 3\0") or application_id != APPLICATION_ID:
        raise EmulatorError(f"{path} is not a file of the emulator: choose another data directory.")
    if version != VERSION:
        raise EmulatorError(
            f"{path} has the format {version}, and this version of sbnotebook has the format {VERSION}: "
            "choose another data directory, or remove the file and the messages in it."
        )


def create(path: Path) -> None:
    # The log of a removed file would be replayed into the new one.
    for ending in ("-wal", "-shm", "-journal"):
        path.with_name(FILE_NAME + ending).unlink(missing_ok=True)
    # Under another name first, so that a file of the right name is always a whole one.
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    with closing(_connect(draft, BUSY_TIMEOUT)) as database:
        database.executescript(_SCHEMA)
    draft.replace(path)


def make_private(path: Path) -> None:
    """Make a file if it is missing, and close it to other users: who may read a file of SQLite may also lock it.

    The file is not opened if it exists, because its lock would be gone with that (fcntl, "F_SETLK").
    """
    path.touch(mode=0o600)
    if path.is_file() and path.stat().st_mode & 0o077:
        path.chmod(0o600)


def take_lock(path: Path, timeout: float) -> sqlite3.Connection:
    """Take the lock that a file is for, until the result is closed or the process ends.

    The file is never replaced. The database's own lock would be gone once a user removes the database, and POSIX drops
    it when this process closes the file once (fcntl, "F_SETLK"). SQLite's lock works alike on every system.
    """
    if path.parent.is_dir():
        make_private(path)
    lock = _connect(path, timeout)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error:
        lock.close()
        raise
    return lock


def _connect(path: Path, timeout: float) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=timeout, isolation_level=None)


def _checked(payload: bytes | None, size: int) -> bytes | None:
    if (payload is None) != (size > _MAX_SHELF_PAYLOAD) or (payload is not None and len(payload) != size):
        raise ValueError(_LOST)
    return payload


def _fields(message: BrokeredMessage) -> tuple[object, ...]:
    return (
        message.enqueued_sequence_number,
        message.enqueued_time,
        message.size,
        int(message.state),  # A number of another type is slow to bind.
        _NONE if message.scheduled_time is None else message.scheduled_time,
        message.delivery_count,
        _NONE if message.expires_at is None else message.expires_at,
        _NONE if message.session_id is None else message.session_id,
        _NONE if message.dead_letter_source is None else message.dead_letter_source,
        message.hops,
    )
