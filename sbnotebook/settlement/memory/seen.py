"""Messages whose work is done, remembered so that it is not done twice when one is delivered again."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import ReceivedMessage
from sbnotebook.model.message import time_text

if TYPE_CHECKING:
    from sbnotebook.settlement.memory.local_database import LocalDatabase

DEFAULT_RETENTION: Final = timedelta(days=7)
SCHEMA: Final = (
    """
    CREATE TABLE seen (
        namespace TEXT NOT NULL,
        entity TEXT NOT NULL,
        key TEXT NOT NULL,
        done TEXT NOT NULL,
        PRIMARY KEY (namespace, entity, key)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX seen_by_time ON seen (done)",
)
"""The statements that make the journal's table."""


class Seen:
    """Remembers messages, each before it is completed. Its methods are called in threads, because the file may be busy.

    A message is known by its entity and its message id, as by the service's duplicate detection: two messages with
    the same id count as one, and the second is completed without being done. One without an id is known by its
    sequence number and the time at which it was enqueued.
    """

    def __init__(
        self, database: LocalDatabase, namespace: Callable[[], str], retention: timedelta = DEFAULT_RETENTION
    ) -> None:
        if retention <= timedelta(0):
            raise ConfigurationError("The retention of remembered messages must be positive.")
        self._database = database
        self._namespace = namespace
        self._retention = retention

    def done_at(self, messages: Collection[ReceivedMessage]) -> dict[str, datetime]:
        """Return when messages of one entity were done, by :func:`key_of`, without those done too long ago."""
        places = [self._place(message) for message in messages]
        if not places:
            return {}
        keys = json.dumps([key for _, _, key in places])
        rows = self._database.execute(
            "SELECT key, done FROM seen WHERE namespace = ? AND entity = ? AND done > ?"
            " AND key IN (SELECT value FROM json_each(?))",
            (*places[0][:2], self._cut_off(), keys),
        )
        return {key: datetime.fromisoformat(done) for key, done in rows}

    def remember(self, messages: Iterable[ReceivedMessage]) -> None:
        """Record that the work for these messages is done, on disk before this returns."""
        now = datetime.now(UTC).isoformat()
        rows = [(*self._place(message), now) for message in messages]
        with self._database.transaction() as database:
            database.executemany(
                "INSERT INTO seen (namespace, entity, key, done) VALUES (?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET done = excluded.done",
                rows,
            )

    def forget_old(self) -> None:
        values = (self._namespace(), self._cut_off())
        self._database.execute("DELETE FROM seen WHERE namespace = ? AND done <= ?", values)

    def _place(self, message: ReceivedMessage) -> tuple[str, str, str]:
        return (self._namespace(), message.entity.path.casefold(), key_of(message))

    def _cut_off(self) -> str:
        return (datetime.now(UTC) - self._retention).isoformat()


def key_of(message: ReceivedMessage) -> str:
    if message.message_id:
        # A text of a broken sender may hold half a character, which a file cannot, and a null ends a text in SQL.
        return "id:" + message.message_id.encode(errors="backslashreplace").decode().replace("\0", "\\0")
    return f"#{message.sequence_number}@{time_text(message.enqueued_time)}"
