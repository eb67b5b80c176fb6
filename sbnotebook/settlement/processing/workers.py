"""The workers of a run: they take messages, have the function called, and settle.

:class:`SharedWorkers` share the messages of an entity: the first free worker takes the next message.
:class:`SessionWorkers` each hold a session: its messages are done in their order, and several sessions at once.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

import anyio
from azure.servicebus.exceptions import OperationTimeoutError, SessionLockLostError

from sbnotebook.model import LockedMessage, Outcome, OutcomeStatus
from sbnotebook.model.partition import partition_of, start_of_partition
from sbnotebook.settlement.engine import BESIDE, GROUP
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.locking.sessions import SessionBatch
from sbnotebook.settlement.processing.calls import CallGroup, EndedCall, LostCalls
from sbnotebook.settlement.processing.finish import can_retry
from sbnotebook.settlement.processing.run import SERVICE_ERRORS, ConsumerRun

_MAX_WAITING: Final = 500
"""Messages that are locked ahead of shared workers at most."""
_AHEAD_SECONDS: Final = 1.0
"""Seconds of work that are locked ahead, so that other receivers get their share of slow work."""
_RECEIVE_SECONDS: Final = 0.5
"""Seconds that one receive waits for a message, because nothing can be settled meanwhile."""
_COLLECT_EVERY: Final = 0.25
"""Seconds between two collections of ended calls."""
_ASK_AGAIN_AFTER: Final = 10.0
"""Seconds after which messages are settled that Service Bus could not settle."""
_MAX_UNSETTLED: Final = 1_000
"""Ended and unsettled messages up to which more are begun."""
_SETTLE_GROUP: Final = BESIDE * GROUP
"""Messages that are settled together at most: as many as a run has in progress."""

_SESSION_AHEAD: Final = 50
"""Messages of one session that are locked at once; no other receiver can have them anyway."""
_SESSION_MOST: Final = 1_000
"""Messages held behind one that was given back, a multiple of the above. With more the session is opened again."""
_AWAITED_TIMES: Final = 2
"""Times that a session is opened again for a message that does not come, although a peek may show it."""
_SESSIONS_REMEMBERED: Final = 1_000
"""Sessions of which it is remembered which messages were given back."""
_PEEKS: Final = 5
"""Pages that are peeked at most, at a time, to find messages that come behind later ones."""
_SESSION_WAIT: Final = 30.0
"""Seconds that one request for a session waits in a run without an end."""


class SharedWorkers:
    """Locks ahead, has the function called by several workers at once, and settles meanwhile.

    A message passes through ``_queue``, a worker's group, ``_unremembered`` (until its work is recorded),
    ``_unsettled`` and the report. A message that goes back to the entity waits in ``_held_back`` until the run ends.
    """

    def __init__(self, run: ConsumerRun, batch: LockedBatch) -> None:
        self._run = run
        self._batch = batch
        self._queue: deque[LockedMessage] = deque()
        self._active: set[str] = set()
        """Keys of messages in work or not settled yet."""
        self._parked: dict[str, list[LockedMessage]] = {}
        """Messages whose key is active, by key."""
        self._unremembered: deque[EndedCall] = deque()
        self._unsettled: deque[EndedCall] = deque()
        self._held_back: list[EndedCall] = []
        self._lost = LostCalls()
        self._put_off: list[EndedCall] = []
        """Ended messages that are held, and that Service Bus could not settle. It is asked again after a while."""
        self._asked_again = time.monotonic()
        self._groups: dict[int, CallGroup] = {}
        """The group that each worker works on."""
        self._settling: Sequence[EndedCall] = ()
        self._ended = 0
        self._is_fed = False
        self._over = anyio.Event()

    @property
    def waiting(self) -> int:
        return sum(map(len, (self._queue, *self._parked.copy().values())))

    @property
    def unsettled(self) -> int:
        return sum(map(len, (self._settling, self._unremembered, self._unsettled, self._held_back, self._put_off)))

    async def work(self) -> None:
        with self._run.until_stopped() as opening:
            async with self._batch:
                self._run.protect(opening)
                self._run.note_reachable()
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
            self._run.notify()

    async def _or_fail(self, task: Callable[..., Awaitable[None]], *args: object) -> None:
        try:
            await task(*args)
        except BaseException as error:  # noqa: BLE001 (the other tasks settle finished messages; then it is raised)
            self._run.fail(error)
        self._run.notify()

    # ---------------------------------------------------------------- locking ahead

    async def _feed(self) -> None:
        """Lock about as many messages as the workers end in a second, until the entity is empty or the run stops."""
        silent, since, counted = 0.0, time.monotonic(), 0
        per_second = 0.0
        max_wait = self._run.options.max_wait
        while self._may_lock_more() and (max_wait is None or silent < max_wait):
            wanted = self._wanted(per_second)
            if not wanted:
                await self._run.wait_for_change()
                continue
            # The rate rises at once, and falls by half with each receive.
            now = time.monotonic()
            per_second = max((self._ended - counted) / max(now - since, 1e-3), per_second / 2)
            since, counted = now, self._ended
            wait = _RECEIVE_SECONDS if max_wait is None else min(_RECEIVE_SECONDS, max_wait - silent)
            # After a silence one is asked for: it is worked on at once, and does not wait until others have come.
            locked = await self._receive(1 if silent else wanted, wait)
            self._enqueue(locked)
            silent = 0.0 if locked else silent + wait
        self._is_fed = True

    def _may_lock_more(self) -> bool:
        """Tell whether others may follow. One that waits may make room for another, because its lock was lost."""
        return not self._run.is_stopping and (self._run.left != 0 or bool(self.waiting))

    def _wanted(self, per_second: float) -> int:
        """Return how many messages to lock now: none as long as there are enough."""
        workers = self._run.options.max_in_flight
        enough = min(_MAX_WAITING, math.ceil(per_second * _AHEAD_SECONDS)) + workers
        here = self._run.taken - self._ended
        # In large parts, because receiving a few takes as long.
        if here >= enough or (self.waiting and here > enough // 2) or len(self._unsettled) > _MAX_UNSETTLED:
            return 0
        return min(enough - here, enough if self._run.left is None else self._run.left)

    async def _receive(self, count: int, wait: float) -> Sequence[LockedMessage]:
        locked: Sequence[LockedMessage] = ()
        with self._run.until_stopped():
            try:
                locked = await self._batch.receive(count, max_wait=wait, more_wait=0)
            except SERVICE_ERRORS as error:
                await self._run.survive(error)
            else:
                self._run.note_reachable(self._batch.renewal_error)
        return locked

    def _enqueue(self, locked: Sequence[LockedMessage]) -> None:
        for message in locked:
            if not self._settle_again(message):
                self._run.taken += 1
                self._queue.append(message)
        self._run.notify()

    def _settle_again(self, message: LockedMessage) -> bool:
        """Settle a message once more if its work is done and only its settlement was lost. Return True if so."""
        ended = self._lost.take(message)
        if ended is not None:
            self._unsettled.append(ended)
        return ended is not None

    # ---------------------------------------------------------------- working

    async def _work(self, worker: int) -> None:
        run = self._run
        run.leases.begin(worker, run.clock.now())
        while messages := await self._take():
            run.leases.work_on(worker, messages[0].sequence_number, run.clock.now())
            group = self._groups[worker] = CallGroup(deque(messages))
            try:
                await run.caller.run(group)
            finally:
                del self._groups[worker]
                self._collect(worker, group)
            self._put_back(group.todo)
            run.notify()
        run.leases.end(worker, run.clock.now())

    async def _take(self) -> list[LockedMessage]:
        while not self._run.is_stopping:
            has_room = sum(map(len, (self._unremembered, self._unsettled, self._put_off))) < _MAX_UNSETTLED
            messages = self._next() if has_room else []
            if messages and await self._run.wait_for_pace(messages):
                return messages
            self._put_back(messages)
            if self._is_fed and not self.waiting:
                break
            await self._run.wait_for_change()
        return []

    def _next(self) -> list[LockedMessage]:
        messages: list[LockedMessage] = []
        while self._queue and len(messages) < self._run.group_size:
            message = self._queue.popleft()
            key = self._run.key_of(message)
            if not self._batch.holds(message) or self._settle_again(message):
                self._run.taken -= 1  # it comes again, or came again while its first delivery was in work
            elif key in self._active:
                self._parked.setdefault(key, []).append(message)
            else:
                self._active.add(key)
                messages.append(message)
        return messages or self._take_over()

    def _take_over(self) -> list[LockedMessage]:
        """Take half of the messages that wait behind a slow message of another worker."""
        before = time.monotonic() - _COLLECT_EVERY / 2
        slow = (group.todo for group in self._groups.values() if group.begun < before)
        longest = max(slow, key=len, default=deque[LockedMessage]())
        taken: deque[LockedMessage] = deque()
        with contextlib.suppress(IndexError):  # the other worker's thread takes from it, too
            for _ in range((len(longest) + 1) // 2):
                taken.appendleft(longest.pop())
        return list(taken)

    def _put_back(self, messages: Collection[LockedMessage]) -> None:
        self._queue.extendleft(reversed(tuple(messages)))
        for message in messages:
            self._free(self._run.key_of(message))

    def _free(self, key: str) -> None:
        """Let the next delivery with this key be worked on."""
        self._active.discard(key)
        self._queue.extendleft(reversed(self._parked.pop(key, ())))

    # ---------------------------------------------------------------- settling

    async def _collect_often(self) -> None:
        """Collect ended calls, so that they are settled even if a slow message follows in their group."""
        while not self._over.is_set():
            with anyio.move_on_after(_COLLECT_EVERY):
                await self._over.wait()
            for worker, group in self._groups.items():
                self._collect(worker, group)
            if time.monotonic() - self._asked_again > _ASK_AGAIN_AFTER:
                self._ask_again()
            self._run.notify()

    def _ask_again(self) -> None:
        """Have the messages settled that could not be. Those whose locks were lost meanwhile come again."""
        self._unsettled.extend(ended for ended in self._put_off if self._batch.holds(ended.message))
        self._put_off.clear()
        self._asked_again = time.monotonic()

    def _collect(self, worker: int, group: CallGroup) -> None:
        while group.ends:
            ended = group.ends.popleft()
            self._ended += 1
            self._run.note_end(worker, ended)
            if self._run.finisher.returns(ended) and not self._run.options.redelivers:
                self._held_back.append(ended)
                self._free(self._run.key_of(ended.message))
            else:
                self._unremembered.append(ended)

    async def _remember_ends(self) -> None:
        """Record finished messages. Settling may take long, so this runs beside it."""
        while self._unremembered or not self._over.is_set():
            ends = tuple(self._unremembered)
            if not ends:
                await self._run.wait_for_change()
                continue
            await self._run.finisher.remember(ends)
            for _ in ends:
                self._unsettled.append(self._unremembered.popleft())
            self._run.notify()

    async def _settle_ends(self) -> None:
        while True:
            if not self._unsettled and not self._unremembered and self._over.is_set():
                # All else is settled: now the messages that could not be, and those that go back to the entity.
                self._ask_again()
                self._unsettled.extend(self._held_back)
                self._held_back.clear()
                if not self._unsettled:
                    return
            if not self._unsettled:
                await self._run.wait_for_change()
                continue
            group = [self._unsettled.popleft() for _ in range(min(_SETTLE_GROUP, len(self._unsettled)))]
            self._settling = group
            outcomes = await self._run.finisher.settle(self._batch, group)
            self._settling = ()
            for ended, outcome in zip(group, outcomes, strict=True):
                self._note(ended, outcome)
            self._run.notify()

    def _note(self, ended: EndedCall, outcome: Outcome) -> None:
        self._run.note_outcome(ended, outcome)
        is_lost = outcome.status in (OutcomeStatus.LOCK_LOST, OutcomeStatus.UNCONFIRMED)
        is_going_on = self._run.options.max_wait is None and not self._over.is_set()
        is_put_off = is_going_on and can_retry(outcome) and self._batch.holds(ended.message)
        if (is_lost or is_put_off) and not self._run.finisher.returns(ended):
            self._lost.keep(ended)
        elif outcome.ok:
            self._lost.forget(ended.message)
        if is_put_off:
            self._put_off.append(ended)
        self._free(self._run.key_of(ended.message))


class SessionWorkers:
    """Workers that each take the next session, do its messages one after the other, and continue with another session.

    A message is settled before the next one of its session is begun. If one is not removed, because its function failed
    or its settlement was not confirmed, the session continues with that message as often as Service Bus delivers it.
    Until it has come again, hold those behind it: Service Bus does not promise that it returns before them. See
    azure-sdk-for-net issue 35846, azure-sdk-for-java issues 24064, 30027 and 36478.
    """

    def __init__(self, run: ConsumerRun, next_session: Callable[[float], SessionBatch], idle: float) -> None:
        self._run = run
        self._next_session = next_session
        self._idle = idle
        self._waiting: dict[int, int] = {}
        """Locked messages that wait, by worker."""
        self._lost = LostCalls()
        self._awaited: dict[str, dict[int, int]] = {}
        """Messages of each session that were given back and have not come again, and how often they were awaited."""
        self._in_work: dict[int, anyio.Event] = {}
        """For each message in work, an event that is set when its outcome is known."""
        self._settling = 0

    @property
    def waiting(self) -> int:
        return sum(self._waiting.copy().values())

    @property
    def unsettled(self) -> int:
        return self._settling

    async def work(self) -> None:
        async with anyio.create_task_group() as tasks:
            for worker in range(self._run.options.max_in_flight):
                tasks.start_soon(self._work, worker)

    async def _work(self, worker: int) -> None:
        try:
            while not self._run.is_stopping and self._run.left != 0:
                if not await self._work_on_next(worker):
                    break
        except BaseException as error:  # noqa: BLE001 (the other workers settle finished messages; then it is raised)
            self._run.fail(error)

    async def _work_on_next(self, worker: int) -> bool:
        """Work on the next session. Return False if there is none within ``max_wait``."""
        run, max_wait = self._run, self._run.options.max_wait
        with run.until_stopped() as opening:
            try:
                async with contextlib.AsyncExitStack() as stack:
                    session = self._next_session(_SESSION_WAIT if max_wait is None else max_wait)
                    try:
                        batch = await stack.enter_async_context(session)
                    except OperationTimeoutError:  # there is no session
                        run.note_reachable()
                        return max_wait is None
                    run.protect(opening)
                    run.note_reachable()
                    await self._work_on(worker, batch)
            except SessionLockLostError:
                run.problem = "A session's lock was lost: its remaining messages are delivered again."
            except SERVICE_ERRORS as error:
                await run.survive(error)
        return True

    async def _work_on(self, worker: int, batch: SessionBatch) -> None:
        run = self._run
        run.leases.begin(worker, run.clock.now(), batch.session_id)
        held: list[LockedMessage] = []
        known = self._awaited.pop(batch.session_id, dict[int, int]())
        awaited, seen, newest = set(known), 0, 0
        try:
            while not run.is_stopping and run.left != 0 and len(held) < _SESSION_MOST:
                wanted = _SESSION_AHEAD if run.left is None else min(_SESSION_AHEAD, run.left)
                locked: Sequence[LockedMessage] = ()
                with run.until_stopped():
                    locked = await batch.receive(max(1, wanted - len(held)), max_wait=self._idle, more_wait=0)
                held[:] = sorted((*held, *locked), key=_number)
                newest = max(newest, *map(_number, held)) if held else newest
                # Others may have given messages back, too, and those come behind later ones.
                seen = await self._look_ahead(batch, newest, seen, awaited)
                awaited.difference_update(map(_number, held))
                # Asked now and then while others come, too: behind a message that is gone may be any number of them.
                is_asked = not locked or len(held) % _SESSION_AHEAD == 0
                is_nearer = is_asked and await self._forget_gone(batch, held, awaited, known, is_silent=not locked)
                if not locked and not is_nearer:
                    break
                if not await self._work_through(worker, batch, held, awaited):
                    break
        finally:
            # Messages given back now may also come again behind later ones.
            missed = {number for number in awaited if number < newest or number in known}
            self._remember(batch.session_id, known, missed.union(map(_number, held)))
            self._waiting.pop(worker, None)
            run.leases.end(worker, run.clock.now())

    def _remember(self, session_id: str, known: Mapping[int, int], awaited: Collection[int]) -> None:
        """Remember which messages of a session may come again behind later ones; of the last sessions only."""
        if awaited:
            self._awaited[session_id] = {number: known.get(number, 0) + 1 for number in awaited}
        while len(self._awaited) > _SESSIONS_REMEMBERED:
            del self._awaited[next(iter(self._awaited))]

    async def _look_ahead(self, batch: SessionBatch, newest: int, seen: int, awaited: set[int]) -> int:
        """Await what a peek shows up to the newest message and beyond. Return up to which number all are known."""
        seen = max(seen, start_of_partition(partition_of(newest)) - 1)
        for _ in range(_PEEKS):
            if seen >= newest or self._run.is_stopping:
                break
            numbers, last = await batch.numbers_from(seen + 1)
            awaited.difference_update([number for number in awaited if seen < number <= last])
            awaited |= numbers
            seen = last
        return max(seen, newest)

    async def _forget_gone(
        self,
        batch: SessionBatch,
        held: Sequence[LockedMessage],
        awaited: set[int],
        known: Mapping[int, int],
        *,
        is_silent: bool,
    ) -> bool:
        """Await no more messages that do not come, because they are dead-lettered, say. Return False if all may."""
        before = {number for number in awaited if held and number < held[0].sequence_number}
        if not before:
            return False
        standing, last = (before, 0) if self._run.is_stopping else await batch.numbers_from(min(before))
        gone = {number for number in before - standing if number <= last}
        # What did not come either each time that the session was opened does not come at all. In a long session, a
        # message given back behind it may come again first.
        if not gone and (is_silent or (len(held) >= _SESSION_MOST and held[0].sequence_number in known)):
            gone = {number for number in before if known.get(number, 0) >= _AWAITED_TIMES}
        awaited -= gone
        return bool(gone)

    async def _work_through(
        self, worker: int, batch: SessionBatch, held: list[LockedMessage], awaited: set[int]
    ) -> bool:
        """Process held messages in order, up to an awaited one. Return False if the session is given back."""
        while held and not self._run.is_stopping and self._run.left != 0:
            message = held[0]
            self._waiting[worker] = len(held) - 1
            if not batch.holds(message) or min(awaited, default=message.sequence_number) < message.sequence_number:
                break
            is_settled = await self._work_on_message(worker, batch, message)
            del held[0]
            if not is_settled:
                awaited.add(message.sequence_number)
                if batch.holds(message):  # it comes again only when the session is closed
                    return False
        return True

    async def _work_on_message(self, worker: int, batch: SessionBatch, message: LockedMessage) -> bool:
        """Have the function called and settle. Return False if the message is still in the session."""
        number = message.sequence_number
        while number in self._in_work:  # its session was lost while another worker worked on it
            await self._in_work[number].wait()
        over = self._in_work[number] = anyio.Event()
        try:
            return await self._work_alone(worker, batch, message)
        finally:
            del self._in_work[number]
            over.set()

    async def _work_alone(self, worker: int, batch: SessionBatch, message: LockedMessage) -> bool:
        run = self._run
        if not await run.wait_for_pace([message]):
            return False
        # Call the function, unless only the settlement of its last call was lost.
        ended = self._lost.take(message)
        if ended is None:
            if run.left == 0:  # another worker took the last one meanwhile
                return False
            run.taken += 1
            run.leases.work_on(worker, message.sequence_number, run.clock.now())
            group = CallGroup(deque([message]))
            await run.caller.run(group)
            if not group.ends:  # the run was stopped before it began
                return False
            ended = group.ends.popleft()
            run.note_end(worker, ended)
        # Settle it before the next one of the session is begun.
        self._settling += 1
        try:
            await run.finisher.remember([ended])
            (outcome,) = await run.finisher.settle(batch, [ended])
        finally:
            self._settling -= 1
        run.note_outcome(ended, outcome)
        is_removed = not run.finisher.returns(ended)
        if is_removed and not outcome.ok:
            self._lost.keep(ended)
        return outcome.ok and is_removed


def _number(message: LockedMessage) -> int:
    return message.sequence_number
