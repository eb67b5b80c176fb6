"""Local records of each settlement: written before messages are settled, and again when the outcomes are known."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias
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
from sbnotebook.settlement.memory.archive import Archive, ArchivedMessage, ArchiveState, room_for
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


Record: TypeAlias = Callable[
    [Decision, Sequence[Hold], Mapping[UUID, Outcome]], contextlib.AbstractAsyncContextManager[None]
]
"""Writes a local record around settlements: on disk before they begin, and again as it ends without an error. By then
the mapping has the outcomes that are known, by lock token; the block itself may have failed."""


@contextlib.asynccontextmanager
async def recording_deferrals(
    tables: NamespaceTables, decision: Decision, holds: Sequence[Hold], outcomes: Mapping[UUID, Outcome]
) -> AsyncGenerator[None]:
    if isinstance(decision, Defer):
        await anyio.to_thread.run_sync(tables.intend, [hold.message for hold in holds])
    yield
    deferred = {h.message.lock_token for h in holds if h.message.state is MessageState.DEFERRED}
    if isinstance(decision, Defer):
        await _note(tables.confirm, (o for o in outcomes.values() if o.ok))
        # Without an answer, the intent stays: the outcome is unknown. Messages deferred before still are.
        active = [o for token, o in outcomes.items() if token not in deferred]
        await _note(tables.forget, (o for o in active if not o.ok and o.status is not OutcomeStatus.UNCONFIRMED))
    elif isinstance(decision, Complete | DeadLetter):
        await _note(tables.forget, (o for token, o in outcomes.items() if o.ok and token in deferred))


async def _note(write: Callable[[list[_Place]], None], outcomes: Iterable[Outcome]) -> None:
    keys = [(o.entity, o.sequence_number) for o in outcomes if o.sequence_number is not None]
    # Without this record an entry stays as it was, which `compared` finds. That must not hide the outcome.
    if keys:
        try:
            await anyio.to_thread.run_sync(write, keys)
        except (OSError, sqlite3.Error) as error:
            _LOGGER.warning("The outcome of deferring %d messages could not be recorded: %s", len(keys), error)


@contextlib.asynccontextmanager
async def recording_removals(
    archive: Archive,
    namespace: Callable[[], str],
    peeker: Callable[[EntityAddress], Peeker],
    verb: str,
    decision: Decision,
    holds: Sequence[Hold],
    outcomes: Mapping[UUID, Outcome],
) -> AsyncGenerator[None]:
    """Keep messages that are about to be completed, and record which of them are removed; the others stay unknown."""
    if not isinstance(decision, Complete):
        yield
        return
    payloads = await _payloads(holds, peeker)

    def keep() -> list[int]:
        name = namespace()
        return archive.keep([_archived(hold, payloads.get(hold.message.sequence_number), name, verb) for hold in holds])

    rows: list[int] = []
    with anyio.CancelScope(shield=True):  # must not be interrupted between the write and its result
        rows = await anyio.to_thread.run_sync(keep)
    yield
    ends = [(row, outcomes.get(hold.message.lock_token)) for row, hold in zip(rows, holds, strict=True)]
    doubtful = {row for row, hold in zip(rows, holds, strict=True) if hold.in_doubt}
    await note_ends(archive, {row: end for row, end in ends if end is not None or row not in doubtful})


async def note_ends(archive: Archive, ends: Mapping[int, Outcome | None]) -> None:
    """Record how removals ended, by the rows of their messages; None for one that was not attempted."""
    known = {row: end for row, end in ends.items() if end is None or end.status is not OutcomeStatus.UNCONFIRMED}
    states = {row: _state_after(end) for row, end in known.items()}
    # Without this record they count as unconfirmed. That must not hide the outcome.
    with contextlib.suppress(ArchiveError):
        await anyio.to_thread.run_sync(archive.note, states)


def _state_after(end: Outcome | None) -> ArchiveState | None:
    if end is None or end.status in _UNTOUCHED:
        return None
    return ArchiveState.REMOVED if end.ok else ArchiveState.KEPT


async def _payloads(holds: Sequence[Hold], peeker: Callable[[EntityAddress], Peeker]) -> dict[int, bytes]:
    """Return the bytes by sequence number, as they came; peek again where they did not come whole."""
    found = {hold.message.sequence_number: hold.lock.payload for hold in holds if hold.lock.payload is not None}
    missing = [number for hold in holds if (number := hold.message.sequence_number) not in found]
    if missing:
        found |= await peeker(holds[0].message.entity).payloads_of(missing)
    return found


def _archived(hold: Hold, payload: bytes | None, namespace: str, verb: str) -> ArchivedMessage:
    message: ReceivedMessage = hold.message
    if payload is None:
        payload = payload_of(message)  # it is gone already, most likely; this is the message as it was read
    elif not hold.is_read:
        message = replace(peeked_from_payload(payload, message.entity), sequence_number=message.sequence_number)
    return archived_from(message, payload, namespace, verb)


def archived_from(
    message: ReceivedMessage, payload: bytes, namespace: str, verb: str, state: ArchiveState = ArchiveState.REMOVING
) -> ArchivedMessage:
    return ArchivedMessage(
        namespace=namespace,
        entity=message.entity.path,
        sequence_number=message.sequence_number,
        message_id=message.message_id,
        enqueued_time=time_text(message.enqueued_time),
        verb=verb,
        payload=payload,
        state=state,
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
