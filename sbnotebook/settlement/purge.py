"""Removing all, or many, messages of an entity; what came after the plan was made stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import anyio
import anyio.to_thread
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.errors import ArchiveError, SbNotebookError
from sbnotebook.model import (
    Complete,
    Decision,
    LockedMessage,
    MessageState,
    Outcome,
    OutcomeStatus,
    PeekedMessage,
    Purge,
    Report,
)
from sbnotebook.settlement.ahead import AheadBatch, LockedAhead, Search
from sbnotebook.settlement.failures import explained
from sbnotebook.settlement.lock import LockedBatch
from sbnotebook.settlement.pace import Pace
from sbnotebook.settlement.plan import Limits, Plan, Preview
from sbnotebook.settlement.schedule import plan_cancel_scheduled
from sbnotebook.settlement.settle import Progress, outcome_for
from sbnotebook.settlement.watch import reporting

if TYPE_CHECKING:
    from sbnotebook.settlement.entity import AsyncEntity

__all__ = ["Filter", "PurgeOptions", "plan_purge"]

Filter = Callable[[Sequence[PeekedMessage]], Sequence[PeekedMessage]]
"""Gives those of some messages that are meant."""

_Batch = TypeVar("_Batch", bound=LockedBatch)

_RENEW_FOR: Final = timedelta(days=7)
"""Longer than any run."""
_WINDOW: Final = 500
"""Messages that are locked at once."""
_OTHERS: Final = 1_000
"""Messages of others that are locked at most, where none stood before the last one that is removed."""
_MAX_WAIT: Final = 2.0
"""Seconds to wait until the entity counts as empty."""
_GROUP: Final = 200
"""Messages that are removed together, and not interrupted."""
_SHOWN: Final = 100
"""Messages that are kept whole, to be shown."""
_NAMED: Final = 5
_MAX_NAME: Final = 60
_ANY_NUMBER: Final = 2**62
_NOT_BEGUN: Final = "Not attempted: the purge was cut off before."
_NOT_GIVEN: Final = "The entity gave no such message: it was settled, or is locked by another receiver."


@dataclass(frozen=True, slots=True)
class PurgeOptions:
    """Which messages are removed.

    Args:
        only: of those that are looked at, the ones that are meant; None for all of them.
        before: messages that were enqueued before then; a duration counts back from now.
        to_sequence_number: messages up to this number, included.
        state: messages in this state only.
        archived: False to remove them for good.
    """

    only: Filter | None = None
    before: datetime | timedelta | None = None
    to_sequence_number: int | None = None
    state: MessageState | None = None
    archived: bool = True

    @property
    def end(self) -> datetime | None:
        """The moment that ``before`` means."""
        before = self.before
        if isinstance(before, timedelta):
            return datetime.now(UTC) - before
        return before.astimezone() if before is not None else None


@dataclass(slots=True)
class _Seen:
    """What was found to remove, and what there is to say of it."""

    messages: list[PeekedMessage] = field(default_factory=list[PeekedMessage])
    states: Counter[str] = field(default_factory=Counter[str])
    names: Counter[str] = field(default_factory=Counter[str])
    bytes: int = 0
    standing: int = 0
    """Active messages up to the last that is removed."""
    first: datetime | None = None
    last: datetime | None = None

    def note(self, chosen: Iterable[PeekedMessage]) -> None:
        for message in chosen:
            self.states[message.state] += 1
            self.names[message.dead_letter_reason or message.subject or ""] += 1
            self.bytes += len(message.body)
            when = message.enqueued_time
            if when is not None:
                self.first, self.last = min(self.first or when, when), max(self.last or when, when)
            # Bodies of a million messages would not fit into memory, and nobody reads them.
            kept = message if len(self.messages) < _SHOWN else _without_body(message)
            self.messages.append(kept)


async def plan_purge(entity: AsyncEntity, options: PurgeOptions, progress: Progress | None = None) -> Plan:
    """A plan to remove messages, by peeking at all of them. Messages that come later stay.

    Args:
        entity: a queue, a subscription, or a sub-queue.
        options: which messages.
        progress: told of every page that is peeked, in messages.

    Returns:
        The plan. Applying it writes the messages to the archive and removes them: active ones in their order, while
        others that stand between them are locked and released again, deferred ones by their numbers, and scheduled
        ones by cancelling them. When it is cut off, a new plan goes on with what is left.
    """
    seen = await _look(entity, options, progress)
    sentence = await _sentence(entity, seen, options)

    def describe(rows: int) -> Preview:
        return Preview(sentence, tuple(seen.messages[:rows]))

    async def carry_out(plan: Plan, limits: Limits, progress: Progress | None) -> Report:
        archive = entity.namespace.archive
        if archive is not None and options.archived:
            await anyio.to_thread.run_sync(archive.require_room, seen.bytes)
        return await _Purging(entity, plan, options, seen.standing, limits, progress).run()

    return Plan(entity.address, Purge(), tuple(seen.messages), carry_out, describe=describe)


async def _look(entity: AsyncEntity, options: PurgeOptions, progress: Progress | None) -> _Seen:
    seen, active, end = _Seen(), 0, options.end
    async for page in entity.pages(to_sequence_number=options.to_sequence_number):
        wanted = [
            message
            for message in page
            if options.state in (None, message.state)
            and (end is None or (message.enqueued_time is not None and message.enqueued_time < end))
        ]
        if options.only is not None:
            wanted = await anyio.to_thread.run_sync(options.only, wanted)
        seen.note(wanted)
        chosen = {message.sequence_number for message in wanted}
        for message in page:
            active += message.state is MessageState.ACTIVE
            if message.sequence_number in chosen and message.state is MessageState.ACTIVE:
                seen.standing = active
        if progress is not None:
            progress(len(page))
    return seen


def _without_body(message: PeekedMessage) -> PeekedMessage:
    return PeekedMessage(
        entity=message.entity,
        sequence_number=message.sequence_number,
        message_id=message.message_id,
        enqueued_time=message.enqueued_time,
        session_id=message.session_id,
        state=message.state,
    )


async def _sentence(entity: AsyncEntity, seen: _Seen, options: PurgeOptions) -> str:
    count = len(seen.messages)
    if not count:
        return f"purge 0 messages of {entity.address}."
    states = ", ".join(f"{number:,} {state}" for state, number in seen.states.most_common())
    named = [f"{_quoted(name)} {number:,}" for name, number in seen.names.most_common(_NAMED)]
    more = len(seen.names) - len(named)
    kind = "reason or subject" if entity.address.sub_queue else "subject"
    what = f"purge {count:,} message{'s' if count != 1 else ''} of {entity.address}: {states}"
    sentences = [
        f"{what}; {seen.bytes:,} bytes of bodies{_times(seen)}.",
        f"By {kind}: {', '.join(named)}{f' and {more:,} more' if more > 0 else ''}.",
    ]
    between = seen.standing - seen.states[MessageState.ACTIVE]
    if between:
        sentences.append(f"{between:,} others stand between them, and are locked meanwhile and then released.")
    return " ".join([*sentences, await _kept(entity, seen, options)])


def _times(seen: _Seen) -> str:
    if seen.first is None or seen.last is None:
        return ""
    return f", enqueued from {seen.first:%Y-%m-%d %H:%M:%S} to {seen.last:%Y-%m-%d %H:%M:%S} UTC"


def _quoted(name: str) -> str:
    # It came from who sent the message.
    return repr(name[:_MAX_NAME]) if name else "none"


async def _kept(entity: AsyncEntity, seen: _Seen, options: PurgeOptions) -> str:
    archive = entity.namespace.archive
    if archive is None or not options.archived:
        return "They are removed for good: nothing is archived."
    try:
        await anyio.to_thread.run_sync(archive.require_room, seen.bytes)
    except ArchiveError as error:
        return f"As it is now, it will be refused. {error}"
    return f"They are kept in the archive for {archive.retention.days:,} days, and undo sends them back."


# ------------------------------------------------------------------ removing


class _Settle(Protocol):
    """Settles messages that are locked."""

    async def __call__(
        self, decision: Decision, messages: Sequence[LockedMessage], *, max_in_flight: int
    ) -> Report: ...


class _Purging:
    """One purge that is carried out."""

    def __init__(
        self,
        entity: AsyncEntity,
        plan: Plan,
        options: PurgeOptions,
        standing: int,
        limits: Limits,
        progress: Progress | None,
    ) -> None:
        self._entity = entity
        self._messages = {message.sequence_number: message for message in plan.messages}
        self._archived = options.archived
        self._standing = standing
        self._limits = limits
        self._pace = Pace(limits.rate)
        self._progress = progress
        self._outcomes: dict[int, Outcome] = {}
        self._stopped: str | None = None

    async def run(self) -> Report:
        with reporting(self._report):
            try:
                await self._remove_active(self._in_state(MessageState.ACTIVE))
                await self._remove_deferred(self._in_state(MessageState.DEFERRED))
                await self._cancel_scheduled(self._in_state(MessageState.SCHEDULED))
            except (SbNotebookError, ServiceBusError, OSError) as error:
                if not self._outcomes:
                    raise
                # Some are removed already, and their outcomes must not be lost.
                self._stopped = f"Not attempted: {explained(error)}"
        return self._report()

    def _in_state(self, state: MessageState) -> list[int]:
        return [number for number, message in self._messages.items() if message.state is state]

    def _report(self) -> Report:
        why = self._stopped or _NOT_BEGUN
        return Report(
            self._outcomes.get(number) or outcome_for(message, Purge(), OutcomeStatus.SKIPPED, why)
            for number, message in self._messages.items()
        )

    def _end(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            number = outcome.sequence_number or 0
            if number in self._messages:
                known = self._messages[number].message_id
                self._outcomes[number] = replace(outcome, verb=Purge.verb, message_id=known)

    def _not_found(self, numbers: Iterable[int], why: str) -> None:
        self._end(outcome_for(self._messages[number], Purge(), OutcomeStatus.NOT_FOUND, why) for number in numbers)

    async def _remove_active(self, numbers: Sequence[int]) -> None:
        if len(numbers) == self._standing:
            await self._remove_from_the_head(numbers)
        else:
            await self._remove_between(numbers)

    async def _remove_from_the_head(self, numbers: Sequence[int]) -> None:
        """Remove messages as they come; nothing else stood between them when the plan was made."""
        left = set(numbers)
        others = 0
        async with self._batch(LockedBatch) as batch:
            while left and others < _OTHERS and self._stopped is None:
                locked = await batch.receive(_WINDOW, max_wait=_MAX_WAIT)
                if not locked:
                    break
                # One whose lock was lost comes again.
                chosen = [message for message in locked if message.sequence_number in left and self._is_meant(message)]
                others += len(locked) - len(chosen)
                await self._complete(batch.settle, chosen)
                left -= {number for number in left if number in self._outcomes and self._outcomes[number].ok}
        if self._stopped is None:
            self._not_found(left - self._outcomes.keys(), _NOT_GIVEN)

    async def _remove_between(self, numbers: Sequence[int]) -> None:
        # With an archive their bytes are needed, and without one only their locks.
        search = Search(
            frozenset(numbers), bodies=self._archived, expected=self._standing, max_held=_ANY_NUMBER, max_wait=_MAX_WAIT
        )
        async with LockedAhead(lambda: self._batch(AheadBatch), search) as ahead:
            while self._stopped is None and (chosen := await ahead.find()):
                await self._complete(ahead.settle, [message for message in chosen if self._is_meant(message)])
            if ahead.stopped is not None:
                self._stopped = f"Not attempted: {ahead.stopped}"
            self._not_found(ahead.missing, _NOT_GIVEN)

    def _is_meant(self, message: LockedMessage) -> bool:
        """Whether it is not only one with the same number, in an entity that was made anew meanwhile."""
        planned = self._messages[message.sequence_number].enqueued_time
        return None in (planned, message.enqueued_time) or planned == message.enqueued_time

    async def _remove_deferred(self, numbers: Sequence[int]) -> None:
        for start in range(0, len(numbers), _GROUP):
            if self._stopped is None:
                some = numbers[start : start + _GROUP]
                async with self._batch(LockedBatch) as batch:
                    held = await batch.receive_deferred(some)
                    await self._complete(batch.settle, [message for message in held if self._is_meant(message)])
                self._not_found(set(some) - {message.sequence_number for message in held}, _NOT_GIVEN)

    async def _cancel_scheduled(self, numbers: Sequence[int]) -> None:
        if numbers and self._stopped is None:
            chosen = [self._messages[number] for number in numbers]
            plan = plan_cancel_scheduled(self._entity, chosen, archived=self._archived)
            self._end(await plan.apply(self._limits, self._progress))

    async def _complete(self, settle: _Settle, messages: Sequence[LockedMessage]) -> None:
        size = min(_GROUP, self._pace.at_once or _GROUP)
        for start in range(0, len(messages), size):
            group = messages[start : start + size]
            await self._pace.wait(len(group))
            report = Report()
            # An interrupt takes effect between two groups: what was under way has its outcome.
            with anyio.CancelScope(shield=True):
                report = await settle(Complete(), group, max_in_flight=self._limits.max_in_flight)
                self._end(report)
            if self._progress is not None:
                self._progress(len(group))
            if {OutcomeStatus.UNCONFIRMED, OutcomeStatus.SKIPPED} & report.counts.keys():
                self._stopped = "Not attempted: the connection was lost before. Purge again to go on."
                return

    def _batch(self, kind: type[_Batch]) -> _Batch:
        namespace = self._entity.namespace
        return kind(
            namespace.connection,
            self._entity.address,
            renew_for=_RENEW_FOR,
            clock=namespace.clock,
            records=namespace.records(Purge.verb, archived=self._archived),
        )
