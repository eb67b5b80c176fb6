"""Sending clones of messages that are locked, and completing these: a group of them, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import anyio
import anyio.to_thread
from azure.core.exceptions import AzureError

from sbnotebook.model import (
    Complete,
    DeadLetter,
    Decision,
    EntityAddress,
    LockedMessage,
    Message,
    Outcome,
    OutcomeStatus,
    ReceivedMessage,
    Report,
    Resubmit,
)
from sbnotebook.settlement.actions.clone import clone_of
from sbnotebook.settlement.actions.destination import Destination
from sbnotebook.settlement.actions.recall import Recall, Verdict
from sbnotebook.settlement.connecting.failures import outcome_of_error
from sbnotebook.settlement.locking.renewal import Clock
from sbnotebook.settlement.memory.journal import Journal, ResubmitEntry, ResubmitState, time_text
from sbnotebook.settlement.plan import Edit, Limits
from sbnotebook.settlement.sending.send import send_many
from sbnotebook.settlement.sending.sender_pool import SenderPool
from sbnotebook.settlement.terms import outcome_for

__all__ = ["TOO_OFTEN", "ResubmitSteps", "Settles"]

TOO_OFTEN: Final = "ResubmittedTooOften"
"""The reason with which a message is dead-lettered that was resubmitted ``max_resubmits`` times."""
_MAX_DESCRIPTION: Final = 500
_FINISHED: Final = "Another run has finished it meanwhile, or it is another message now."
_TOO_LATE: Final = "The lock had ended before its clone was sent: nothing was sent."


class Settles(Protocol):
    """Holds messages under locks."""

    async def settle(self, decision: Decision, messages: Sequence[LockedMessage], *, max_in_flight: int) -> Report:
        """Settle some of them, with an outcome for each."""
        ...

    def is_held(self, message: LockedMessage) -> bool:
        """Whether a message is still locked."""
        ...


@dataclass(slots=True)
class Step:
    """One message on its way."""

    original: LockedMessage
    earlier: ResubmitEntry | None = None
    """An unfinished attempt of an earlier run."""
    clone: Message | None = None
    entry: int = 0
    """In the journal."""
    is_new: bool = False
    """Whether the entry was written in this run."""
    note: str | None = None


@dataclass(slots=True)
class ResubmitSteps:
    """Takes groups of locked messages through the steps of a resubmit.

    Args:
        namespace: the host, for the journal.
        address: where the originals stand.
        journal: where intents are written before anything is sent.
        decision: the plan's.
        pool: senders to the entity that the clones go to.
        destinations: gives what is known of an entity that clones were sent to.
        clock: what delays are counted from.
        only_begun: finish what an earlier run has begun, and leave the others alone.
    """

    namespace: str
    address: EntityAddress
    journal: Journal
    decision: Resubmit
    pool: SenderPool
    destinations: Callable[[EntityAddress], Destination]
    clock: Clock
    only_begun: bool = False
    owed: set[int] = field(default_factory=set[int], init=False)
    """Originals whose clone is confirmed and that are not completed yet."""
    _done: list[int] = field(default_factory=list[int], init=False)
    """Entries whose originals are completed, which is to be written down with the next ones or at the end."""

    async def run(
        self, source: Settles, locked: Sequence[LockedMessage], edit: Edit | None, limits: Limits
    ) -> list[Outcome]:
        """Resubmit some messages that are locked; an outcome for each.

        Args:
            source: settles them.
            locked: the originals.
            edit: changes them first.
            limits: how fast.

        Raises:
            SbNotebookError: nothing can be written down, or kept; a note says how many clones were sent.
        """
        steps = [Step(message) for message in locked]
        sent, to_send, outcomes = await self._recall(steps, is_edited=edit is not None)
        outcomes += await self._stop_too_often(source, [step for step in to_send if self._is_too_often(step)], limits)
        to_send = [step for step in to_send if not self._is_too_often(step)]
        # In a thread: the user's edit must not hold up what keeps locks alive.
        outcomes += await anyio.to_thread.run_sync(self._make_clones, to_send, edit)
        to_send = [step for step in to_send if step.clone is not None]
        outcomes += await self._send(source, to_send, limits, is_edited=edit is not None)
        sent += [step for step in to_send if step.original.sequence_number in self.owed]
        outcomes += await self._complete(source, sent, limits)
        return outcomes

    async def _recall(self, steps: Sequence[Step], *, is_edited: bool) -> tuple[list[Step], list[Step], list[Outcome]]:
        """Tell apart what earlier runs have sent, what is to be sent, and what is neither, with its outcome."""
        recall = Recall(self.journal, self.destinations, self.pool.address, self.decision)
        entries = [self._entry(step.original) for step in steps]
        sent: list[Step] = []
        to_send: list[Step] = []
        outcomes: list[Outcome] = []
        known = await recall.of(entries, can_make_edited=is_edited or not self.only_begun)
        for step, recalled in zip(steps, known, strict=True):
            step.earlier = recalled.earlier
            if recalled.verdict is Verdict.SENT and recalled.earlier is not None:
                step.entry = recalled.earlier.id
                step.note = None if step.original.sequence_number in self.owed else recalled.why
                sent.append(step)
            elif recalled.verdict is Verdict.UNKNOWN:
                outcomes.append(outcome_for(step.original, self.decision, OutcomeStatus.UNCONFIRMED, recalled.why))
            elif recalled.verdict is Verdict.NEW and self.only_begun:
                outcomes.append(outcome_for(step.original, self.decision, OutcomeStatus.SKIPPED, _FINISHED))
            else:
                to_send.append(step)
        return sent, to_send, outcomes

    # ---------------------------------------------------------------- those that came back too often

    def _is_too_often(self, step: Step) -> bool:
        limit = self.decision.max_resubmits
        return limit is not None and step.earlier is None and step.original.resubmit_count >= limit

    async def _stop_too_often(self, source: Settles, steps: Sequence[Step], limits: Limits) -> list[Outcome]:
        why = f"It was resubmitted {self.decision.max_resubmits} times already"
        originals = [step.original for step in steps]
        if self.address.sub_queue is not None:
            text = f"{why} and stays where it is: from a sub-queue it cannot be dead-lettered."
            return [outcome_for(message, self.decision, OutcomeStatus.SKIPPED, text) for message in originals]
        if not originals:
            return []
        verdict = DeadLetter(TOO_OFTEN, f"{why}, which is the limit.")
        ends = await source.settle(verdict, originals, max_in_flight=limits.max_in_flight)
        return [replace(end, description=f"{why}: it was dead-lettered.") if end.ok else end for end in ends]

    # ---------------------------------------------------------------- sending and completing

    def _make_clones(self, steps: Sequence[Step], edit: Edit | None) -> list[Outcome]:
        """Give each step its clone; the outcomes of those whose edit fails."""
        outcomes: list[Outcome] = []
        now = self.clock.now()
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

    async def _send(self, source: Settles, steps: Sequence[Step], limits: Limits, *, is_edited: bool) -> list[Outcome]:
        """Send the clones; the outcomes of those that were not confirmed."""
        # Asked last: where the lock has ended, somebody else may have the message, and send it, too.
        held = [source.is_held(step.original) for step in steps]
        late = [step for step, is_held in zip(steps, held, strict=True) if not is_held]
        steps = [step for step, is_held in zip(steps, held, strict=True) if is_held]
        outcomes = [outcome_for(s.original, self.decision, OutcomeStatus.LOCK_LOST, _TOO_LATE) for s in late]
        if not steps:
            return outcomes
        try:
            async with self.pool.slot():
                pass  # without a connection nothing is sent, and nothing need be written
        except (AzureError, OSError) as error:
            return outcomes + [_not_connected(step.original, self.decision, error) for step in steps]
        await anyio.to_thread.run_sync(self._intend, steps, is_edited)
        clones = [step.clone for step in steps if step.clone is not None]
        ends = await send_many(self.pool, clones, max_in_flight=limits.max_in_flight)
        sent = [step for step, end in zip(steps, ends, strict=True) if end.ok]
        self.owed |= {step.original.sequence_number for step in sent}
        never = (OutcomeStatus.FAILED, OutcomeStatus.SKIPPED)
        refused = [step.entry for step, end in zip(steps, ends, strict=True) if end.status in never and step.is_new]
        await self._mark(refused, ResubmitState.NOT_SENT)
        # Only now: had the new one been refused, the earlier one would still be in doubt.
        replaced = [step.earlier.id for step in sent if step.earlier is not None and step.is_new]
        await self._mark(replaced, ResubmitState.GONE)
        # What was not sent stays held until the batch closes: released now, it would come again in the next window.
        unsent = [(step, end) for step, end in zip(steps, ends, strict=True) if not end.ok]
        return outcomes + [_as_resubmit(step, end, self.decision) for step, end in unsent]

    def _intend(self, steps: Sequence[Step], is_edited: bool) -> None:
        new: list[Step] = []
        again: list[ResubmitEntry] = []
        for step in steps:
            if step.earlier is not None and self._is_same(step.earlier):
                # With the time of the first attempt: since then duplicates of it are dropped.
                step.entry = step.earlier.id
                again.append(step.earlier)
            else:
                step.is_new = True
                new.append(step)
        if is_edited:
            self.journal.mark_edited(entry.id for entry in again if not entry.edited)
        entries = [replace(self._entry(step.original, step.clone), edited=is_edited) for step in new]
        ended = dict.fromkeys(self._done, ResubmitState.DONE)
        for step, entry in zip(new, self.journal.intend(entries, ended=ended), strict=True):
            step.entry = entry
        self._done.clear()

    async def _complete(self, source: Settles, steps: Sequence[Step], limits: Limits) -> list[Outcome]:
        originals = [step.original for step in steps]
        self.owed |= {step.original.sequence_number for step in steps}
        ends: Sequence[Outcome] = ()
        errors: list[Exception] = []

        async def mark() -> None:
            try:
                await self._mark([step.entry for step in steps], ResubmitState.SENT)
            except Exception as error:  # noqa: BLE001 (raised when it is known how the settling ended)
                errors.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mark)  # meanwhile: the disk takes as long as the service
            try:
                ends = await source.settle(Complete(), originals, max_in_flight=limits.max_in_flight)
            except Exception as error:  # noqa: BLE001 (raised below, and not in a group)
                errors.append(error)
        if errors:
            errors[-1].add_note(f"The clones of {len(steps)} messages were sent: run it again to complete these.")
            raise errors[-1]
        done = [step for step, end in zip(steps, ends, strict=True) if end.ok]
        self.owed -= {step.original.sequence_number for step in done}
        self._done += [step.entry for step in done]
        return [_as_resubmit(step, end, self.decision) for step, end in zip(steps, ends, strict=True)]

    async def _mark(self, entries: Iterable[int], state: ResubmitState) -> None:
        await anyio.to_thread.run_sync(self.journal.mark, entries, state)

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

    async def close(self) -> None:
        """Write down what is to be written at the end."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.journal.mark, self._done, ResubmitState.DONE)


def _as_resubmit(step: Step, end: Outcome, decision: Resubmit) -> Outcome:
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
