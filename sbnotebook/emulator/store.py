"""What the emulator has confirmed, on disk: one SQLite file.

All changes of one turn of the event loop are one transaction, and nothing is confirmed to a client
before it. The file is in write-ahead mode with ``synchronous=NORMAL``: what was committed survives the
end of the process, however sudden (SQLite documentation, "Write-Ahead Logging").
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from sbnotebook.emulator.entities import (
    BrokeredMessage,
    Change,
    MessageAdded,
    MessageDeadLettered,
    MessageRemoved,
    MessageState,
    MessageUpdated,
    QueueCreated,
    QueueDeleted,
    QueueOptions,
    QueueUpdated,
    Registry,
)
from sbnotebook.errors import EmulatorError

__all__ = ["FILE_NAME", "Store", "is_in_use"]

FILE_NAME: Final = "emulator.sqlite3"
_LOCK_FILE: Final = "emulator.lock"
_APPLICATION_ID: Final = 0x53426E62
"""Says in the file's header whose it is (SQLite documentation, "PRAGMA application_id")."""
_SCHEMA_VERSION: Final = 1
_BUSY_TIMEOUT: Final = 5.0
"""Seconds to wait for an emulator that is ending."""

_SCHEMA: Final = f"""
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
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_SCHEMA_VERSION};
COMMIT;
"""


class Store:
    """The file of one data directory; no second process can have it open at the same time.

    Args:
        directory: made if it is missing, readable by its owner only.

    Raises:
        EmulatorError: the directory cannot be used, or the file is not one of the emulator's, is
            damaged, or is in use. It is left as it was.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self._queue_ids: dict[str, int] = {}
        self._writers: dict[type[Change], Callable[[list[Any]], None]] = {
            QueueCreated: self._write_created_queues,
            QueueUpdated: self._write_updated_queues,
            QueueDeleted: self._write_deleted_queues,
            MessageAdded: self._write_added,
            MessageUpdated: self._write_updated,
            MessageDeadLettered: self._write_dead_lettered,
            MessageRemoved: self._write_removed,
        }
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._open()
        except (sqlite3.DatabaseError, OSError) as error:
            raise self._explain(error) from error

    def load(self, registry: Registry) -> None:
        """Put everything that was kept back into an empty registry; locks are not kept.

        Raises:
            EmulatorError: the file is damaged.
        """
        query = "SELECT id, name, created_time, lock_duration, max_delivery_count, last_sequence_number FROM queue"
        try:
            for queue_id, name, created, lock_duration, max_delivery_count, last in self._database.execute(query):
                self._queue_ids[name] = queue_id
                registry.restore_queue(
                    name,
                    QueueOptions(lock_duration, max_delivery_count),
                    last_sequence_number=last,
                    created_time=created,
                    messages=self._messages(queue_id),
                )
        except (sqlite3.DatabaseError, ValueError) as error:
            self.close()
            raise self._explain(error) from error

    def apply(self, changes: list[Change]) -> None:
        """Keep these changes, all of them or none.

        Raises:
            sqlite3.Error: they are not kept, for example because the disk is full.
        """
        if not changes:
            return
        with self._database:
            self._database.execute("BEGIN")
            for kind, group in groupby(changes, type):
                self._writers[kind](list(group))

    def close(self) -> None:
        """Close the file, and let the next emulator have it."""
        self._exit.close()

    def _open(self) -> None:
        with ExitStack() as stack:
            # Before anything else is looked at: of two emulators that start at once, one waits here.
            stack.enter_context(closing(_take_lock(self.path.parent, _BUSY_TIMEOUT)))
            if self.path.exists():
                self._check()
            else:
                self._create()
            self._database = stack.enter_context(closing(_connect(self.path, _BUSY_TIMEOUT)))
            self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.execute("PRAGMA foreign_keys = ON")
            # Beginning to write keeps SQLite's other tools out from now on.
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute("COMMIT")
            self._exit = stack.pop_all()

    def _check(self) -> None:
        # From the file itself, because SQLite may change what it opens (documentation, "Database File Format", 1.3).
        with self.path.open("rb") as file:
            header = file.read(72)
        version, application_id = int.from_bytes(header[60:64]), int.from_bytes(header[68:72])
        if not header.startswith(b"SQLite format 3\0") or application_id != _APPLICATION_ID:
            raise EmulatorError(f"{self.path} is not a file of the emulator: choose another data directory.")
        if version != _SCHEMA_VERSION:
            raise EmulatorError(
                f"{self.path} has the format {version} and this version of sbnotebook reads {_SCHEMA_VERSION}: "
                "use the version that wrote it, or choose another data directory."
            )

    def _create(self) -> None:
        # What a removed file has left beside it would be replayed into the new one.
        for ending in ("-wal", "-shm", "-journal"):
            self.path.with_name(FILE_NAME + ending).unlink(missing_ok=True)
        # Under another name first, so that a file of the right name is always a whole one.
        draft = self.path.with_suffix(".new")
        draft.unlink(missing_ok=True)
        draft.touch(mode=0o600)
        with closing(_connect(draft, _BUSY_TIMEOUT)) as database:
            database.executescript(_SCHEMA)
        draft.replace(self.path)

    def _explain(self, error: Exception) -> EmulatorError:
        if "locked" in str(error):
            return EmulatorError(f"Another emulator uses {self.path}: stop it, or choose another data directory.")
        if isinstance(error, OSError) or not self.path.exists():
            return EmulatorError(f"The data directory {self.path.parent} cannot be used ({error}): choose another.")
        return EmulatorError(f"{self.path} cannot be read ({error}): choose another data directory, or remove it.")

    def _messages(self, queue_id: int) -> Iterator[tuple[BrokeredMessage, bool]]:
        query = (
            "SELECT sequence_number, enqueued_sequence_number, enqueued_time, payload, state, scheduled_time,"
            " delivery_count, is_dead_lettered FROM message WHERE queue = ? ORDER BY sequence_number"
        )
        for number, first_number, enqueued, payload, state, scheduled, count, is_dead in self._database.execute(
            query, (queue_id,)
        ):
            message = BrokeredMessage(number, first_number, enqueued, payload, MessageState(state), scheduled, count)
            yield message, bool(is_dead)

    def _write_created_queues(self, changes: list[QueueCreated]) -> None:
        for change in changes:
            options = change.options
            cursor = self._database.execute(
                "INSERT INTO queue (name, created_time, lock_duration, max_delivery_count) VALUES (?, ?, ?, ?)",
                (change.queue, change.created_time, options.lock_duration, options.max_delivery_count),
            )
            self._queue_ids[change.queue] = cursor.lastrowid or 0

    def _write_updated_queues(self, changes: list[QueueUpdated]) -> None:
        self._database.executemany(
            "UPDATE queue SET lock_duration = ?, max_delivery_count = ? WHERE name = ?",
            [(change.options.lock_duration, change.options.max_delivery_count, change.queue) for change in changes],
        )

    def _write_deleted_queues(self, changes: list[QueueDeleted]) -> None:
        self._database.executemany("DELETE FROM queue WHERE name = ?", [(change.queue,) for change in changes])

    def _write_added(self, changes: list[MessageAdded]) -> None:
        self._database.executemany(
            "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?)",
            [
                (
                    self._queue_ids[change.queue],
                    message.sequence_number,
                    message.enqueued_sequence_number,
                    message.enqueued_time,
                    message.scheduled_time,
                    message.state,
                    message.delivery_count,
                    message.payload,
                )
                for change in changes
                for message in (change.message,)
            ],
        )
        last = {change.queue: change.message.sequence_number for change in changes}
        self._database.executemany(
            "UPDATE queue SET last_sequence_number = ? WHERE id = ?",
            [(number, self._queue_ids[queue]) for queue, number in last.items()],
        )

    def _write_updated(self, changes: list[MessageUpdated]) -> None:
        self._database.executemany(
            "UPDATE message SET state = ?, delivery_count = ? WHERE queue = ? AND sequence_number = ?",
            [(change.message.state, change.message.delivery_count, *self._key(change)) for change in changes],
        )

    def _write_dead_lettered(self, changes: list[MessageDeadLettered]) -> None:
        self._database.executemany(
            "UPDATE message SET state = ?, delivery_count = ?, payload = ?, is_dead_lettered = 1"
            " WHERE queue = ? AND sequence_number = ?",
            [
                (change.message.state, change.message.delivery_count, change.message.payload, *self._key(change))
                for change in changes
            ],
        )

    def _write_removed(self, changes: list[MessageRemoved]) -> None:
        self._database.executemany(
            "DELETE FROM message WHERE queue = ? AND sequence_number = ?",
            [(self._queue_ids[change.queue], change.sequence_number) for change in changes],
        )

    def _key(self, change: MessageUpdated | MessageDeadLettered) -> tuple[int, int]:
        return self._queue_ids[change.queue], change.message.sequence_number


def is_in_use(directory: Path) -> bool:
    """Whether an emulator has the store of this data directory open."""
    try:
        _take_lock(directory, timeout=0).close()
    except sqlite3.OperationalError as error:
        return "locked" in str(error)
    return False


def _take_lock(directory: Path, timeout: float) -> sqlite3.Connection:
    """Have a data directory alone until the result is closed, or the process ends.

    The lock is on a file that is never replaced. The database's own would be gone with a database that
    somebody removes, and POSIX drops it when this process closes the file once (fcntl, "F_SETLK").
    """
    lock = _connect(directory / _LOCK_FILE, timeout)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error:
        lock.close()
        raise
    return lock


def _connect(path: Path, timeout: float) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=timeout, isolation_level=None)
