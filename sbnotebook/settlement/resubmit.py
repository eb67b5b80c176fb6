"""Sending a clone of a message and completing the original, so that nothing is lost and nothing is sent twice.

The order is: journal the intent, send the clone, wait for its confirmation, complete the original, journal the end.
A crash leaves either the original alone, or a clone whose id tells that it is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
from azure.core.exceptions import AzureError

from sbnotebook.model import (
    Complete,
    DeadLetter,
    EntityAddress,
    LockedMessage,
    Message,
    Outcome,
    OutcomeStatus,
    ReceivedMessage,
    Report,
    Resubmit,
)
from sbnotebook.settlement.clone import ORIGINAL_MESSAGE_ID, clone_of
from sbnotebook.settlement.destination import Destination, destinations_of
from sbnotebook.settlement.failures import explained, outcome_of_error
from sbnotebook.settlement.journal import Journal, ResubmitEntry, ResubmitState, time_text
from sbnotebook.settlement.lock import LockedBatch
from sbnotebook.settlement.pace import Pace
from sbnotebook.settlement.plan import Edit, Limits, Plan
from sbnotebook.settlement.recall import Recall, Verdict
from sbnotebook.settlement.send import SenderPool, send_many
from sbnotebook.settlement.settle import Progress, outcome_for
from sbnotebook.settlement.watch import reporting

if TYPE_CHECKING:
    from sbnotebook.settlement.entity import AsyncEntity

__all__ = ["ORIGINAL_MESSAGE_ID", "TOO_OFTEN", "Resubmitter", "clone_of"]

TOO_OFTEN: Final = "ResubmittedTooOften"
"""The reason with which a message is dead-lettered that was resubmitted ``max_resubmits`` times."""
_RENEW_FOR: Final = timedelta(days=7)
"""Longer than any run."""
_MAX_DESCRIPTION: Final = 500
_WINDOW: Final = 500
"""Messages that are locked at once."""
_GROUP: Final = 100
"""Messages that are sent and completed together, and not interrupted."""
_FINISHED: Final = "Another run has finished it meanwhile, or it is another message now."
_NOT_GIVEN: Final = "The entity gave no such message: it was settled, is deferred, or is locked by another receiver."
_TOO_LATE: Final = "The lock had ended before its clone was sent: nothing was sent."
_NOT_BEGUN: Final = "Not attempted: the run was cut off before."


@dataclass(slots=True)
class _Step:
    """One message on its way."""

    original: LockedMessage
    earlier: ResubmitEntry | None = None
    """An unfinished attempt of an earlier run."""
    clone: Message | None = None
    entry: int = 0
    """In the journal."""
    note: str | None = None


@dataclass(slots=True)
class Resubmitter:
    """Carries a resubmit plan out.

    Args:
        namespace: the host, for the journal.
        journal: where intents are written before anything is sent.
        decision: the plan's.
        batch: on the plan's entity, not open yet; its locks are renewed for as long as this takes.
        pool: senders to the entity that the clones go to.
        destinations: gives what is known of an entity that clones were sent to.
        only_begun: finish what an earlier run has begun, and leave the others alone.
        max_wait: seconds to wait for messages that are not to be had yet.
    """

    namespace: str
    journal: Journal
    decision: Resubmit
    batch: LockedBatch
    pool: SenderPool
    destinations: Callable[[EntityAddress], Destination]
    only_begun: bool = False
    max_wait: float = 2.0
    _owed: set[int] = field(default_factory=set[int], init=False)
    """Originals whose clone is confirmed and that are not completed yet."""
    _done: list[int] = field(default_factory=list[int], init=False)
    """Entries whose originals are completed, which is to be written down with the next ones or at the end."""

    @classmethod
    def on(
        cls, entity: AsyncEntity, decision: Resubmit, *, only_begun: bool = False, max_wait: float = 2.0
    ) -> Resubmitter:
        """The one for a decision on messages of an entity; the decision says where to."""
        namespace, to = entity.namespace, decision.to or entity.address.sends_to
        return cls(
            namespace.host,
            namespace.journal,
            decision,
            entity.batch(renew_for=_RENEW_FOR, verb=decision.verb),
            namespace.pool(to),
            destinations_of(namespace),
            only_begun=only_begun,
            max_wait=max_wait,
        )

    async def run(self, plan: Plan, limits: Limits, progress: Progress | None) -> Report:
        """Lock ahead, resubmit what is in the plan, and give the rest back as it was.

        A message whose edit fails is left where it is, with an outcome that says so.

        Raises:
            azure.servicebus.exceptions.ServiceBusError: the entity or the destination cannot be used; nothing was done.
        """
        outcomes: dict[int, Outcome] = {}

        def report(status: OutcomeStatus = OutcomeStatus.SKIPPED, why: str = _NOT_BEGUN) -> Report:
            return Report(
                outcomes.get(message.sequence_number) or outcome_for(message, self.decision, status, why)
                for message in plan.messages
            )

        if not self.only_begun:
            async with self.pool.slot():
                pass  # a destination that cannot be sent to is told before anything is locked
        with reporting(report):
            try:
                async with self.batch:
                    error = await self._run(plan, limits, outcomes, progress)
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(self.journal.mark, self._done, ResubmitState.DONE)
        if error is not None:
            why = f"Not attempted: no more messages could be locked ({explained(error)})"[:_MAX_DESCRIPTION]
            return report(OutcomeStatus.SKIPPED, why)
        return report(OutcomeStatus.NOT_FOUND, _NOT_GIVEN)

    async def _run(
        self, plan: Plan, limits: Limits, outcomes: dict[int, Outcome], progress: Progress | None
    ) -> Exception | None:
        """Fill the outcomes in; the error that ended it too early, if any."""
        wanted = {message.sequence_number: message for message in plan.messages}
        left = set(wanted)
        last = _last(plan.messages)
        pace = Pace(limits.rate)
        group = min(_GROUP, pace.at_once or _GROUP)
        while left or self._owed:
            try:
                locked = await self.batch.receive(_WINDOW, max_wait=self.max_wait)
            except (AzureError, OSError) as error:
                if not outcomes:
                    raise
                return error
            # One whose lock was lost after its clone was sent comes again: it is completed, and not sent again.
            todo = left | self._owed
            chosen = [m for m in locked if m.sequence_number in todo and _is_same(m, wanted[m.sequence_number])]
            for start in range(0, len(chosen), group):
                part = chosen[start : start + group]
                await pace.wait(len(part))
                # A group is never left half done: an interrupt takes effect between two of them.
                with anyio.CancelScope(shield=True):
                    done = await self._resubmit(part, plan.edit, limits)
                    _note(done, outcomes, left, progress)
            if all(_is_after(message, last) for message in locked):
                break  # there are none at all, or only newer ones, of which a busy entity has no end
        return None

    async def _resubmit(self, locked: Sequence[LockedMessage], edit: Edit | None, limits: Limits) -> list[Outcome]:
        steps = [_Step(message) for message in locked]
        sent, to_send, outcomes = await self._recall(steps, is_edited=edit is not None)
        outcomes += await self._stop_too_often([step for step in to_send if self._is_too_often(step)], limits)
        to_send = [step for step in to_send if not self._is_too_often(step)]
        # In a thread: the user's edit must not hold up what keeps locks alive.
        outcomes += await anyio.to_thread.run_sync(self._make_clones, to_send, edit)
        outcomes += await self._send([step for step in to_send if step.clone], limits, is_edited=edit is not None)
        sent += [step for step in to_send if step.original.sequence_number in self._owed]
        outcomes += await self._complete(sent, limits)
        return outcomes

    async def _recall(
        self, steps: Sequence[_Step], *, is_edited: bool
    ) -> tuple[list[_Step], list[_Step], list[Outcome]]:
        """Tell apart what earlier runs have sent, what is to be sent, and what is neither, with its outcome."""
        recall = Recall(self.journal, self.destinations, self.pool.address, self.decision)
        entries = [self._entry(step.original) for step in steps]
        sent: list[_Step] = []
        to_send: list[_Step] = []
        outcomes: list[Outcome] = []
        known = await recall.of(entries, can_make_edited=is_edited or not self.only_begun)
        for step, recalled in zip(steps, known, strict=True):
            step.earlier = recalled.earlier
            if recalled.verdict is Verdict.SENT and recalled.earlier is not None:
                step.entry = recalled.earlier.id
                step.note = None if step.original.sequence_number in self._owed else recalled.why
                sent.append(step)
            elif recalled.verdict is Verdict.UNKNOWN:
                outcomes.append(outcome_for(step.original, self.decision, OutcomeStatus.UNCONFIRMED, recalled.why))
            elif recalled.verdict is Verdict.NEW and self.only_begun:
                outcomes.append(outcome_for(step.original, self.decision, OutcomeStatus.SKIPPED, _FINISHED))
            else:
                to_send.append(step)
        return sent, to_send, outcomes

    # ---------------------------------------------------------------- those that came back too often

    def _is_too_often(self, step: _Step) -> bool:
        limit = self.decision.max_resubmits
        return limit is not None and step.earlier is None and step.original.resubmit_count >= limit

    async def _stop_too_often(self, steps: Sequence[_Step], limits: Limits) -> list[Outcome]:
        why = f"It was resubmitted {self.decision.max_resubmits} times already"
        originals = [step.original for step in steps]
        if self.batch.address.sub_queue is not None:
            text = f"{why} and stays where it is: from a sub-queue it cannot be dead-lettered."
            return [outcome_for(message, self.decision, OutcomeStatus.SKIPPED, text) for message in originals]
        if not originals:
            return []
        verdict = DeadLetter(TOO_OFTEN, f"{why}, which is the limit.")
        ends = await self.batch.settle(verdict, originals, max_in_flight=limits.max_in_flight)
        return [replace(end, description=f"{why}: it was dead-lettered.") if end.ok else end for end in ends]

    # ---------------------------------------------------------------- sending and completing

    def _make_clones(self, steps: Sequence[_Step], edit: Edit | None) -> list[Outcome]:
        """Give each step its clone; the outcomes of those whose edit fails."""
        outcomes: list[Outcome] = []
        now = self.batch.clock.now()
        for step in steps:
            try:
                clone = clone_of(step.original, self.decision, edit, now)
            except Exception as error:  # noqa: BLE001 (a user's edit may raise anything; the others go on)
                why = f"The edit failed, nothing was sent: {type(error).__name__}: {error}"[:_MAX_DESCRIPTION]
                outcomes.append(outcome_for(step.original, self.decision, OutcomeStatus.FAILED, why))
                continue
            if step.earlier is not None and self._is_same(step.earlier):
                # The very one that may have arrived, so that it is dropped if it has.
                when = step.earlier.scheduled if self.only_begun else clone.scheduled_enqueue_time
                clone = clone.with_changes(message_id=step.earlier.clone_id, scheduled_enqueue_time=when)
            step.clone = clone
        return outcomes

    def _is_same(self, earlier: ResubmitEntry) -> bool:
        return EntityAddress.parse(earlier.destination) == self.pool.address

    async def _send(self, steps: Sequence[_Step], limits: Limits, *, is_edited: bool) -> list[Outcome]:
        """Send the clones; the outcomes of those that were not confirmed."""
        # Asked last: where the lock has ended, somebody else may have the message, and send it, too.
        late = [step for step in steps if not self._is_held(step)]
        steps = [step for step in steps if self._is_held(step)]
        outcomes = [outcome_for(s.original, self.decision, OutcomeStatus.LOCK_LOST, _TOO_LATE) for s in late]
        try:
            async with self.pool.slot():
                pass  # without a connection nothing is sent, and nothing need be written
        except (AzureError, OSError) as error:
            return outcomes + [_not_connected(step.original, self.decision, error) for step in steps]
        await anyio.to_thread.run_sync(self._intend, steps, is_edited)
        clones = [step.clone for step in steps if step.clone is not None]
        ends = await send_many(self.pool, clones, max_in_flight=limits.max_in_flight)
        sent = [step for step, end in zip(steps, ends, strict=True) if end.ok]
        self._owed |= {step.original.sequence_number for step in sent}
        never = (OutcomeStatus.FAILED, OutcomeStatus.SKIPPED)
        refused = [step for step, end in zip(steps, ends, strict=True) if end.status in never]
        await self._mark(refused, ResubmitState.NOT_SENT)
        # What was not sent stays held until the batch closes: released now, it would come again in the next window.
        unsent = [(step, end) for step, end in zip(steps, ends, strict=True) if not end.ok]
        return outcomes + [_as_resubmit(step, end, self.decision) for step, end in unsent]

    def _is_held(self, step: _Step) -> bool:
        locked_until = self.batch.locked_until(step.original.sequence_number)
        return locked_until is not None and locked_until > self.batch.clock.now()

    def _intend(self, steps: Sequence[_Step], is_edited: bool) -> None:
        new: list[_Step] = []
        for step in steps:
            if step.earlier is not None and self._is_same(step.earlier):
                step.entry = step.earlier.id
            else:
                new.append(step)
        entries = [replace(self._entry(step.original, step.clone), edited=is_edited) for step in new]
        ended = dict.fromkeys(self._done, ResubmitState.DONE)
        ended |= {step.earlier.id: ResubmitState.GONE for step in new if step.earlier is not None}
        for step, entry in zip(new, self.journal.intend(entries, ended=ended), strict=True):
            step.entry = entry
        self._done.clear()

    async def _complete(self, steps: Sequence[_Step], limits: Limits) -> list[Outcome]:
        originals = [step.original for step in steps]
        self._owed |= {step.original.sequence_number for step in steps}
        ends: Sequence[Outcome] = ()
        errors: list[Exception] = []

        async def mark() -> None:
            try:
                await self._mark(steps, ResubmitState.SENT)
            except Exception as error:  # noqa: BLE001 (raised when it is known how the settling ended)
                errors.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mark)  # meanwhile: the disk takes as long as the service
            try:
                ends = await self.batch.settle(Complete(), originals, max_in_flight=limits.max_in_flight)
            except Exception as error:  # noqa: BLE001 (raised below, and not in a group)
                errors.append(error)
        if errors:
            errors[-1].add_note(f"The clones of {len(steps)} messages were sent: run it again to complete these.")
            raise errors[-1]
        done = [step for step, end in zip(steps, ends, strict=True) if end.ok]
        self._owed -= {step.original.sequence_number for step in done}
        self._done += [step.entry for step in done]
        return [_as_resubmit(step, end, self.decision) for step, end in zip(steps, ends, strict=True)]

    async def _mark(self, steps: Iterable[_Step], state: ResubmitState) -> None:
        await anyio.to_thread.run_sync(self.journal.mark, [step.entry for step in steps], state)

    def _entry(self, original: ReceivedMessage, clone: Message | None = None) -> ResubmitEntry:
        return ResubmitEntry(
            namespace=self.namespace,
            source=original.entity.path,
            sequence_number=original.sequence_number,
            message_id=original.message_id,
            destination=self.pool.address.path,
            clone_id=(clone.message_id if clone else None) or "",
            enqueued_time=time_text(original),
            scheduled=clone.scheduled_enqueue_time if clone else None,
        )


def _note(done: list[Outcome], outcomes: dict[int, Outcome], left: set[int], progress: Progress | None) -> None:
    for outcome in done:
        number = outcome.sequence_number or 0
        outcomes[number] = outcome
        if progress is not None and number in left:
            progress(1)
        left.discard(number)


def _is_same(message: LockedMessage, wanted: ReceivedMessage) -> bool:
    # A queue that was made anew since they were peeked gives the same numbers to others.
    return wanted.enqueued_time in (None, message.enqueued_time)


_Place = tuple[int, datetime]


def _place(message: ReceivedMessage) -> _Place:
    return message.sequence_number, message.enqueued_time or datetime.max.replace(tzinfo=UTC)


def _last(messages: Iterable[ReceivedMessage]) -> _Place:
    """The highest number and the latest time of messages: in partitions and sub-queues they do not go together."""
    places = [_place(message) for message in messages]
    return max(number for number, _ in places), max(time for _, time in places)


def _is_after(message: ReceivedMessage, last: _Place) -> bool:
    number, time = _place(message)
    return number > last[0] and time > last[1]


def _as_resubmit(step: _Step, end: Outcome, decision: Resubmit) -> Outcome:
    message = step.original
    what = "The clone was sent, completing the original: " if end.verb == "complete" else "Sending the clone: "
    return Outcome(
        status=end.status,
        verb=decision.verb,
        entity=message.entity,
        sequence_number=message.sequence_number,
        message_id=message.message_id,
        condition=end.condition,
        description=step.note if end.ok else f"{what}{end.description}",
        tracking_id=end.tracking_id,
        retryable=end.retryable,
    )


def _not_connected(message: LockedMessage, decision: Resubmit, error: Exception) -> Outcome:
    outcome = outcome_of_error(
        error,
        verb=decision.verb,
        entity=message.entity,
        sequence_number=message.sequence_number,
        message_id=message.message_id,
    )
    text = f"Nothing was sent, there was no connection: {outcome.description}"[:_MAX_DESCRIPTION]
    return replace(outcome, status=OutcomeStatus.FAILED, description=text, retryable=True)
