"""Deferred messages, which the service gives by their sequence numbers only: found, locked and settled."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
from azure.servicebus.exceptions import (
    ServiceBusError,
)

from sbnotebook.errors import DecisionError, SbNotebookError
from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    Decision,
    EntityAddress,
    LockedMessage,
    MessageState,
    Outcome,
    OutcomeStatus,
    PeekedMessage,
    ReceivedMessage,
    Report,
)
from sbnotebook.settlement.connecting.failures import explained
from sbnotebook.settlement.memory.deferral_ledger import DeferralEntry, DeferralLedger, time_text
from sbnotebook.settlement.plan import Limits, Plan
from sbnotebook.settlement.terms import Progress, check_decision, is_same, outcome_for, outcome_until_now
from sbnotebook.settlement.watch import Tell, reporting, untold

if TYPE_CHECKING:
    from sbnotebook.settlement.locking.lock import LockedBatch

__all__ = [
    "Deferrals",
    "Standing",
    "check_decision_of_deferred",
    "compared",
    "plan_of_deferred",
    "settle_deferred",
]

_GROUP: Final = 200
"""Messages that are locked and settled together, and not interrupted."""
_NOT_BEGUN: Final = "Not attempted: the run was cut off before."
_NOT_HAD: Final = "It is not deferred there any more, or another receiver holds it."


class Standing(StrEnum):
    """What the journal and the entity say of a deferred message."""

    KNOWN = "known"
    """Both have it."""
    ORPHAN = "orphan"
    """The entity has it and this journal does not: somebody else deferred it, or the journal was lost."""
    GONE = "gone"
    """The journal has it and the entity has it no more: it was settled elsewhere, has expired, or its deferral was
    not done."""


@dataclass(frozen=True, slots=True)
class Deferrals:
    """The deferred messages of an entity.

    Args:
        entity: which one.
        messages: the messages that are deferred there now, by number.
        entries: what the journal has of the entity, by number.
    """

    entity: EntityAddress
    messages: Mapping[int, PeekedMessage]
    entries: Mapping[int, DeferralEntry]

    def standing(self, sequence_number: int) -> Standing | None:
        """What is known of a message; None when nobody says that it is deferred."""
        if sequence_number in self.messages:
            return Standing.KNOWN if sequence_number in self.entries else Standing.ORPHAN
        return Standing.GONE if sequence_number in self.entries else None

    @property
    def orphans(self) -> tuple[PeekedMessage, ...]:
        """Deferred messages that the journal does not have."""
        return tuple(message for number, message in self.messages.items() if number not in self.entries)

    @property
    def gone(self) -> tuple[DeferralEntry, ...]:
        """Entries of the journal whose messages are not deferred in the entity."""
        return tuple(entry for number, entry in self.entries.items() if number not in self.messages)

    def __str__(self) -> str:
        known = len(self.messages) - len(self.orphans)
        return (
            f"{len(self.messages):,} deferred in {self.entity}: {known:,} in the journal, "
            f"{len(self.orphans):,} orphans; {len(self.gone):,} in the journal only"
        )


async def compared(
    ledger: DeferralLedger,
    entity: EntityAddress,
    pages: AsyncIterable[list[PeekedMessage]],
    progress: Progress | None = None,
) -> Deferrals:
    """Compare the journal with the entity.

    Args:
        ledger: the journal's table.
        entity: which one.
        pages: the messages that are there, as they were peeked.
        progress: told of every message that was looked at.
    """
    # What is deferred or settled meanwhile must not look as if it were gone.
    before = await anyio.to_thread.run_sync(ledger.entries, entity)
    messages: dict[int, PeekedMessage] = {}
    async for page in pages:
        messages |= {message.sequence_number: message for message in page if message.state is MessageState.DEFERRED}
        if progress is not None:
            progress(len(page))
    after = await anyio.to_thread.run_sync(ledger.entries, entity)
    gone = {number: entry for number, entry in before.items() if number in after and number not in messages}
    known = {
        number: entry
        for number, entry in (before | after).items()
        # Another enqueued time: it is of an earlier entity with the same name.
        if number in messages and entry.enqueued_time == time_text(messages[number].enqueued_time)
    }
    return Deferrals(entity, messages, known | gone)


def plan_of_deferred(
    entity: EntityAddress,
    messages: tuple[ReceivedMessage, ...],
    decision: Decision,
    batch_for: Callable[..., LockedBatch],
) -> Plan:
    """A plan to settle deferred messages: see :meth:`sbnotebook.settlement.entity.Place.plan_deferred`.

    Args:
        entity: where they stand.
        messages: which ones.
        decision: what is to be done.
        batch_for: makes an empty batch of the entity; told ``verb``.
    """
    check_decision_of_deferred(decision, entity)
    others = [m for m in messages if m.entity != entity or m.state is not MessageState.DEFERRED]
    if others:
        raise DecisionError(
            f"{len(others):,} of the messages are not deferred in {entity} "
            f"(the first is #{others[0].sequence_number}): choose from what is deferred there."
        )

    async def carry_out(plan: Plan, limits: Limits, progress: Progress | None) -> Report:
        decisions = {message.sequence_number: plan.decision for message in plan.messages}
        return await _Settling(plan.messages, decisions, batch_for(verb=decision.verb), limits, progress).run()

    return Plan(entity, decision, messages, carry_out)


async def settle_deferred(
    batch: LockedBatch, decisions: Mapping[int, Decision], limits: Limits, progress: Progress | None = None
) -> Report:
    """Settle deferred messages of which only the numbers are known, each as it was decided.

    Args:
        batch: an empty batch of the entity, not open yet.
        decisions: complete, dead-letter or abandon, by sequence number.
        limits: how fast.
        progress: told of every message that is finished.

    Returns:
        An outcome for each, in the order of the decisions.

    Raises:
        DecisionError: a decision is not possible there; nothing was done.
    """
    for decision in set(decisions.values()):
        check_decision_of_deferred(decision, batch.address)
    state = MessageState.DEFERRED
    messages = [PeekedMessage(entity=batch.address, sequence_number=number, state=state) for number in decisions]
    return await _Settling(messages, decisions, batch, limits, progress).run()


def check_decision_of_deferred(decision: Decision, entity: EntityAddress) -> None:
    """Refuse a decision that is not possible for deferred messages.

    Raises:
        DecisionError: says what to do instead.
    """
    if not isinstance(decision, Complete | DeadLetter | Abandon):
        raise DecisionError(
            f"To {decision.verb} deferred messages is not possible: complete, dead-letter, abandon or resubmit them."
        )
    check_decision(decision, entity)


@dataclass(slots=True)
class _Settling:
    """Decisions on deferred messages that are carried out."""

    messages: Sequence[ReceivedMessage]
    decisions: Mapping[int, Decision]
    batch: LockedBatch
    limits: Limits
    progress: Progress | None
    ends: dict[int, Outcome] = field(default_factory=dict[int, Outcome])
    begun: set[int] = field(default_factory=set[int])
    stopped: str = _NOT_BEGUN
    tell: Tell = untold

    async def run(self) -> Report:
        """Settle the messages, group by group; an outcome for each."""
        pace = self.limits.pace()
        size = min(_GROUP, pace.at_once or _GROUP)
        with reporting(self._report) as self.tell:
            try:
                async with self.batch:
                    for start in range(0, len(self.messages), size):
                        some = self.messages[start : start + size]
                        await pace.wait(len(some))
                        await self._settle({message.sequence_number: message for message in some})
            except (SbNotebookError, ServiceBusError, OSError, sqlite3.Error) as error:
                if not self.ends:
                    raise
                # Some are settled already, and their outcomes must not be lost. What raised did nothing.
                self.begun.clear()
                self.stopped = f"Not attempted: {explained(error)}"
        return self._report()

    async def _settle(self, some: Mapping[int, ReceivedMessage]) -> None:
        locked: dict[str, list[LockedMessage]] = {}
        for message in await self.batch.receive_deferred(some):
            if is_same(message, some[message.sequence_number]):
                locked.setdefault(self.decisions[message.sequence_number].verb, []).append(message)
        # An interrupt takes effect between two groups: what was under way has its outcome.
        with anyio.CancelScope(shield=True):
            for mine in locked.values():
                self.begun |= {message.sequence_number for message in mine}
                self._note(await self._settle_alike(mine))
        absent = [some[number] for number in some.keys() - self.ends.keys()]
        self._note(
            outcome_for(message, self.decisions[message.sequence_number], OutcomeStatus.NOT_FOUND, _NOT_HAD)
            for message in absent
        )

    async def _settle_alike(self, locked: Sequence[LockedMessage]) -> Report:
        """Settle messages of which all are to be completed, or dead-lettered, or abandoned."""
        decisions = {message.sequence_number: self.decisions[message.sequence_number] for message in locked}
        own = {number: each for number, each in decisions.items() if isinstance(each, DeadLetter)}
        return await self.batch.settle(
            decisions[locked[0].sequence_number],
            locked,
            each=own if len(set(own.values())) > 1 else None,
            max_in_flight=self.limits.max_in_flight,
            progress=self.progress,
        )

    def _note(self, outcomes: Iterable[Outcome]) -> None:
        known = {outcome.sequence_number or 0: outcome for outcome in outcomes}
        self.ends |= known
        self.tell(known.values())

    def _report(self) -> Report:
        return Report(self.ends.get(message.sequence_number) or self._until_now(message) for message in self.messages)

    def _until_now(self, message: ReceivedMessage) -> Outcome:
        number = message.sequence_number
        return outcome_until_now(message, self.decisions[number], self.stopped, begun=number in self.begun)
