"""Local records of each settlement: written before messages are settled, and again when the outcomes are known."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol
from uuid import UUID

import anyio
import anyio.to_thread

from sbnotebook.errors import ArchiveError
from sbnotebook.model import (
    Complete,
    DeadLetter,
    Decision,
    Defer,
    EntityAddress,
    MessageState,
    Outcome,
    OutcomeStatus,
    ReceivedMessage,
)
from sbnotebook.model.message import time_text
from sbnotebook.settlement.locking.lock_table import Hold
from sbnotebook.settlement.memory.archive import Archive, ArchivedMessage, room_for
from sbnotebook.settlement.memory.namespace_tables import NamespaceTables
from sbnotebook.settlement.peek import Peeker
from sbnotebook.settlement.wire.conversion import peeked_from_payload
from sbnotebook.settlement.wire.encoding import payload_of

_LOGGER: Final = logging.getLogger(__name__)
_Place = tuple[EntityAddress, int]
"""An entity and a sequence number."""
_ANNOTATIONS: Final = 300
"""Bytes at most that Service Bus adds to a message, beside the texts of a dead letter."""
_UNTOUCHED: Final = (OutcomeStatus.SKIPPED, OutcomeStatus.FAILED)


class Record(Protocol):
    """A local record of settlements, written before they are attempted and again when their outcomes are known."""

    async def before(self, decision: Decision, holds: Sequence[Hold]) -> None:
        """Record the intended settlements; they are on disk when this returns."""
        ...

    async def after(self, decision: Decision, holds: Sequence[Hold], outcomes: Mapping[UUID, Outcome]) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class DeferralRecord:
    tables: NamespaceTables

    async def before(self, decision: Decision, holds: Sequence[Hold]) -> None:
        if isinstance(decision, Defer):
            await anyio.to_thread.run_sync(self.tables.intend, [hold.message for hold in holds])

    async def after(self, decision: Decision, holds: Sequence[Hold], outcomes: Mapping[UUID, Outcome]) -> None:
        deferred = {h.message.lock_token for h in holds if h.message.state is MessageState.DEFERRED}
        if isinstance(decision, Defer):
            await self._note(self.tables.confirm, (o for o in outcomes.values() if o.ok))
            # Without an answer, the intent stays: the outcome is unknown. Messages deferred before still are.
            active = [o for token, o in outcomes.items() if token not in deferred]
            undone = (o for o in active if not o.ok and o.status is not OutcomeStatus.UNCONFIRMED)
            await self._note(self.tables.forget, undone)
        elif isinstance(decision, Complete | DeadLetter):
            done = (o for token, o in outcomes.items() if o.ok and token in deferred)
            await self._note(self.tables.forget, done)

    async def _note(self, write: Callable[[list[_Place]], None], outcomes: Iterable[Outcome]) -> None:
        keys = [(o.entity, o.sequence_number) for o in outcomes if o.sequence_number is not None]
        # Without this record an entry stays as it was, which `compared` finds. That must not hide the outcome.
        if keys:
            try:
                await anyio.to_thread.run_sync(write, keys)
            except (OSError, sqlite3.Error) as error:
                _LOGGER.warning("The outcome of deferring %d messages could not be recorded: %s", len(keys), error)


@dataclass(slots=True, eq=False)
class RemovalRecord:
    archive: Archive
    namespace: Callable[[], str]
    peeker: Callable[[EntityAddress], Peeker]
    verb: str
    rows: dict[UUID, tuple[int, Hold]] = field(default_factory=dict[UUID, "tuple[int, Hold]"])
    """The rows of messages that are being completed."""

    async def before(self, decision: Decision, holds: Sequence[Hold]) -> None:
        """Keep messages that are about to be completed, on disk before this returns."""
        if not isinstance(decision, Complete):
            return
        payloads = await self._payloads(holds)
        # Must not be interrupted between the write and its result.
        with anyio.CancelScope(shield=True):
            rows = await anyio.to_thread.run_sync(self._keep, holds, payloads)
            self.rows |= {hold.message.lock_token: (row, hold) for hold, row in zip(holds, rows, strict=True)}

    async def after(self, decision: Decision, holds: Sequence[Hold], outcomes: Mapping[UUID, Outcome]) -> None:
        """Record which of them are removed, and which are not; the others stay unknown."""
        tokens = [hold.message.lock_token for hold in holds]
        rows = {token: row for token in tokens if (row := self.rows.pop(token, None)) is not None}
        if rows and isinstance(decision, Complete):
            await anyio.to_thread.run_sync(self._write_ends, rows, outcomes)

    def _keep(self, holds: Sequence[Hold], payloads: Mapping[int, bytes]) -> list[int]:
        namespace = self.namespace()
        return self.archive.keep(
            [self._archived(hold, payloads.get(hold.message.sequence_number), namespace) for hold in holds]
        )

    def _write_ends(self, rows: Mapping[UUID, tuple[int, Hold]], outcomes: Mapping[UUID, Outcome]) -> None:
        removed: list[int] = []
        kept: list[int] = []
        untouched: list[int] = []
        for token, (row, hold) in rows.items():
            outcome = outcomes.get(token)
            if outcome is None or outcome.status is OutcomeStatus.UNCONFIRMED:
                if outcome is None and not hold.in_doubt:
                    untouched.append(row)
            else:
                ends = untouched if outcome.status in _UNTOUCHED else kept
                (removed if outcome.ok else ends).append(row)
        # Without this record they count as unconfirmed. That must not hide the outcome.
        with contextlib.suppress(ArchiveError):
            self.archive.note_ends(removed=removed, kept=kept, untouched=untouched)

    async def _payloads(self, holds: Sequence[Hold]) -> dict[int, bytes]:
        """Return the bytes by sequence number, as they came; peek again where they did not come whole."""
        found: dict[int, bytes] = {}
        missing: list[int] = []
        for hold in holds:
            number, payload = hold.message.sequence_number, hold.lock.payload
            if payload is None:
                missing.append(number)
            else:
                found[number] = payload
        if missing:
            found |= await self.peeker(holds[0].message.entity).payloads_of(missing)
        return found

    def _archived(self, hold: Hold, payload: bytes | None, namespace: str) -> ArchivedMessage:
        message: ReceivedMessage = hold.message
        if payload is None:
            payload = payload_of(message)  # it is gone already, most likely; this is the message as it was read
        elif not hold.is_read:
            message = replace(peeked_from_payload(payload, message.entity), sequence_number=message.sequence_number)
        return archived_from(message, payload, namespace, self.verb)


def archived_from(message: ReceivedMessage, payload: bytes, namespace: str, verb: str) -> ArchivedMessage:
    return ArchivedMessage(
        namespace=namespace,
        entity=message.entity.path,
        sequence_number=message.sequence_number,
        message_id=message.message_id,
        enqueued_time=time_text(message.enqueued_time),
        verb=verb,
        payload=payload,
    )


def room_of(message: ReceivedMessage) -> int:
    """Return how many bytes of the archive a message takes at most, before it is received."""
    try:
        size = len(payload_of(message))
    except Exception:  # noqa: BLE001 (a message that cannot be sent again is kept as it came)
        size = len(message.body)
    texts = message.dead_letter_reason, message.dead_letter_error_description, message.dead_letter_source
    said = sum(len(text.encode(errors="replace")) for text in texts if text)
    return room_for(size + _ANNOTATIONS + said, str(message.entity), message.message_id)
