"""How the locks of a batch stand, compared with what was seen of them before."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from sbnotebook.client import LockedBatch
from sbnotebook.model import LockedMessage
from sbnotebook.settlement.locking.lock_events import LockEventKind
from sbnotebook.widgets.table.rows import MessageKey

__all__ = ["ENDED", "HELD", "LOST", "Locks", "News"]

HELD: Final = "held"
LOST: Final = "lost"
ENDED: Final = "no longer held"
_AT_RISK: Final = {LockEventKind.FAILING: "renewing fails", LockEventKind.LATE: "may be lost"}


@dataclass(slots=True)
class News:
    """What has changed since the last look.

    Args:
        again: keys of messages that were held before, and are held under another lock now.
        new: messages that are held for the first time, and those.
        changed: cells of messages that were there, by key.
    """

    again: list[MessageKey] = field(default_factory=list[MessageKey])
    new: list[LockedMessage] = field(default_factory=list[LockedMessage])
    changed: dict[MessageKey, dict[str, object]] = field(default_factory=dict[MessageKey, dict[str, object]])

    def __bool__(self) -> bool:
        return bool(self.new or self.changed)


class Locks:
    """Follows the locks of a batch.

    Args:
        batch: whose locks.
    """

    def __init__(self, batch: LockedBatch) -> None:
        self._batch = batch
        self._entity = str(batch.address)
        self._messages: dict[int, LockedMessage] = {}
        self._cells: dict[int, tuple[str, datetime | None]] = {}

    def look(self) -> News:
        """See how it stands now."""
        news = News()
        for message in self._batch.messages:
            known = self._messages.get(message.sequence_number)
            if known is None or known.lock_token != message.lock_token:
                news.new.append(message)
                if known is not None:
                    news.again.append((self._entity, message.sequence_number))
                self._messages[message.sequence_number] = message
        cells = self._cells_now()
        fresh = {message.sequence_number for message in news.new}
        for number, (lock, end) in cells.items():
            if number not in fresh and self._cells.get(number) != (lock, end):
                news.changed[self._entity, number] = {"lock": lock, "locked_until": end}
        self._cells = cells
        return news

    def cells(self, messages: list[LockedMessage]) -> dict[str, list[object]]:
        """The columns of these messages, as they were seen last."""
        seen = [self._cells[message.sequence_number] for message in messages]
        return {"lock": [lock for lock, _ in seen], "locked_until": [end for _, end in seen]}

    def locked(self, numbers: list[int]) -> list[LockedMessage]:
        """The messages with these numbers, with the lock that each had last, which may have ended."""
        return [self._messages[number] for number in numbers if number in self._messages]

    def numbers(self, *states: str) -> list[int]:
        """The messages whose locks stand so."""
        return [number for number, (lock, _) in self._cells.items() if lock in states]

    def rows(self) -> list[tuple[LockedMessage, str, datetime | None]]:
        """All messages, how their locks stand, and when these end."""
        return [(self._messages[number], lock, end) for number, (lock, end) in self._cells.items()]

    def forget(self, numbers: list[int]) -> None:
        """Messages that are no longer held need not be known any more."""
        for number in numbers:
            self._messages.pop(number, None)
            self._cells.pop(number, None)

    def _cells_now(self) -> dict[int, tuple[str, datetime | None]]:
        ends, lost, status = self._batch.lock_ends, set(self._batch.lost), self._batch.status
        risk = _AT_RISK.get(status.kind, HELD)
        at_risk = set(status.sequence_numbers)
        cells: dict[int, tuple[str, datetime | None]] = {}
        for number in self._messages:
            end = ends.get(number)
            if end is not None:
                cells[number] = (risk if number in at_risk or not at_risk else HELD, end)
            else:
                cells[number] = (LOST if number in lost else ENDED, None)
        return cells
