"""Opening the file of a data directory: its lock and its tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from sbnotebook.errors import EmulatorError

FILE_NAME: Final = "emulator.sqlite3"
_LOCK_FILE: Final = "emulator.lock"
BUSY_TIMEOUT: Final = 5.0
"""Seconds to wait for an emulator that is ending."""
APPLICATION_ID: Final = 0x53426E62
"""Marks the file in its header as the emulator's (SQLite documentation, "PRAGMA application_id")."""
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
CREATE TABLE identity (id TEXT NOT NULL);
INSERT INTO identity VALUES (lower(hex(randomblob(16))));
"""
_STAMP: Final = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
"""

SCHEMA: Final = f"BEGIN;{_TABLES}{_STAMP}COMMIT;"


@contextmanager
def open_database(directory: Path) -> Generator[sqlite3.Connection]:
    """Open the file of a data directory; a missing one is created."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = directory / FILE_NAME
    # Before any other check: if two emulators start at once, one waits here.
    with closing(_take_lock(directory, BUSY_TIMEOUT)):
        if path.exists():
            _check_header(path)
        else:
            create(path)
        with closing(_connect(path, BUSY_TIMEOUT)) as database:
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            # 64 MB instead of 4: it waits for the disk less often.
            database.execute("PRAGMA wal_autocheckpoint = 16000")
            # Some systems build SQLite so that it writes even free pages once more, to overwrite the old bytes.
            database.execute("PRAGMA secure_delete = FAST")
            # Beginning to write keeps SQLite's other tools out from now on.
            database.execute("BEGIN IMMEDIATE")
            database.execute("COMMIT")
            yield database


def is_in_use(directory: Path) -> bool:
    """Tell whether an emulator has the store of this data directory open."""
    try:
        _take_lock(directory, timeout=0).close()
    except sqlite3.OperationalError as error:
        return "locked" in str(error)
    return False


def opening_error(path: Path, error: Exception) -> EmulatorError:
    """Return the error that says what to do about a file that cannot be opened or read."""
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
        database.executescript(SCHEMA)
    draft.replace(path)


def make_private(path: Path) -> None:
    """Make a file if it is missing, and close it to other users: who may read a file of SQLite may also lock it.

    The file is not opened if it exists, because its lock would be gone with that (fcntl, "F_SETLK").
    """
    path.touch(mode=0o600)
    if path.is_file() and path.stat().st_mode & 0o077:
        path.chmod(0o600)


def _take_lock(directory: Path, timeout: float) -> sqlite3.Connection:
    """Lock a data directory until the result is closed, or the process ends.

    The lock is on a file that is never replaced. The database's own lock would be gone once a user removes the
    database, and POSIX drops it when this process closes the file once (fcntl, "F_SETLK").
    """
    if directory.is_dir():
        make_private(directory / _LOCK_FILE)
    lock = _connect(directory / _LOCK_FILE, timeout)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error:
        lock.close()
        raise
    return lock


def _connect(path: Path, timeout: float) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=timeout, isolation_level=None)
