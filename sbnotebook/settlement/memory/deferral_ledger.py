"""The journal of deferrals: a deferred message is found by its number only, so the number is recorded first."""

from __future__ import annotations

import getpass
import json
import logging
import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sbnotebook.model import (
    EntityAddress,
    LockedMessage,
)
from sbnotebook.model.message import time_text
from sbnotebook.settlement.memory.local_database import LocalDatabase, insert_rows

_LOGGER: Final = logging.getLogger(__name__)

SCHEMA: Final = (
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
"""The statements that make the journal's table."""
_Place = tuple[EntityAddress, int]
"""The place of a message: an entity and a sequence number."""
# One statement for all messages of an entity, for the reason that insert_rows gives.
_THESE: Final = "namespace = ? AND entity = ? AND sequence_number IN (SELECT value FROM json_each(?))"


@dataclass(frozen=True, slots=True)
class DeferralEntry:
    """A deferral as the journal has it.

    Args:
        sequence_number: the message's.
        message_id: the message's.
        enqueued_time: the message's, in ISO format; it tells the message from one with the same number in a queue that
            was made anew.
        confirmed: False when no answer came: the message may be deferred or not.
        deferred_by: the user and the machine.
        deferred_at: when.
    """

    sequence_number: int
    message_id: str | None
    enqueued_time: str
    confirmed: bool
    deferred_by: str
    deferred_at: datetime


class DeferralLedger:
    def __init__(self, database: LocalDatabase, namespace: Callable[[], str]) -> None:
        self._database = database
        self._namespace = namespace

    def intend(self, messages: Iterable[LockedMessage]) -> None:
        """Record the messages to defer, on disk before this returns."""
        who, now = f"{_user()}@{platform.node()}", datetime.now(UTC).isoformat()
        rows = [
            (*self._place(m.entity), m.sequence_number, m.message_id, time_text(m.enqueued_time), False, who, now)
            for m in messages
        ]
        with self._database.transaction() as database:
            insert_rows(database, "INSERT OR REPLACE INTO deferrals", rows)

    def confirm(self, places: Iterable[_Place]) -> None:
        self._execute(f"UPDATE deferrals SET confirmed = 1 WHERE {_THESE}", places)  # noqa: S608

    def forget(self, places: Iterable[_Place]) -> None:
        self._execute(f"DELETE FROM deferrals WHERE {_THESE}", places)  # noqa: S608

    def entries(self, entity: EntityAddress) -> dict[int, DeferralEntry]:
        rows = self._database.execute(
            "SELECT sequence_number, message_id, enqueued_time, confirmed, deferred_by, deferred_at FROM deferrals"
            " WHERE namespace = ? AND entity = ? ORDER BY sequence_number",
            self._place(entity),
        )
        return {
            number: DeferralEntry(number, message_id, enqueued, bool(confirmed), who, datetime.fromisoformat(when))
            for number, message_id, enqueued, confirmed, who, when in rows
        }

    def counts(self) -> list[tuple[EntityAddress, int, datetime]]:
        rows = self._database.execute(
            "SELECT entity, count(*), max(deferred_at) FROM deferrals WHERE namespace = ? GROUP BY entity",
            (self._namespace().casefold(),),
        )
        return [(EntityAddress.parse(path), count, datetime.fromisoformat(last)) for path, count, last in rows]

    def _execute(self, statement: str, places: Iterable[_Place]) -> None:
        by_entity: dict[EntityAddress, list[int]] = {}
        for entity, number in places:
            by_entity.setdefault(entity, []).append(number)
        with self._database.transaction() as database:
            for entity, numbers in by_entity.items():
                database.execute(statement, (*self._place(entity), json.dumps(numbers)))

    def _place(self, entity: EntityAddress) -> tuple[str, str]:
        return self._namespace().casefold(), entity.path.casefold()


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return "unknown"
