"""Sending a clone of a message and completing the original, so that nothing is lost and nothing is sent twice.

The order is: journal the intent, send the clone, wait for its confirmation, complete the original, journal the end.
A crash leaves either the original alone, or a clone whose id tells that it is one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import anyio
import anyio.to_thread

from sbnotebook.model import (
    Complete,
    LockedMessage,
    Message,
    Outcome,
    OutcomeStatus,
    ReceivedMessage,
    Report,
    Resubmit,
)
from sbnotebook.model.message import DEAD_LETTER_ERROR_DESCRIPTION, DEAD_LETTER_REASON, RESUBMIT_COUNT
from sbnotebook.settlement.journal import Journal, ResubmitEntry, ResubmitState
from sbnotebook.settlement.lock import LockedBatch
from sbnotebook.settlement.pace import Pace
from sbnotebook.settlement.plan import Edit, Limits, Plan, edited_by
from sbnotebook.settlement.send import SenderPool, send_many
from sbnotebook.settlement.settle import Progress, outcome_for

__all__ = ["ORIGINAL_MESSAGE_ID", "Resubmitter", "clone_of"]

ORIGINAL_MESSAGE_ID: Final = "OriginalMessageId"
"""The application property of a clone that holds the first original's message id."""
_MAX_MESSAGE_ID: Final = 128
_MAX_DESCRIPTION: Final = 500
_WINDOW: Final = 500
"""Messages that are locked at once."""
_GROUP: Final = 100
"""Messages that are sent and completed together, and not interrupted."""
_UNKNOWN: Final = (
    "An earlier resubmit of this message was cut off, and its clone does not stand in the destination: it may have "
    "been sent and consumed. To send it again all the same, resubmit with resend_unknown=True."
)


def clone_of(message: ReceivedMessage, decision: Resubmit, edit: Edit | None, now: datetime) -> Message:
    """The message that a resubmit sends in place of one.

    It keeps body and typed properties, drops the reasons of the dead-letter queue, counts in ``ResubmitCount``,
    names the original in ``OriginalMessageId``, and has a message id that is derived from the original's: the same
    each time that the same resubmit is tried.

    Args:
        message: the original.
        decision: carries the delay.
        edit: changes the original first, None for nothing.
        now: what the delay is counted from.
    """
    edited = edited_by(edit, message) if edit else message
    count = message.resubmit_count + 1
    properties = dict(edited.application_properties)
    properties.pop(DEAD_LETTER_REASON, None)
    properties.pop(DEAD_LETTER_ERROR_DESCRIPTION, None)
    properties[RESUBMIT_COUNT] = count
    if message.message_id is not None:
        properties.setdefault(ORIGINAL_MESSAGE_ID, message.message_id)
    fields = {name: getattr(edited, name) for name in Message.__dataclass_fields__}
    fields["application_properties"] = properties
    fields["message_id"] = _clone_id(message, count)
    fields["scheduled_enqueue_time"] = now + decision.delay if decision.delay else None
    return Message(**fields)


def _clone_id(message: ReceivedMessage, count: int) -> str:
    """The same for the same original each time; others for other originals, also where ids repeat."""
    original = message.application_properties.get(ORIGINAL_MESSAGE_ID) or message.message_id
    place = f"{message.entity.path.casefold()}#{message.sequence_number}"
    mark = f"~{count}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"
    base = str(original) if original else place
    if len(base) + len(mark) > _MAX_MESSAGE_ID:
        base = hashlib.sha256(base.encode()).hexdigest()
    return base + mark


@dataclass(slots=True)
class _Step:
    """One message on its way: the original, its clone, the journal's entry, and whether the clone is confirmed."""

    original: LockedMessage
    clone: Message | None
    entry: int = 0
    sent: bool = False


@dataclass(slots=True)
class Resubmitter:
    """Carries a resubmit plan out.

    Args:
        namespace: the host, for the journal.
        journal: where intents are written before anything is sent.
        decision: the plan's.
        batch: on the plan's entity, not open yet.
        pool: senders to the entity that the clones go to.
        ids_there: tells which of some message ids stand in the entity that the clones go to.
    """

    namespace: str
    journal: Journal
    decision: Resubmit
    batch: LockedBatch
    pool: SenderPool
    ids_there: Callable[[set[str]], Awaitable[set[str]]]
    _sent: dict[int, int] = field(default_factory=dict[int, int], init=False)
    """Journal entries by sequence number of originals whose clone is confirmed and that are not completed yet."""

    async def run(self, plan: Plan, limits: Limits, progress: Progress | None) -> Report:
        """Lock ahead, resubmit what is in the plan, and give the rest back as it was.

        A message whose edit fails is left where it is, with an outcome that says so.
        """
        left = {message.sequence_number for message in plan.messages}
        outcomes: dict[int, Outcome] = {}
        pace = Pace(limits.rate)
        group = min(_GROUP, pace.at_once or _GROUP)
        async with self.batch:
            while left:
                locked = await self.batch.receive(_WINDOW, max_wait=2.0)
                if not locked:
                    break
                # One whose lock was lost after its clone was sent comes again: it is completed, and not sent again.
                chosen = [m for m in locked if m.sequence_number in left or m.sequence_number in self._sent]
                for start in range(0, len(chosen), group):
                    await pace.wait(len(chosen[start : start + group]))
                    done: list[Outcome] = []
                    # A group is never left half done: an interrupt takes effect between two of them.
                    with anyio.CancelScope(shield=True):
                        done = await self._resubmit(chosen[start : start + group], plan.edit, limits)
                    _note(done, outcomes, left, progress)
        return Report(outcomes.get(message.sequence_number) or _not_found(message, plan) for message in plan.messages)

    async def _resubmit(self, locked: Sequence[LockedMessage], edit: Edit | None, limits: Limits) -> list[Outcome]:
        # In a thread: the user's edit must not hold up what keeps locks alive.
        steps, outcomes = await anyio.to_thread.run_sync(self._prepare, locked, edit)
        outcomes += await self._recognise([step for step in steps if not step.sent], steps)
        outcomes += await self._send([step for step in steps if not step.sent], limits)
        outcomes += await self._complete([step for step in steps if step.sent], limits)
        return outcomes

    def _prepare(self, locked: Sequence[LockedMessage], edit: Edit | None) -> tuple[list[_Step], list[Outcome]]:
        steps: list[_Step] = []
        outcomes: list[Outcome] = []
        limit, now = self.decision.max_resubmits, datetime.now(UTC)
        for message in locked:
            if message.sequence_number in self._sent:
                steps.append(_Step(message, None, self._sent[message.sequence_number], sent=True))
            elif limit is not None and message.resubmit_count >= limit:
                why = f"It was resubmitted {limit} times already and stays where it is."
                outcomes.append(outcome_for(message, self.decision, OutcomeStatus.SKIPPED, why))
            else:
                try:
                    steps.append(_Step(message, clone_of(message, self.decision, edit, now)))
                except Exception as error:  # noqa: BLE001 (a user's edit may raise anything; the others go on)
                    why = f"The edit failed, nothing was sent: {type(error).__name__}: {error}"[:_MAX_DESCRIPTION]
                    outcomes.append(outcome_for(message, self.decision, OutcomeStatus.FAILED, why))
        return steps, outcomes

    async def _recognise(self, fresh: Sequence[_Step], steps: list[_Step]) -> list[Outcome]:
        """Find the clones that an earlier run, which was cut off, has sent; take out those of which nobody knows."""
        earlier = self.journal.find_unfinished([self._entry(step) for step in fresh])
        known = [(step, earlier[key]) for step in fresh if (key := self._entry(step).key) in earlier]
        unknown = {found.clone_id for _, (_, found) in known if found.state is ResubmitState.INTENDED}
        there = await self.ids_there(unknown) if unknown else set[str]()
        outcomes: list[Outcome] = []
        for step, (entry, found) in known:
            step.entry = entry
            step.sent = found.state is ResubmitState.SENT or found.clone_id in there
            if not step.sent and not self.decision.resend_unknown:
                steps.remove(step)
                outcomes.append(outcome_for(step.original, self.decision, OutcomeStatus.UNCONFIRMED, _UNKNOWN))
        return outcomes

    async def _send(self, steps: Sequence[_Step], limits: Limits) -> list[Outcome]:
        """Send the clones; the outcomes of those that were not confirmed."""
        new = [step for step in steps if not step.entry]
        for step, entry in zip(new, self.journal.intend([self._entry(step) for step in new]), strict=True):
            step.entry = entry
        clones = [step.clone for step in steps if step.clone is not None]
        sent = await send_many(self.pool, clones, max_in_flight=limits.max_in_flight)
        for step, outcome in zip(steps, sent, strict=True):
            step.sent = outcome.ok
            if step.sent:
                self._sent[step.original.sequence_number] = step.entry
        self.journal.mark((step.entry for step in steps if step.sent), ResubmitState.SENT)
        refused = [step.entry for step, o in zip(steps, sent, strict=True) if o.status is OutcomeStatus.FAILED]
        self.journal.mark(refused, ResubmitState.NOT_SENT)
        # What was not sent stays held until the batch closes: released now, it would come again in the next window.
        return [_as_resubmit(step.original, o, self.decision) for step, o in zip(steps, sent, strict=True) if not o.ok]

    async def _complete(self, steps: Sequence[_Step], limits: Limits) -> list[Outcome]:
        originals = [step.original for step in steps]
        completed = await self.batch.settle(Complete(), originals, max_in_flight=limits.max_in_flight)
        done = [step for step, outcome in zip(steps, completed, strict=True) if outcome.ok]
        self.journal.mark((step.entry for step in done), ResubmitState.DONE)
        for step in done:
            self._sent.pop(step.original.sequence_number, None)
        return [_as_resubmit(step.original, o, self.decision) for step, o in zip(steps, completed, strict=True)]

    def _entry(self, step: _Step) -> ResubmitEntry:
        original = step.original
        return ResubmitEntry(
            namespace=self.namespace,
            source=original.entity.path,
            sequence_number=original.sequence_number,
            message_id=original.message_id,
            destination=self.pool.address.path,
            clone_id=(step.clone.message_id if step.clone else None) or "",
            enqueued_time=original.enqueued_time.isoformat() if original.enqueued_time else "",
        )


def _note(done: list[Outcome], outcomes: dict[int, Outcome], left: set[int], progress: Progress | None) -> None:
    for outcome in done:
        number = outcome.sequence_number or 0
        outcomes[number] = outcome
        if progress is not None and number in left:
            progress(1)
        left.discard(number)


def _as_resubmit(message: LockedMessage, end: Outcome, decision: Resubmit) -> Outcome:
    step = "The clone was sent, completing the original: " if end.verb == "complete" else "Sending the clone: "
    return Outcome(
        status=end.status,
        verb=decision.verb,
        entity=message.entity,
        sequence_number=message.sequence_number,
        message_id=message.message_id,
        condition=end.condition,
        description=None if end.ok else f"{step}{end.description}",
        tracking_id=end.tracking_id,
        retryable=end.retryable,
    )


def _not_found(message: ReceivedMessage, plan: Plan) -> Outcome:
    why = "The entity gave no such message: it was settled, is deferred, or is locked by another receiver."
    return outcome_for(message, plan.decision, OutcomeStatus.NOT_FOUND, why)
