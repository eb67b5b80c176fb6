"""The journal of deferrals: a deferred message is found by its number only, so the number is written down first."""

from __future__ import annotations

import getpass
import logging
import platform
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from uuid import UUID

import anyio.to_thread

from sbnotebook.model import (
    Complete,
    DeadLetter,
    Decision,
    Defer,
    EntityAddress,
    LockedMessage,
    MessageState,
    Outcome,
    OutcomeStatus,
)

if TYPE_CHECKING:
    from sbnotebook.settlement.locking.held import Hold
    from sbnotebook.settlement.memory.local_database import LocalDatabase

__all__ = ["VERSION", "DeferralEntry", "DeferralLedger", "DeferralRecord", "time_text"]

_LOGGER: Final = logging.getLogger(__name__)

VERSION: Final = (
    """
    CREATE TABLE deferrals (
        namespace TEXT NOT NULL,
        entity TEXT NOT NULL,
        sequence_number INTEGER NOT NULL,
        message_id TEXT,
        enqueued_time TEXT NOT NULL,
        confirmed INTEGER NOT NULL,
        deferred_by TEXT NOT NULL,
        deferred_at TEXT NOT NULL,
        PRIMARY KEY (namespace, entity, sequence_number)
    )
    """,
)
"""What the journal's second version adds for deferrals."""
_Place = tuple[EntityAddress, int]
"""Where a message stands: an entity and a sequence number."""
_KEY: Final = "namespace = ? AND entity = ? AND sequence_number = ?"


@dataclass(frozen=True, slots=True)
class DeferralEntry:
    """A deferral as the journal has it.

    Args:
        sequence_number: the message's.
        message_id: the message's.
        enqueued_time: the message's, in ISO format; it tells the message from one with the same number in a queue that
            was made anew.
        confirmed: False when no answer came: the message may be deferred or not.
        deferred_by: who did it, and on which machine.
        deferred_at: when.
    """

    sequence_number: int
    message_id: str | None
    enqueued_time: str
    confirmed: bool
    deferred_by: str
    deferred_at: datetime


class DeferralLedger:
    """The journal's table of deferrals.

    Args:
        database: the journal's.
        namespace: the host whose entities they are in.
    """

    def __init__(self, database: LocalDatabase, namespace: str) -> None:
        self._database = database
        self._namespace = namespace

    def intend(self, messages: Iterable[LockedMessage]) -> None:
        """Write down what is about to be deferred, on disk before this returns."""
        who, now = f"{_user()}@{platform.node()}", datetime.now(UTC).isoformat()
        rows = [
            (*self._key(m.entity, m.sequence_number), m.message_id, time_text(m.enqueued_time), False, who, now)
            for m in messages
        ]
        with self._database.transaction() as database:
            database.executemany("INSERT OR REPLACE INTO deferrals VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def confirm(self, places: Iterable[_Place]) -> None:
        """Write down that messages are deferred."""
        keys = [self._key(*place) for place in places]
        with self._database.transaction() as database:
            database.executemany(f"UPDATE deferrals SET confirmed = 1 WHERE {_KEY}", keys)  # noqa: S608

    def forget(self, places: Iterable[_Place]) -> None:
        """Write down that messages are not deferred, or not any more."""
        keys = [self._key(*place) for place in places]
        with self._database.transaction() as database:
            database.executemany(f"DELETE FROM deferrals WHERE {_KEY}", keys)  # noqa: S608

    def entries(self, entity: EntityAddress) -> dict[int, DeferralEntry]:
        """What is written of an entity, by sequence number."""
        with self._database.transaction() as database:
            rows = database.execute(
                "SELECT sequence_number, message_id, enqueued_time, confirmed, deferred_by, deferred_at FROM deferrals"
                " WHERE namespace = ? AND entity = ? ORDER BY sequence_number",
                self._key(entity, 0)[:2],
            ).fetchall()
        return {
            row[0]: DeferralEntry(row[0], row[1], row[2], bool(row[3]), row[4], datetime.fromisoformat(row[5]))
            for row in rows
        }

    def counts(self) -> list[tuple[EntityAddress, int, datetime]]:
        """The entities of which something is written, each with how many messages, and when the last was deferred."""
        with self._database.transaction() as database:
            rows = database.execute(
                "SELECT entity, count(*), max(deferred_at) FROM deferrals WHERE namespace = ? GROUP BY entity",
                (self._namespace.casefold(),),
            ).fetchall()
        return [(EntityAddress.parse(path), count, datetime.fromisoformat(last)) for path, count, last in rows]

    def _key(self, entity: EntityAddress, sequence_number: int) -> tuple[str, str, int]:
        return self._namespace.casefold(), entity.path.casefold(), sequence_number


class DeferralRecord:
    """Keeps the ledger while one batch settles: see :class:`sbnotebook.settlement.records.Record`."""

    def __init__(self, ledger: DeferralLedger) -> None:
        self._ledger = ledger
        self._were_deferred: set[UUID] = set()

    async def before(self, decision: Decision, holds: Sequence[Hold]) -> None:
        """Write down what is about to be deferred."""
        if isinstance(decision, Defer | Complete | DeadLetter):
            deferred = (hold.message for hold in holds if hold.message.state is MessageState.DEFERRED)
            self._were_deferred |= {message.lock_token for message in deferred}
        if isinstance(decision, Defer):
            await anyio.to_thread.run_sync(self._ledger.intend, [hold.message for hold in holds])

    async def after(self, decision: Decision, outcomes: Mapping[UUID, Outcome]) -> None:
        """Write down what is deferred now, and what is not any more."""
        if isinstance(decision, Defer):
            await self._note(self._ledger.confirm, (o for o in outcomes.values() if o.ok))
            # What has no answer stays as it was intended: nobody knows. What was deferred before still is.
            active = [o for token, o in outcomes.items() if token not in self._were_deferred]
            undone = (o for o in active if not o.ok and o.status is not OutcomeStatus.UNCONFIRMED)
            await self._note(self._ledger.forget, undone)
        elif isinstance(decision, Complete | DeadLetter):
            done = (o for token, o in outcomes.items() if o.ok and token in self._were_deferred)
            await self._note(self._ledger.forget, done)

    async def _note(self, write: Callable[[list[_Place]], None], outcomes: Iterable[Outcome]) -> None:
        keys = [(o.entity, o.sequence_number) for o in outcomes if o.sequence_number is not None]
        # Without it an entry stays as it was, which `compared` sees; that is no reason to hide how a settlement ended.
        if keys:
            try:
                await anyio.to_thread.run_sync(write, keys)
            except (OSError, sqlite3.Error) as error:
                _LOGGER.warning(
                    "It could not be written down how the deferral of %d messages ended: %s", len(keys), error
                )


def time_text(moment: datetime | None) -> str:
    """A message's enqueued time as the journal has it."""
    return moment.isoformat() if moment else ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return "unknown"
