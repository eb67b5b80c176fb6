"""Locking an entity from its head until chosen messages have come, while all others are held and then given back.

Service Bus gives the messages of a queue in their order, and none from the middle. To reach a message, lock all
messages before it. To leave the others unchanged, hold them until the end and then release them: a message given back
at once would come again next, and only a release does not raise the delivery count.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import anyio
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.errors import DecisionError
from sbnotebook.model import Abandon, Decision, LockedMessage, Outcome, OutcomeStatus, Release, Report
from sbnotebook.model.partition import partition_of
from sbnotebook.settlement.connecting.failures import explained
from sbnotebook.settlement.engine import Run
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.locking.settle import ActElsewhere, Pair
from sbnotebook.settlement.terms import Progress

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

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
    per_link: int = field(default_factory=lambda: LockedBatch.per_link)
    limit: str = "max_held"

    def __post_init__(self) -> None:
        if self.max_held < 1:
            raise DecisionError("max_held is 1 or more.")


@dataclass(slots=True)
class _Link:
    batch: LockedBatch
    opened: anyio.Event = field(default_factory=anyio.Event)
    error: Exception | None = None
    rest: Report = field(default_factory=Report)


class LockedAhead:
    """Locks ahead in order over several links, gives out chosen messages, and releases the others at its end."""

    def __init__(
        self, make_batch: Callable[[], LockedBatch], search: Search, *, progress: Progress | None = None
    ) -> None:
        self.left = set(search.wanted)
        """Chosen messages that have not come yet. Put one back that is wanted once more, when its lock was lost."""
        self.missing: set[int] = set()
        """Chosen messages that do not come: those behind them have."""
        self.stopped: str | None = None
        """Why the search was cut short, in a sentence; None when it was not."""
        self._make_batch = make_batch
        self._search = search
        self._progress = progress
        self._links: list[_Link] = []
        self._coming: _Link | None = None
        self._ended = anyio.Event()
        self._tasks: TaskGroup | None = None
        self._by_token: dict[object, LockedBatch] = {}
        self._seen: set[int] = set()
        self._early: dict[int, LockedMessage] = {}
        """Chosen messages that came again before :attr:`left` had them once more."""
        self._behind: dict[int, int] = {}
        self._reached = 0
        self._largest = 1

    async def __aenter__(self) -> Self:
        """Open nothing yet: :meth:`begin_opening` and the first search do."""
        self._tasks = await anyio.create_task_group().__aenter__()
        return self

    def begin_opening(self) -> None:
        """Begin to open the first link, which takes several round trips and locks nothing; the search waits for it."""
        self._coming = self._coming or self._begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks, self._tasks = self._tasks, None
        if tasks is not None:
            self._ended.set()
            # It is not told of the body's error, which it would wrap in an ExceptionGroup.
            await tasks.__aexit__(None, None, None)

    @property
    def rest(self) -> Report:
        """Return how the others were given back that were held when the search ended; empty before that."""
        # Where giving back failed, the batch has released as it closed.
        return sum((link.rest or link.batch.release_report or Report() for link in self._links), Report())

    async def find(self) -> tuple[LockedMessage, ...]:
        while self.left and self.stopped is None:
            if early := tuple(self._early.pop(number) for number in self.left & self._early.keys()):
                self.left -= {message.sequence_number for message in early}
                return early
            try:
                held = self._count_others()
                if held >= self._search.max_held:
                    self.stopped = (
                        f"{self._search.max_held:,} messages are held, and {self._search.limit} allows no more."
                    )
                    break
                link = await self._open_link()
                # All of them, and not only those that are left: one whose lock was lost may come again at any time.
                wanted = self._search.wanted if self._search.bodies else frozenset[int]()
                count = self._count(link, held)
                locked = await link.batch.lock_ahead(count, wanted, max_wait=self._search.max_wait)
            except (ServiceBusError, OSError) as error:
                if not self._seen:
                    raise
                self.stopped = f"No more messages could be locked: {explained(error)}"
                break
            chosen = self._look_at(link, locked)
            if chosen:
                return chosen
        for link in self._links:
            await link.batch.ask_no_more()
        return ()

    async def settle_group(self, run: Run, pairs: Sequence[Pair]) -> Report:
        by_batch: dict[LockedBatch, list[Pair]] = {}
        for pair in pairs:
            by_batch.setdefault(self._by_token[pair[0].lock_token], []).append(pair)
        outcomes: dict[object, Outcome] = {}
        for batch, some in by_batch.items():
            report, messages = await batch.settle_group(run, some), [message for message, _ in some]
            run.expect(messages, report)
            outcomes |= {message.lock_token: outcome for message, outcome in zip(messages, report, strict=True)}
        report = Report(outcomes[message.lock_token] for message, _ in pairs)
        for (message, _), outcome in zip(pairs, report, strict=True):
            self._forget_settled(message, outcome)
        return report

    async def settle_elsewhere(self, decision: Decision, message: LockedMessage, act: ActElsewhere) -> Outcome:
        outcome = await self._by_token[message.lock_token].settle_elsewhere(decision, message, act)
        self._forget_settled(message, outcome)
        return outcome

    def _forget_settled(self, message: LockedMessage, outcome: Outcome) -> None:
        """Forget a message that nothing asks for any more, so that no memory grows with them."""
        if outcome.ok:
            self._by_token.pop(message.lock_token).forget(message)

    def holds(self, message: LockedMessage) -> bool:
        """Return whether the very lock that a message came with is held still."""
        batch = self._by_token.get(message.lock_token)
        return batch is not None and batch.holds(message)

    def _count_others(self) -> int:
        return sum(held.sequence_number not in self._search.wanted for link in self._links for held in link.batch.held)

    # ---------------------------------------------------------------- links

    async def _open_link(self) -> _Link:
        """Return the link to ask next: one at a time, so that messages come in their order over all links."""
        for link in self._links:
            if link.batch.has_more_coming:
                return link
        # The emptiest one, or small requests would fill the places of settled messages one by one.
        link = min(self._links, key=_load, default=None)
        if link is None or _load(link) >= self._search.per_link - self._spare_room:
            link, self._coming = self._coming or self._begin(), None
            await link.opened.wait()
            if link.error is not None:
                raise link.error
            self._links.append(link)
        # Opening takes several round trips, which is done beside receiving.
        if self._coming is None and self._will_need_another(link):
            self._coming = self._begin()
        return link

    @property
    def _spare_room(self) -> int:
        """Return how many places to leave on a link when the next one is open."""
        is_open = self._coming is not None and self._coming.opened.is_set() and self._coming.error is None
        return self._search.per_link // 5 if is_open else 0

    def _will_need_another(self, link: _Link) -> bool:
        room = len(self._links) * self._search.per_link
        if self._search.expected:
            return self._search.expected > room
        if self._search.max_held <= room:
            return False
        return _load(link) + self._most_left > self._search.per_link or _load(link) > self._search.per_link / 2

    @property
    def _most_left(self) -> int:
        """Return how many messages may be left up to the last chosen one, by their numbers; 0 if unknown."""
        first, last = max(self._reached, min(self.left, default=0) - 1), max(self.left, default=0)
        return last - first if partition_of(first) == partition_of(last) and last > first else 0

    def _begin(self) -> _Link:
        if self._tasks is None:
            raise RuntimeError("The search is over: begin another.")
        link = _Link(self._make_batch())
        self._tasks.start_soon(self._keep_open, link)
        return link

    async def _keep_open(self, link: _Link) -> None:
        try:
            async with link.batch:
                link.opened.set()
                # An interrupt ends the body first: it may have to settle what it has begun, under locks that last.
                with anyio.CancelScope(shield=True):
                    await self._ended.wait()
                    # The batch itself releases as it closes; this also handles messages that cannot be released.
                    link.rest = await give_back(link.batch, self._search.wanted, abandon=self._search.abandon_rest)
        except Exception as error:  # noqa: BLE001 (raised where the search waits for the link)
            link.error = error
        finally:
            link.opened.set()

    # ---------------------------------------------------------------- the search

    def _count(self, link: _Link, held: int) -> int:
        """Return how many messages to ask for: no more than are needed, may be held, and fit into memory."""
        room = min(_CHUNK, self._search.per_link - link.batch.link_load, self._search.max_held - held)
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

    def _look_at(self, link: _Link, locked: Sequence[LockedMessage]) -> tuple[LockedMessage, ...]:
        numbers = {message.sequence_number for message in locked}
        came_before = self._search.wanted & self._seen
        early = {m.sequence_number: m for m in locked if m.sequence_number in came_before}
        self._check(numbers - (early.keys() - self._early.keys()))
        chosen = tuple(message for message in locked if message.sequence_number in self.left)
        self._early |= {number: message for number, message in early.items() if number not in self.left}
        self._by_token |= {message.lock_token: link.batch for message in (*chosen, *early.values())}
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
        lost = (numbers & self._seen) - self.left
        for link in self._links:
            lost |= set(link.batch.lost) - self._search.wanted
            if link.batch.has_lost_link:
                self.stopped = "The link was lost on which messages were held."
        if lost:
            self.stopped = f"The locks of {len(lost):,} messages that were held were lost, which counts as a delivery."

    def _give_up(self, numbers: set[int]) -> None:
        """Find the chosen messages that do not come, because those behind them have."""
        if not numbers:  # the entity gives no more
            self.missing |= self.left
            self.left.clear()
            return
        by_partition: dict[int, list[int]] = {}
        for number in sorted(numbers):
            by_partition.setdefault(partition_of(number), []).append(number)
        last = max(numbers)
        for number in [each for each in self.left if each < last]:
            came = by_partition.get(partition_of(number))
            if came is None or number > came[-1]:
                continue
            self._behind[number] = self._behind.get(number, 0) + len(came) - bisect_right(came, number)
            if self._behind[number] >= _SLACK:
                self.missing.add(number)
                self.left.discard(number)


def _load(link: _Link) -> int:
    return link.batch.link_load


async def give_back(batch: LockedBatch, wanted: Container[int], *, abandon: bool) -> Report:
    """Release everything that a batch holds; return the outcomes of the messages that are not wanted."""
    await batch.ask_no_more()
    chosen = [message for message in batch.held if message.sequence_number in wanted]
    others = [message for message in batch.held if message.sequence_number not in wanted]
    lost = [Outcome(OutcomeStatus.LOCK_LOST, Release.verb, batch.address, n) for n in batch.lost if n not in wanted]
    report = Report(lost) + await batch.settle(Release(), others)
    await batch.settle(Release(), chosen)
    if not abandon:
        return report
    outcomes = {outcome.sequence_number: outcome for outcome in report}
    stuck = await batch.settle(Abandon(), batch.held)
    outcomes |= {outcome.sequence_number: outcome for outcome in stuck if outcome.sequence_number in outcomes}
    return Report(outcomes.values())
