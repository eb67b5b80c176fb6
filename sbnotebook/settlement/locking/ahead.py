"""Locking an entity from its head until chosen messages have come, while all others are held and then given back.

Service Bus gives the messages of a queue in their order, and none from the middle. To reach a message, lock all
messages before it. To leave the others unchanged, hold them until the end and then release them: a message given back
at once would come again next, and only a release does not raise the delivery count.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import anyio
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.errors import DecisionError
from sbnotebook.model import Abandon, LockedMessage, Outcome, OutcomeStatus, Release, Report
from sbnotebook.model.message import partition_of
from sbnotebook.settlement.connecting.failures import explained
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.plan import Progress
from sbnotebook.settlement.requests import alike

DEFAULT_MAX_HELD: Final = 50_000
"""Messages held at once at most; each takes about a kilobyte here, and is renewed at least twice a lock."""
_CHUNK: Final = 3_000
"""Messages asked for at once."""
_SLACK: Final = 100
"""A message is missing after this many later ones have arrived: the order is not exact if others give messages back."""
_WITH_BODY: Final = 600
"""Chosen messages, which have their bodies, that are asked for at once."""
_BODIES: Final = 32_000_000
"""Bytes of bodies that are asked for at once, by the largest that has come so far."""


@dataclass(frozen=True, slots=True)
class Search:
    wanted: frozenset[int] = frozenset()
    bodies: bool = True
    expected: int = 0
    max_held: int = DEFAULT_MAX_HELD
    max_wait: float = 5.0
    abandon_rest: bool = False
    limit: str = "max_held"

    def __post_init__(self) -> None:
        if self.max_held < 1:
            raise DecisionError("max_held is 1 or more.")


class LockedAhead:
    """Locks ahead in order, gives out chosen messages, and releases the others at its end."""

    def __init__(self, batch: LockedBatch, search: Search, *, progress: Progress | None = None) -> None:
        self.batch = batch
        """Holds all of them, and settles the chosen ones."""
        self.left = set(search.wanted)
        """Chosen messages that have not come yet. Put one back that is wanted once more, when its lock was lost."""
        self.missing: set[int] = set()
        """Chosen messages that do not come: those behind them have."""
        self.stopped: str | None = None
        """Why the search was cut short, in a sentence; None when it was not."""
        self.rest = Report()
        """The outcomes of giving back the others, once the search has ended."""
        self._search = search
        self._progress = progress
        self._seen: set[int] = set()
        self._lost: set[int] = set()
        """Others whose locks were lost."""
        self._early: dict[int, LockedMessage] = {}
        """Chosen messages that came again before :attr:`left` had them once more."""
        self._behind: dict[int, int] = {}
        self._reached = 0
        self._largest = 1

    async def __aenter__(self) -> Self:
        """Open nothing yet: the first search does, or :meth:`LockedBatch.begin_opening` before it."""
        await self.batch.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # An interrupt ends the body first: it may have to settle what it has begun, under locks that last.
            with anyio.CancelScope(shield=True), contextlib.suppress(Exception):
                # The batch itself releases as it closes; this also handles messages that cannot be released.
                if self.batch.is_open:
                    self.rest = await self._give_back()
        finally:
            await self.batch.__aexit__(kind, error, trace)
            self.rest = self.rest or self.batch.release_report or Report()

    async def find(self) -> tuple[LockedMessage, ...]:
        while self.left and self.stopped is None:
            if early := tuple(self._early.pop(number) for number in self.left & self._early.keys()):
                self.left -= {message.sequence_number for message in early}
                return early
            try:
                held = sum(message.sequence_number not in self._search.wanted for message in self.batch.held)
                if held >= self._search.max_held:
                    self.stopped = (
                        f"{self._search.max_held:,} messages are held, and {self._search.limit} allows no more."
                    )
                    break
                self.batch.table.forget_settled()  # nothing asks for these any more, so that no memory grows with them
                # All of them, and not only those that are left: one whose lock was lost may come again at any time.
                wanted = self._search.wanted if self._search.bodies else frozenset[int]()
                count, coming = self._count(held), min(self._most_left, self._search.max_held - held)
                locked = await self.batch.lock_ahead(count, wanted, max_wait=self._search.max_wait, coming=coming)
            except (ServiceBusError, OSError, DecisionError) as error:
                if not self._seen:
                    raise
                self.stopped = f"No more messages could be locked: {explained(error)}"
                break
            chosen = self._look_at(locked)
            if chosen:
                return chosen
        await self.batch.ask_no_more()
        return ()

    @property
    def _most_left(self) -> int:
        """Return how many messages may be left up to the last chosen one; where that is unknown, half a link's."""
        if self._search.expected:
            return self._search.expected - len(self._seen)
        first, last = max(self._reached, min(self.left, default=0) - 1), max(self.left, default=0)
        is_known = partition_of(first) == partition_of(last) and last > first
        return last - first if is_known else LockedBatch.per_link // 2

    def _count(self, held: int) -> int:
        """Return how many messages to ask for: no more than are needed, may be held, and fit into memory."""
        room = min(_CHUNK, self._search.max_held - held)
        if self._search.expected:
            needed = self._search.expected - len(self._seen)
            room = min(room, needed if needed > 0 else _SLACK)
        with_body = max(1, min(_WITH_BODY, _BODIES // self._largest))
        if self._search.bodies and len(self.left) > with_body:
            # There are at most as many messages up to a number as there are numbers.
            last = sorted(self.left)[with_body - 1]
            room = min(room, max(last - self._reached, with_body))
        last = max(self.left)
        if not partition_of(max(last, self._reached)):  # of several partitions, they come in any order
            room = min(room, last - self._reached if last > self._reached else _SLACK)
        return room

    def _look_at(self, locked: Sequence[LockedMessage]) -> tuple[LockedMessage, ...]:
        numbers = {message.sequence_number for message in locked}
        came_before = self._search.wanted & self._seen
        early = {m.sequence_number: m for m in locked if m.sequence_number in came_before}
        self._check(numbers - (early.keys() - self._early.keys()))
        chosen = tuple(message for message in locked if message.sequence_number in self.left)
        self._early |= {number: message for number, message in early.items() if number not in self.left}
        self._largest = max(self._largest, *(len(message.body) for message in chosen), 1)
        self._seen |= numbers
        self._reached = max(numbers, default=self._reached)
        self.left -= numbers
        if self.stopped is None:  # what a lost link does not bring is not missing: it is not looked for again
            self._give_up(numbers)
        if self._progress is not None and locked:
            self._progress(len(locked))
        return chosen

    def _check(self, numbers: set[int]) -> None:
        """Stop where locks of others are lost: each round of them would raise delivery counts once more."""
        self._lost |= {*self.batch.table.lost, *(numbers & self._seen)} - self._search.wanted
        lost = self._lost | ((numbers & self._seen) - self.left)
        if self.batch.has_lost_link:
            self.stopped = "The link was lost on which messages were held."
        if lost:
            self.stopped = f"The locks of {len(lost):,} messages that were held were lost, which counts as a delivery."

    def _give_up(self, numbers: set[int]) -> None:
        """Find the chosen messages that do not come, because those behind them have."""
        if not numbers:  # the entity gives no more
            self.missing |= self.left
            self.left.clear()
            return
        by_partition = {partition_of(some[0]): some for some in alike(sorted(numbers), partition_of)}
        last = max(numbers)
        for number in [each for each in self.left if each < last]:
            came = by_partition.get(partition_of(number))
            if came is None or number > came[-1]:
                continue
            self._behind[number] = self._behind.get(number, 0) + len(came) - bisect_right(came, number)
            if self._behind[number] >= _SLACK:
                self.missing.add(number)
                self.left.discard(number)

    async def _give_back(self) -> Report:
        """Release everything; return the outcomes of the messages that are not wanted."""
        batch, wanted = self.batch, self._search.wanted
        await batch.ask_no_more()
        lost = self._lost.union(batch.table.lost)
        ends = {outcome.sequence_number: outcome for outcome in await batch.settle(Release(), batch.held)}
        if self._search.abandon_rest:
            ends |= {outcome.sequence_number: outcome for outcome in await batch.settle(Abandon(), batch.held)}
        # One whose lock was lost and that came again was delivered once more, also where it was released then.
        ends |= {number: Outcome(OutcomeStatus.LOCK_LOST, Release.verb, batch.address, number) for number in lost}
        return Report(end for number, end in ends.items() if number not in wanted)
