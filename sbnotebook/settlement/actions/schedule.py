"""Messages that are sent now and become active later: scheduling them, and cancelling that.

Source: Service Bus documentation, "AMQP 1.0 in Azure Service Bus: request-response-based operations" (schedule-message,
cancel-scheduled-message). The answer to a scheduled message carries the sequence number by which it is cancelled; when
it becomes active it gets another one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel
import anyio.to_thread
from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError

from sbnotebook.errors import ArchiveError, DecisionError
from sbnotebook.model import (
    CancelScheduled,
    EntityAddress,
    Message,
    MessageState,
    Outcome,
    OutcomeStatus,
    PeekedMessage,
    ReceivedMessage,
    Send,
)
from sbnotebook.model.decision import AUTO
from sbnotebook.settlement.connecting.failures import Failure
from sbnotebook.settlement.costs import Cost
from sbnotebook.settlement.engine import GROUP, Run
from sbnotebook.settlement.locking.by_number import same_partition_chunks
from sbnotebook.settlement.locking.records import archived_from
from sbnotebook.settlement.pace import transfers_in_flight
from sbnotebook.settlement.parallel import halves, in_parallel
from sbnotebook.settlement.patience import OUTAGE_PATIENCE
from sbnotebook.settlement.plan import Plan
from sbnotebook.settlement.sdk import management
from sbnotebook.settlement.sending.delivery import DeliveryMethod
from sbnotebook.settlement.sending.packing import Pack
from sbnotebook.settlement.sending.sender_pool import SenderPool
from sbnotebook.settlement.terms import ANOTHER, is_same, outcome_for
from sbnotebook.settlement.wire.conversion import peeked_from_payload

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusSender

    from sbnotebook.settlement.place import Place

_CANNOT_LOOK: Final = frozenset({"amqp:not-allowed", "amqp:not-implemented"})
"""How a topic refuses to show its messages."""
_GONE: Final = "It is not scheduled any more: it became active, or was cancelled."
_GONE_WITH_OTHERS: Final = (
    "It is gone. Service Bus refused a request to cancel it together with others: the request cancelled it all the "
    "same, or it became active."
)
_TOGETHER: Final = 100
"""Messages that one request cancels at most."""
_NOT_KEPT: Final = "No peek showed it, so it is not in the archive and cannot be sent back."
_FINISH_WITHIN: Final = 10.0
"""Seconds to wait for open requests when the caller is cancelled."""
_NO_ANSWER: Final = "It was interrupted before the answer came: it may be cancelled."
_INTERRUPTED: Final = "It was interrupted before."
_TIMELESS: Final = "A message is scheduled for a time: give at= or delay=, or set its scheduled_enqueue_time."


def timed(messages: Iterable[Message], decision: Send) -> Iterator[Message]:
    """Yield messages with the time at which they are to become active."""
    at = decision.at if decision.delay is None else datetime.now(UTC) + decision.delay
    for message in messages:
        if at is None and message.scheduled_enqueue_time is None:
            raise DecisionError(_TIMELESS)
        yield message if at is None else message.with_changes(scheduled_enqueue_time=at)


async def _schedule(sender: ServiceBusSender, pack: Pack) -> Sequence[int]:
    keys = {"session-id": pack.session_id, "partition-key": pack.partition_key}
    numbers = await management.schedule_payloads(
        sender, [{"message-id": each.message_id, **keys, "message": bytearray(each.payload)} for each in pack.items]
    )
    if len(numbers) != len(pack.items):
        raise RuntimeError(f"For {len(pack.items)} messages the service gave {len(numbers)} sequence numbers.")
    return numbers


SCHEDULE: Final = DeliveryMethod("schedule", _schedule, max_count=100, share=0.5)


# ---------------------------------------------------------------- cancelling


def plan_cancel_scheduled(place: Place, messages: Iterable[ReceivedMessage | int]) -> Plan:
    """Return a plan to cancel scheduled messages, archived first; Service Bus does not show those of a topic."""
    chosen = {message.sequence_number: message for message in (_chosen(place.address, each) for each in messages)}

    async def work(run: Run) -> None:
        await cancel_scheduled(place, run, run.messages)

    return place.new_plan(CancelScheduled(), chosen.values(), work, cost=Cost(transfers=0))


async def cancel_scheduled(
    place: Place, run: Run, messages: Sequence[ReceivedMessage], *, archived: bool = True
) -> None:
    cancelling = _Cancelling(place, run, archived=archived)
    limit = run.limits.max_in_flight
    size = GROUP if limit == AUTO else limit
    await run.take(messages, cancelling.steps, size=size, finish_within=_FINISH_WITHIN)


def _chosen(address: EntityAddress, message: ReceivedMessage | int) -> ReceivedMessage:
    if isinstance(message, int):
        return PeekedMessage(entity=address, sequence_number=message, state=MessageState.SCHEDULED)
    if message.entity != address:
        raise DecisionError(f"Message #{message.sequence_number} is in {message.entity}, not in {address}.")
    if message.state is not MessageState.SCHEDULED:
        raise DecisionError(f"Message #{message.sequence_number} is {message.state}, not scheduled.")
    return message


@dataclass(slots=True)
class _Group:
    messages: Sequence[ReceivedMessage]
    payloads: Mapping[int, bytes]
    ends: dict[int, Outcome] = field(default_factory=dict[int, Outcome])
    rows: Mapping[int, int] = field(default_factory=dict[int, int])

    @property
    def left(self) -> list[ReceivedMessage]:
        return [message for message in self.messages if message.sequence_number not in self.ends]

    def together(self, most: int) -> list[list[ReceivedMessage]]:
        """Return the messages of each request: those that a peek has just shown together, and each other alone."""
        left = {message.sequence_number: message for message in self.left}
        shown = left.keys() & self.payloads.keys()
        chunks = [*same_partition_chunks(shown, most), *([number] for number in left if number not in shown)]
        return [[left[number] for number in chunk] for chunk in chunks]


class _Cancelling:
    def __init__(self, place: Place, run: Run, *, archived: bool) -> None:
        self._place = place
        self._run = run
        self._archive = place.namespace.archive if archived else None
        self._pool: SenderPool = place.namespace.pool(place.address)
        self._decision = CancelScheduled()

    async def steps(self, messages: Sequence[ReceivedMessage]) -> list[Outcome]:
        """Keep a group of messages in the archive, and cancel them; the outcome of each in their order."""
        try:
            group = _Group(messages, await self._payloads(messages))
        except anyio.get_cancelled_exc_class():
            self._expect(messages, OutcomeStatus.SKIPPED, _INTERRUPTED)
            raise
        for message in messages:
            payload = group.payloads.get(message.sequence_number)
            if payload is not None and not is_same(peeked_from_payload(payload, message.entity), message):
                another = outcome_for(message, self._decision, OutcomeStatus.NOT_FOUND, ANOTHER)
                group.ends[message.sequence_number] = another
        with anyio.CancelScope(shield=True):  # must not be interrupted between the write and its result
            group.rows = await self._keep(group.left, group.payloads)
        self._expect(group.left, OutcomeStatus.SKIPPED, _INTERRUPTED)
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()

            async def cancel(together: Sequence[ReceivedMessage]) -> None:
                await self._cancel(together, group)

            await in_parallel(cancel, group.together(_TOGETHER), transfers_in_flight(self._run.limits.max_in_flight))
        finally:
            with anyio.CancelScope(shield=True):
                await self._write_ends(group)
        return [group.ends[message.sequence_number] for message in messages]

    def _expect(self, messages: Sequence[ReceivedMessage], status: OutcomeStatus, why: str) -> None:
        """Note the outcomes of messages if an interrupt comes now."""
        self._run.expect(messages, [outcome_for(m, self._decision, status, why) for m in messages])

    async def _cancel(self, messages: Sequence[ReceivedMessage], group: _Group) -> None:
        """Cancel messages by one request; by several if Service Bus refuses it, as because one of them is active."""
        error, is_asked = await self._request(messages)
        if len(messages) > 1 and error is not None and is_asked:
            one = self._outcome_of(error, messages[0], asked=True)
            if one.status is not OutcomeStatus.UNCONFIRMED:
                await self._cancel_left(messages, group)
                return
        for message in messages:
            number = message.sequence_number
            if error is None:
                why = _NOT_KEPT if self._archive is not None and number not in group.rows else None
                group.ends[number] = outcome_for(message, self._decision, OutcomeStatus.SETTLED, why)
            else:
                group.ends[number] = self._outcome_of(error, message, asked=is_asked)
        self._run.expect(messages, [group.ends[message.sequence_number] for message in messages])

    async def _cancel_left(self, messages: Sequence[ReceivedMessage], group: _Group) -> None:
        """Cancel the rest of a refused request. No source says whether the refused request cancelled the others."""
        numbers = [message.sequence_number for message in messages]
        shown = await self._place.peeker.payloads_of(numbers)
        there: list[ReceivedMessage] = []
        for message in messages:
            if message.sequence_number in shown:
                there.append(message)
            else:
                group.ends[message.sequence_number] = outcome_for(
                    message, self._decision, OutcomeStatus.UNCONFIRMED, _GONE_WITH_OTHERS
                )
        for part in halves(there) if len(there) == len(messages) else [there]:
            if part:
                await self._cancel(part, group)

    async def _request(self, messages: Sequence[ReceivedMessage]) -> tuple[Exception | None, bool]:
        """Request it until Service Bus is not busy; return the error, and whether Service Bus may have got it."""
        is_asked, rate = False, self._pool.limiter
        until = rate.now() + OUTAGE_PATIENCE
        while True:
            await rate.wait(len(messages))
            try:
                async with self._pool.slot() as sender:
                    is_asked = True
                    self._expect(messages, OutcomeStatus.UNCONFIRMED, _NO_ANSWER)
                    with anyio.fail_after(self._pool.answer_within):
                        await management.cancel_by_numbers(sender, [m.sequence_number for m in messages])
            except ServiceBusServerBusyError as error:
                is_asked = False
                self._expect(messages, OutcomeStatus.SKIPPED, _INTERRUPTED)
                rate.refused()
                if rate.now() > until:
                    return error, is_asked
            except Exception as error:  # noqa: BLE001 (each message has an outcome, for any error of the SDK)
                return error, is_asked
            else:
                rate.accepted(len(messages))
                return None, True

    def _outcome_of(self, error: Exception, message: ReceivedMessage, *, asked: bool) -> Outcome:
        outcome = Failure.of(error).outcome(self._decision.verb, message)
        if outcome.status is OutcomeStatus.NOT_FOUND:
            return outcome_for(message, self._decision, OutcomeStatus.NOT_FOUND, _GONE)
        if outcome.status is OutcomeStatus.UNCONFIRMED and not asked:
            return outcome_for(message, self._decision, OutcomeStatus.FAILED, outcome.description)
        return outcome

    # ------------------------------------------------------------------ the archive

    async def _payloads(self, messages: Sequence[ReceivedMessage]) -> Mapping[int, bytes]:
        if self._archive is None and all(message.enqueued_time is None for message in messages):
            return {}
        numbers = [message.sequence_number for message in messages]
        try:
            return await self._place.peeker.payloads_of(numbers)
        except ServiceBusError as error:
            if Failure.of(error).condition not in _CANNOT_LOOK:
                raise
            return {}  # a topic does not show its scheduled messages

    async def _keep(self, messages: Sequence[ReceivedMessage], payloads: Mapping[int, bytes]) -> dict[int, int]:
        archive = self._archive
        found = [message for message in messages if message.sequence_number in payloads]
        if archive is None or not found:
            return {}
        namespace = await anyio.to_thread.run_sync(self._place.namespace.identity)
        kept = [archived_from(each, payloads[each.sequence_number], namespace, self._decision.verb) for each in found]
        rows = await anyio.to_thread.run_sync(archive.keep, kept)
        return {message.sequence_number: row for message, row in zip(found, rows, strict=True)}

    async def _write_ends(self, group: _Group) -> None:
        archive, rows = self._archive, group.rows
        if archive is None or not rows:
            return
        archived = {m.sequence_number: m for m in group.messages if m.sequence_number in rows}
        known = [(rows[n], group.ends.get(n) or self._run.outcome_of(message)) for n, message in archived.items()]
        ends = [(row, each) for row, each in known if each and each.status is not OutcomeStatus.UNCONFIRMED]
        removed = [row for row, outcome in ends if outcome.ok]
        kept = [row for row, outcome in ends if not outcome.ok]
        # Without this record they count as unconfirmed. That must not hide the outcome.
        with contextlib.suppress(ArchiveError):
            await anyio.to_thread.run_sync(lambda: archive.note_ends(removed=removed, kept=kept))
