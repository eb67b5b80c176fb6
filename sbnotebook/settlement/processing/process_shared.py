"""Workers that share the messages of an entity: each message goes to the first who is free."""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

import anyio

from sbnotebook.model import Abandon, LockedMessage, Outcome, OutcomeStatus, Release
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.processing.calls import Ended, Go
from sbnotebook.settlement.processing.process_run import PASSING_TROUBLE, Run

__all__ = ["SharedWorkers"]

_MAX_WAITING: Final = 500
"""Messages that are locked ahead of the workers at most."""
_AHEAD: Final = 1.0
"""Seconds of work that are locked ahead, so that others who receive here have their share of slow work."""
_SLICE: Final = 0.5
"""Seconds that one receive waits for a message: nothing can be settled meanwhile."""
_COLLECT_EACH: Final = 0.25
"""Seconds."""
_MAX_UNSETTLED: Final = 1_000
"""Messages that have ended and are not settled yet, before the next are begun."""
_GROUP: Final = 200
"""Messages that are settled together."""


class SharedWorkers:
    """Locks ahead, has the function called by several workers at once, and settles meanwhile.

    Args:
        run: what they share.
        batch: on the entity, not open yet.
    """

    def __init__(self, run: Run, batch: LockedBatch) -> None:
        self._run = run
        self._batch = batch
        self._queue: deque[LockedMessage] = deque()
        self._active: set[str] = set()
        """Keys of messages that are worked on, or not settled yet."""
        self._parked: dict[str, list[LockedMessage]] = {}
        """Messages whose like is worked on just now."""
        self._done: deque[Ended] = deque()
        """Ends that are to be written down where what is done is remembered."""
        self._ends: deque[Ended] = deque()
        """Ends that are to be settled."""
        self._held_back: list[Ended] = []
        self._lost: dict[int, tuple[Ended, int]] = {}
        """Messages that ended and whose settlement did not get through: they come again, and are only settled."""
        self._indexes: dict[UUID, int] = {}
        """Places in the report of messages that are in it already."""
        self._goes: dict[int, Go] = {}
        """What each worker works on."""
        self._settling = 0
        self._count = 0
        self._is_fed = False
        self._over = anyio.Event()

    @property
    def waiting(self) -> int:
        """Messages that are locked and wait for a worker."""
        return len(self._queue) + sum(map(len, self._parked.copy().values()))

    @property
    def unsettled(self) -> int:
        """Messages whose function has ended and that are not settled yet."""
        return len(self._done) + len(self._ends) + self._settling + len(self._held_back)

    async def work(self) -> None:
        """Work until there is no more to do, or the run is stopped; then settle what has ended."""
        with self._run.until_stopped() as opening:
            async with self._batch:
                self._run.keep(opening)
                await self._work_together()

    async def _work_together(self) -> None:
        async with anyio.create_task_group() as settling:
            settling.start_soon(self._or_fail, self._settle_ends)
            settling.start_soon(self._or_fail, self._collect_often)
            settling.start_soon(self._or_fail, self._remember_ends)
            async with anyio.create_task_group() as working:
                working.start_soon(self._or_fail, self._feed)
                for worker in range(self._run.options.max_in_flight):
                    working.start_soon(self._or_fail, self._work, worker)
            self._over.set()
            self._run.bell.ring()

    async def _or_fail(self, task: Callable[..., Awaitable[None]], *args: object) -> None:
        try:
            await task(*args)
        except Exception as error:  # noqa: BLE001 (the others settle what has ended; then it is raised)
            self._run.fail(error)
        self._run.bell.ring()

    # ---------------------------------------------------------------- locking ahead

    async def _feed(self) -> None:
        silent, since, counted = 0.0, time.monotonic(), 0
        per_second = 0.0
        max_wait = self._run.options.max_wait
        while not self._run.is_stopping and self._run.left != 0 and (max_wait is None or silent < max_wait):
            wanted = self._wanted(per_second)
            if not wanted:
                await self._run.bell.wait()
                continue
            now = time.monotonic()
            per_second = max((self._count - counted) / max(now - since, 1e-3), per_second / 2)
            since, counted = now, self._count
            wait = _SLICE if max_wait is None else min(_SLICE, max_wait - silent)
            # After a silence one is asked for: it is worked on at once, and does not wait until others have come.
            locked = await self._receive(1 if silent else wanted, wait)
            self._take_in(locked)
            silent = 0.0 if locked else silent + wait
        self._is_fed = True

    def _wanted(self, per_second: float) -> int:
        """How many messages to lock now; none as long as there are enough."""
        workers = self._run.options.max_in_flight
        enough = min(_MAX_WAITING, math.ceil(per_second * _AHEAD)) + workers
        here = self.waiting + sum(1 + len(go.todo) for go in self._goes.values())
        # In large parts: to receive a few takes as long.
        if here >= enough or (self.waiting and here > enough // 2) or len(self._ends) > _MAX_UNSETTLED:
            return 0
        return min(enough - here, enough if self._run.left is None else self._run.left)

    async def _receive(self, count: int, wait: float) -> Sequence[LockedMessage]:
        locked: Sequence[LockedMessage] = ()
        with self._run.until_stopped():
            try:
                locked = await self._batch.receive(count, max_wait=wait)
            except PASSING_TROUBLE as error:
                if self._run.options.max_wait is not None:
                    raise
                await self._run.wait_out(error)
            else:
                self._run.all_well(self._batch.renewal_error)
        return locked

    def _take_in(self, locked: Sequence[LockedMessage]) -> None:
        for message in locked:
            if not self._is_done(message):
                self._run.taken += 1
                self._queue.append(message)
        self._run.bell.ring()

    def _is_done(self, message: LockedMessage) -> bool:
        """Whether its work is done, and only its settlement did not get through; then it is settled once more."""
        lost = self._lost.get(message.sequence_number)
        if lost is None or lost[0].message.enqueued_time != message.enqueued_time:
            return False
        del self._lost[message.sequence_number]
        self._indexes[message.lock_token] = lost[1]  # it keeps its place in the report
        self._ends.append(replace(lost[0], message=message))
        return True

    # ---------------------------------------------------------------- working

    async def _work(self, worker: int) -> None:
        run = self._run
        run.leases.begin(worker, run.clock.now())
        while messages := await self._take():
            run.leases.work_on(worker, messages[0].sequence_number, run.clock.now())
            go = self._goes[worker] = Go(deque(messages))
            try:
                await run.calls.run(go)
            finally:
                del self._goes[worker]
                self._collect(worker, go)
            self._give_back(go.todo)
            run.bell.ring()
        run.leases.end(worker, run.clock.now())

    async def _collect_often(self) -> None:
        """Let what is done be settled, also where a slow message follows it in one go."""
        while not self._over.is_set():
            with anyio.move_on_after(_COLLECT_EACH):
                await self._over.wait()
            for worker, go in self._goes.items():
                self._collect(worker, go)
            self._run.bell.ring()

    def _collect(self, worker: int, go: Go) -> None:
        while go.ends:
            ended = go.ends.popleft()
            self._run.ended(worker, ended)
            self._keep(ended)

    async def _take(self) -> list[LockedMessage]:
        """Messages for one worker; none when there will be no more."""
        while not self._run.is_stopping:
            messages = self._next() if len(self._done) + len(self._ends) < _MAX_UNSETTLED else []
            if messages and await self._run.wait_for_pace(len(messages)):
                return messages
            self._give_back(messages)
            if self._is_fed and not self.waiting:
                break
            await self._run.bell.wait()
        return []

    def _next(self) -> list[LockedMessage]:
        messages: list[LockedMessage] = []
        while self._queue and len(messages) < self._run.at_once:
            message = self._queue.popleft()
            key = self._run.key_of(message)
            if not self._batch.holds(message) or self._is_done(message):
                self._run.taken -= 1  # it comes again, or has come again while the first of it was worked on
            elif key in self._active:
                self._parked.setdefault(key, []).append(message)
            else:
                self._active.add(key)
                messages.append(message)
        return messages or self._taken_over()

    def _taken_over(self) -> list[LockedMessage]:
        """Half of what waits behind a message that another worker works on."""
        before = time.monotonic() - _COLLECT_EACH / 2
        slow = (go.todo for go in self._goes.values() if go.begun < before)
        longest = max(slow, key=len, default=deque[LockedMessage]())
        taken: deque[LockedMessage] = deque()
        with contextlib.suppress(IndexError):  # the other worker's thread takes from it, too
            for _ in range((len(longest) + 1) // 2):
                taken.appendleft(longest.pop())
        return list(taken)

    def _give_back(self, messages: Collection[LockedMessage]) -> None:
        self._queue.extendleft(reversed(tuple(messages)))
        for message in messages:
            self._free(self._run.key_of(message))

    def _free(self, key: str) -> None:
        self._active.discard(key)
        self._queue.extendleft(reversed(self._parked.pop(key, ())))

    def _keep(self, ended: Ended) -> None:
        self._count += 1
        decision = self._run.finish.decision(ended)
        if isinstance(decision, (Abandon, Release)) and not self._run.options.comes_again:
            self._held_back.append(ended)
            self._free(self._run.key_of(ended.message))
        else:
            self._done.append(ended)

    # ---------------------------------------------------------------- settling

    async def _remember_ends(self) -> None:
        # Apart from settling, which may take long: what is done is to be known as soon as can be.
        while self._done or not self._over.is_set():
            ends = tuple(self._done)
            if not ends:
                await self._run.bell.wait()
                continue
            await self._run.finish.remember(ends)
            for _ in ends:
                self._ends.append(self._done.popleft())
            self._run.bell.ring()

    async def _settle_ends(self) -> None:
        while True:
            if not self._ends and not self._done and self._over.is_set():
                self._ends.extend(self._held_back)
                self._held_back.clear()
                if not self._ends:
                    return
            if not self._ends:
                await self._run.bell.wait()
                continue
            group = [self._ends.popleft() for _ in range(min(_GROUP, len(self._ends)))]
            self._settling = len(group)
            outcomes = await self._run.finish.settle(self._batch, group)
            self._settling = 0
            for ended, outcome in zip(group, outcomes, strict=True):
                self._note(ended, outcome)
            self._run.bell.ring()

    def _note(self, ended: Ended, outcome: Outcome) -> None:
        index = self._run.note(outcome, self._indexes.pop(ended.message.lock_token, None))
        is_removed = not isinstance(self._run.finish.decision(ended), (Abandon, Release))
        if is_removed and outcome.status in (OutcomeStatus.LOCK_LOST, OutcomeStatus.UNCONFIRMED):
            self._lost[ended.message.sequence_number] = (ended, index)
        self._free(self._run.key_of(ended.message))
