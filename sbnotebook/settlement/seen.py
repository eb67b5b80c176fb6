"""Messages whose work is done, remembered so that it is not done twice when one is delivered again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

import anyio.to_thread

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Complete, Decision, Outcome, ReceivedMessage

if TYPE_CHECKING:
    from sbnotebook.settlement.held import Hold
    from sbnotebook.settlement.local_database import LocalDatabase

__all__ = ["DEFAULT_RETENTION", "VERSION", "Seen", "key_of"]

DEFAULT_RETENTION: Final = timedelta(days=7)
VERSION: Final = (
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
"""The statements that make the table, for the version of the journal that has it first."""


class Seen:
    """Remembers each message before it is completed: see :class:`sbnotebook.settlement.records.Record`.

    A message is known by its entity and its message id, as by the service's duplicate detection: two messages with
    the same id count as one, and the second is completed without being done. One without an id is known by its
    sequence number and the time at which it was enqueued.

    Args:
        database: the journal's.
        namespace: the host.
        retention: for how long a message is remembered.

    Raises:
        ConfigurationError: a retention that cannot be.
    """

    def __init__(self, database: LocalDatabase, namespace: str, retention: timedelta = DEFAULT_RETENTION) -> None:
        if retention <= timedelta(0):
            raise ConfigurationError("Messages are remembered for more than no time: give a longer retention.")
        self._database = database
        self._namespace = namespace
        self._retention = retention

    def done_at(self, message: ReceivedMessage) -> datetime | None:
        """When a message was done; None when it was not, or that is too long ago.

        Called in a thread: the file may be busy.
        """
        with self._database.transaction() as database:
            rows = database.execute(
                "SELECT done FROM seen WHERE namespace = ? AND entity = ? AND key = ? AND done > ?",
                (*self._place(message), self._cut_off()),
            ).fetchall()
        return datetime.fromisoformat(rows[0][0]) if rows else None

    def remember(self, messages: Sequence[ReceivedMessage]) -> None:
        """Write down that the work for these messages is done, on disk before this returns."""
        now = datetime.now(UTC).isoformat()
        with self._database.transaction() as database:
            database.executemany(
                "INSERT INTO seen (namespace, entity, key, done) VALUES (?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET done = excluded.done",
                [(*self._place(message), now) for message in messages],
            )

    def forget_old(self) -> None:
        """Forget what is older than the retention."""
        with self._database.transaction() as database:
            database.execute("DELETE FROM seen WHERE namespace = ? AND done <= ?", (self._namespace, self._cut_off()))

    async def before(self, decision: Decision, holds: Sequence[Hold]) -> None:
        """Remember messages that are about to be completed."""
        if isinstance(decision, Complete):
            await anyio.to_thread.run_sync(self.remember, [hold.message for hold in holds])

    async def after(self, decision: Decision, outcomes: Mapping[UUID, Outcome]) -> None:
        """Nothing more: what was completed is remembered, too, because its sender may send it again."""

    def _place(self, message: ReceivedMessage) -> tuple[str, str, str]:
        return (self._namespace, message.entity.path.casefold(), key_of(message))

    def _cut_off(self) -> str:
        return (datetime.now(UTC) - self._retention).isoformat()


def key_of(message: ReceivedMessage) -> str:
    """What a message is known by in its entity.

    Example:
        >>> from sbnotebook.model import EntityAddress, PeekedMessage
        >>> key_of(PeekedMessage(entity=EntityAddress("orders"), sequence_number=7, message_id="m"))
        'id:m'
    """
    if message.message_id:
        # A text of a broken sender may hold half a character, which a file cannot.
        return "id:" + message.message_id.encode(errors="backslashreplace").decode()
    enqueued = message.enqueued_time.isoformat() if message.enqueued_time else ""
    return f"#{message.sequence_number}@{enqueued}"
