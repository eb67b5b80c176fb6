"""Sending a clone of a message and completing the original, so that nothing is lost and nothing is sent twice.

The order is: journal the intent, send the clone, wait for its confirmation, complete the original, journal the end.
A crash leaves either the original alone, or a clone whose id tells that it is one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

import anyio
from azure.core.exceptions import AzureError

from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    Decision,
    LockedMessage,
    MessageState,
    Outcome,
    OutcomeStatus,
    PeekedMessage,
    ReceivedMessage,
    Report,
    Resubmit,
)
from sbnotebook.settlement.actions.clone import ORIGINAL_MESSAGE_ID, clone_of
from sbnotebook.settlement.actions.destination import destinations_of
from sbnotebook.settlement.actions.pick_report import PickReport
from sbnotebook.settlement.actions.resubmit_steps import TOO_OFTEN, ResubmitSteps
from sbnotebook.settlement.locking.ahead import AheadBatch, LockedAhead, Search
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.locking.renewal import SystemClock
from sbnotebook.settlement.pace import Pace
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import Edit, Limits, Plan, refuse_coroutine_function
from sbnotebook.settlement.terms import Progress, outcome_for, outcome_until_now
from sbnotebook.settlement.watch import Tell, reporting, untold

__all__ = ["LOCKED", "ORIGINAL_MESSAGE_ID", "TOO_OFTEN", "Resubmitter", "clone_of", "plan_resubmit"]

LOCKED: Final = "Not attempted: another receiver has its lock. Try again when that has ended."
_RENEW_FOR: Final = timedelta(days=7)
"""Longer than any run."""
_MAX_WAIT: Final = 2.0
"""Seconds to wait until the entity has no more messages."""
_GROUP: Final = 100
"""Messages that are sent and completed together, and not interrupted."""
_GONE: Final = "It is not there any more: it was settled, or it has expired."
_NOT_GIVEN: Final = "Not attempted: the entity did not give it, because it is gone, or another receiver has its lock."
_SCHEDULED: Final = "Not attempted: it is scheduled, and nobody gets it before its time: cancel it instead."
_NOT_BEGUN: Final = "Not attempted: the run was cut off before."


def plan_resubmit(
    place: Place,
    messages: Iterable[ReceivedMessage],
    decision: Resubmit | None = None,
    *,
    edit: Edit | None = None,
    search: Search | None = None,
) -> Plan:
    """Return a plan to send clones of messages that stand here and to complete the originals.

    Args:
        place: the entity that the originals stand in.
        messages: the originals, as they were peeked.
        decision: where to, how much later and how often; by default to the entity itself, at once.
        edit: gives the message to send for each message.
        search: how far to look for them.

    Raises:
        DecisionError: the messages cannot go there.
    """
    decision = replace(decision or Resubmit(), to=(decision.to if decision else None) or place.address.sends_to)
    chosen = tuple(messages)
    strangers = [message for message in chosen if message.entity != place.address]
    if strangers:
        raise DecisionError(
            f"{len(strangers)} of the messages do not stand in {place.address} "
            f"(the first stands in {strangers[0].entity}): resubmit them from where they stand."
        )
    refuse_coroutine_function(edit, "An edit")

    async def carry_out(plan: Plan, limits: Limits, progress: Progress | None) -> Report:
        await place.namespace.require_room(plan.messages)  # before a clone is sent
        return await Resubmitter(place, decision, search=search or Search()).run(plan, limits, progress)

    return Plan(place.address, decision, chosen, carry_out, edit)


@dataclass(slots=True)
class _Held:
    """Where originals are held: the batches of a search, or the one that received them by their numbers."""

    holder: LockedAhead | LockedBatch
    batches: Sequence[LockedBatch]

    async def settle(self, decision: Decision, messages: Sequence[LockedMessage], *, max_in_flight: int) -> Report:
        return await self.holder.settle(decision, messages, max_in_flight=max_in_flight)

    def is_held(self, message: LockedMessage) -> bool:
        return any(batch.holds(message) for batch in self.batches)


_Group = Callable[[_Held, Sequence[LockedMessage]], Awaitable[None]]
"""Resubmits messages that are held."""


@dataclass(slots=True)
class Resubmitter:
    """Finds the originals of a resubmit plan, wherever they stand, and takes them through its steps.

    Args:
        entity: where they stand.
        decision: the plan's; without a destination it is the entity itself, or its topic.
        only_begun: finish what an earlier run has begun, and leave the others alone.
        search: how far is looked for them.
    """

    entity: Place
    decision: Resubmit
    only_begun: bool = False
    search: Search = field(default_factory=Search)
    rest: Report = field(default_factory=Report, init=False)
    """How the others were given back that had to be held."""
    _steps: ResubmitSteps = field(init=False)
    _outcomes: dict[int, Outcome] = field(default_factory=dict[int, Outcome], init=False)
    _begun: set[int] = field(default_factory=set[int], init=False)
    _pace: Pace = field(default_factory=lambda: Pace(None), init=False)
    _tell: Tell = field(default=untold, init=False)

    def __post_init__(self) -> None:
        namespace = self.entity.namespace
        self._steps = ResubmitSteps(
            namespace.host,
            self.entity.address,
            namespace.journal,
            self.decision,
            namespace.pool(self.decision.to or self.entity.address.sends_to),
            destinations_of(namespace),
            namespace.clock or SystemClock(),
            only_begun=self.only_begun,
        )

    async def run(self, plan: Plan, limits: Limits, progress: Progress | None) -> Report:
        """Lock ahead, resubmit what is in the plan, and give the rest back as it was.

        A message whose edit fails is left where it is, with an outcome that says so. Deferred messages are received
        by their numbers.

        Raises:
            azure.servicebus.exceptions.ServiceBusError: the entity or the destination cannot be used; nothing was done.
        """
        self._pace = limits.pace()
        if not self.only_begun:
            async with self._steps.pool.slot():
                pass  # a destination that cannot be sent to is told before anything is locked

        def report() -> PickReport:
            outcomes = (
                self._outcomes.get(message.sequence_number)
                or outcome_until_now(message, self.decision, _NOT_BEGUN, begun=message.sequence_number in self._begun)
                for message in plan.messages
            )
            return PickReport(outcomes, self.rest)

        with reporting(report) as self._tell:
            try:
                await self._run(plan, limits, progress)
            except Exception as error:
                if self._outcomes:
                    error.add_note(f"The messages before it: {Report(self._outcomes.values())}.")
                raise
            finally:
                await self._steps.close()
        return report()

    async def _run(self, plan: Plan, limits: Limits, progress: Progress | None) -> None:
        wanted = {message.sequence_number: message for message in plan.messages}

        async def resubmit(held: _Held, locked: Sequence[LockedMessage]) -> None:
            chosen = [message for message in locked if _is_same(message, wanted[message.sequence_number])]
            group = min(_GROUP, self._pace.at_once or _GROUP)
            for start in range(0, len(chosen), group):
                part = chosen[start : start + group]
                await self._pace.wait(len(part))
                # A group is never left half done: an interrupt takes effect between two of them.
                with anyio.CancelScope(shield=True):
                    self._begun |= {message.sequence_number for message in part}
                    self._note(await self._steps.run(held, part, plan.edit, limits), progress)

        deferred = {number: message for number, message in wanted.items() if message.state is MessageState.DEFERRED}
        # Those that are scheduled never come, and to look for them would lock all others.
        active = {number: message for number, message in wanted.items() if message.state is MessageState.ACTIVE}
        await self._search(active, resubmit)
        left = {number: wanted[number] for number in wanted if number not in self._outcomes and number not in deferred}
        await self._receive(deferred | await self._look_at(left), resubmit)
        for number in wanted.keys() - self._outcomes.keys():
            self._end(wanted[number], OutcomeStatus.SKIPPED, LOCKED)

    async def _search(self, wanted: Mapping[int, ReceivedMessage], resubmit: _Group) -> None:
        """Lock ahead until all of some messages have come."""
        if not wanted:
            return
        batches: list[LockedBatch] = []

        def make_batch() -> AheadBatch:
            namespace = self.entity.namespace
            records = namespace.records(self.decision.verb)
            batch = AheadBatch(
                namespace.connection, self.entity.address, renew_for=_RENEW_FOR, clock=namespace.clock, records=records
            )
            batches.append(batch)
            return batch

        ahead = LockedAhead(make_batch, replace(self.search, wanted=frozenset(wanted), max_wait=_MAX_WAIT))
        try:
            async with ahead:
                while chosen := await ahead.find():
                    await resubmit(_Held(ahead, batches), chosen)
                    # One whose lock was lost after its clone was sent comes again: it is completed, not sent again.
                    ahead.left |= {number for number in self._steps.owed if self._has_lost(number)}
        finally:
            self.rest = ahead.rest
        if ahead.stopped is not None:
            for number in ahead.left - self._outcomes.keys():
                self._end(wanted[number], OutcomeStatus.SKIPPED, f"Not attempted: {ahead.stopped}")

    async def _receive(self, wanted: Mapping[int, ReceivedMessage], resubmit: _Group) -> None:
        """Lock deferred messages by their numbers."""
        numbers = sorted(wanted)
        for start in range(0, len(numbers), _GROUP):
            async with self.entity.batch(renew_for=_RENEW_FOR, verb=self.decision.verb) as batch:
                await resubmit(_Held(batch, [batch]), await batch.receive_deferred(numbers[start : start + _GROUP]))

    async def _look_at(self, wanted: Mapping[int, ReceivedMessage]) -> dict[int, ReceivedMessage]:
        """Tell what became of messages that did not come; those that are deferred now."""
        deferred: dict[int, ReceivedMessage] = {}
        try:
            there = await self.entity.namespace.peeker(self.entity.address).messages_of(wanted)
        except (AzureError, OSError):
            for message in wanted.values():
                self._end(message, OutcomeStatus.SKIPPED, _NOT_GIVEN)
            return deferred
        for number, message in wanted.items():
            found = there.get(number)
            if found is None or not _is_same(found, message):
                self._end(message, OutcomeStatus.NOT_FOUND, _GONE)
            elif found.state is MessageState.DEFERRED:
                deferred[number] = message
            else:
                is_scheduled = found.state is MessageState.SCHEDULED
                self._end(message, OutcomeStatus.SKIPPED, _SCHEDULED if is_scheduled else LOCKED)
        return deferred

    def _has_lost(self, number: int) -> bool:
        outcome = self._outcomes.get(number)
        return outcome is not None and outcome.status is OutcomeStatus.LOCK_LOST

    def _note(self, done: Sequence[Outcome], progress: Progress | None) -> None:
        self._tell(done)
        for outcome in done:
            number = outcome.sequence_number or 0
            if progress is not None and number not in self._outcomes:
                progress(1)
            self._outcomes[number] = outcome

    def _end(self, message: ReceivedMessage, status: OutcomeStatus, why: str) -> None:
        outcome = self._outcomes[message.sequence_number] = outcome_for(message, self.decision, status, why)
        self._tell((outcome,))


def _is_same(message: LockedMessage | PeekedMessage, wanted: ReceivedMessage) -> bool:
    # One that was not read has nothing but its number, and its clone would be empty.
    is_read = message.enqueued_time is not None or message.unreadable is not None
    # A queue that was made anew since they were peeked gives the same numbers to others.
    return is_read and wanted.enqueued_time in (None, message.enqueued_time)
