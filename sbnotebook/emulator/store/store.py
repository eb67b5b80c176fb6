"""The store of an emulator: what it has confirmed is in one SQLite file.

All changes of one turn of the event loop are one transaction, and nothing is confirmed to a client
before it. The file is in write-ahead mode with ``synchronous=NORMAL``: what was committed survives the
end of the process, however sudden (SQLite documentation, "Write-Ahead Logging").
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from sbnotebook.emulator.entities.changes import BOXES_PER_ENTITY, Change
from sbnotebook.emulator.entities.message import BrokeredMessage
from sbnotebook.emulator.entities.snapshot import Snapshot
from sbnotebook.emulator.store.opening import FILE_NAME, explain, open_database
from sbnotebook.emulator.store.reading import read_orphans, read_payload, read_shelf, read_snapshot
from sbnotebook.emulator.store.writing import Writer
from sbnotebook.errors import EmulatorError

__all__ = ["Store"]


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
        self._failure: Exception | None = None
        try:
            with ExitStack() as stack:
                self._database = stack.enter_context(open_database(directory))
                self._writer = Writer(self._database)
                self._exit = stack.pop_all()
        except (sqlite3.DatabaseError, OSError) as error:
            raise explain(self.path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def load(self, now: int) -> Snapshot:
        """Read what a registry starts from: summaries, no messages.

        Args:
            now: ms; message ids whose time has passed by then are left out.

        Raises:
            EmulatorError: the file is damaged.
        """
        try:
            snapshot = read_snapshot(self._database, now)
            orphans = read_orphans(self._database)
            known = {entity.entity_id for entity in snapshot.entities}
            gone = {box // BOXES_PER_ENTITY for box in snapshot.boxes} - known | orphans
            self._writer.swept |= gone
        except (sqlite3.DatabaseError, ValueError) as error:
            self.close()
            raise explain(self.path, error) from error
        return _without(snapshot, gone)

    def load_shelf(self, box: int, shelf: int) -> list[BrokeredMessage]:
        """Read the messages of a shelf in order; those payloads that are large are None.

        Raises:
            EmulatorError: the file is damaged; nothing more is kept from now on.
        """
        try:
            return read_shelf(self._database, box, shelf)
        except (sqlite3.Error, ValueError) as error:
            raise self._failed(error) from error

    def load_payload(self, box: int, sequence_number: int) -> bytes:
        """Read the payload of a message that is there.

        Raises:
            EmulatorError: the file is damaged; nothing more is kept from now on.
        """
        try:
            return read_payload(self._database, box, sequence_number)
        except (sqlite3.Error, ValueError) as error:
            raise self._failed(error) from error

    def apply(self, changes: Sequence[Change]) -> None:
        """Keep these changes, all of them or none.

        Raises:
            sqlite3.Error: they are not kept, for example because the disk is full.
            ValueError: they are not kept, because a new message came without its payload.
            EmulatorError: something could not be read before, and whoever asked may have gone on without it.
        """
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
        """Close the file, and let the next emulator have it."""
        self._exit.close()

    def _failed(self, error: Exception) -> EmulatorError:
        self._failure = failure = explain(self.path, error)
        return failure


def _without(snapshot: Snapshot, gone: set[int]) -> Snapshot:
    """Leave out what deleted entities have left."""
    if not gone:
        return snapshot
    return Snapshot(
        snapshot.entities,
        {box: found for box, found in snapshot.boxes.items() if box // BOXES_PER_ENTITY not in gone},
        [session for session in snapshot.sessions if session.box // BOXES_PER_ENTITY not in gone],
        [seen for seen in snapshot.seen if seen.entity_id not in gone],
    )
