"""Selecting the messages of a plan by peeking, and reaching them anywhere in an entity, locked, for their steps."""

from __future__ import annotations

import contextlib
import math
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import Final, TypeAlias

import anyio
import anyio.lowlevel
import anyio.to_thread
from azure.core.exceptions import AzureError
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    Abandon,
    Complete,
    Decision,
    Defer,
    LockedMessage,
    MessageState,
    Outcome,
    OutcomeStatus,
    PeekedMessage,
    ReceivedMessage,
    Report,
)
from sbnotebook.model.report import counted
from sbnotebook.settlement import administration
from sbnotebook.settlement.connecting.failures import Failure, explained
from sbnotebook.settlement.engine import BESIDE, GROUP, M, Run
from sbnotebook.settlement.locking.ahead import DEFAULT_MAX_HELD, LockedAhead, Search
from sbnotebook.settlement.locking.by_number import DeferredDeleter, Removal
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.locking.settle import room_of
from sbnotebook.settlement.peek import PeekCursor
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import ANOTHER, Progress, is_same
from sbnotebook.settlement.requests import OUTAGE_PATIENCE, alike

MessageFilter = Callable[[Sequence[PeekedMessage]], Sequence[PeekedMessage]]
"""Gives those of some messages that are meant."""

_SHOWN: Final = 100
"""Messages that are kept whole, to be shown."""
_NAMED: Final = 5
_MAX_NAME: Final = 60
_MOST_NAMES: Final = 1_000
"""Different names that are counted among messages that do not match: their senders choose them."""


@dataclass(frozen=True, slots=True)
class Chosen:
    only: MessageFilter | None = None
    before: datetime | None = None
    to_sequence_number: int | None = None
    state: MessageState | None = None
    max_messages: int | None = None
    numbers: Collection[int] | None = None

    def __post_init__(self) -> None:
        if self.max_messages is not None and self.max_messages < 0:
            raise DecisionError("max_messages is 0 or more.")

    async def those_meant(self, page: Sequence[PeekedMessage]) -> Sequence[PeekedMessage]:
        end = self.before
        wanted: Sequence[PeekedMessage] = [
            message
            for message in page
            if self.state in (None, message.state)
            and (end is None or (message.enqueued_time is not None and message.enqueued_time < end))
            and (self.numbers is None or message.sequence_number in self.numbers)
        ]
        return wanted if self.only is None else await anyio.to_thread.run_sync(self.only, wanted)


@dataclass(slots=True)
class Selection:
    messages: list[PeekedMessage] = field(default_factory=list[PeekedMessage])
    states: Counter[str] = field(default_factory=Counter[str])
    names: Counter[str] = field(default_factory=Counter[str])
    bytes: int = 0
    room: int = 0
    """Bytes that the archive takes for them at most."""
    to_lock: int = 0
    """Active messages up to the last one that is meant."""
    passed: Counter[str] = field(default_factory=Counter[str])
    """Names of the messages before the first one that is meant."""
    looked_at: int = 0
    """The number of messages before the first one that is meant."""
    in_session: dict[str | None, int] = field(default_factory=dict["str | None", int])
    """Active messages of each session up to the last one of it that is meant."""
    delivered: int = 0
    """Messages of :attr:`to_lock` that were delivered before."""
    seconds: float = 0.0

    @property
    def between(self) -> int:
        """Count the active messages that stay and come before a selected message."""
        return self.to_lock - self.states[MessageState.ACTIVE]

    def note(self, chosen: Iterable[PeekedMessage], page: Iterable[PeekedMessage], *, whole: bool) -> None:
        """Count the chosen messages of a page, and the others before the first one."""
        for message in chosen:
            self.states[message.state] += 1
            self.names[message.dead_letter_reason or message.subject or ""] += 1
            self.bytes += len(message.body)
            self.room += room_of(message)
            # Bodies of a million messages would not fit into memory.
            self.messages.append(message if whole or len(self.messages) < _SHOWN else _without_body(message))
        for message in () if self.messages else page:
            name = (message.dead_letter_reason if message.entity.sub_queue else message.subject) or ""
            self.looked_at += 1
            if name in self.passed or len(self.passed) < _MOST_NAMES:
                self.passed[name] += 1

    def check_reach(self, what: str) -> None:
        """Refuse where too many others would have to be held."""
        if self.between > DEFAULT_MAX_HELD and not any(message.session_id for message in self.messages):
            raise DecisionError(
                f"{self.between:,} other messages are between those to be {what}, and all of them would be "
                f"locked meanwhile; {DEFAULT_MAX_HELD:,} can be. Take those near the head first, with "
                "to_sequence_number=…, or take more of them."
            )

    def sentence(self, verb: str, entity: Place, *more: str) -> str:
        sub_queue, what = entity.address.sub_queue, f"{verb} {counted(len(self.messages))} of {entity.in_plans}"
        if not self.messages:
            return f"{what}. {names_sentence(self.passed, self.looked_at, is_of_reasons=sub_queue is not None)}"
        states = ", ".join(f"{number:,} {state}" for state, number in self.states.most_common())
        when = sorted(message.enqueued_time for message in self.messages if message.enqueued_time is not None)
        times = f", enqueued from {when[0]:%Y-%m-%d %H:%M:%S} to {when[-1]:%Y-%m-%d %H:%M:%S} UTC" if when else ""
        others = f"{self.between:,} other messages between them are locked meanwhile and then released."
        return " ".join(
            [
                f"{what}: {states}; {self.bytes:,} bytes of bodies{times}.",
                f"By {'reason or subject' if sub_queue else 'subject'}: {_named(self.names)}.",
                *([others] if self.between else []),
                *more,
            ]
        )


async def select(entity: Place, chosen: Chosen, progress: Progress | None = None) -> Selection:
    """Peek from the head to the last message that may be meant; with ``numbers``, messages are kept whole."""
    seen, began = Selection(), anyio.current_time()
    active, delivered, in_session = 0, 0, Counter[str | None]()
    last = chosen.to_sequence_number if chosen.numbers is None else max(chosen.numbers, default=0)
    async for page in entity.peeker.pages(PeekCursor(to_sequence_number=last)):
        wanted = await chosen.those_meant(page)
        if chosen.max_messages is not None:
            wanted = wanted[: chosen.max_messages - len(seen.messages)]
        seen.note(wanted, page, whole=chosen.numbers is not None)
        numbers = {message.sequence_number for message in wanted}
        for message in page:
            if message.state is MessageState.ACTIVE:
                active += 1
                delivered += message.delivery_count > 0
                in_session[message.session_id] += 1
                if message.sequence_number in numbers:
                    seen.to_lock, seen.delivered = active, delivered
                    seen.in_session[message.session_id] = in_session[message.session_id]
        if progress is not None:
            progress(len(page))
        if len(seen.messages) == chosen.max_messages:
            break
    seen.seconds = anyio.current_time() - began
    return seen


def names_sentence(names: Counter[str], looked_at: int, *, is_of_reasons: bool) -> str:
    """Return which names the messages have that were looked at, for a choice that matches none of them.

    Args:
        names: how many messages have each dead-letter reason or subject.
        looked_at: messages in all.
        is_of_reasons: whether the names are dead-letter reasons.

    Example:
        >>> names_sentence(Counter(paid=2), 2, is_of_reasons=False)
        "Messages looked at: 2, with these subjects: 'paid' 2."
    """
    if not looked_at:
        return "There are no messages to choose from."
    kind = "dead-letter reasons" if is_of_reasons else "subjects"
    return f"Messages looked at: {looked_at:,}, with these {kind}: {_named(names)}."


def _without_body(message: PeekedMessage) -> PeekedMessage:
    return PeekedMessage(
        entity=message.entity,
        sequence_number=message.sequence_number,
        message_id=message.message_id,
        enqueued_time=message.enqueued_time,
        session_id=message.session_id,
        state=message.state,
    )


def _named(names: Counter[str]) -> str:
    # The names came from the senders of the messages.
    most = names.most_common(_NAMED)
    named = [f"{repr(name[:_MAX_NAME]) if name else 'none'} {number:,}" for name, number in most]
    left = len(names) - len(named)
    return f"{', '.join(named)}{f' and {left:,} more' if left > 0 else ''}"


GONE: Final = "It is not there any more: it was settled, or it has expired."
LOCKED: Final = (
    "Not attempted: it exists but could not be locked: another receiver has its lock, or an earlier lock has not "
    "ended. Try again later."
)

_RENEW_FOR: Final = timedelta(days=7)
"""Longer than any run."""
_ASK_WITHIN: Final = 10.0


def is_gone(outcome: Outcome) -> bool:
    """Return whether a message was not in the entity any more when an action reached it."""
    return outcome.status is OutcomeStatus.NOT_FOUND and outcome.description == GONE


def is_locked_elsewhere(outcome: Outcome | None) -> bool:
    """Return whether an action left a message out because another receiver has its lock."""
    return outcome is not None and outcome.description == LOCKED


Steps: TypeAlias = Callable[[LockedBatch, Sequence[LockedMessage]], Awaitable[None]]
"""Carries out the action on messages that are held, and lets the run expect the outcomes of those attempted."""


def settling(run: Run, decision: Decision | None = None) -> Steps:
    """Return the steps that settle messages with one decision; by default, each as the run has it."""

    async def steps(holder: LockedBatch, messages: Sequence[LockedMessage]) -> None:
        pairs = [(message, decision or run.decision_of(message)) for message in messages]
        for some in alike(pairs, lambda pair: pair[1].verb):
            if run.stopped is None:
                report = await holder.settle_group(run, some)
                run.expect([message for message, _ in some], report)

    return steps


@dataclass(slots=True)
class Reach:
    place: Place
    run: Run
    steps: Steps
    archived: bool = True
    journalled: bool = True
    group: int = GROUP
    beside: int = BESIDE
    in_order: bool = False
    search: Search = field(default_factory=Search)
    in_session: Mapping[str | None, int] = field(default_factory=dict[str | None, int])
    again: Callable[[], set[int]] = set
    patience: float | None = None
    locked: Progress | None = None
    ready: Callable[[], Awaitable[None]] | None = None

    def active(self, messages: Sequence[ReceivedMessage]) -> Awaitable[None]:
        """Lock active messages in their order, and take them through their steps as they come."""
        return self._in_each_session(messages, self._ahead)

    async def deferred(self, messages: Sequence[ReceivedMessage]) -> None:
        """Lock deferred messages by their numbers, take them through their steps, and explain the others."""
        await self._end_others(messages)
        await self._in_each_session([m for m in messages if self.run.outcome_of(m) is None], self._by_number)
        if self.run.stopped is None:
            left = [message for message in messages if self.run.outcome_of(message) is None]
            active, held = await self._by_state(left)
            self.run.end(
                active,
                OutcomeStatus.SKIPPED,
                "Not attempted: it is not deferred. Defer it first, or settle it as an active message.",
            )
            self.run.end(held, OutcomeStatus.SKIPPED, LOCKED)

    async def get_ready(self) -> None:
        """Wait until messages may be locked; at once if they may."""
        ready, self.ready = self.ready, None
        if ready is not None:
            await ready()

    async def find_missing(self, messages: Sequence[ReceivedMessage]) -> None:
        """Look for messages that did not arrive, keep trying to lock those that exist, and explain the others.

        Two seconds without a message do not prove that another receiver has a lock. Service Bus delivers nothing for
        longer when it moves an entity. And a lock that was lost with its connection ends only after its time.
        """
        await self.get_ready()
        waits = self.place.namespace.waits
        left, until, pause = list(messages), math.inf, waits.first_pause
        while left and self.run.stopped is None:
            active, deferred = await self._by_state(left)
            if until == math.inf:  # tried once more in any case
                until = anyio.current_time() + await self._how_long(is_active=bool(active))
            elif anyio.current_time() >= until:
                self.run.end([*active, *deferred], OutcomeStatus.SKIPPED, LOCKED)
                return
            else:
                await anyio.sleep(pause)
                pause = min(2 * pause, waits.longest_pause)
            # The messages before them were counted earlier, and others may have come or gone.
            self.search, self.in_session = replace(self.search, expected=0), {}
            await self._in_each_session(deferred, self._by_number)
            await self._in_each_session(active, self._ahead)
            left = [message for message in left if self.run.outcome_of(message) is None]

    async def _by_state(
        self, messages: Sequence[ReceivedMessage]
    ) -> tuple[list[ReceivedMessage], list[ReceivedMessage]]:
        """Peek at messages: return those that can be locked, active and deferred ones, and end all others."""
        numbers = [message.sequence_number for message in messages]
        there = await self.place.peeker.messages_of(numbers, (), patience=OUTAGE_PATIENCE)
        by_state: dict[MessageState, list[ReceivedMessage]] = {state: [] for state in MessageState}
        for message in messages:
            found = there.get(message.sequence_number)
            if found is None:
                self.run.end([message], OutcomeStatus.NOT_FOUND, GONE)
            elif end := self._why_not(message, found):
                self.run.end([message], *end)
            else:
                by_state[found.state].append(message)
        return by_state[MessageState.ACTIVE], by_state[MessageState.DEFERRED]

    def _why_not(self, message: ReceivedMessage, found: PeekedMessage) -> tuple[OutcomeStatus, str] | None:
        """Return the outcome of a message that cannot be locked, by what a peek found; None where it can."""
        if not is_same(found, message):
            return OutcomeStatus.NOT_FOUND, ANOTHER
        if found.state is MessageState.SCHEDULED:
            why = "it is scheduled, and no receiver gets it before its time: cancel it instead"
            return OutcomeStatus.SKIPPED, f"Not attempted: {why}."
        if found.state is MessageState.DEFERRED and isinstance(self.run.decision, Defer):
            return OutcomeStatus.SKIPPED, "Not attempted: it is deferred already."
        return None

    async def _how_long(self, *, is_active: bool) -> float:
        if self.patience is not None or not is_active:
            return self.patience or 0.0
        with anyio.move_on_after(_ASK_WITHIN), contextlib.suppress(AzureError, OSError):  # it takes the right Manage
            found = await administration.properties_of(self.place.namespace.connection, self.place.address)
            return min(found.lock_duration.total_seconds(), self.place.namespace.waits.held)
        return self.place.namespace.waits.held

    # ---------------------------------------------------------------- the ways

    async def _in_each_session(
        self,
        messages: Sequence[ReceivedMessage],
        work: Callable[[Sequence[ReceivedMessage], str | None], Awaitable[None]],
    ) -> None:
        """Work in the whole entity or, where it requires sessions, in each session that a message is of."""
        if not messages or self.run.stopped is not None:
            return
        sessions: list[Sequence[ReceivedMessage]] = []
        try:
            await work(messages, None)
        except ServiceBusError as error:
            if not Failure.of(error).needs_session:
                raise
            sessions = alike(messages, attrgetter("session_id"))
        for mine in sessions:
            if self.run.stopped is not None:
                return
            try:
                await work(mine, mine[0].session_id)
            except ServiceBusError as error:  # such as a session that another receiver holds: the others continue
                self._end_rest(mine, f"Not attempted: {explained(error)}")

    async def _ahead(self, messages: Sequence[ReceivedMessage], session_id: str | None) -> None:
        wanted = {message.sequence_number: message for message in messages}
        search = replace(self.search, wanted=frozenset(wanted), max_wait=self.place.namespace.waits.silence)
        if session_id is not None:
            search = replace(search, expected=self.in_session.get(session_id, 0))
            if search.max_held > LockedBatch.per_link:
                search = replace(search, max_held=LockedBatch.per_link, limit="the one link of a session")
        batch, kept = self._batch(session_id), list[LockedMessage]()
        ahead = LockedAhead(batch, search, progress=self.locked)
        try:
            async with ahead, self.run.ending_groups():
                if session_id is None:  # the link of a session locks it
                    batch.begin_opening()
                await self.get_ready()
                while self.run.stopped is None and (came := await self._find(ahead, wanted)):
                    meant = self._those_meant(came, wanted)
                    if search.bodies:  # one that was not read has no content to clone or to archive
                        await self._take(batch, [m for m in meant if m.enqueued_time is not None or m.unreadable])
                    else:
                        kept += meant
                await self._end_others([wanted[message.sequence_number] for message in kept])
                await self._take(batch, [message for message in kept if self.run.outcome_of(message) is None])
        finally:
            self._note_rest(ahead.rest)
        if ahead.stopped is not None:
            self._end_rest([wanted[number] for number in ahead.left], f"Not attempted: {ahead.stopped}")

    async def _find(self, ahead: LockedAhead, wanted: Mapping[int, ReceivedMessage]) -> tuple[LockedMessage, ...]:
        """Lock ahead until some messages have come, also those that are to be locked once more."""
        # First, the groups of the last ones begin, and know that these are locked anew. If none comes, the groups in
        # progress end: a lock may be lost in them.
        for wait in (anyio.lowlevel.checkpoint, self.run.finish):
            await wait()
            ahead.left |= wanted.keys() & self.again()
            if (came := await ahead.find()) or ahead.stopped is not None:
                return came
        return ()

    async def _by_number(self, messages: Sequence[ReceivedMessage], session_id: str | None) -> None:
        """Receive deferred messages: no more at once than are settled at once, because they cannot be released.

        They are abandoned without a delay, which would change nothing: they stay deferred.
        """
        if session_id is None and (removable := [message for message in messages if self._needs_no_lock(message)]):
            await self._remove(removable)
            messages = [message for message in messages if not self._needs_no_lock(message)]
            if not messages:
                return
        async with self._batch(session_id) as batch, self.run.ending_groups():
            # Each group is locked in its own task, and may begin its steps before an earlier one.
            beside = 0 if self.in_order else self.beside
            await self.run.take(messages, partial(self._lock_and_take, batch), size=self.group, beside=beside)

    async def _lock_and_take(self, batch: LockedBatch, messages: Sequence[ReceivedMessage]) -> None:
        some = {message.sequence_number: message for message in messages}
        if came := self._those_meant(await batch.receive_deferred(some), some):
            await self.steps(batch, came)

    def _needs_no_lock(self, message: ReceivedMessage) -> bool:
        """Tell whether a deferred message is removed for good, and only its number is known.

        Of any other message, the lock shows the content: for the archive, or to compare it with the planned one.
        """
        if message.enqueued_time is not None or (self.archived and self.place.namespace.archive is not None):
            return False
        return isinstance(self.run.decision_of(message), Complete)

    async def _remove(self, messages: Sequence[ReceivedMessage]) -> None:
        """Complete deferred messages without locking them: one request removes a group."""
        deleter = DeferredDeleter(self.place.namespace.connection, self.place.peeker)
        try:
            await deleter.open()
            async with self.run.ending_groups():
                remove = partial(self._remove_group, deleter)
                await self.run.take(messages, remove, size=self.group, beside=self.beside)
        finally:
            await deleter.close()

    async def _remove_group(self, deleter: DeferredDeleter, messages: Sequence[ReceivedMessage]) -> None:
        ends = Removal(set(), set())
        why = "The request to remove it had no answer, and it is gone: removed by this request, or by another receiver."
        try:
            await deleter.remove((message.sequence_number for message in messages), ends)
        except Exception as error:
            why = f"The request to remove it failed, and may have removed it: {explained(error)}"
            raise
        finally:
            unknown = [message for message in messages if message.sequence_number in ends.unknown]
            self.run.expect_end(unknown, OutcomeStatus.UNCONFIRMED, why)
            removed = [message for message in messages if message.sequence_number in ends.removed]
            self.run.expect_end(removed, OutcomeStatus.SETTLED)
            await self._forget(removed)

    async def _forget(self, removed: Sequence[ReceivedMessage]) -> None:
        if self.journalled and removed:
            tables, entity = self.place.namespace.tables, self.place.address
            # An entry that stays does no harm: the comparison with the entity shows that its message is gone.
            with contextlib.suppress(OSError, sqlite3.Error):
                await anyio.to_thread.run_sync(tables.forget, [(entity, each.sequence_number) for each in removed])

    # ---------------------------------------------------------------- parts of the ways

    def _note_rest(self, rest: Report) -> None:
        """Note how others were given back; one that was held twice is as it was when that failed."""
        known = {outcome.sequence_number: outcome for outcome in self.run.rest}
        chosen = {message.sequence_number for message in self.run.messages}  # by this search, or by one that follows
        for outcome in rest:
            if outcome.sequence_number in chosen:
                continue
            before = known.get(outcome.sequence_number)
            known[outcome.sequence_number] = outcome if before is None or before.ok else before
        self.run.rest = Report(known.values())

    async def _take(self, holder: LockedBatch, messages: Sequence[LockedMessage]) -> None:
        delay = self.run.decision.delay if isinstance(self.run.decision, Abandon) else None
        if delay and messages:
            if delay >= _RENEW_FOR:
                days = _RENEW_FOR.days
                raise DecisionError(f"Locks are renewed for {days} days at most: resubmit with a delay instead.")
            await self.place.namespace.clock.sleep(delay.total_seconds())
        await self.run.take(messages, partial(self.steps, holder), size=self.group, beside=self.beside)

    async def _end_others(self, messages: Iterable[ReceivedMessage]) -> None:
        """Before an action raises counts, end messages whose numbers others have in an entity that was made anew."""
        known = {message.sequence_number: message for message in messages if message.enqueued_time is not None}
        async with contextlib.aclosing(self.place.peeker.pages_of(known, patience=OUTAGE_PATIENCE)) as pages:
            async for page in pages:
                if self._those_meant([message for _, message in page], known):
                    break  # one that is the same shows that the entity is, too

    def _those_meant(self, came: Sequence[M], wanted: Mapping[int, ReceivedMessage]) -> list[M]:
        """Leave out other messages with the numbers of those that are meant, in an entity that was made anew."""
        others = [message for message in came if not is_same(message, wanted[message.sequence_number])]
        self.run.end(others, OutcomeStatus.NOT_FOUND, ANOTHER)
        return [message for message in came if message not in others] if others else [*came]

    def _end_rest(self, messages: Iterable[ReceivedMessage], why: str) -> None:
        left = [message for message in messages if self.run.outcome_of(message) is None]
        self.run.end(left, OutcomeStatus.SKIPPED, why)

    def _batch(self, session_id: str | None) -> LockedBatch:
        recorded = {"archived": self.archived, "journalled": self.journalled}
        if session_id is None:
            return self.place.batch(self.run.decision.verb, renew_for=_RENEW_FOR, **recorded)
        return self.place.session(session_id, self.run.decision.verb, renew_for=_RENEW_FOR, **recorded)
