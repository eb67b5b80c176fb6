"""Sending clones of messages that are locked, and completing these: a group of them, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
from azure.core.exceptions import AzureError

from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    Complete,
    DeadLetter,
    EntityAddress,
    LockedMessage,
    Message,
    Outcome,
    OutcomeStatus,
    ReceivedMessage,
    Resubmit,
)
from sbnotebook.model.message import time_text
from sbnotebook.settlement.actions.atomic import Atomic
from sbnotebook.settlement.actions.clone import clone_of
from sbnotebook.settlement.actions.clone_search import CloneSearch, searches_in
from sbnotebook.settlement.actions.reach import Holder
from sbnotebook.settlement.actions.recall import Recall, Verdict
from sbnotebook.settlement.connecting.failures import Failure, explained
from sbnotebook.settlement.engine import Run
from sbnotebook.settlement.memory.journal import ResubmitEntry, ResubmitState, original_key
from sbnotebook.settlement.parallel import in_parallel
from sbnotebook.settlement.plan import Edit
from sbnotebook.settlement.resources import Resources
from sbnotebook.settlement.sending.delivery import SEND, send_many
from sbnotebook.settlement.sending.sender_pool import SenderPool
from sbnotebook.settlement.terms import outcome_for

TOO_OFTEN: Final = "ResubmittedTooOften"
"""The reason with which a message is dead-lettered that was resubmitted ``max_resubmits`` times."""
_MAX_DESCRIPTION: Final = 500
_FINISHED: Final = "Another run has finished it meanwhile, or it is another message now."
_NOT_COMPLETED: Final = "The clone was sent, and the original is not completed: resubmit again to complete it."
_TOO_LATE: Final = "The lock had ended before its clone was sent: nothing was sent."
_NOT_DROPPED: Final = (
    "Nothing was sent now: the clone of an earlier resubmit may have arrived, and a second one is not surely dropped "
    "any more. Resubmit again."
)


@dataclass(slots=True)
class Step:
    original: LockedMessage
    earlier: ResubmitEntry | None = None
    """The attempt of an earlier run."""
    clone: Message | None = None
    entry: int = 0
    """In the journal."""
    is_new: bool = False
    """Whether the entry was written in this run."""
    until: datetime | None = None
    """Before when the clone may be sent."""
    note: str | None = None


class ResubmitSteps:
    def __init__(
        self,
        namespace: Resources,
        address: EntityAddress,
        run: Run,
        decision: Resubmit,
        edit: Edit | None,
        *,
        only_begun: bool = False,
        to_namespace: Resources | None = None,
    ) -> None:
        self._to_namespace = to_namespace or namespace
        self.pool: SenderPool = self._to_namespace.pool(decision.to or address.sends_to)
        self._to_identity = ""
        """That of the destination's namespace, once it is asked for; empty for that of the originals."""
        self._namespace = namespace
        self._identity = ""
        """The namespace's, once it is asked for."""
        self._search_in: Callable[[tuple[str, EntityAddress]], CloneSearch | None] | None = None
        self._address = address
        self._journal = namespace.journal
        self._clock = namespace.clock
        self._run = run
        self._decision = decision
        self._edit = edit
        self._only_begun = only_begun
        self._atomic = Atomic(namespace, address, decision) if decision.atomic else None
        self._owed: set[int] = set()
        """Originals whose clone is confirmed and that are not completed yet."""
        self._lost: set[int] = set()
        """Those of them whose lock was lost."""
        self._done: list[int] = []
        """Entries whose originals are completed; recorded with the next ones or at the end."""
        self._turn = anyio.Event()
        """Set once the group that began last has sent its clones, or never will and no later one may."""
        self._turn.set()
        self._is_broken = False

    async def open(self) -> None:
        """Open a connection, so that a destination that cannot be sent to raises here."""
        if self._atomic is not None:
            await self._atomic.open()
            return
        # The first group needs the identities, for which an emulator has to be asked.
        identities = [
            partial(anyio.to_thread.run_sync, each.identity) for each in (self._namespace, self._to_namespace)
        ]
        await in_parallel(lambda step: step(), (self._open_sender, *identities), 3)

    async def _open_sender(self) -> None:
        async with self.pool.slot():
            pass

    @property
    def lost_after_sending(self) -> set[int]:
        """Return the originals whose clone is confirmed and whose lock was lost before they were completed."""
        return self._owed & self._lost

    async def run_group(self, holder: Holder, locked: Sequence[LockedMessage]) -> list[Outcome | None]:
        """Resubmit some messages that are locked.

        Several groups may be in progress: each sends its clones when the groups that began before have sent theirs. So
        clones are sent in the order of their originals, and those of one group at a time.
        """
        turn, self._turn = self._turn, anyio.Event()
        sent = self._turn
        self._lost.difference_update(message.sequence_number for message in locked)
        try:
            return await self._run_in_turn(holder, locked, turn, sent)
        except BaseException:
            # Clones of the next groups would overtake those of this group.
            self._is_broken = True
            self._expect_completion(locked)
            raise
        finally:
            sent.set()

    async def _run_in_turn(
        self, holder: Holder, locked: Sequence[LockedMessage], turn: anyio.Event, sent: anyio.Event
    ) -> list[Outcome | None]:
        """Take a group through its steps; send its clones at its turn, and set ``sent`` then."""
        steps = [Step(message) for message in locked]
        # What earlier runs have done of it.
        to_complete, to_send, outcomes = await self._recall(steps)
        self._owed |= {step.original.sequence_number for step in to_complete}
        self._expect(outcomes, steps)
        outcomes += await self._stop_too_often(holder, [step for step in to_send if self._is_too_often(step)])
        self._expect(outcomes, steps)
        to_send = [step for step in to_send if not self._is_too_often(step)]
        # In a thread: the user's edit must not block the renewal of locks.
        outcomes += await anyio.to_thread.run_sync(self._make_clones, to_send)
        to_send = [step for step in to_send if step.clone is not None]
        # Send the clones, and complete the originals of those that are confirmed.
        await self._wait_for(turn, to_send)
        if not (self._is_broken or self._run.stopped):
            move = self._send if self._atomic is None else partial(self._move, self._atomic)
            outcomes += await move(holder, to_send)
        sent.set()
        to_complete += [step for step in to_send if step.original.sequence_number in self._owed]
        outcomes += await self._complete(holder, to_complete)
        by_number = {outcome.sequence_number: outcome for outcome in outcomes}
        self._lost |= {n or 0 for n, outcome in by_number.items() if outcome.status is OutcomeStatus.LOCK_LOST}
        return [by_number.get(message.sequence_number) for message in locked]

    async def _wait_for(self, turn: anyio.Event, steps: Sequence[Step]) -> None:
        """Wait until earlier groups have sent their clones; nothing of these steps is begun until then."""
        if not turn.is_set():
            with self._run.waiting([step.original for step in steps]):
                await turn.wait()

    async def _recall(self, steps: Sequence[Step]) -> tuple[list[Step], list[Step], list[Outcome]]:
        """Separate messages that earlier runs have sent, messages to send, and others, with their outcomes."""
        if self._search_in is None:
            self._identity = await anyio.to_thread.run_sync(self._namespace.identity)
            to = await anyio.to_thread.run_sync(self._to_namespace.identity)
            self._to_identity = "" if to == self._identity else to
            self._search_in = searches_in(self._namespace, {to: self._to_namespace})
        to = self._to_identity, self.pool.address
        recall = Recall(self._journal, self._search_in, to, self._decision, self._clock)
        sent: list[Step] = []
        to_send: list[Step] = []
        outcomes: list[Outcome] = []
        keys = [original_key(step.original) for step in steps]
        can_make_edited = self._edit is not None or not self._only_begun
        known = await recall.of(self._identity, keys, can_make_edited=can_make_edited)
        for step, recalled in zip(steps, known, strict=True):
            step.earlier, step.until = recalled.earlier, recalled.until
            if recalled.verdict is Verdict.SENT and recalled.earlier is not None:
                step.entry = recalled.earlier.id
                step.note = None if step.original.sequence_number in self._owed else recalled.why
                sent.append(step)
            elif recalled.verdict is Verdict.UNKNOWN:
                outcomes.append(outcome_for(step.original, self._decision, OutcomeStatus.UNCONFIRMED, recalled.why))
            elif recalled.verdict is Verdict.NEW and self._only_begun:
                outcomes.append(outcome_for(step.original, self._decision, OutcomeStatus.SKIPPED, _FINISHED))
            else:
                to_send.append(step)
        return sent, to_send, outcomes

    # ---------------------------------------------------------------- those that came back too often

    def _is_too_often(self, step: Step) -> bool:
        limit = self._decision.limit_at(self._address)
        return limit is not None and step.earlier is None and step.original.resubmit_count >= limit

    async def _stop_too_often(self, holder: Holder, steps: Sequence[Step]) -> list[Outcome]:
        why = f"It was resubmitted {self._decision.limit_at(self._address)} times already"
        originals = [step.original for step in steps]
        if self._address.sub_queue is not None:
            text = f"{why} and stays where it is. A higher max_resubmits, or None, sends it again."
            return [outcome_for(message, self._decision, OutcomeStatus.SKIPPED, text) for message in originals]
        if not originals:
            return []
        verdict = DeadLetter(TOO_OFTEN, f"{why}, which is the limit.")
        ends = await holder.settle_group(self._run, [(message, verdict) for message in originals])
        return [replace(end, description=f"{why}: it was dead-lettered.") if end.ok else end for end in ends]

    # ---------------------------------------------------------------- sending and completing

    def _make_clones(self, steps: Sequence[Step]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        now = self._clock.now()
        for step in steps:
            try:
                clone = clone_of(step.original, self._decision, self._edit, now)
            except Exception as error:  # noqa: BLE001 (a user's edit may raise anything; the others continue)
                what = explained(error)
                why = what if isinstance(error, DecisionError) else f"{type(error).__name__}: {what}"
                why = f"Nothing was sent: {why}"
                failed = outcome_for(step.original, self._decision, OutcomeStatus.FAILED, why[:_MAX_DESCRIPTION])
                outcomes.append(failed)
                continue
            if step.earlier is not None and self._is_same(step.earlier):
                # The very one that may have arrived, so that it is dropped if it has.
                when = step.earlier.scheduled if self._only_begun else clone.scheduled_enqueue_time
                clone = clone.with_changes(message_id=step.earlier.clone_id, scheduled_enqueue_time=when)
            step.clone = clone
        return outcomes

    def _is_same(self, earlier: ResubmitEntry) -> bool:
        return earlier.place == (self._to_identity, self.pool.address)

    async def _send(self, holder: Holder, steps: Sequence[Step]) -> list[Outcome]:
        if not steps:
            return []
        try:
            async with self.pool.slot():
                pass  # without a connection nothing is sent, and nothing need be written
        except (AzureError, OSError) as error:
            return [_not_connected(step.original, self._decision, error) for step in steps]
        await anyio.to_thread.run_sync(self._intend, steps)

        # Asked last, and before each attempt: where the lock has ended, another receiver may have the message.
        def withhold(index: int) -> tuple[OutcomeStatus, str] | None:
            if not holder.holds(steps[index].original):
                return OutcomeStatus.LOCK_LOST, _TOO_LATE
            return None if self._is_in_time(steps[index]) else (OutcomeStatus.UNCONFIRMED, _NOT_DROPPED)

        clones = [step.clone for step in steps if step.clone is not None]
        method, limit = replace(SEND, withhold=withhold), self._run.limits.max_in_flight
        ended = [*zip(steps, await send_many(self.pool, clones, method, max_in_flight=limit), strict=True)]
        sent = [step for step, end in ended if end.ok]
        unsent = [(step, end) for step, end in ended if not end.ok]
        # Messages that were not sent stay held until the batch closes: released now, they would come again in the next
        # window.
        outcomes = [_as_resubmit(step, end, self._decision) for step, end in unsent]
        # Noted before the journal, which may fail: an unconfirmed clone may have arrived.
        self._expect(outcomes, steps)
        self._owed |= {step.original.sequence_number for step in sent}
        never = (OutcomeStatus.FAILED, OutcomeStatus.SKIPPED, OutcomeStatus.LOCK_LOST)
        refused = [step.entry for step, end in unsent if end.status in never and step.is_new]
        await self._mark(refused, ResubmitState.NOT_SENT)
        # Only now: had the new one been refused, the earlier one would still be in doubt.
        replaced = [step.earlier.id for step in sent if step.earlier is not None and step.is_new]
        await self._mark(replaced, ResubmitState.GONE)
        return outcomes

    def _is_in_time(self, step: Step) -> bool:
        return step.until is None or self._clock.now() < step.until

    async def _move(self, atomic: Atomic, holder: Holder, steps: Sequence[Step]) -> list[Outcome]:
        late = [step for step in steps if not self._is_in_time(step)]
        steps = [step for step in steps if step not in late]
        # Nothing need be written of them: a crash leaves both or neither, and the original tells which. If it were
        # recorded as done, an original that reappears would look like a message whose clone was sent.
        pairs = [(step.original, step.clone) for step in steps if step.clone is not None]
        ends = await atomic.move(self._run, holder, pairs)
        replaced = [
            step.earlier.id for step, end in zip(steps, ends, strict=True) if end.ok and step.earlier is not None
        ]
        await self._mark(replaced, ResubmitState.GONE)
        unknown = OutcomeStatus.UNCONFIRMED
        return ends + [outcome_for(step.original, self._decision, unknown, _NOT_DROPPED) for step in late]

    def _intend(self, steps: Sequence[Step]) -> None:
        is_edited = self._edit is not None
        new: list[Step] = []
        again: list[ResubmitEntry] = []
        for step in steps:
            is_open = step.earlier is not None and step.earlier.state is ResubmitState.INTENDED
            if step.earlier is not None and is_open and self._is_same(step.earlier):
                # With the time of the first attempt: since then duplicates of it are dropped.
                step.entry = step.earlier.id
                again.append(step.earlier)
            else:
                step.is_new = True
                new.append(step)
        if is_edited:
            self._journal.mark_edited(entry.id for entry in again if not entry.edited)
        entries = [self._entry(step.original, step.clone, edited=is_edited) for step in new]
        done = tuple(self._done)
        ended = dict.fromkeys(done, ResubmitState.DONE)
        for step, entry in zip(new, self._journal.intend(entries, ended=ended), strict=True):
            step.entry = entry
        del self._done[: len(done)]  # other groups may have added more meanwhile

    async def _complete(self, holder: Holder, steps: Sequence[Step]) -> list[Outcome]:
        errors: list[Exception] = []
        ends: Sequence[Outcome] = ()

        async def mark() -> None:
            try:
                await self._mark([step.entry for step in steps], ResubmitState.SENT)
            except Exception as error:  # noqa: BLE001 (raised when it is known how the settling ended)
                errors.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mark)  # meanwhile: the disk takes as long as the service
            try:
                ends = await holder.settle_group(self._run, [(step.original, Complete()) for step in steps])
            except Exception as error:  # noqa: BLE001 (raised below, and not in a group)
                errors.append(error)
        # Completed messages need no more steps, even if that could not be recorded.
        ended = list(zip(steps, ends, strict=False))
        done = [step for step, end in ended if end.ok]
        self._owed -= {step.original.sequence_number for step in done}
        try:
            await self._note_done([step.entry for step in done])
        except Exception as error:  # noqa: BLE001 (as above)
            errors.append(error)
        outcomes = [_as_resubmit(step, end, self._decision) for step, end in ended]
        if errors:
            self._run.expect([step.original for step, _ in ended], outcomes)
            raise errors[-1]
        return outcomes

    async def _note_done(self, entries: Sequence[int]) -> None:
        limits = self._run.limits
        if limits.rate is None and limits.pause is None:
            self._done += entries
        else:  # the next group may be long in coming, and meanwhile other kernels would take these for interrupted
            await self._mark(entries, ResubmitState.DONE)

    def _expect(self, outcomes: Iterable[Outcome], steps: Iterable[Step]) -> None:
        known = list(outcomes)
        originals = {step.original.sequence_number: step.original for step in steps}
        self._run.expect([originals[outcome.sequence_number or 0] for outcome in known], known)

    def _expect_completion(self, locked: Sequence[LockedMessage]) -> None:
        owed = [m for m in locked if m.sequence_number in self._owed and self._run.outcome_of(m) is None]
        unconfirmed = OutcomeStatus.UNCONFIRMED
        self._run.expect(owed, [outcome_for(m, self._decision, unconfirmed, _NOT_COMPLETED) for m in owed])

    async def _mark(self, entries: Iterable[int], state: ResubmitState) -> None:
        if ids := [*entries]:
            await anyio.to_thread.run_sync(self._journal.mark, ids, state)

    def _entry(self, original: ReceivedMessage, clone: Message | None, *, edited: bool) -> ResubmitEntry:
        return ResubmitEntry(
            namespace=self._identity,
            source=original.entity.path,
            sequence_number=original.sequence_number,
            message_id=original.message_id,
            destination=self.pool.address.path,
            clone_id=(clone.message_id if clone else None) or "",
            enqueued_time=time_text(original.enqueued_time),
            destination_namespace=self._to_identity,
            scheduled=clone.scheduled_enqueue_time if clone else None,
            edited=edited,
        )

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            if self._atomic is not None:
                await self._atomic.close()
            await anyio.to_thread.run_sync(self._journal.mark, self._done, ResubmitState.DONE)


def _as_resubmit(step: Step, end: Outcome, decision: Resubmit) -> Outcome:
    what = "The clone was sent, completing the original: " if end.verb == "complete" else "Sending the clone: "
    what = "" if end.description in (_TOO_LATE, _NOT_DROPPED) else what
    return replace(
        end,
        verb=decision.verb,
        entity=step.original.entity,
        sequence_number=step.original.sequence_number,
        message_id=step.original.message_id,
        description=step.note if end.ok else f"{what}{end.description}",
    )


def _not_connected(message: LockedMessage, decision: Resubmit, error: Exception) -> Outcome:
    outcome = Failure.of(error).outcome(decision.verb, message)
    text = f"Nothing was sent, there was no connection: {outcome.description}"[:_MAX_DESCRIPTION]
    return replace(outcome, status=OutcomeStatus.FAILED, description=text, retryable=True)
