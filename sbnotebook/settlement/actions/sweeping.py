"""Removing or deferring the messages of a plan, wherever in the entity they stand."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final, Protocol

import anyio
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.errors import SbNotebookError
from sbnotebook.model import (
    Complete,
    Decision,
    LockedMessage,
    MessageState,
    Outcome,
    OutcomeStatus,
    Purge,
    Report,
)
from sbnotebook.settlement.actions.pick_report import PickReport
from sbnotebook.settlement.actions.schedule import plan_cancel_scheduled
from sbnotebook.settlement.connecting.failures import explained
from sbnotebook.settlement.locking.ahead import (
    AheadBatch,
    LockedAhead,
    Search,
    SessionAheadBatch,
    needs_session,
)
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import Limits, Plan
from sbnotebook.settlement.terms import Progress, is_same, outcome_for, outcome_until_now
from sbnotebook.settlement.watch import Tell, reporting, untold

__all__ = ["Sweeping"]

_RENEW_FOR: Final = timedelta(days=7)
"""Longer than any run."""
_WINDOW: Final = 500
"""Messages that are locked at once."""
_OTHERS: Final = 1_000
"""Messages of others that are locked at most, where none stood before the last one that is meant."""
_MAX_WAIT: Final = 2.0
"""Seconds to wait until the entity counts as empty."""
_GROUP: Final = 200
"""Messages that are settled together, and not interrupted."""
_NOT_GIVEN: Final = "The entity gave no such message: it was settled, or is locked by another receiver."


class _Settle(Protocol):
    """Settles messages that are locked."""

    async def __call__(
        self, decision: Decision, messages: Sequence[LockedMessage], *, max_in_flight: int
    ) -> Report: ...


class Sweeping:
    """One plan that is carried out: to purge, or to defer.

    Args:
        entity: where.
        plan: which messages.
        limits: how fast.
        progress: told of every message that is finished.
        standing: active messages up to the last one that is meant.
        archived: whether what is removed is written to the archive first.
    """

    def __init__(
        self,
        entity: Place,
        plan: Plan,
        limits: Limits,
        progress: Progress | None,
        *,
        standing: int,
        archived: bool = True,
    ) -> None:
        self._entity = entity
        self._decision = plan.decision
        self._settlement = Complete() if isinstance(plan.decision, Purge) else plan.decision
        self._messages = {message.sequence_number: message for message in plan.messages}
        self._archived = archived
        self._standing = standing
        self._limits = limits
        self._pace = limits.pace()
        self._progress = progress
        self._outcomes: dict[int, Outcome] = {}
        self._tell: Tell = untold
        self._begun: set[int] = set()
        self._rest = Report()
        self._stopped: str | None = None

    async def run(self) -> Report:
        """Settle the messages; an outcome for each."""
        with reporting(self._report) as self._tell:
            try:
                await self._settle_active(self._in_state(MessageState.ACTIVE))
                await self._wherever(self._in_state(MessageState.DEFERRED), self._settle_deferred)
                await self._cancel_scheduled(self._in_state(MessageState.SCHEDULED))
            except (SbNotebookError, ServiceBusError, OSError, sqlite3.Error) as error:
                if not self._outcomes:
                    raise
                # Some are settled already, and their outcomes must not be lost. What raised did nothing.
                self._begun.clear()
                self._stopped = f"Not attempted: {explained(error)}"
        return self._report()

    def _in_state(self, state: MessageState) -> list[int]:
        return [number for number, message in self._messages.items() if message.state is state]

    def _report(self) -> PickReport:
        why = self._stopped or f"Not attempted: the {self._decision.verb} was cut off before."
        outcomes = (
            self._outcomes.get(number) or outcome_until_now(message, self._decision, why, begun=number in self._begun)
            for number, message in self._messages.items()
        )
        return PickReport(outcomes, self._rest)

    def _end(self, outcomes: Iterable[Outcome]) -> None:
        ends: dict[int, Outcome] = {}
        for outcome in outcomes:
            number = outcome.sequence_number or 0
            if number in self._messages:
                known = self._messages[number].message_id
                ends[number] = replace(outcome, verb=self._decision.verb, message_id=known)
        self._outcomes |= ends
        self._tell(ends.values())

    def _not_found(self, numbers: Iterable[int], why: str) -> None:
        found = OutcomeStatus.NOT_FOUND
        self._end(outcome_for(self._messages[number], self._decision, found, why) for number in numbers)

    async def _settle_active(self, numbers: Sequence[int]) -> None:
        if len(numbers) == self._standing:
            await self._wherever(numbers, self._settle_from_the_head)
        else:
            await self._wherever(numbers, self._settle_between)

    async def _wherever(
        self, numbers: Sequence[int], settle: Callable[[Sequence[int], str | None], Awaitable[None]]
    ) -> None:
        """Settle in the whole entity or, where it requires sessions, in each session that a message is of."""
        if not numbers or self._stopped is not None:
            return
        try:
            await settle(numbers, None)
        except ServiceBusError as error:
            if not needs_session(error):
                raise
            by_session: defaultdict[str | None, list[int]] = defaultdict(list)
            for number in numbers:
                by_session[self._messages[number].session_id].append(number)
            for session_id, mine in by_session.items():
                await self._settle_in_session(mine, session_id, settle)

    async def _settle_in_session(
        self,
        numbers: Sequence[int],
        session_id: str | None,
        settle: Callable[[Sequence[int], str | None], Awaitable[None]],
    ) -> None:
        if self._stopped is None:
            try:
                await settle(numbers, session_id)
            except ServiceBusError as error:  # somebody else holds it, and the others go on
                why = f"Not attempted: {explained(error)}"
                left = [self._messages[number] for number in numbers if number not in self._outcomes]
                self._end(outcome_for(message, self._decision, OutcomeStatus.SKIPPED, why) for message in left)

    async def _settle_from_the_head(self, numbers: Sequence[int], session_id: str | None) -> None:
        """Settle messages as they come; nothing else stood between them when the plan was made."""
        left = set(numbers)
        others = 0
        async with self._batch(session_id) as batch:
            while left and others < _OTHERS and self._stopped is None:
                locked = await batch.receive(_WINDOW, max_wait=_MAX_WAIT)
                if not locked:
                    break
                # One whose lock was lost comes again.
                chosen = [message for message in locked if message.sequence_number in left and self._is_meant(message)]
                others += len(locked) - len(chosen)
                await self._settle(batch.settle, chosen)
                for number in (message.sequence_number for message in chosen):
                    if number in self._outcomes and self._outcomes[number].ok:
                        left.discard(number)
        if self._stopped is None:
            self._not_found(left - self._outcomes.keys(), _NOT_GIVEN)

    async def _settle_between(self, numbers: Sequence[int], session_id: str | None) -> None:
        search = Search(frozenset(numbers), expected=self._standing, max_wait=_MAX_WAIT)
        if session_id is not None:  # it is held over one link
            search = replace(search, expected=0, per_link=search.max_held)
        ahead = LockedAhead(lambda: self._batch(session_id), search)
        try:
            async with ahead:
                while self._stopped is None and (chosen := await ahead.find()):
                    meant = [message for message in chosen if self._is_meant(message)]
                    await self._settle(ahead.settle, meant)
                    others = {m.sequence_number for m in chosen} - {m.sequence_number for m in meant}
                    self._not_found(others, _NOT_GIVEN)
                if ahead.stopped is not None:
                    self._stopped = f"Not attempted: {ahead.stopped}"
                self._not_found(ahead.missing, _NOT_GIVEN)
        finally:
            self._rest += ahead.rest

    def _is_meant(self, message: LockedMessage) -> bool:
        """Whether it is not only one with the same number, in an entity that was made anew meanwhile."""
        return is_same(message, self._messages[message.sequence_number])

    async def _settle_deferred(self, numbers: Sequence[int], session_id: str | None) -> None:
        for start in range(0, len(numbers), _GROUP):
            if self._stopped is None:
                some = numbers[start : start + _GROUP]
                async with self._batch(session_id) as batch:
                    held = [message for message in await batch.receive_deferred(some) if self._is_meant(message)]
                    await self._settle(batch.settle, held)
                self._not_found(set(some) - {message.sequence_number for message in held}, _NOT_GIVEN)

    async def _cancel_scheduled(self, numbers: Sequence[int]) -> None:
        # In groups: what was cancelled has its outcome whatever ends the run after it.
        limits = Limits(self._limits.max_in_flight)
        size = min(limits.max_in_flight, self._pace.at_once or limits.max_in_flight)
        for start in range(0, len(numbers), size):
            if self._stopped is None:
                chosen = [self._messages[number] for number in numbers[start : start + size]]
                await self._pace.wait(len(chosen))
                plan = plan_cancel_scheduled(self._entity, chosen, archived=self._archived)
                self._end(await plan.apply(limits, self._progress))

    async def _settle(self, settle: _Settle, messages: Sequence[LockedMessage]) -> None:
        size = min(_GROUP, self._pace.at_once or _GROUP)
        for start in range(0, len(messages), size):
            group = messages[start : start + size]
            await self._pace.wait(len(group))
            report = Report()
            # An interrupt takes effect between two groups: what was under way has its outcome.
            with anyio.CancelScope(shield=True):
                self._begun |= {message.sequence_number for message in group}
                report = await settle(self._settlement, group, max_in_flight=self._limits.max_in_flight)
                self._end(report)
            if self._progress is not None:
                self._progress(len(group))
            if {OutcomeStatus.UNCONFIRMED, OutcomeStatus.SKIPPED} & report.counts.keys():
                self._stopped = (
                    f"Not attempted: the connection was lost before. {self._decision.verb.capitalize()} again to go on."
                )
                return

    def _batch(self, session_id: str | None) -> AheadBatch:
        namespace = self._entity.namespace
        place = namespace.connection, self._entity.address
        records = namespace.records(self._decision.verb, archived=self._archived)
        if session_id is None:
            return AheadBatch(*place, renew_for=_RENEW_FOR, clock=namespace.clock, records=records)
        return SessionAheadBatch(*place, session_id, renew_for=_RENEW_FOR, clock=namespace.clock, records=records)
