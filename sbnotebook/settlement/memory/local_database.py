"""An SQLite file of one user on one machine: the journal or the archive."""

from __future__ import annotations

import os
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Final
from weakref import finalize

from sbnotebook.errors import ConfigurationError

_WAIT: Final = 30.0
"""Seconds that one kernel waits for another that is writing."""
# One statement, so that another process's set-up is seen whole or not at all.
_SCHEMA: Final = 1


class LocalDatabase(ABC):
    """An SQLite file that only its owner can read; it is made when it is first used, and several processes share it."""

    _what: ClassVar[str]
    """The file in words, such as "a journal"."""
    _table: ClassVar[str]
    """A table that no other file has."""
    _schema: ClassVar[Sequence[str]]
    """The statements that make it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database: sqlite3.Connection | None = None
        # Python 3.13 warns of a connection that was not closed.
        self._closing: finalize[..., LocalDatabase] | None = None
        self._lock = threading.Lock()

    @abstractmethod
    def _unusable(self, error: Exception) -> Exception:
        """Return the error to raise for one of the file."""

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """Write everything inside to disk when the block ends; nothing of it when the block raises.

        Threads take turns, and one that holds it must not begin another inside.
        """
        try:
            with self._lock:
                if self._database is None:
                    self._database = self._open()
                    self._closing = finalize(self, self._database.close)
                    self._closing.atexit = False  # a forked child must not end what its parent has begun
                with _begun(self._database):
                    yield self._database
        except (OSError, sqlite3.Error) as error:
            raise self._unusable(error) from error

    def execute(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """Carry out one statement in a transaction of its own, and return its rows."""
        with self.transaction() as database:
            return database.execute(statement, values).fetchall()

    def vacuum(self) -> None:
        """Return the space of deleted rows to the disk, if no other process uses the file now."""
        with self._lock, suppress(sqlite3.OperationalError):
            if self._database is not None:
                self._database.execute("VACUUM")

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            self._database = None
            if self._closing is not None:
                self._closing()

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Made by hand, so that the file is never readable by others, not even for a moment.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        if self.path.stat().st_size == 0:
            self.path.chmod(0o600)
        # Without Python's own transactions, which cannot begin with a lock for writing.
        database = sqlite3.connect(self.path, check_same_thread=False, timeout=_WAIT, isolation_level=None)
        try:
            self._prepare(database)
            database.execute("PRAGMA secure_delete = ON")  # deleted rows held bodies of messages
        except (sqlite3.Error, ConfigurationError):
            database.close()
            raise
        return database

    def _prepare(self, database: sqlite3.Connection) -> None:
        if self._is_made(database):
            return
        # Two kernels may get here at once: the second waits and finds it done. No write-ahead mode, because SQLite does
        # not wait for a lock to switch to it.
        with _begun(database):
            if not self._is_made(database):
                for statement in self._schema:
                    database.execute(statement)
                database.execute(f"PRAGMA user_version = {_SCHEMA}")

    def _is_made(self, database: sqlite3.Connection) -> bool:
        """Tell a file that has its tables from a new one, and refuse any other."""
        try:
            # All of the answer is fetched: a statement that is not read to its end keeps a lock on the file.
            ((version, tables),) = database.execute(
                "SELECT user_version, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version"
            ).fetchall()
            own = database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (self._table,)).fetchall()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
                raise
            version, tables, own = None, 0, []
        if (version, tables) == (0, 0):
            return False
        if own and version == _SCHEMA:
            return True
        raise ConfigurationError(f"{self.path} is not {self._what} of this version of sbnotebook: move it away.")


@contextmanager
def _begun(database: sqlite3.Connection) -> Generator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        # A commit may also fail while another process reads. If the disk is full, SQLite has rolled back by itself.
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def insert_rows(database: sqlite3.Connection, insert: str, rows: Sequence[Sequence[object]]) -> list[int]:
    """Insert many rows by one statement, and return their ids.

    Around each step of a statement, Python lets other threads run. Beside a busy event loop, a thread waits up to 5 ms
    until it runs again, so 200 statements take a second.
    """
    ids: list[int] = []
    most = database.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) // max(map(len, rows), default=1)
    for start in range(0, len(rows), most):
        some = rows[start : start + most]
        row = f"({', '.join('?' * len(some[0]))})"
        cursor = database.execute(f"{insert} VALUES {', '.join([row] * len(some))}", [*chain.from_iterable(some)])
        last = cursor.lastrowid or 0
        ids += range(last - len(some) + 1, last + 1)
    return ids
