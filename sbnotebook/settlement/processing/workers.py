"""The two kinds of runs: workers that share the messages of an entity, and workers that each hold a session."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import Final

import anyio
from azure.servicebus.exceptions import OperationTimeoutError, SessionLockLostError

from sbnotebook.model import LockedMessage, Outcome, OutcomeStatus
from sbnotebook.model.message import partition_of, start_of_partition
from sbnotebook.settlement.engine import BESIDE, GROUP
from sbnotebook.settlement.locking.sessions import SessionBatch
from sbnotebook.settlement.memory.journal import key_of
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.processing.calls import AnyFunction, EndedCall, Lease
from sbnotebook.settlement.processing.finish import can_retry
from sbnotebook.settlement.processing.process import RENEW_FOR, SERVICE_ERRORS, Options, Processing

_MAX_WAITING: Final = 500
"""Messages that are locked ahead of shared workers at most."""
_AHEAD_SECONDS: Final = 1.0
"""Seconds of work that are locked ahead, so that other receivers get their share of slow work."""
_RECEIVE_SECONDS: Final = 0.5
"""Seconds that one receive waits for a message, because nothing can be settled meanwhile."""
_LOOKED_UP: Final = 50
"""Messages that are looked up together."""
_COLLECT_EVERY: Final = 0.25
"""Seconds after which ended calls are collected, although a slow one follows in their thread."""
_ASK_AGAIN_AFTER: Final = 10.0
"""Seconds after which messages are settled that Service Bus could not settle."""
_MAX_UNSETTLED: Final = 1_000
"""Ended and unsettled messages up to which more are begun."""
_SETTLE_GROUP: Final = BESIDE * GROUP
"""Messages that are settled together at most: as many as a run has in progress."""

_SESSION_AHEAD: Final = 50
"""Messages of one session that are locked at once; no other receiver can have them anyway."""
_SESSION_MOST: Final = 1_000
"""Messages held behind one that was given back, at most: then the session is opened again."""
_OPENED_TO_WAIT: Final = 2
"""Times that a session is opened for a message that does not come, although a peek may show it."""
_OPENED_IN_VAIN: Final = 6
"""Losses of a session before one of its messages is settled; each opening locks fewer messages."""
_SESSIONS_REMEMBERED: Final = 1_000
"""Sessions of which it is remembered how often they were opened in vain."""
_PEEKS: Final = 5
"""Pages that are peeked at most, at a time, to find messages that come behind later ones."""
_SESSION_WAIT: Final = 30.0
"""Seconds that one request for a session waits in a run without an end."""
_number: Final = attrgetter("sequence_number")


class SharedProcessing(Processing):
    """Locks ahead, has the function called by several workers at once, and settles meanwhile.

    A message passes through ``_queue``, ``_ended``, ``_remembering`` (until its work is recorded), ``_to_settle`` and
    the report. A message that goes back to the entity waits in ``_held_back`` until the run ends.
    """

    def __init__(self, place: Place, function: AnyFunction, options: Options) -> None:
        super().__init__(place, function, options)
        self._batch = place.batch(renew_for=RENEW_FOR, archived=options.archived)
        self._turn = threading.Lock()
        """Held by the thread that takes a message, or lets another delivery of it be taken."""
        self._queue: deque[LockedMessage] = deque()
        self._active: set[str] = set()
        """Keys of messages in work or not settled yet."""
        self._parked: dict[str, list[LockedMessage]] = {}
        """Messages whose key is active, by key."""
        self._ended: deque[EndedCall] = deque()
        self._remembering: Sequence[EndedCall] = ()
        self._to_settle: deque[EndedCall] = deque()
        self._settling: Sequence[EndedCall] = ()
        self._held_back: list[EndedCall] = []
        self._put_off: list[EndedCall] = []
        """Ended messages that are held, and that Service Bus could not settle. It is asked again after a while."""
        self._asked_again = time.monotonic()
        self._is_fed = self._is_worked = self._is_over = False

    @property
    def _waiting(self) -> int:
        return sum(map(len, (self._queue, *self._parked.copy().values())))

    @property
    def _unsettled(self) -> int:
        return self._behind_workers + len(self._settling) + len(self._held_back)

    @property
    def _ended_count(self) -> int:
        return self._repeated + self._ends.total()

    @property
    def _behind_workers(self) -> int:
        return sum(map(len, (self._ended, self._remembering, self._to_settle, self._put_off)))

    async def _work(self) -> None:
        with self._stoppable() as opening:
            async with self._batch:
                self._until_stopped.discard(opening)  # from now on a stop waits
                self._note_reachable()
                await self._work_together()

    async def _work_together(self) -> None:
        async with anyio.create_task_group() as settling:
            settling.start_soon(self._or_fail, self._settle_ends)
            async with anyio.create_task_group() as remembering:
                remembering.start_soon(self._or_fail, self._remember_ends)
                async with anyio.create_task_group() as working:
                    working.start_soon(self._or_fail, self._feed)
                    for worker in range(self._options.max_in_flight):
                        working.start_soon(self._or_fail, self._work_as, worker)
                self._is_worked = True
                self._notify()
            # Last the messages that could not be settled, and those that go back to the entity.
            self._ask_again()
            self._to_settle += self._held_back
            self._held_back.clear()
            self._is_over = True
            self._notify()

    # ---------------------------------------------------------------- locking ahead

    async def _feed(self) -> None:
        """Lock about as many messages as the workers end in a second, until the entity is empty or the run stops."""
        silent, since, counted = 0.0, time.monotonic(), 0
        per_second = 0.0
        max_wait = math.inf if self._options.max_wait is None else self._options.max_wait
        # One that waits may make room for another, because its lock was lost.
        while not self._is_stopping and (self._left != 0 or self._waiting) and silent < max_wait:
            wanted = self._wanted(per_second)
            if not wanted:
                await self._changed.wait()
                continue
            # The rate rises at once, and falls by half with each receive.
            now = time.monotonic()
            per_second = max((self._ended_count - counted) / max(now - since, 1e-3), per_second / 2)
            since, counted = now, self._ended_count
            wait = min(_RECEIVE_SECONDS, max_wait - silent)
            # After a silence one is asked for: it is worked on at once, and does not wait until others have come.
            locked = await self._receive(1 if silent else wanted, wait)
            with self._turn:
                new = [message for message in locked if not self._settle_again(message)]
                self._taken += len(new)
                self._queue += new
            self._notify()
            silent = 0.0 if locked else silent + wait
        self._is_fed = True

    def _wanted(self, per_second: float) -> int:
        """Return how many messages to lock now: none as long as there are enough."""
        enough = min(_MAX_WAITING, math.ceil(per_second * _AHEAD_SECONDS)) + self._options.max_in_flight
        here = self._taken - self._ended_count
        # In large parts, because receiving a few takes as long.
        if here >= enough or (self._waiting and here > enough // 2) or len(self._to_settle) > _MAX_UNSETTLED:
            return 0
        return min(enough - here, enough if self._left is None else self._left)

    async def _receive(self, count: int, wait: float) -> Sequence[LockedMessage]:
        locked: Sequence[LockedMessage] = ()
        with self._stoppable():
            try:
                locked = await self._batch.receive(count, max_wait=wait, more_wait=0)
            except SERVICE_ERRORS as error:
                await self._survive(error)
            else:
                self._note_reachable(self._batch.renewal.fault)
        return locked

    def _settle_again(self, message: LockedMessage) -> bool:
        """Settle a message once more if its work is done and only its settlement was lost. Return True if so."""
        ended = self._take_lost(message)
        if ended is not None:
            self._to_settle.append(ended)
        return ended is not None

    # ---------------------------------------------------------------- working

    async def _work_as(self, worker: int) -> None:
        begun = 0
        with self._lease(worker) as lease:
            while not self._is_stopping:
                message = self._next()
                if message is not None:
                    if await self._wait_for_pace(begun):
                        begun = await self._call(lease, message, self._ended)
                        self._notify()
                elif self._is_fed and not self._waiting:
                    break
                else:
                    await self._changed.wait()

    def _next(self) -> LockedMessage | None:
        """Take the next message; None if there is none, or too many are not settled. In any thread."""
        with self._turn:
            while self._queue and self._behind_workers < _MAX_UNSETTLED:
                message = self._queue.popleft()
                key = self._key_of(message)
                if not self._batch.holds(message) or self._settle_again(message):
                    self._taken -= 1  # it comes again, or came again while its first delivery was in work
                elif key in self._active:
                    self._parked.setdefault(key, []).append(message)
                else:
                    self._active.add(key)
                    return message
        return None

    def _ahead(self) -> Iterable[LockedMessage]:
        """Return the next messages, without those whose work may be done by the time that they are taken."""
        with self._turn:
            by_key = {self._key_of(each): each for each in reversed([*islice(self._queue, _LOOKED_UP)])}
            return [each for key, each in by_key.items() if key not in self._active]

    def _key_of(self, message: LockedMessage) -> str:
        """Return a key that two deliveries of the same message share, so that one waits for the other."""
        return key_of(message) if self._remembers_for is not None else str(message.sequence_number)

    def _free(self, ended: EndedCall) -> None:
        """Let the next delivery of the message be worked on."""
        key = self._key_of(ended.message)
        with self._turn:
            self._active.discard(key)
            self._queue.extendleft(reversed(self._parked.pop(key, ())))

    # ---------------------------------------------------------------- settling

    async def _remember_ends(self) -> None:
        """Collect ended calls and record their work. Settling may take long, so this runs beside it."""
        while self._ended or not self._is_worked:
            if not self._ended:
                with anyio.move_on_after(_COLLECT_EVERY):
                    await self._changed.wait()
            self._remembering = self._collect()
            await self._remember(self._remembering)
            self._to_settle += self._remembering
            self._remembering = ()
            if time.monotonic() - self._asked_again > _ASK_AGAIN_AFTER:
                self._ask_again()
            self._notify()

    def _collect(self) -> list[EndedCall]:
        """Note ended calls, and return those whose messages do not go back to the entity."""
        ends: list[EndedCall] = []
        while self._ended:
            ended = self._ended.popleft()
            self._note_end(ended)
            if self._returns(ended) and not self._options.redelivers:
                self._held_back.append(ended)
                self._free(ended)
            else:
                ends.append(ended)
        return ends

    def _ask_again(self) -> None:
        """Have the messages settled that could not be. Those whose locks were lost meanwhile come again."""
        self._to_settle.extend(ended for ended in self._put_off if self._batch.holds(ended.message))
        self._put_off.clear()
        self._asked_again = time.monotonic()

    async def _settle_ends(self) -> None:
        while self._to_settle or not self._is_over:
            if not self._to_settle:
                await self._changed.wait()
                continue
            self._settling = [self._to_settle.popleft() for _ in range(min(_SETTLE_GROUP, len(self._to_settle)))]
            outcomes = await self._settle(self._batch, self._settling)
            for ended, outcome in zip(self._settling, outcomes, strict=True):
                self._note(ended, outcome)
            self._settling = ()
            self._notify()

    def _note(self, ended: EndedCall, outcome: Outcome) -> None:
        self._note_outcome(ended, outcome)
        is_lost = outcome.status in (OutcomeStatus.LOCK_LOST, OutcomeStatus.UNCONFIRMED)
        is_going_on = self._options.max_wait is None and not self._is_over
        is_put_off = is_going_on and can_retry(outcome) and self._batch.holds(ended.message)
        with self._turn:
            if (is_lost or is_put_off) and not self._returns(ended):
                self._keep_lost(ended)
            elif outcome.ok:
                self._lost.pop(ended.message.sequence_number, None)
        if is_put_off:
            self._put_off.append(ended)
        self._free(ended)


class SessionProcessing(Processing):
    """Has each worker take the next session, do its messages one after the other, and continue with another session.

    A message is settled before the next one of its session is begun. Service Bus does not promise that a message that
    was given back comes before later ones: as long as a peek shows an earlier one, those behind it wait. See
    azure-sdk-for-net issue 35846, azure-sdk-for-java issues 24064, 30027 and 36478.
    """

    def __init__(self, place: Place, function: AnyFunction, options: Options) -> None:
        super().__init__(place, function, options)
        self._behind: dict[int, int] = {}
        """Locked messages that wait, by worker."""
        self._openings: dict[str, int] = {}
        """The openings of each session since one of its messages was settled."""
        self._in_work: set[int] = set()
        """Messages in work, until their outcomes are known."""
        self._settling = 0

    @property
    def _waiting(self) -> int:
        return sum(self._behind.copy().values())

    @property
    def _unsettled(self) -> int:
        return self._settling

    async def _work(self) -> None:
        async with anyio.create_task_group() as tasks:
            for worker in range(self._options.max_in_flight):
                tasks.start_soon(self._or_fail, self._work_as, worker)

    async def _work_as(self, worker: int) -> None:
        is_there = True
        while is_there and not self._is_stopping and self._left != 0:
            is_there = await self._work_on_next(worker)

    async def _work_on_next(self, worker: int) -> bool:
        """Work on the next session. Return False if there is none within ``max_wait``."""
        max_wait, archived = self._options.max_wait, self._options.archived
        wait = _SESSION_WAIT if max_wait is None else max_wait
        batch = self._place.session(None, max_wait=wait, renew_for=RENEW_FOR, archived=archived)
        with self._stoppable() as opening:
            try:
                async with contextlib.AsyncExitStack() as stack:
                    try:
                        await stack.enter_async_context(batch)
                    except OperationTimeoutError:  # there is no session
                        self._note_reachable()
                        return max_wait is None
                    self._until_stopped.discard(opening)  # from now on a stop waits
                    openings = self._note_opened(batch.session_id)
                    with self._lease(worker, batch.session_id) as lease:
                        await self._work_on(worker, lease, batch, openings)
            except SessionLockLostError as error:
                self._problem = "A session's lock was lost: its remaining messages are delivered again."
                # Each loss counts as a delivery of all messages that were locked.
                if self._openings.get(batch.session_id, 0) > _OPENED_IN_VAIN:
                    await self._survive(error)
            except SERVICE_ERRORS as error:
                await self._survive(error)
        return True

    def _note_opened(self, session_id: str) -> int:
        """Return how often a session was opened since one of its messages was settled; known of the last sessions."""
        openings = self._openings[session_id] = self._openings.pop(session_id, 0) + 1
        if len(self._openings) > _SESSIONS_REMEMBERED:
            del self._openings[next(iter(self._openings))]
        if openings == 1:
            self._note_reachable()
        return openings

    async def _work_on(self, worker: int, lease: Lease, batch: SessionBatch, openings: int) -> None:
        # In vain, its link may have had more messages than it bears.
        ahead = max(1, _SESSION_AHEAD >> (openings - 1))
        held: list[LockedMessage] = []
        coming, given_up, looked, is_waiting = set[int](), set[int](), 0, False
        try:
            while not self._is_stopping and self._left != 0:
                # One that was given back often comes next.
                is_silent = not await self._lock_ahead(batch, held, ahead if is_waiting else ahead - len(held))
                if not held:
                    break
                if is_silent or is_waiting or held[-1].sequence_number > looked:
                    looked = await self._look_ahead(batch, held, coming, looked)
                coming.difference_update(given_up, map(_number, held))
                earlier = {number for number in coming if number < held[0].sequence_number}
                is_waiting = bool(earlier) and not is_silent and len(held) < _SESSION_MOST
                if is_waiting:
                    continue
                if earlier and openings <= _OPENED_TO_WAIT:
                    break
                given_up |= earlier
                coming -= earlier
                if not await self._work_through(worker, lease, batch, held, coming):
                    break
        finally:
            self._behind.pop(worker, None)

    async def _lock_ahead(self, batch: SessionBatch, held: list[LockedMessage], count: int) -> bool:
        """Lock about so many more messages of a session. Return False if none came."""
        locked: Sequence[LockedMessage] = ()
        most = count if self._left is None else min(count, self._left)
        with self._stoppable():
            locked = await batch.receive(max(1, most), max_wait=self._place.namespace.waits.idle_session, more_wait=0)
        held[:] = sorted((*held, *locked), key=_number)
        return bool(locked)

    async def _look_ahead(
        self, batch: SessionBatch, held: Sequence[LockedMessage], coming: set[int], looked: int
    ) -> int:
        """Note what a peek shows up to the newest message and beyond. Return up to which number all are known."""
        newest = held[-1].sequence_number
        first = max(min(looked + 1, held[0].sequence_number, *coming), start_of_partition(partition_of(newest)))
        for _ in range(_PEEKS):
            if first > newest or self._is_stopping:
                break
            numbers, last = await batch.numbers_from(first)
            coming.difference_update([number for number in coming if first <= number <= last])
            coming |= numbers
            first = last + 1
        return max(first - 1, newest)

    async def _work_through(
        self, worker: int, lease: Lease, batch: SessionBatch, held: list[LockedMessage], coming: set[int]
    ) -> bool:
        """Process held messages in order, up to one that is yet to come. Return False if the session is given back."""
        while held and not self._is_stopping and self._left != 0:
            message = held[0]
            self._behind[worker] = len(held) - 1
            if not batch.holds(message) or min(coming, default=message.sequence_number) < message.sequence_number:
                break
            is_removed = await self._work_on_message(lease, batch, message)
            del held[0]
            if not is_removed:
                coming.add(message.sequence_number)
                if batch.holds(message):  # it comes again only when the session is closed
                    return False
        return True

    async def _work_on_message(self, lease: Lease, batch: SessionBatch, message: LockedMessage) -> bool:
        """Have the function called and settle. Return False if the message is still in the session."""
        number = message.sequence_number
        while number in self._in_work:  # its session was lost while another worker worked on it
            await self._changed.wait()
        self._in_work.add(number)
        try:
            # Call the function, unless only the settlement of its last call was lost.
            ended = None
            if await self._wait_for_pace():
                ended = self._take_lost(message) or await self._call_alone(lease, message)
            return ended is not None and await self._settle_now(batch, ended)
        finally:
            self._in_work.discard(number)
            self._notify()

    async def _call_alone(self, lease: Lease, message: LockedMessage) -> EndedCall | None:
        if self._left == 0:  # another worker took the last one meanwhile
            return None
        self._taken += 1
        ends: deque[EndedCall] = deque()
        await self._call(lease, message, ends)
        for ended in ends:  # none if the run was stopped before
            self._note_end(ended)
        return ends.popleft() if ends else None

    async def _settle_now(self, batch: SessionBatch, ended: EndedCall) -> bool:
        """Settle a message before the next one of its session is begun. Return True if it is removed."""
        self._settling += 1
        try:
            await self._remember([ended])
            (outcome,) = await self._settle(batch, [ended])
        finally:
            self._settling -= 1
        self._note_outcome(ended, outcome)
        if outcome.ok:
            self._openings.pop(batch.session_id, None)
        is_removed = not self._returns(ended)
        if is_removed and not outcome.ok:
            self._keep_lost(ended)
        return outcome.ok and is_removed
