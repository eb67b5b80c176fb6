"""Settling chosen messages in the middle of an entity, while all others stay as they are.

See :mod:`sbnotebook.settlement.locking.ahead` for how a message is reached that does not stand at the head.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, Protocol, TypedDict

import anyio
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.errors import DecisionError, SbNotebookError
from sbnotebook.model import (
    Abandon,
    Decision,
    Defer,
    EntityAddress,
    LockedMessage,
    MessageState,
    Outcome,
    OutcomeStatus,
    PeekedMessage,
    ReceivedMessage,
    Release,
    Report,
    Resubmit,
)
from sbnotebook.settlement.actions.pick_report import PickReport
from sbnotebook.settlement.actions.resubmit import plan_resubmit
from sbnotebook.settlement.actions.survey import Survey, survey
from sbnotebook.settlement.connecting.failures import explained
from sbnotebook.settlement.locking.ahead import (
    DEFAULT_MAX_HELD,
    AheadBatch,
    LockedAhead,
    Search,
    SessionAheadBatch,
    needs_session,
)
from sbnotebook.settlement.pace import Pace
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import Edit, Limits, Plan, Preview
from sbnotebook.settlement.terms import Progress, check_decision, is_same, outcome_until_now
from sbnotebook.settlement.watch import Tell, reporting, untold

__all__ = ["GONE", "PickOptions", "PickReport", "ahead_batch", "plan_pick"]

_RENEW_FOR: Final = timedelta(days=7)
"""Longer than any search."""
_GROUP: Final = 100
"""Messages that are settled together, and not interrupted."""
_MAX_NUMBER: Final = 2**63 - 1

_NOT_BEGUN: Final = "Not attempted: the pick was cut off before."
GONE: Final = "It is not there any more: it was settled, or it has expired."
"""Why a message is not found that is not in the entity at all."""
_ANOTHER: Final = "Not attempted: another message has its number now, because the entity was made anew. Peek again."
_HELD_ELSEWHERE: Final = "Another receiver holds it: messages behind it came, and it did not. Try again later."
_NOT_GIVEN: Final = "Not attempted: the entity did not give it, and could not be looked into."
_SCHEDULED: Final = "Not attempted: it is scheduled, and nobody gets it before its time: cancel it instead."
_DEFERRED: Final = "Not attempted: it is deferred already."


# ---------------------------------------------------------------------- the plan


class PickOptions(TypedDict, total=False):
    """What :func:`plan_pick` takes beside messages and decision, all of it by name."""

    edit: Edit | None
    abandon_rest: bool
    max_held: int
    archived: bool


async def plan_pick(
    entity: Place,
    messages: Iterable[ReceivedMessage | int],
    decision: Decision,
    *,
    edit: Edit | None = None,
    abandon_rest: bool = False,
    max_held: int = DEFAULT_MAX_HELD,
    archived: bool = True,
    progress: Progress | None = None,
) -> Plan:
    """A plan to settle, defer or resubmit chosen messages, wherever in the entity they stand.

    Making it peeks from the head to the last of them, so that its preview tells what will be locked. Applying it locks
    ahead in order, settles the chosen ones as they come, and releases the others in the end, so that no delivery count
    of theirs changes. Chosen messages that are deferred are received by their numbers.

    Args:
        entity: where they stand: a queue, a subscription, or a sub-queue.
        messages: the messages as they were peeked, or their sequence numbers.
        decision: complete, abandon, dead-letter, defer or resubmit.
        edit: gives the message to send for each message that is resubmitted.
        abandon_rest: abandon what cannot be released in the end, because its link was lost. It is available at once
            then, and its delivery count goes up at once; otherwise both happen when its lock ends.
        max_held: messages that are held at once at most: those that are not chosen are held to the end.
        archived: False to complete messages for good; what is resubmitted is archived all the same.
        progress: told of every page that is peeked, in messages.

    Returns:
        The plan; applying it gives a :class:`PickReport`.

    Raises:
        DecisionError: the decision or a message is none that can be picked here, or as many others stand before the
            last one as ``max_held``, or more.
    """
    check_decision(decision, entity.address)
    if isinstance(decision, Release):
        raise DecisionError("To release picked messages would change nothing: complete, defer or resubmit them.")
    if edit is not None and not isinstance(decision, Resubmit):
        raise DecisionError(f"An edit changes what a resubmit sends; to {decision.verb} sends nothing.")
    search = Search(max_held=max_held, abandon_rest=abandon_rest)
    given = _by_number(messages, entity.address)
    seen = await survey(entity, given.keys(), progress)
    others = seen.standing - len(seen.in_state(MessageState.ACTIVE))
    if others >= max_held:  # the chosen ones are settled as they come, and need a place
        raise DecisionError(
            f"{others:,} others stand before the last one that was chosen, and all of them would be locked: pick from "
            f"the first ones, or allow more with max_held (it is {max_held:,})."
        )
    chosen = tuple(
        message or seen.found.get(number) or PeekedMessage(entity=entity.address, sequence_number=number)
        for number, message in given.items()
    )
    notes = tuple(_notes(seen, len(chosen), entity.address, abandon_rest=abandon_rest))
    if isinstance(decision, Resubmit):
        search = replace(search, expected=seen.standing)
        return _noted(plan_resubmit(entity, chosen, decision, edit=edit, search=search), notes)

    async def carry_out(plan: Plan, limits: Limits, progress: Progress | None) -> Report:
        return await _Pick(entity, plan, seen, search, limits, progress, archived).run()

    return replace(_noted(Plan(entity.address, decision, chosen, carry_out), notes), total=seen.standing)


def _noted(plan: Plan, notes: Iterable[str]) -> Plan:
    """The same plan, whose preview says more."""

    def describe(rows: int) -> Preview:
        preview = plan.preview(rows)
        return replace(preview, sentence=" ".join((preview.sentence, *notes)))

    return replace(plan, describe=describe)


def _by_number(
    messages: Iterable[ReceivedMessage | int], address: EntityAddress
) -> Mapping[int, ReceivedMessage | None]:
    """The chosen messages by number, each once; None for those of which only the number is given."""
    given: dict[int, ReceivedMessage | None] = {}
    for message in messages:
        if isinstance(message, ReceivedMessage):
            if message.entity != address:
                raise DecisionError(
                    f"Message #{message.sequence_number} stands in {message.entity}, and not in {address}: "
                    "pick it from where it stands."
                )
            number = message.sequence_number
        else:
            number = message
        if type(number) is not int or not 1 <= number <= _MAX_NUMBER:
            raise DecisionError(f"{str(number)[:40]!r} is no sequence number: give messages, or whole numbers from 1.")
        given[number] = given.get(number) or (message if isinstance(message, ReceivedMessage) else None)
    return given


def _notes(seen: Survey, chosen: int, address: EntityAddress, *, abandon_rest: bool) -> Iterable[str]:
    deferred, scheduled = len(seen.in_state(MessageState.DEFERRED)), len(seen.in_state(MessageState.SCHEDULED))
    if seen.standing:
        others = seen.standing - len(seen.in_state(MessageState.ACTIVE))
        # A message is received about as fast as it is peeked, and released in half the time.
        seconds = max(1, round(2 * seen.seconds))
        back = "released, or abandoned where that is not possible" if abandon_rest else "released"
        if others:
            yield (
                f"{others:,} {'other stands' if others == 1 else 'others stand'} before the last of them: locked for "
                f"about {seconds:,} s and then {back}. Consumers that run meanwhile do not get "
                f"{'it' if others == 1 else 'them'}, and what a consumer holds cannot be picked."
            )
        if seen.delivered and address.sub_queue is None:  # dead letters were delivered, most of them
            yield f"{seen.delivered:,} of all these were delivered before: a consumer may be at work."
    if deferred:
        yield f"{deferred:,} of the chosen ones are deferred, and are received by their numbers."
    if scheduled:
        yield f"{scheduled:,} of the chosen ones are scheduled, and nobody gets them before their time."
    if absent := chosen - len(seen.found):
        yield f"{absent:,} of the chosen ones are not there."


# ---------------------------------------------------------------------- carrying it out


def ahead_batch(
    entity: Place, verb: str, session_id: str | None = None, *, archived: bool = True
) -> Callable[[], AheadBatch]:
    """What makes batches to lock ahead in an entity.

    Args:
        entity: which one.
        verb: what their settlements are part of, for the archive.
        session_id: the session to lock ahead in, where the entity requires one.
        archived: False where completed messages are removed for good.
    """
    namespace = entity.namespace

    def make() -> AheadBatch:
        place = namespace.connection, entity.address
        records = namespace.records(verb, archived=archived)
        if session_id is None:
            return AheadBatch(*place, renew_for=_RENEW_FOR, clock=namespace.clock, records=records)
        return SessionAheadBatch(*place, session_id, renew_for=_RENEW_FOR, clock=namespace.clock, records=records)

    return make


class _Settles(Protocol):
    """Settles messages that are locked."""

    async def settle(self, decision: Decision, messages: Sequence[LockedMessage], *, max_in_flight: int) -> Report: ...


@dataclass(slots=True)
class _Pick:
    """One pick that is carried out."""

    entity: Place
    plan: Plan
    seen: Survey
    search: Search
    limits: Limits
    progress: Progress | None
    archived: bool
    outcomes: dict[int, Outcome] = field(default_factory=dict[int, Outcome])
    begun: set[int] = field(default_factory=set[int])
    rest: Report = field(default_factory=Report)
    tell: Tell = untold
    pace: Pace = field(init=False)
    known: dict[int, ReceivedMessage] = field(init=False)

    def __post_init__(self) -> None:
        self.pace = self.limits.pace()
        self.known = {message.sequence_number: message for message in self.plan.messages}

    async def run(self) -> Report:
        """Pick; an outcome for each chosen message."""
        with reporting(self._report) as self.tell:
            for number in self.seen.in_state(MessageState.SCHEDULED):
                self._end(number, OutcomeStatus.SKIPPED, _SCHEDULED)
            await self._wherever(self.seen.in_state(MessageState.ACTIVE), self._search)
            left = [message.sequence_number for message in self.plan.messages]
            await self._look_at([number for number in left if number not in self.outcomes])
        return self._report()

    def _report(self) -> PickReport:
        return PickReport((self._outcome(message) for message in self.plan.messages), self.rest)

    def _outcome(self, message: ReceivedMessage) -> Outcome:
        known = self.outcomes.get(message.sequence_number)
        if known is None:
            begun = message.sequence_number in self.begun
            return outcome_until_now(message, self.plan.decision, _NOT_BEGUN, begun=begun)
        # A message of which only the lock was kept does not know its identifier.
        return known if known.message_id == message.message_id else replace(known, message_id=message.message_id)

    async def _wherever(
        self, numbers: Collection[int], work: Callable[[frozenset[int], str | None], Awaitable[None]]
    ) -> None:
        """Work in the whole entity or, where it requires sessions, in each session that a message is of."""
        if not numbers:
            return
        try:
            await work(frozenset(numbers), None)
        except ServiceBusError as error:
            if not needs_session(error):
                raise
            by_session: dict[str | None, set[int]] = {}
            for number in numbers:
                by_session.setdefault(self.seen.found[number].session_id, set()).add(number)
            for session_id, mine in by_session.items():
                try:
                    await work(frozenset(mine), session_id)
                except ServiceBusError as refusal:
                    for number in mine:
                        self._end(number, OutcomeStatus.SKIPPED, f"Not attempted: {explained(refusal)}")

    async def _search(self, numbers: frozenset[int], session_id: str | None) -> None:
        """Lock ahead, and settle what comes."""
        keeps = isinstance(self.plan.decision, Abandon)
        search = replace(self.search, wanted=numbers, bodies=not keeps, expected=self.seen.standing)
        if session_id is not None:  # it is held over one link
            search = replace(search, expected=self.seen.by_session[session_id], per_link=search.max_held)
        make_batch = ahead_batch(self.entity, self.plan.decision.verb, session_id, archived=self.archived)
        ahead = LockedAhead(make_batch, search, progress=self.progress)
        try:
            async with ahead:
                kept: list[LockedMessage] = []
                while chosen := await ahead.find():
                    if keeps:  # one that is abandoned now would come again next
                        kept += chosen
                    else:
                        await self._settle(ahead, chosen)
                await self._settle(ahead, kept)
        finally:
            self.rest += ahead.rest
        if ahead.stopped is not None:
            for number in ahead.left:
                self._end(number, OutcomeStatus.SKIPPED, f"Not attempted: {ahead.stopped}")

    async def _settle(self, source: _Settles, messages: Sequence[LockedMessage]) -> None:
        group = min(_GROUP, self.pace.at_once or _GROUP)
        for start in range(0, len(messages), group):
            some = messages[start : start + group]
            await self.pace.wait(len(some))
            some = self._those_meant(some)
            # An interrupt takes effect between two groups: what was under way has its outcome.
            report = Report()
            with anyio.CancelScope(shield=True):
                self.begun |= {message.sequence_number for message in some}
                try:
                    report = await source.settle(self.plan.decision, some, max_in_flight=self.limits.max_in_flight)
                except SbNotebookError as error:  # such as an archive that is full
                    if not self.outcomes:
                        raise
                    for message in some:  # what was settled before must not be hidden by this
                        self._end(message.sequence_number, OutcomeStatus.SKIPPED, f"Not attempted: {error}")
            self._note(report)

    def _those_meant(self, messages: Sequence[LockedMessage]) -> list[LockedMessage]:
        """Without those that only have the number of a chosen one, because the entity was made anew meanwhile."""
        meant: list[LockedMessage] = []
        for message in messages:
            if is_same(message, self.known[message.sequence_number]):
                meant.append(message)
            else:
                self._end(message.sequence_number, OutcomeStatus.NOT_FOUND, _ANOTHER)
        return meant

    async def _look_at(self, numbers: Sequence[int]) -> None:
        """Tell what became of messages that did not come; those that are deferred are settled by their numbers."""
        try:
            there = await self.entity.namespace.peeker(self.entity.address).messages_of(numbers)
        except (ServiceBusError, OSError):
            for number in numbers:
                self._end(number, OutcomeStatus.SKIPPED, _NOT_GIVEN)
            return
        for number in numbers:
            if (end := self._end_of(there.get(number))) is not None:
                self._end(number, *end)
        deferred = [number for number in numbers if number not in self.outcomes]
        await self._wherever(deferred, self._settle_deferred)

    def _end_of(self, message: PeekedMessage | None) -> tuple[OutcomeStatus, str] | None:
        """What became of a message as it stands now; None where it can be received by its number."""
        if message is None:
            return OutcomeStatus.NOT_FOUND, GONE
        if message.state is MessageState.SCHEDULED:
            return OutcomeStatus.SKIPPED, _SCHEDULED
        if message.state is MessageState.ACTIVE:
            return OutcomeStatus.NOT_FOUND, _HELD_ELSEWHERE
        return (OutcomeStatus.SKIPPED, _DEFERRED) if isinstance(self.plan.decision, Defer) else None

    async def _settle_deferred(self, numbers: frozenset[int], session_id: str | None) -> None:
        in_order = sorted(numbers)
        make_batch = ahead_batch(self.entity, self.plan.decision.verb, session_id, archived=self.archived)
        async with make_batch() as batch:
            for start in range(0, len(in_order), _GROUP):
                await self._settle(batch, await batch.receive_deferred(in_order[start : start + _GROUP]))
        for number in numbers:
            if number not in self.outcomes:
                self._end(number, OutcomeStatus.NOT_FOUND, "It is deferred, and another receiver holds it.")

    def _end(self, number: int, status: OutcomeStatus, why: str) -> None:
        self._note([Outcome(status, self.plan.decision.verb, self.entity.address, number, description=why)])

    def _note(self, outcomes: Iterable[Outcome]) -> None:
        known = {outcome.sequence_number or 0: outcome for outcome in outcomes}
        self.outcomes |= known
        self.tell(known.values())
