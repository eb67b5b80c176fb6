"""Deferred messages, which the service gives by their sequence numbers only: found, locked and settled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

import anyio
import anyio.to_thread

from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    DeadLetter,
    Decision,
    EntityAddress,
    LockedMessage,
    MessageState,
    Outcome,
    OutcomeStatus,
    PeekedMessage,
    ReceivedMessage,
    SettleEach,
)
from sbnotebook.model.message import time_text
from sbnotebook.settlement.actions.reach import Holder, Reach, Steps, settling
from sbnotebook.settlement.costs import Cost
from sbnotebook.settlement.engine import Run
from sbnotebook.settlement.memory.deferral_ledger import DeferralEntry
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import Plan
from sbnotebook.settlement.terms import Progress, check_decision, outcome_for


class Standing(StrEnum):
    KNOWN = "known"
    """Both have it."""
    ORPHAN = "orphan"
    """The entity has it and this journal does not: another machine deferred it, or the journal was lost."""
    GONE = "gone"
    """The journal has it and the entity has it no more: it was settled elsewhere, has expired, or its deferral was
    not done."""


class _Enqueued(Protocol):
    @property
    def enqueued_time(self) -> datetime | None: ...


D = TypeVar("D", bound=_Enqueued)


@dataclass(frozen=True, slots=True)
class Deferrals(Generic[D]):
    """The deferred messages of an entity.

    Args:
        entity: which one.
        messages: the messages that are deferred there now, or what stands for them, by number.
        entries: what the journal has of the entity, by number.
    """

    entity: EntityAddress
    messages: Mapping[int, D]
    entries: Mapping[int, DeferralEntry]

    def standing(self, sequence_number: int) -> Standing | None:
        """Return the record of a message; None if it is deferred neither in the journal nor in the entity."""
        if sequence_number in self.messages:
            return Standing.KNOWN if sequence_number in self.entries else Standing.ORPHAN
        return Standing.GONE if sequence_number in self.entries else None

    @property
    def orphans(self) -> tuple[D, ...]:
        """Deferred messages that the journal does not have."""
        return tuple(message for number, message in self.messages.items() if number not in self.entries)

    @property
    def gone(self) -> tuple[DeferralEntry, ...]:
        """Return the entries of the journal whose messages are not deferred in the entity."""
        return tuple(entry for number, entry in self.entries.items() if number not in self.messages)

    def __str__(self) -> str:
        known = len(self.messages) - len(self.orphans)
        return (
            f"{len(self.messages):,} deferred in {self.entity}: {known:,} in the journal, "
            f"{len(self.orphans):,} orphans; {len(self.gone):,} in the journal only"
        )


async def find_deferred(place: Place, progress: Progress | None = None) -> Deferrals[PeekedMessage]:
    """Compare the journal with the entity, which is peeked to its end."""

    async def look() -> dict[int, PeekedMessage]:
        found: dict[int, PeekedMessage] = {}
        async for page in place.pages():
            found |= {message.sequence_number: message for message in page if message.state is MessageState.DEFERRED}
            if progress is not None:
                progress(len(page))
        return found

    return await compare_deferrals(place, look)


async def compare_deferrals(place: Place, look: Callable[[], Awaitable[Mapping[int, D]]]) -> Deferrals[D]:
    """Compare the journal with the messages that are deferred in an entity.

    Args:
        place: the entity.
        look: finds the messages that are deferred there now, by number; the journal is read before and after it.
    """
    ledger, entity = place.namespace.deferral_ledger, place.address
    # A message that is deferred or settled meanwhile must not look as if it were gone.
    before = await anyio.to_thread.run_sync(ledger.entries, entity)
    messages = await look()
    after = before
    if before.keys() != messages.keys():
        after = await anyio.to_thread.run_sync(ledger.entries, entity)
    gone = {number: entry for number, entry in before.items() if number in after and number not in messages}
    known = {
        number: entry
        for number, entry in (before | after).items()
        # Another enqueued time: it is of an earlier entity with the same name.
        if number in messages and entry.enqueued_time == time_text(messages[number].enqueued_time)
    }
    return Deferrals(entity, messages, known | gone)


def plan_deferred(place: Place, messages: Iterable[ReceivedMessage], decision: Decision) -> Plan:
    check_decision(decision, place.address, deferred=True)
    chosen = tuple(messages)
    others = [m for m in chosen if m.entity != place.address or m.state is not MessageState.DEFERRED]
    if others:
        raise DecisionError(
            f"{len(others):,} of the messages are not deferred in {place.address} "
            f"(the first is #{others[0].sequence_number}): choose from its deferred messages."
        )
    return _plan(place, chosen, decision)


def plan_deferred_each(
    place: Place, decisions: Mapping[int, Decision], *, archived: bool = True, journalled: bool = True
) -> Plan:
    """Return a plan to settle deferred messages of which only the numbers are known, each as it was decided."""
    for decision in set(decisions.values()):
        check_decision(decision, place.address, deferred=True)
    state = MessageState.DEFERRED
    messages = tuple(PeekedMessage(entity=place.address, sequence_number=number, state=state) for number in decisions)
    return _plan(place, messages, SettleEach(decisions), archived=archived, journalled=journalled)


def _plan(
    place: Place,
    messages: tuple[ReceivedMessage, ...],
    decision: Decision,
    *,
    archived: bool = True,
    journalled: bool = True,
) -> Plan:
    async def work(run: Run) -> None:
        steps = _settling(run, decision)
        reach = Reach(place, run, steps, decision, archived=archived, journalled=journalled)
        await reach.deferred(run.messages)

    return place.new_plan(decision, messages, work, cost=Cost())


def _settling(run: Run, decision: Decision) -> Steps:
    if not isinstance(decision, SettleEach):
        return settling(run, decision)
    decided = decision.decisions

    async def steps(holder: Holder, messages: Sequence[LockedMessage]) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        alike: defaultdict[str, list[LockedMessage]] = defaultdict(list)
        for message in messages:
            alike[decided[message.sequence_number].verb].append(message)
        for mine in alike.values():
            # Dead letters may each have a reason of their own; one request settles those of one reason only.
            first = decided[mine[0].sequence_number]
            own = {m.sequence_number: d for m in mine if isinstance(d := decided[m.sequence_number], DeadLetter)}
            each = own if len(set(own.values())) > 1 else None
            report = await holder.settle_group(run, first, mine, each=each)
            run.expect(mine, report)
            outcomes |= {message.sequence_number: end for message, end in zip(mine, report, strict=True)}
            if run.stopped is not None:
                break
        return [
            outcomes.get(m.sequence_number)
            or outcome_for(m, decided[m.sequence_number], OutcomeStatus.SKIPPED, run.stopped)
            for m in messages
        ]

    return steps
