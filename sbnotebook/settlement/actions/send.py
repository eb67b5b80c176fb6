"""Sending as a plan, at once or scheduled, and cancelling scheduled messages.

Source: Service Bus documentation, "AMQP 1.0 in Azure Service Bus: request-response-based operations" (schedule-message,
cancel-scheduled-message). The answer to a scheduled message carries the sequence number by which it is cancelled; when
it becomes active it gets another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.lowlevel
import anyio.to_thread
from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError

from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    CancelScheduled,
    EntityAddress,
    Message,
    MessageState,
    Outcome,
    OutcomeStatus,
    PeekedMessage,
    ReceivedMessage,
    Report,
    Send,
    Tally,
)
from sbnotebook.model.durations import duration_text
from sbnotebook.model.report import counted
from sbnotebook.settlement.connecting.failures import Failure
from sbnotebook.settlement.engine import FINISH_WITHIN, GROUP, Run
from sbnotebook.settlement.locking.by_number import same_partition_chunks
from sbnotebook.settlement.locking.settle import archived_from, note_ends
from sbnotebook.settlement.pace import AUTO, Pace
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import ANOTHER, Limits, Plan, Preview, Progress, is_same, outcome_for
from sbnotebook.settlement.requests import OUTAGE_PATIENCE, by_halves, halves, in_parallel
from sbnotebook.settlement.sdk import management
from sbnotebook.settlement.sending.delivery import SEND, DeliveryMethod, SenderPool, send_many
from sbnotebook.settlement.sending.packing import Pack
from sbnotebook.settlement.wire.decoding import peeked_from_payload

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusSender

    from sbnotebook.settlement.wire.encoding import EncodedRows

_CANNOT_LOOK: Final = frozenset({"amqp:not-allowed", "amqp:not-implemented"})
"""Conditions with which a topic refuses to show its messages."""
_GONE_WITH_OTHERS: Final = (
    "It is gone. Service Bus refused a request to cancel it together with others: the request cancelled it all the "
    "same, or it became active."
)
_TOGETHER: Final = 100
"""Messages that one request cancels at most."""
_NO_ANSWER: Final = "It was interrupted before the answer came: it may be cancelled."
_INTERRUPTED: Final = "It was interrupted before."


def timed(messages: Iterable[Message], decision: Send) -> Iterator[Message]:
    """Yield messages with the time at which they are to become active."""
    at = decision.at if decision.delay is None else datetime.now(UTC) + decision.delay
    for message in messages:
        if at is None and message.scheduled_enqueue_time is None:
            raise DecisionError(
                "A message is scheduled for a time: give at= or delay=, or set its scheduled_enqueue_time."
            )
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
    return place.new_plan(CancelScheduled(), chosen.values(), lambda run: cancel_scheduled(place, run, run.messages))


async def cancel_scheduled(
    place: Place, run: Run, messages: Sequence[ReceivedMessage], *, archived: bool = True
) -> None:
    steps, limit = _Cancelling(place, run, archived=archived).steps, run.limits.max_in_flight
    await run.take(messages, steps, size=GROUP if limit == AUTO else limit, finish_within=FINISH_WITHIN)


def _together(messages: Sequence[ReceivedMessage], shown: KeysView[int]) -> list[list[ReceivedMessage]]:
    """Return the messages of each request: those that a peek has just shown together, and each other alone."""
    left = {message.sequence_number: message for message in messages}
    alone = ([number] for number in left if number not in shown)
    chunks = [*same_partition_chunks(left.keys() & shown, _TOGETHER), *alone]
    return [[left[number] for number in chunk] for chunk in chunks]


def _chosen(address: EntityAddress, message: ReceivedMessage | int) -> ReceivedMessage:
    if isinstance(message, int):
        return PeekedMessage(entity=address, sequence_number=message, state=MessageState.SCHEDULED)
    if message.entity != address:
        raise DecisionError(f"Message #{message.sequence_number} is in {message.entity}, not in {address}.")
    if message.state is not MessageState.SCHEDULED:
        raise DecisionError(f"Message #{message.sequence_number} is {message.state}, not scheduled.")
    return message


class _Cancelling:
    def __init__(self, place: Place, run: Run, *, archived: bool) -> None:
        self._place = place
        self._run = run
        self._archive = place.namespace.archive if archived else None
        self._pool: SenderPool = place.namespace.pool(place.address)
        self._rows: dict[int, int] = {}
        """The rows of the archive that hold messages of the group, by number."""

    async def steps(self, messages: Sequence[ReceivedMessage]) -> None:
        """Keep a group of messages in the archive, and cancel them."""
        try:
            payloads = await self._payloads(messages)
        except anyio.get_cancelled_exc_class():
            self._run.expect_end(messages, OutcomeStatus.SKIPPED, _INTERRUPTED)
            raise
        meant = self._those_meant(messages, payloads)
        with anyio.CancelScope(shield=True):  # must not be interrupted between the write and its result
            self._rows = await self._keep(meant, payloads)
        self._run.expect_end(meant, OutcomeStatus.SKIPPED, _INTERRUPTED)
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()
            requests = _together(meant, payloads.keys())
            await in_parallel(partial(by_halves, self._ask), requests, self._run.limits.transfers)
        finally:
            with anyio.CancelScope(shield=True):
                await self._write_ends(meant)

    def _those_meant(self, messages: Sequence[ReceivedMessage], payloads: Mapping[int, bytes]) -> list[ReceivedMessage]:
        """Return the messages without those whose number another message has now; these end."""
        others = [
            message
            for message in messages
            if (payload := payloads.get(message.sequence_number)) is not None
            and not is_same(peeked_from_payload(payload, message.entity), message)
        ]
        self._run.expect_end(others, OutcomeStatus.NOT_FOUND, ANOTHER)
        return [message for message in messages if message not in others]

    async def _ask(self, messages: Sequence[ReceivedMessage]) -> list[Sequence[ReceivedMessage]]:
        """Cancel messages by one request; return parts to ask for if it is refused, as because one is active."""
        error, is_asked = await self._request(messages)
        if error is None:
            self._note_cancelled(messages)
            return []
        if len(messages) == 1 or not is_asked or Failure.of(error).is_unanswered:
            self._run.expect(messages, [self._outcome_of(error, each, asked=is_asked) for each in messages])
            return []
        # No source says whether the refused request cancelled the others.
        shown = await self._place.peeker.payloads_of([message.sequence_number for message in messages])
        there = [message for message in messages if message.sequence_number in shown]
        gone = (message for message in messages if message.sequence_number not in shown)
        self._run.expect_end(gone, OutcomeStatus.UNCONFIRMED, _GONE_WITH_OTHERS)
        return halves(there) if len(there) == len(messages) else [there]

    def _note_cancelled(self, messages: Sequence[ReceivedMessage]) -> None:
        self._run.expect_end(messages, OutcomeStatus.SETTLED)
        if self._archive is not None:
            unkept = [message for message in messages if message.sequence_number not in self._rows]
            why = "No peek showed it, so it is not in the archive and cannot be sent back."
            self._run.expect_end(unkept, OutcomeStatus.SETTLED, why)

    async def _request(self, messages: Sequence[ReceivedMessage]) -> tuple[Exception | None, bool]:
        """Request it until Service Bus is not busy; return the error, and whether Service Bus may have got it."""
        is_asked, rate = False, self._pool.limiter
        until = rate.now() + OUTAGE_PATIENCE
        while True:
            await rate.wait(len(messages))
            try:
                async with self._pool.slot() as sender:
                    is_asked = True
                    self._run.expect_end(messages, OutcomeStatus.UNCONFIRMED, _NO_ANSWER)
                    with anyio.fail_after(self._pool.answer_within):
                        await sender.cancel_scheduled_messages([m.sequence_number for m in messages])
            except ServiceBusServerBusyError as error:
                is_asked = False
                self._run.expect_end(messages, OutcomeStatus.SKIPPED, _INTERRUPTED)
                rate.refused()
                if rate.now() > until:
                    return error, is_asked
            except Exception as error:  # noqa: BLE001 (each message has an outcome, for any error of the SDK)
                return error, is_asked
            else:
                rate.accepted(len(messages))
                return None, True

    def _outcome_of(self, error: Exception, message: ReceivedMessage, *, asked: bool) -> Outcome:
        outcome = Failure.of(error).outcome(self._run.decision.verb, message)
        if outcome.status is OutcomeStatus.NOT_FOUND:
            why = "It is not scheduled any more: it became active, or was cancelled."
            return outcome_for(message, self._run.decision, OutcomeStatus.NOT_FOUND, why)
        if outcome.status is OutcomeStatus.UNCONFIRMED and not asked:
            return outcome_for(message, self._run.decision, OutcomeStatus.FAILED, outcome.description)
        return outcome

    # ------------------------------------------------------------------ the archive

    async def _payloads(self, messages: Sequence[ReceivedMessage]) -> Mapping[int, bytes]:
        if self._archive is None and all(message.enqueued_time is None for message in messages):
            return {}
        try:
            return await self._place.peeker.payloads_of([message.sequence_number for message in messages])
        except ServiceBusError as error:
            if Failure.of(error).condition not in _CANNOT_LOOK:
                raise
            return {}  # a topic does not show its scheduled messages

    async def _keep(self, messages: Sequence[ReceivedMessage], payloads: Mapping[int, bytes]) -> dict[int, int]:
        found = [message for message in messages if message.sequence_number in payloads]
        if self._archive is None or not found:
            return {}
        namespace = await anyio.to_thread.run_sync(self._place.namespace.identity)
        kept = [archived_from(each, payloads[each.sequence_number], namespace, CancelScheduled.verb) for each in found]
        rows = await anyio.to_thread.run_sync(self._archive.keep, kept)
        return {message.sequence_number: row for message, row in zip(found, rows, strict=True)}

    async def _write_ends(self, messages: Sequence[ReceivedMessage]) -> None:
        if self._archive is not None:
            kept = [message for message in messages if message.sequence_number in self._rows]
            await note_ends(
                self._archive, {self._rows[each.sequence_number]: self._run.outcome_of(each) for each in kept}
            )


def plan_send(
    place: Place,
    messages: Callable[[], Iterable[Message | EncodedRows]],
    decision: Send | None = None,
    *,
    own_times: bool = False,
    batch_size: int | None = None,
    tally: Tally | None = None,
    total: int | None = None,
    shown: Iterable[Message] = (),
) -> Plan:
    """Return a plan to send messages, which are read as it is applied; ``shown`` are the first, for the preview."""
    decision = decision or Send()

    async def carry_out(plan: Plan, limits: Limits, progress: Progress | None) -> Report:  # noqa: ARG001
        is_later = own_times or not decision.is_for_now
        given: Any = messages()  # rows that are encoded already are sent at once only
        return await send_many(
            place.namespace.pool(place.address),
            timed(given, decision) if is_later else given,
            SCHEDULE if is_later else SEND,
            max_in_flight=limits.max_in_flight,
            batch_size=batch_size,
            pace=Pace(limits.rate, limits.pause),
            progress=progress,
            tally=tally,
            total=total,
        )

    return Plan(
        place.address,
        decision,
        (),
        carry_out,
        described=Preview(_sentence(place, total, decision), tuple(shown)),
        total=total,
        speeds=place.namespace.speeds,
        on=place.namespace.in_plans,
    )


def _sentence(place: Place, count: int | None, decision: Send) -> str:
    at = f", active at {decision.at.isoformat(sep=' ', timespec='seconds')}" if decision.at is not None else ""
    later = f", active {duration_text(decision.delay)} later" if decision.delay is not None else ""
    return f"send {counted(count)} to {place.in_plans}{at}{later}."
