"""The one loop of every action: groups, pace, pause, progress, interrupts, errors, and the report.

An action says which messages it looks at and which steps a group of them takes. All else is here, so that every action
ends in the same way: an interrupt takes effect between two groups, and an error that ends the run leaves an outcome
for each message.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, KeysView, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, count
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import anyio
import anyio.lowlevel
from azure.core.exceptions import AzureError

from sbnotebook.errors import SbNotebookError
from sbnotebook.model import (
    CancelScheduled,
    Complete,
    Decision,
    Fate,
    Outcome,
    OutcomeStatus,
    ReceivedMessage,
    Report,
    Send,
)
from sbnotebook.model.decision import AUTO
from sbnotebook.settlement.connecting.failures import explained
from sbnotebook.settlement.interrupts import Grace, OutcomeListener, Watch, in_flight, reporting
from sbnotebook.settlement.pace import Pace
from sbnotebook.settlement.plan import Limits, Progress, RampStep, outcome_for

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

GROUP: Final = 200
"""Messages that take their steps together, at most."""
BESIDE: Final = 4
"""The most groups of a run in progress at once. While one waits for the network, another is recorded."""
ENDS_A_RUN: Final = (SbNotebookError, AzureError, OSError, sqlite3.Error)
"""The errors that end a run: a refusal, the service, the network, and the files of the journal and the archive."""
FINISH_WITHIN: Final = 10.0
"""Seconds that requests for many messages get to end when the run is interrupted."""
_VERBS_OF_STEPS: Final = frozenset({CancelScheduled.verb, Complete.verb, Send.verb})
"""What actions of other names do with their messages."""

M = TypeVar("M", bound=ReceivedMessage)
_Steps: TypeAlias = Callable[[Sequence[M]], Awaitable[None]]
"""Takes a group through its steps, and lets the run expect the outcome of each message that it attempts."""


class RunReport(Report):
    """The outcomes of a plan, and what else happened on the way.

    Args:
        outcomes: of the messages, in their order; SKIPPED where they were not attempted.
        rest: how other messages were given back, which were locked on the way.
        way: how the plan was carried out where there is something to say, in a clause.
        fates: of the clones that a ramp sent in batches, as they were seen last.
        steps: the batches of a ramp, in their order.
        stopped: why the run began no more messages, in a sentence; None where it came to its end.
    """

    def __init__(
        self,
        outcomes: Iterable[Outcome],
        rest: Report | None = None,
        way: str = "",
        *,
        fates: Iterable[Fate] = (),
        steps: Iterable[RampStep] = (),
        stopped: str | None = None,
    ) -> None:
        super().__init__(outcomes)
        self.rest = rest or Report()
        self.way = way
        self.fates = tuple(fates)
        self.steps = tuple(steps)
        self.stopped = stopped

    def __str__(self) -> str:
        settled, unknown = self.rest.settled, self.rest.counts.get(OutcomeStatus.UNCONFIRMED, 0)
        kept = len(self.rest) - settled - unknown
        said = {
            f"{_others(settled)} released unchanged": settled,
            f"{_others(unknown)} released without confirmation": unknown,
            f"{_others(kept)} not released: their delivery counts go up when their locks end": kept,
        }
        ends = ", ".join(sentence for sentence, count in said.items() if count)
        return "; ".join(filter(None, (super().__str__(), ends, self.way)))


def _others(count: int) -> str:
    return "1 other" if count == 1 else f"{count:,} others"


class Run:
    """The state of a plan while it is carried out: the outcome of each message, and the ways the run may end."""

    def __init__(
        self,
        messages: Sequence[ReceivedMessage],
        decision: Decision,
        limits: Limits,
        progress: Progress | None = None,
        decisions: Mapping[int, Decision] | None = None,
    ) -> None:
        self.limits = limits
        self.stopped: str | None = None
        """The reason why the run begins no more messages, in a sentence; None while it continues."""
        self.rest = Report()
        """The outcomes of giving back the messages that were locked only to reach others."""
        self.fates: dict[str, Fate] = {}
        self.steps: list[RampStep] = []
        """The batches of a ramp, and the fates of their clones by message id."""
        self.way: Callable[[], str] = str
        """Gives what the report says of the way in which the run was carried out."""
        self.others: Callable[[], Iterable[Outcome]] = tuple
        """Gives the outcomes of messages that Service Bus only counts; the report has them before the others."""
        self.decision = decision
        self._decisions = decisions or {}
        """Those of messages that have one of their own, by sequence number."""
        self.progress = progress
        self.pace = Pace(limits.rate, limits.pause)
        self._tell: OutcomeListener = Watch().tell
        self._outcomes: dict[int, Outcome] = {}
        self._told: dict[int, Outcome] = {}
        self._begun: set[int] = set()
        self.grace = Grace(self._interrupt)
        self._tasks: TaskGroup | None = None
        self._under_way: list[KeysView[int]] = []
        self._ended = anyio.Event()
        self._error: Exception | None = None
        self.begin_with(messages)

    def begin_with(self, messages: Sequence[ReceivedMessage]) -> None:
        """Take up the messages of the run, of which none has an outcome yet."""
        self.messages = messages
        places = [*range(len(messages))]  # each number once in memory
        self._by_identity = dict(zip(map(id, messages), places, strict=True))
        # A message known only by its number is replaced by the message in the entity.
        in_order = sorted(places, key=lambda place: messages[place].enqueued_time is not None)
        self._by_number = {messages[place].sequence_number: place for place in in_order}

    # ---------------------------------------------------------------- for the action

    async def take(
        self,
        messages: Sequence[M],
        steps: _Steps[M],
        *,
        size: int = GROUP,
        finish_within: float = math.inf,
        beside: int = 0,
    ) -> None:
        size = self.group_size(size)
        if self.limits.max_in_flight != AUTO:
            beside = min(beside, 1)
        for start in range(0, len(messages), size):
            group = messages[start : start + size]
            positions = dict.fromkeys(map(self._position, group)).keys()
            # A message that comes again, because its lock was lost, has its first outcome before its second.
            comes_again = not all(map(positions.isdisjoint, self._under_way))
            await self._wait_for_room(1 if comes_again else max(beside, 1))
            if self.stopped is None:
                await self.pace.wait(len(group))
                # Meanwhile a group beside may have failed, or the run may have been interrupted.
                if self._error is not None:
                    await self.finish()
                await anyio.lowlevel.checkpoint_if_cancelled()
            if self.stopped is not None:
                return
            settle = partial(self._settle, group, positions, steps, finish_within)
            if beside and self._tasks is not None:
                self._under_way.append(positions)
                self._tasks.start_soon(self._beside, settle, positions)
            else:
                await settle()

    def group_size(self, size: int = GROUP) -> int:
        """Return how many messages a group has where it may have ``size``: with a rate, no more than a second's."""
        return min(size, self.pace.at_once or size)

    async def finish(self) -> None:
        """Wait until no group is in progress, and raise the error of one that failed."""
        with anyio.CancelScope(shield=True):
            while self._under_way:
                await self._ended.wait()
        error, self._error = self._error, None
        if error is not None:
            raise error
        await anyio.lowlevel.checkpoint_if_cancelled()

    @asynccontextmanager
    async def ending_groups(self) -> AsyncGenerator[None]:
        """Let the groups that begin in the block end before what holds their messages is closed."""
        try:
            yield
        finally:
            await self.finish()

    async def _wait_for_room(self, most: int) -> None:
        """Wait until fewer groups are in progress; when all have ended, raise the error of an earlier one."""
        with anyio.CancelScope(shield=True):
            while len(self._under_way) >= most and self._error is None:
                await self._ended.wait()
        if self._error is not None:
            await self.finish()

    def end(self, messages: Iterable[ReceivedMessage], status: OutcomeStatus, why: str) -> None:
        """Give messages an outcome that the service did not give."""
        self._tell_of(self.expect_end(messages, status, why))

    def note(self, messages: Iterable[ReceivedMessage], outcomes: Iterable[Outcome]) -> None:
        self._tell_of(self.expect(messages, outcomes))

    def _tell_of(self, positions: Iterable[int]) -> None:
        known, told = self._outcomes, self._told
        new = {place: known[place] for place in positions if place in known and known[place] != told.get(place)}
        fresh = sum(place not in told for place in new)
        self._told |= new
        self.tell([*new.values()], fresh)

    def tell(self, outcomes: Sequence[Outcome], count: int) -> None:
        """Tell watchers of new outcomes, some of which are the first of their messages."""
        if outcomes:
            self._tell(outcomes)
        if self.progress is not None and count:
            self.progress(count)

    def expect(self, messages: Iterable[ReceivedMessage], outcomes: Iterable[Outcome]) -> Iterable[int]:
        """Note the outcomes to report for messages if their steps end here; return the places of the messages."""
        places = map(self._position, messages)
        known = {place: self._of_plan(self.messages[place], end) for place, end in zip(places, outcomes, strict=True)}
        self._outcomes |= known
        return known

    def expect_end(
        self, messages: Iterable[ReceivedMessage], status: OutcomeStatus, why: str | None = None
    ) -> Iterable[int]:
        """Note what to report of messages if their steps end here, and Service Bus does not say it."""
        ended = list(messages)
        return self.expect(ended, [outcome_for(message, self.decision_of(message), status, why) for message in ended])

    @contextmanager
    def waiting(self, messages: Iterable[ReceivedMessage]) -> Generator[None]:
        """Report messages of a group as not attempted if the run ends in the block, in which they wait for others."""
        positions = set(map(self._position, messages))
        self._begun -= positions
        yield
        self._begun |= positions

    def stop(self, why: str) -> None:
        self.stopped = self.stopped or f"{why} {self.decision.verb.capitalize()} again to continue."

    def _interrupt(self) -> None:
        self.stopped = self.stopped or f"Not attempted: the {self.decision.verb} was interrupted before."

    def decision_of(self, message: ReceivedMessage) -> Decision:
        return self._decisions.get(message.sequence_number, self.decision)

    def outcome_of(self, message: ReceivedMessage) -> Outcome | None:
        return self._outcomes.get(self._position(message))

    def without_outcome(self) -> list[ReceivedMessage]:
        return [message for position, message in enumerate(self.messages) if position not in self._outcomes]

    # ---------------------------------------------------------------- for the loop

    def report(self) -> Report:
        """Return the outcomes known now: UNCONFIRMED for messages in progress, SKIPPED for messages not begun."""
        outcomes = chain(self.others(), map(self._known, count(), self.messages))
        fates = self.fates.values()
        return RunReport(outcomes, self.rest, self.way(), fates=fates, steps=self.steps, stopped=self.stopped)

    async def carry_out(self, look: Callable[[Run], Awaitable[None]]) -> Report:
        """Carry an action out."""
        start = anyio.current_time()
        with reporting(self.report) as self._tell:
            async with self.grace.watching() as self._tasks:
                try:
                    async with self.ending_groups():
                        await look(self)
                except ENDS_A_RUN as error:
                    self.stopped = self.stopped or f"Not attempted: {explained(error)}"
                    self._begun.clear()  # steps that raised have noted the outcomes of what they attempted
                    if not self._outcomes:  # earlier ones must not be hidden
                        raise
            return self.report().timed(anyio.current_time() - start, in_flight().most)

    async def _beside(self, settle: Callable[[], Awaitable[None]], positions: KeysView[int]) -> None:
        try:
            await settle()
        except Exception as error:  # noqa: BLE001 (raised where the action continues)
            self._error = self._error or error
        finally:
            self._under_way.remove(positions)  # an equal one of another group does as well
            self._ended.set()
            self._ended = anyio.Event()

    async def _settle(
        self, group: Sequence[M], positions: KeysView[int], steps: _Steps[M], finish_within: float
    ) -> None:
        # A group is not left half done: an interrupt takes effect between two groups.
        with self.grace.period(finish_within):
            self._begun |= positions
            await steps(group)
            self._begun -= positions
            self._tell_of(positions)
        await anyio.lowlevel.checkpoint_if_cancelled()

    def _of_plan(self, message: ReceivedMessage, outcome: Outcome) -> Outcome:
        # Steps settle, send or delete; the report tells of the action, and of the message as the plan knows it.
        # A plan by sequence numbers does not know the ids, nor when messages were enqueued.
        message_id = outcome.message_id if message.enqueued_time is None else message.message_id
        # A message that was resubmitted too often is dead-lettered, and its outcome says so.
        verb = self.decision_of(message).verb if outcome.verb in _VERBS_OF_STEPS else outcome.verb
        number, entity = message.sequence_number, message.entity
        if (verb, message_id, number, entity) == (
            outcome.verb,
            outcome.message_id,
            outcome.sequence_number,
            outcome.entity,
        ):
            return outcome
        return replace(outcome, verb=verb, message_id=message_id, sequence_number=number, entity=entity)

    def _known(self, position: int, message: ReceivedMessage) -> Outcome:
        known = self._outcomes.get(position)
        if known is not None:
            return known
        decision = self.decision_of(message)
        if position in self._begun:
            why = "It was in progress when it was interrupted, and may be done or not."
            return outcome_for(message, decision, OutcomeStatus.UNCONFIRMED, why)
        why = self.stopped or f"Not attempted: the {self.decision.verb} was interrupted before."
        return outcome_for(message, decision, OutcomeStatus.SKIPPED, why)

    def _position(self, message: ReceivedMessage) -> int:
        position = self._by_identity.get(id(message))
        return self._by_number[message.sequence_number] if position is None else position
