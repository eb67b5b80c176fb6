"""Sending a clone of a message and completing the original, so that nothing is lost and nothing is sent twice.

The order is: journal the intent, send the clone, wait for its confirmation, complete the original, journal the end.
A crash leaves either the original alone, or a clone whose id tells that it is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Literal, TypeAlias

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
    MessageState,
    Outcome,
    OutcomeStatus,
    ReceivedMessage,
    Resubmit,
)
from sbnotebook.model.clones import clone_of
from sbnotebook.model.edits import Edit, refuse_coroutine_function
from sbnotebook.model.message import time_text
from sbnotebook.settlement.actions.atomic import Atomic, check_atomic
from sbnotebook.settlement.actions.clone_search import CloneSearch
from sbnotebook.settlement.actions.ramp import Trial
from sbnotebook.settlement.actions.reach import Reach
from sbnotebook.settlement.connecting.failures import Failure, explained
from sbnotebook.settlement.engine import BESIDE, GROUP, Run
from sbnotebook.settlement.locking.ahead import Search
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.memory.journal import OriginalKey, ResubmitEntry, ResubmitState, original_key
from sbnotebook.settlement.place import Place, Resources
from sbnotebook.settlement.plan import Plan
from sbnotebook.settlement.requests import alike
from sbnotebook.settlement.sending.delivery import SEND, SenderPool, send_many

Destination: TypeAlias = tuple[str, EntityAddress]
"""The identity of a namespace, and the queue or topic there. It is empty for the namespace of the originals."""

_SEND_WITHIN: Final = timedelta(minutes=2)
"""The least remaining time in which the destination drops duplicates, for a clone to be sent again."""
_MAX_DESCRIPTION: Final = 500
_CONNECT: Final = "connect to it, and resubmit to there again, or resume with others=[namespace]."
_CUT_OFF: Final = "An earlier resubmit of this message was interrupted, and its clone"


Verdict: TypeAlias = Literal["new", "sent", "again", "unknown"]
"""The decision on a message whose resubmit may have begun before.

``new``: nothing was begun. ``sent``: its clone is confirmed, or is in its destination, so the original is completed.
``again``: its clone is sent again. ``unknown``: its clone may have been sent or not, so it stays as it is.
"""


@dataclass(frozen=True, slots=True)
class Recalled:
    verdict: Verdict
    why: str | None = None
    earlier: ResubmitEntry | None = None
    """The attempt of an earlier run."""
    until: datetime | None = None
    """Before when the clone may be sent again."""
    unseen: str | None = None


_CONFIRMED: Final = (ResubmitState.SENT, ResubmitState.DONE)


class Recall:
    """Finds what earlier runs have done, by the journal and in the destinations of their clones."""

    def __init__(self, namespace: Resources, decision: Resubmit, others: Mapping[str, Resources]) -> None:
        self._namespace = namespace
        self._decision = decision
        self._there = {**others, "": namespace}
        self._searches: dict[Destination, CloneSearch] = {}

    async def of(
        self, to: Destination, originals: Sequence[OriginalKey], *, can_make_edited: bool = True
    ) -> list[Recalled]:
        """Return the earlier attempts of originals that are resubmitted to a destination now."""
        journal = self._namespace.journal
        earlier = await anyio.to_thread.run_sync(lambda: journal.find_begun(self._namespace.identity(), originals))
        begun = [earlier.get(original) for original in originals]
        there = await self._clones_there([entry for entry in begun if entry is not None])
        return [
            Recalled("new") if entry is None else await self._judge(entry, there, to, can_make_edited=can_make_edited)
            for entry in begun
        ]

    async def _judge(
        self, earlier: ResubmitEntry, there: set[int], to: Destination, *, can_make_edited: bool
    ) -> Recalled:
        if earlier.id in there:
            return Recalled("sent", f"An earlier run had sent its clone to {earlier.destination}.", earlier)
        search = self._search_in(earlier.place)
        if search is None:
            where = f"it went to {earlier.destination} in {earlier.destination_namespace}: {_CONNECT}"
            why = f"{_CUT_OFF} {where.removeprefix('it ')}"[:_MAX_DESCRIPTION]
            return Recalled("unknown", why, earlier, unseen=where)
        judged = partial(Recalled, earlier=earlier, unseen="; ".join(search.unseen) or None)
        doubts = [*search.doubts, *search.unseen]
        if earlier.edited and not can_make_edited:
            why = f"{_CUT_OFF}, which was edited, is not to be found: resubmit it with the same edit."
        elif self._decision.resend_unknown:
            return judged("again", f"{_CUT_OFF} may have arrived and been consumed.")
        elif until := await self._dropped_until(earlier, to, search):
            return judged("again", f"{_CUT_OFF} is dropped by {earlier.destination} if it has arrived.", until=until)
        else:
            why = (
                f"{_CUT_OFF} is not to be found: it may have been sent and consumed. To send it again nevertheless, "
                "resubmit with resend_unknown=True."
            )
        besides = f" Besides, {'; '.join(doubts)}." if doubts else ""
        return judged("unknown", f"{why}{besides}"[:_MAX_DESCRIPTION])

    async def _clones_there(self, entries: Sequence[ResubmitEntry]) -> set[int]:
        """Return the entries whose clone is confirmed, or is in its destination."""
        sent = {entry.id for entry in entries if entry.state in _CONFIRMED}
        for those in alike((entry for entry in entries if entry.id not in sent), lambda entry: entry.place):
            if (search := self._search_in(those[0].place)) is not None:
                found = await search.find({entry.clone_id for entry in those})
                sent |= {entry.id for entry in those if entry.clone_id in found}
        return sent

    def _search_in(self, place: Destination) -> CloneSearch | None:
        """Return the search in a destination, which is asked once what it does with messages; None where it is away."""
        there = self._there.get(place[0])
        return None if there is None else self._searches.setdefault(place, CloneSearch(there, place[1]))

    async def _dropped_until(self, earlier: ResubmitEntry, to: Destination, search: CloneSearch) -> datetime | None:
        """Return before when a second clone may be sent, to be dropped if the first has arrived; None for never."""
        # An entry whose original is gone changed when that was missed, long after the attempt.
        if earlier.place != to or earlier.changed is None or earlier.state is ResubmitState.GONE:
            return None
        window = await search.duplicate_window()
        until = earlier.changed + (window or timedelta(0)) - _SEND_WITHIN
        return until if earlier.changed <= self._namespace.clock.now() < until else None


TOO_OFTEN: Final = "ResubmittedTooOften"
"""The reason with which a message is dead-lettered that was resubmitted ``max_resubmits`` times."""
_FINISHED: Final = "Another run has finished it meanwhile, or it is another message now."
_NOT_COMPLETED: Final = "The clone was sent, and the original is not completed: resubmit again to complete it."
_TOO_LATE: Final = "The lock had ended before its clone was sent: nothing was sent."
_NOT_DROPPED: Final = (
    "Nothing was sent now: the clone of an earlier resubmit may have arrived, and a second one is not surely dropped "
    "any more. Resubmit again."
)


def plan_resubmit(
    place: Place,
    messages: Iterable[ReceivedMessage],
    decision: Resubmit | None = None,
    *,
    edit: Edit | None = None,
    search: Search | None = None,
    to_namespace: Resources | None = None,
) -> Plan:
    """Return a plan to send clones of messages and to complete the originals; by default to the entity itself."""
    decision = _elsewhere(place, decision or Resubmit(), to_namespace)
    decision = replace(decision, to=decision.to or place.address.sends_to)
    chosen = tuple(messages)
    strangers = [message for message in chosen if message.entity != place.address]
    if strangers:
        raise DecisionError(
            f"{len(strangers)} of the messages are not in {place.address} "
            f"(the first is in {strangers[0].entity}): resubmit them there."
        )
    refuse_coroutine_function(edit, "An edit")
    if decision.atomic:
        check_atomic(place.address, decision, chosen)

    send = partial(resubmit, place, decision=decision, edit=edit, search=search, to_namespace=to_namespace)

    async def work(run: Run) -> None:
        ramp = run.limits.ramp
        if ramp is None:
            await send(run, run.messages)
        else:
            trial = Trial(place, run, ramp, decision, to_namespace or place.namespace)
            await trial.carry_out(partial(send, run))

    others = max(search.expected - len(chosen), 0) if search else 0
    return place.new_plan(decision, chosen, work, edit=edit, others=others, sends_clones=True)


def _elsewhere(place: Place, decision: Resubmit, to_namespace: Resources | None) -> Resubmit:
    """Return the decision; to resubmit to another namespace, it names that namespace."""
    if to_namespace is None or to_namespace is place.namespace:
        return decision
    if decision.to is None:
        raise DecisionError("Name the entity of the other namespace: to=other.entity(…).")
    if decision.atomic:
        raise DecisionError("A transaction is within one namespace: resubmit to another one without atomic.")
    place.namespace.connection.require_writing()
    to_namespace.connection.require_writing()
    return replace(decision, to_host=to_namespace.host)


async def resubmit(
    place: Place,
    run: Run,
    messages: Sequence[ReceivedMessage],
    *,
    decision: Resubmit,
    edit: Edit | None = None,
    resume_within: float | None = None,
    search: Search | None = None,
    to_namespace: Resources | None = None,
) -> None:
    """Find the originals of a run, and take them through the steps of a resubmit.

    A resume, which continues those that were begun, waits so many seconds at most for originals that are locked.
    """
    only_begun = resume_within is not None
    namespace, there = place.namespace, to_namespace or place.namespace
    # In a thread: an emulator has to be asked.
    identities = await anyio.to_thread.run_sync(lambda: (namespace.identity(), there.identity()))
    steps = ResubmitSteps(place, run, decision, edit, there, identities, only_begun=only_begun)
    if not only_begun:
        await namespace.require_room(messages)  # before a clone is sent
    reach = Reach(
        place,
        run,
        steps.run_group,
        group=1 if decision.atomic else GROUP,  # a transaction may take minutes
        search=search or Search(),
        beside=0 if decision.atomic else BESIDE,
        in_order=True,
        # A message whose lock was lost after its clone was sent comes again: it is completed, not sent again.
        again=steps.lost_after_sending,
        patience=resume_within,
        # A destination that cannot be sent to raises before anything is locked.
        ready=None if only_begun else steps.open,
    )
    try:
        # Scheduled messages never come, and to look for them would lock all others.
        await reach.active([message for message in messages if message.state is MessageState.ACTIVE])
        await reach.find_missing([message for message in messages if run.outcome_of(message) is None])
    finally:
        await steps.close()


@dataclass(slots=True)
class Step:
    original: LockedMessage
    recalled: Recalled
    clone: Message | None = None
    entry: int = 0
    """The id of its entry in the journal."""
    is_new: bool = False
    """True if this run wrote the entry."""
    note: str | None = None

    @property
    def number(self) -> int:
        return self.original.sequence_number


class ResubmitSteps:
    def __init__(
        self,
        place: Place,
        run: Run,
        decision: Resubmit,
        edit: Edit | None,
        there: Resources,
        identities: tuple[str, str],
        *,
        only_begun: bool = False,
    ) -> None:
        namespace, self._address = place.namespace, place.address
        self.pool: SenderPool = there.pool(decision.to or place.address.sends_to)
        self._identity, elsewhere = identities
        self._to = ("" if elsewhere == self._identity else elsewhere), self.pool.address
        self._recall = Recall(namespace, decision, {elsewhere: there})
        self._journal = namespace.journal
        self._clock = namespace.clock
        self._run = run
        self._decision = decision
        self._edit = edit
        self._only_begun = only_begun
        self._atomic = Atomic(place, decision) if decision.atomic else None
        self._owed: set[int] = set()
        """Originals whose clone is confirmed and that are not completed yet."""
        self._lost: set[int] = set()
        """Those of them whose lock was lost."""
        self._turn = anyio.Event()
        """Set once the group that began last has sent its clones, or never will and no later one may."""
        self._turn.set()
        self._is_broken = False

    async def open(self) -> None:
        """Open a connection, so that a destination that cannot be sent to raises here."""
        if self._atomic is not None:
            await self._atomic.open()
            return
        async with self.pool.slot():
            pass

    def lost_after_sending(self) -> set[int]:
        """Return the originals whose clone is confirmed and whose lock was lost before they were completed."""
        return self._owed & self._lost

    async def run_group(self, holder: LockedBatch, locked: Sequence[LockedMessage]) -> None:
        """Resubmit some messages that are locked.

        Several groups may be in progress: each sends its clones when the groups that began before have sent theirs. So
        clones are sent in the order of their originals, and those of one group at a time.
        """
        turn, self._turn = self._turn, anyio.Event()
        sent = self._turn
        self._lost.difference_update(message.sequence_number for message in locked)
        try:
            await self._run_in_turn(holder, locked, turn, sent)
        except BaseException:
            # Clones of the next groups would overtake those of this group.
            self._is_broken = True
            owed = [m for m in locked if m.sequence_number in self._owed and self._run.outcome_of(m) is None]
            self._run.expect_end(owed, OutcomeStatus.UNCONFIRMED, _NOT_COMPLETED)
            raise
        finally:
            sent.set()
        ends = [(message.sequence_number, self._run.outcome_of(message)) for message in locked]
        self._lost |= {number for number, end in ends if end is not None and end.status is OutcomeStatus.LOCK_LOST}

    async def _run_in_turn(
        self, holder: LockedBatch, locked: Sequence[LockedMessage], turn: anyio.Event, sent: anyio.Event
    ) -> None:
        """Take a group through its steps; send its clones at its turn, and set ``sent`` then."""
        steps = await self._begun_steps(locked)
        to_complete = [step for step in steps if step.recalled.verdict == "sent"]
        self._owed |= {step.number for step in to_complete}
        to_send = [step for step in steps if step.recalled.verdict in ("new", "again")]
        to_send = await self._with_clones(await self._without_too_often(holder, to_send))
        # Send the clones, and complete the originals of those that are confirmed.
        if not turn.is_set():
            with self._run.waiting([step.original for step in to_send]):
                await turn.wait()
        if not (self._is_broken or self._run.stopped):
            move = self._send if self._atomic is None else partial(self._move, self._atomic)
            await move(holder, to_send)
        sent.set()
        await self._complete(holder, [*to_complete, *(step for step in to_send if step.number in self._owed)])

    async def _begun_steps(self, locked: Sequence[LockedMessage]) -> list[Step]:
        """Return the steps of a group, with what earlier runs have done; those that none may do have an outcome."""
        can_make_edited = self._edit is not None or not self._only_begun
        recalled = await self._recall.of(self._to, [*map(original_key, locked)], can_make_edited=can_make_edited)
        steps = [Step(message, known) for message, known in zip(locked, recalled, strict=True)]
        for step in steps:
            known = step.recalled
            if known.verdict == "sent" and known.earlier is not None:
                step.entry = known.earlier.id
                step.note = None if step.number in self._owed else known.why
            elif known.verdict == "unknown":
                self._run.expect_end([step.original], OutcomeStatus.UNCONFIRMED, known.why)
            elif known.verdict == "new" and self._only_begun:
                self._run.expect_end([step.original], OutcomeStatus.SKIPPED, _FINISHED)
        return [step for step in steps if not (self._only_begun and step.recalled.verdict == "new")]

    async def _without_too_often(self, holder: LockedBatch, steps: Sequence[Step]) -> list[Step]:
        """Stop messages that came back too often, and return the steps of the others."""
        limit = self._decision.limit_at(self._address)
        if limit is None:
            return [*steps]
        # One whose resubmit has begun is counted already.
        left = [step for step in steps if step.recalled.earlier or step.original.resubmit_count < limit]
        numbers = {step.number for step in left}
        originals = [step.original for step in steps if step.number not in numbers]
        why = f"It was resubmitted {limit} times already"
        if self._address.sub_queue is not None:
            text = f"{why} and stays where it is. A higher max_resubmits, or None, sends it again."
            self._run.expect_end(originals, OutcomeStatus.SKIPPED, text)
        elif originals:
            verdict = DeadLetter(TOO_OFTEN, f"{why}, which is the limit.")
            ends = await holder.settle_group(self._run, [(message, verdict) for message in originals])
            text = f"{why}: it was dead-lettered."
            self._run.expect(originals, [replace(end, description=text) if end.ok else end for end in ends])
        return left

    # ---------------------------------------------------------------- sending and completing

    async def _with_clones(self, steps: Sequence[Step]) -> list[Step]:
        """Make the clones, and return the steps that have one; the others end."""
        # In a thread: the user's edit must not block the renewal of locks.
        await anyio.to_thread.run_sync(self._make_clones, steps)
        for step in steps:
            if step.clone is None:
                self._run.expect_end([step.original], OutcomeStatus.FAILED, step.note)
        return [step for step in steps if step.clone is not None]

    def _make_clones(self, steps: Sequence[Step]) -> None:
        """Make the clones; a step that cannot have one notes the reason."""
        now = self._clock.now()
        for step in steps:
            try:
                clone = clone_of(step.original, self._decision, self._edit, now)
            except Exception as error:  # noqa: BLE001 (a user's edit may raise anything; the others continue)
                what = explained(error)
                why = what if isinstance(error, DecisionError) else f"{type(error).__name__}: {what}"
                step.note = f"Nothing was sent: {why}"[:_MAX_DESCRIPTION]
                continue
            earlier = step.recalled.earlier
            if earlier is not None and earlier.place == self._to:
                # The very one that may have arrived, so that it is dropped if it has.
                when = earlier.scheduled if self._only_begun else clone.scheduled_enqueue_time
                clone = clone.with_changes(message_id=earlier.clone_id, scheduled_enqueue_time=when)
            step.clone = clone

    async def _send(self, holder: LockedBatch, steps: Sequence[Step]) -> None:
        if not steps:
            return
        try:
            await self.open()  # without a connection nothing is sent, and nothing need be written
        except (AzureError, OSError) as error:
            for step in steps:
                self._run.expect([step.original], [_not_connected(step.original, self._decision, error)])
            return
        await anyio.to_thread.run_sync(self._intend, steps)
        clones = [step.clone for step in steps if step.clone is not None]
        method = replace(SEND, withhold=partial(self._withheld, holder, steps))
        ended = await send_many(self.pool, clones, method, max_in_flight=self._run.limits.max_in_flight)
        await self._note_sent([*zip(steps, ended, strict=True)])

    def _withheld(self, holder: LockedBatch, steps: Sequence[Step], index: int) -> tuple[OutcomeStatus, str] | None:
        """Return why a clone is not sent any more, None where it is.

        Asked last, and before each attempt: where the lock has ended, another receiver may have the message.
        """
        if not holder.holds(steps[index].original):
            return OutcomeStatus.LOCK_LOST, _TOO_LATE
        return None if self._is_in_time(steps[index]) else (OutcomeStatus.UNCONFIRMED, _NOT_DROPPED)

    async def _note_sent(self, ended: Sequence[tuple[Step, Outcome]]) -> None:
        sent = [step for step, end in ended if end.ok]
        unsent = [(step, end) for step, end in ended if not end.ok]
        # Messages that were not sent stay held until the batch closes: released now, they would come again in the next
        # window. Noted before the journal, which may fail: an unconfirmed clone may have arrived.
        self._expect(unsent)
        self._owed |= {step.number for step in sent}
        never = (OutcomeStatus.FAILED, OutcomeStatus.SKIPPED, OutcomeStatus.LOCK_LOST)
        refused = [step.entry for step, end in unsent if end.status in never and step.is_new]
        await self._mark(refused, ResubmitState.NOT_SENT)
        # Only now: had the new one been refused, the earlier one would still be in doubt.
        await self._mark([e.id for s in sent if s.is_new and (e := s.recalled.earlier)], ResubmitState.GONE)

    def _is_in_time(self, step: Step) -> bool:
        return step.recalled.until is None or self._clock.now() < step.recalled.until

    async def _move(self, atomic: Atomic, holder: LockedBatch, steps: Sequence[Step]) -> None:
        late = [step.original for step in steps if not self._is_in_time(step)]
        self._run.expect_end(late, OutcomeStatus.UNCONFIRMED, _NOT_DROPPED)
        in_time = [step for step in steps if step.original not in late]
        # Nothing need be written of them: a crash leaves both or neither, and the original tells which. If it were
        # recorded as done, an original that reappears would look like a message whose clone was sent.
        pairs = [(step.original, step.clone) for step in in_time if step.clone is not None]
        ends = zip(in_time, await atomic.move(self._run, holder, pairs), strict=True)
        await self._mark([e.id for s, end in ends if end.ok and (e := s.recalled.earlier)], ResubmitState.GONE)

    def _intend(self, steps: Sequence[Step]) -> None:
        for step in steps:
            earlier = step.recalled.earlier
            is_again = earlier is not None and earlier.state is ResubmitState.INTENDED and earlier.place == self._to
            # With the time of the first attempt: since then duplicates of it are dropped.
            step.is_new, step.entry = not is_again, earlier.id if earlier else 0
        if self._edit is not None:
            self._journal.mark_edited(step.entry for step in steps if not step.is_new)
        new = [step for step in steps if step.is_new]
        for step, entry in zip(new, self._journal.intend([*map(self._entry, new)]), strict=True):
            step.entry = entry

    async def _complete(self, holder: LockedBatch, steps: Sequence[Step]) -> None:
        # At the same time: the disk takes as long as the service. Errors are raised when it is known how both ended.
        marked, ends = await asyncio.gather(
            self._mark([step.entry for step in steps], ResubmitState.SENT),
            holder.settle_group(self._run, [(step.original, Complete()) for step in steps]),
            return_exceptions=True,
        )
        # Completed messages need no more steps, even if that could not be recorded.
        ended = [] if isinstance(ends, BaseException) else list(zip(steps, ends, strict=True))
        done = [step for step, end in ended if end.ok]
        self._owed -= {step.number for step in done}
        try:
            await self._mark([step.entry for step in done], ResubmitState.DONE)
        finally:
            self._expect(ended)
        for error in (ends, marked):
            if isinstance(error, BaseException):
                raise error

    def _expect(self, ended: Sequence[tuple[Step, Outcome]]) -> None:
        """Expect the outcomes of sending clones, or of completing originals, as those of the resubmit."""
        self._run.expect([step.original for step, _ in ended], [_told(step, end) for step, end in ended])

    async def _mark(self, entries: Iterable[int], state: ResubmitState) -> None:
        if ids := [*entries]:
            await anyio.to_thread.run_sync(self._journal.mark, ids, state)

    def _entry(self, step: Step) -> ResubmitEntry:
        original, clone = step.original, step.clone
        return ResubmitEntry(
            namespace=self._identity,
            source=original.entity.path,
            sequence_number=original.sequence_number,
            message_id=original.message_id,
            destination=self.pool.address.path,
            clone_id=(clone.message_id if clone else None) or "",
            enqueued_time=time_text(original.enqueued_time),
            destination_namespace=self._to[0],
            scheduled=clone.scheduled_enqueue_time if clone else None,
            edited=self._edit is not None,
        )

    async def close(self) -> None:
        if self._atomic is not None:
            with anyio.CancelScope(shield=True):
                await self._atomic.close()


def _told(step: Step, end: Outcome) -> Outcome:
    what = "The clone was sent, completing the original: " if end.verb == "complete" else "Sending the clone: "
    what = "" if end.description in (_TOO_LATE, _NOT_DROPPED) else what
    text = step.note if end.ok else f"{what}{end.description}"
    return replace(end, message_id=step.original.message_id, description=text)


def _not_connected(message: LockedMessage, decision: Resubmit, error: Exception) -> Outcome:
    outcome = Failure.of(error).outcome(decision.verb, message)
    text = f"Nothing was sent, there was no connection: {outcome.description}"[:_MAX_DESCRIPTION]
    return replace(outcome, status=OutcomeStatus.FAILED, description=text, retryable=True)
