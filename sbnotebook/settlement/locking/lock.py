"""A batch of messages held under locks that are renewed until they are settled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Final, Self
from uuid import UUID

import anyio

from sbnotebook.amqp.sections import SECTIONS
from sbnotebook.errors import BatchClosedError, ConfigurationError, DecisionError
from sbnotebook.model import Abandon, Decision, LockedMessage, Outcome, ReceivedMessage, Release, Report
from sbnotebook.model.decision import AUTO
from sbnotebook.model.durations import duration_text
from sbnotebook.model.message import partition_of
from sbnotebook.settlement.connecting.connection import Connection
from sbnotebook.settlement.engine import BESIDE, Run
from sbnotebook.settlement.locking.by_number import receive_those_there, same_partition_chunks
from sbnotebook.settlement.locking.lock_table import HeldMessages, Hold
from sbnotebook.settlement.locking.renewal import Clock, Links, Renewal
from sbnotebook.settlement.locking.settle import Pair, Record, Settling, group_size
from sbnotebook.settlement.pace import InFlight, Limiter
from sbnotebook.settlement.peek import Peeker
from sbnotebook.settlement.plan import Limits, Progress, check_decision, check_wait
from sbnotebook.settlement.sdk import connections, settling
from sbnotebook.settlement.sdk.receivers import LockReceiver, ReceivedLock
from sbnotebook.settlement.wire.decoding import locked_from_payload

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

DEFAULT_RENEW_FOR: Final = timedelta(minutes=30)
_SLICE: Final = 1.0
"""Seconds that one request waits for messages at most: between two, the link is free for others."""
_FIRST_DEFERRED, _MOST_DEFERRED = 50, 200
"""Deferred messages in one request: they come in one answer of any size."""
_DEFERRED_BYTES: Final = 8_000_000
"""Bytes of an answer with deferred messages, by the largest that has come so far."""
_WITHDRAW_TIMEOUT, _CLOSE_TIMEOUT = 5.0, 60.0
_CLOSED: Final = "The batch is closed and holds no messages: lock them again."


class LockedBatch:
    """Messages of one entity that this process holds.

    An asynchronous context manager. While it is open, it renews locks in the background. When it closes, it releases
    unsettled messages, which does not raise their delivery counts. It opens another link for every 5,000 messages.

    Args:
        connection: the namespace.
        peeker: looks at the messages of a queue, a subscription, or a sub-queue of one.
        renew_for: for how long locks are renewed, counted from when the batch is made.
        clock: where the time comes from.
        records: written around each settlement.
        keep_bodies: False to read what Service Bus wrote into each message, and to drop the rest. Then one request
            completes many messages.
    """

    per_link: ClassVar[int] = 5_000
    """Messages of one link that may be unsettled. Azure was seen to send no more than 5,000 over a link (azure-amqp,
    issue 152; azure-sdk-for-net, issue 6450), and is said to detach it (azure-sdk-for-python, pull request 16163)."""
    _locking: anyio.CancelScope
    """Of the last task that locked messages: closing the batch ends it, where it opens a link or takes too long."""

    def __init__(
        self,
        connection: Connection,
        peeker: Peeker,
        *,
        renew_for: timedelta,
        clock: Clock,
        records: Sequence[Record],
        keep_bodies: bool = True,
    ) -> None:
        self.address = address = peeker.address
        self.release_report: Report | None = None
        """How the messages were released that were still held as the batch was closed; None while it is open."""
        self._connection = connection
        self._records = tuple(records)
        self._keeps_bodies = keep_bodies
        self._receivers: list[LockReceiver] = []
        """Those whose messages may be held, the one for more messages last; none while the batch is closed."""
        self._coming: asyncio.Task[LockReceiver] | None = None
        """Opens the next link, beside receiving."""
        self._tasks: TaskGroup | None = None
        self._busy = anyio.Lock()
        """Held by the task that receives, or opens a link. Settlements and requests need no turn."""
        self._in_work: set[Hold] = set()
        """Those that are settled now: two runs may have messages in common."""
        self._settled = anyio.Event()
        """Set and replaced when some of them are not any more."""
        self.clock = clock
        self.table = HeldMessages(address)
        """What it holds, and how each message that it held ended."""
        over = Links(self._receivers, self._new_receiver)
        self.renewal = self._new_renewal(over, clock.now() + renew_for)
        """Keeps the locks, and tells how that goes."""
        self._peeker = peeker
        self._limiter = Limiter()
        self._deferred_at_once = _FIRST_DEFERRED

    async def __aenter__(self) -> Self:
        """Open the link, so that a fault of the entity raises here."""
        self._receivers.append(await _opened(self._new_receiver))
        await self.begin()
        return self

    async def begin(self) -> None:
        """Begin to renew, without a link: the first messages that are received open it."""
        self._locking = anyio.CancelScope()
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self.renewal.run)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks, self._tasks = self._tasks, None
        if tasks is None:
            return
        try:
            await self._release_and_close()
        finally:
            tasks.cancel_scope.cancel()
            # It is not told of the body's error, which it would wrap in an ExceptionGroup.
            await tasks.__aexit__(None, None, None)

    def _new_renewal(self, over: Links, until: datetime) -> Renewal:
        return Renewal(self.table, over, clock=self.clock, until=until)

    @property
    def is_open(self) -> bool:
        """Return whether messages can be held: from when the batch is opened until it is closed."""
        return bool(self._receivers)

    # ---------------------------------------------------------------- held messages

    @property
    def messages(self) -> tuple[LockedMessage, ...]:
        """Return the messages that are held now, in the order in which they came."""
        return tuple(hold.message for hold in self.table if hold.is_read)

    @property
    def held(self) -> tuple[LockedMessage, ...]:
        """Return all that is held, also messages of which only the locks are kept."""
        return tuple(hold.message for hold in self.table)

    def holds(self, message: LockedMessage) -> bool:
        """Tell whether the very lock that a message came with is still held."""
        hold = self.table.of(message)
        return hold is not None and hold.ends > self.clock.now()

    @property
    def lock_ends(self) -> dict[int, datetime]:
        """Return when each held lock ends, as last renewed, by sequence number.

        By the clock of this machine, which may differ from the service's in :meth:`HeldMessages.locked_until`.
        """
        return {hold.message.sequence_number: hold.ends for hold in self.table if hold.is_read}

    def extend(self, renew_for: timedelta) -> datetime:
        """Renew the locks for at least so long from now, never for less than before; return when renewing stops."""
        if renew_for <= timedelta():
            raise ConfigurationError("Locks are renewed for longer than nothing: give a duration such as 30m.")
        self._open_receiver()
        self.renewal.extend(renew_for)
        return self.renewal.until

    # ---------------------------------------------------------------- receiving

    async def receive(self, count: int, *, max_wait: float = 5.0, more_wait: float = 1.0) -> tuple[LockedMessage, ...]:
        """Lock at most so many more messages, and return them; fewer when the entity has no more.

        It waits ``max_wait`` seconds for the first, and ``more_wait`` for more each time that some came. Those that
        come within 0.2 s come together.
        """
        if count < 0:
            raise ConfigurationError("Receive at least 0 messages.")
        check_wait(max_wait)
        taken: list[Hold] = []
        wait = max_wait
        try:
            while len(taken) < count:
                part = min(wait, _SLICE)
                received = await self._lock_some(count - len(taken), part)
                taken += received
                wait = min(more_wait, max_wait) if received else wait - part
                if wait <= 0:
                    break
        finally:
            await self.ask_no_more()
        return tuple(hold.message for hold in taken if hold.is_read)

    async def receive_deferred(self, sequence_numbers: Iterable[int]) -> tuple[LockedMessage, ...]:
        """Lock deferred messages, which stay deferred when the batch closes: their locks end by themselves.

        It returns them in the order of their numbers. Left out are those that are not deferred, are locked by another
        receiver, or have expired.
        """
        taken: list[Hold] = []
        for chunk in same_partition_chunks(sequence_numbers, self._deferred_at_once):
            async with self._busy:
                receiver, asked = self._open_receiver(), self.clock.now()
                await connections.reopen(receiver)
            received = await receive_those_there(receiver, self._peeker, chunk)
            taken += [self._hold(lock, asked, is_read=True) for lock in received]
            if largest := max((len(lock.payload or b"") for lock in received), default=0):
                self._deferred_at_once = max(1, min(_DEFERRED_BYTES // largest, _MOST_DEFERRED))
        return tuple(hold.message for hold in taken)

    async def adopt(self, messages: Iterable[LockedMessage]) -> tuple[LockedMessage, ...]:
        """Hold messages that another receiver locked, in this process or another: their tokens settle them, too.

        Their locks are renewed like all others. They are not released when the batch closes, which takes the link
        that they came on. They are returned as they are in the entity, and as they were given where they are not
        there.
        """
        self._open_receiver()
        asked, given = self.clock.now(), {message.lock_token: message for message in messages}
        payloads = await self._peeker.payloads_of(message.sequence_number for message in given.values())
        adopted: list[Hold] = []
        for token, message in given.items():
            hold = self.table.of(message)
            if hold is None:
                payload = payloads.get(message.sequence_number)
                found = message if payload is None else locked_from_payload(payload, self.address, token)
                # The end of the lock is unknown, so renew it at once.
                hold = Hold(found, ReceivedLock(token, payload), asked, asked)
                self.table.add(hold)
            adopted.append(hold)
        return tuple(hold.message for hold in adopted)

    async def lock_ahead(
        self, count: int, wanted: Container[int], *, max_wait: float, coming: int = 0
    ) -> tuple[LockedMessage, ...]:
        """Lock more messages, and keep only the locks of those that are not wanted; ``coming`` may follow in all.

        If fewer arrive than requested, others may be on their way, and wait for the next call or :meth:`ask_no_more`.
        """
        waited, locked = 0.0, list[Hold]()
        while not locked and waited < max_wait:
            part = min(max_wait - waited, _SLICE)
            locked = await self._lock_some(count, part, wanted, coming)
            waited += part
        return tuple(hold.message for hold in locked if self.table.of(hold.message) is hold)

    async def _lock_some(
        self, count: int, wait: float, wanted: Container[int] | None = None, coming: int = 0
    ) -> list[Hold]:
        async with self._busy:
            with anyio.CancelScope() as self._locking:
                return await self._lock_in_turn(count, wait, wanted, coming)
            raise BatchClosedError(_CLOSED)

    async def _lock_in_turn(self, count: int, wait: float, wanted: Container[int] | None, coming: int) -> list[Hold]:
        receiver, asked = await self._receiver_with_room(), self.clock.now()
        receiver.wanted, room = wanted, self._room_on(receiver)
        if coming > room:
            self.begin_opening()
        received, holds = await receiver.take(min(count, room), wait), list[Hold]()
        try:
            for lock in received:
                is_read = wanted is None or lock.sequence_number in wanted
                holds.append(self._hold(lock, asked, is_read=is_read))
        finally:
            for lock in received[len(holds) :]:  # where one of them raised, the others are to be released, too
                self._hold(lock, asked, is_read=False)
        return holds

    @property
    def has_lost_link(self) -> bool:
        """Return whether some held messages came on a link that is gone, and cannot be released."""
        tags = set[bytes]().union(*map(settling.on_link, self._receivers))
        came_on_links = (tag for hold in self.table if (tag := hold.lock.delivery_tag) is not None)
        return not tags.issuperset(came_on_links)

    # ---------------------------------------------------------------- links

    def begin_opening(self) -> None:
        """Begin to open another link, which takes several round trips and locks nothing."""
        self._coming = self._coming or asyncio.create_task(_opened(self._new_receiver))

    async def _receiver_with_room(self) -> LockReceiver:
        """Return the receiver to ask: the last one until it is full, so that messages come in order over all links."""
        if self._tasks is None:
            raise BatchClosedError(_CLOSED)
        if self._receivers:
            receiver = self._receivers[-1]
            await connections.reopen(receiver)
            # Small requests would fill the places of settled messages one by one: the next link is open for more.
            spare = self.per_link // 5 if self._coming is not None and _is_opened(self._coming) else 0
            if receiver.has_more_coming or self._room_on(receiver) > spare:
                return receiver
        # One that was emptied serves again.
        emptied = [] if self._coming else [each for each in self._receivers if not settling.on_link(each)]
        if emptied:
            self._receivers.remove(emptied[0])
        coming, self._coming = self._coming, None
        self._receivers.append(emptied[0] if emptied else await (coming or _opened(self._new_receiver)))
        await connections.reopen(self._receivers[-1])
        await self._close_used_up()
        return self._receivers[-1]

    async def _close_used_up(self) -> None:
        """Close earlier links that never serve again: their messages were settled by tokens, or their locks ended."""
        for receiver in self._receivers[:-1]:
            if not self._in_work and settling.is_used_up(receiver, (hold.lock for hold in self.table)):
                self._receivers[:] = [each for each in self._receivers if each is not receiver]
                await connections.close(receiver)

    def _room_on(self, receiver: LockReceiver) -> int:
        # Those that wait here are yet to be taken, and have their place on the link.
        return self.per_link - len(settling.on_link(receiver)) + receiver.waiting

    async def ask_no_more(self) -> None:
        """Take back the rest of the last request, so that released messages do not come again at once."""
        with anyio.move_on_after(_WITHDRAW_TIMEOUT, shield=True):
            async with self._busy:
                if self._receivers:
                    await self._receivers[-1].withdraw_credit()

    def _hold(self, lock: ReceivedLock, asked: datetime, *, is_read: bool) -> Hold:
        number, token, until = lock.sequence_number, lock.lock_token, lock.locked_until
        if is_read:
            sections = SECTIONS if self._keeps_bodies else ()
            message = locked_from_payload(lock.payload or b"", self.address, token, sections)
        else:
            message = LockedMessage(entity=self.address, sequence_number=number, lock_token=token, locked_until=until)
        if message.sequence_number != number:  # it cannot be read, and may have lost its number
            message = message.with_changes(sequence_number=number)
        hold = Hold(message, lock, asked, message.locked_until or asked + timedelta(minutes=1), is_read=is_read)
        self.table.add(hold)
        if not self._keeps_bodies:
            hold.size, lock.payload = len(lock.payload or b""), None
        return hold

    # ---------------------------------------------------------------- settling

    async def settle(
        self,
        decision: Decision,
        messages: Iterable[LockedMessage] | None = None,
        *,
        max_in_flight: InFlight = AUTO,
        limits: Limits | None = None,
        progress: Progress | None = None,
    ) -> Report:
        """Settle messages of this batch, each once; each has its outcome, and none raises.

        By default all that are not settled yet: lost ones of which no outcome told are LOCK_LOST.
        After a settlement that has no answer the rest is skipped; it stays held and can be settled by another call.
        A decision that is not possible here, and a message that is not in this batch, raise a DecisionError first.
        """
        check_decision(decision, self.address)
        ours = self.table.check_ours(self.table.unsettled if messages is None else messages)
        chosen = tuple({message.lock_token: message for message in ours}.values())
        self._open_receiver()
        run = Run(chosen, decision, limits or Limits(max_in_flight), progress)
        return await run.carry_out(partial(self.settle_in, decision, chosen))

    async def settle_in(self, decision: Decision, messages: Sequence[ReceivedMessage], run: Run) -> None:
        """Settle messages of this batch, each once, in the run that they are of: see :meth:`settle`."""
        ours = [*{message.lock_token: message for message in self.table.check_ours(messages)}.values()]
        # Hold them under locks that last, unless all are lost.
        if isinstance(decision, Abandon) and decision.delay and any(map(self.table.of, ours)):
            if self.clock.now() + decision.delay > self.renewal.until:
                raise DecisionError(
                    f"Locks are renewed until {self.renewal.until:%Y-%m-%d %H:%M:%S} UTC only, which is before the "
                    f"delay of {duration_text(decision.delay)} ends: lock with a longer renew_for, or resubmit with a "
                    "delay."
                )
            await self.clock.sleep(decision.delay.total_seconds())
        if not self._keeps_bodies:  # a request completes messages of one partition
            ours.sort(key=lambda message: partition_of(message.sequence_number))

        async def steps(group: Sequence[LockedMessage]) -> None:
            pairs = [(each, decision) for each in group]
            run.expect(group, await self.settle_group(run, pairs, as_they_come=self._keeps_bodies))

        async with run.ending_groups():  # the settling itself ends soon after an interrupt
            size = group_size(decision, run.limits.max_in_flight)
            await run.take(ours, steps, size=size, finish_within=0.0, beside=BESIDE)

    async def settle_group(self, run: Run, pairs: Sequence[Pair], *, as_they_come: bool = False) -> Report:
        """Settle a group of messages of this batch, with decisions of one kind, as the steps of a run.

        After a settlement that has no answer the run is stopped: the connection is most likely lost.
        """
        self._open_receiver()
        if not pairs:
            return Report()
        messages = [message for message, _ in pairs]
        act = Settling(
            self._receivers,
            pairs,
            self.table,
            max_in_flight=run.limits.max_in_flight,
            limiter=self._limiter,
            ended=(lambda message, outcome: run.note((message,), (outcome,))) if as_they_come else None,
            peeker=self._peeker,
            opening=self._busy,
            now=self.clock.now,
            together=not self._keeps_bodies,
        )
        try:
            await self._settle_held(act, messages)
        except BaseException as error:
            # Outcomes known by then must not be lost. If records could not be written, nothing was settled.
            if act.outcomes or not isinstance(error, Exception):
                run.expect(messages, act.report(messages))
            raise
        if act.stopped is not None:
            run.stop(act.stopped)
        return act.report(messages)

    async def settle_elsewhere(
        self, decision: Decision, message: LockedMessage, act: Callable[[Hold], Awaitable[Outcome]]
    ) -> Outcome:
        """Have a message of this batch settled over another connection, which returns its outcome."""
        hold = self.table.of(message)
        if hold is None:
            return self.table.outcome_of(message, decision)
        known: dict[UUID, Outcome] = {}
        async with self._recorded(decision, [hold], known):
            doubt, hold.was_in_doubt = hold.was_in_doubt, True
            outcome = await act(hold)
            hold.was_in_doubt = doubt
            known[message.lock_token] = self.table.note(hold, outcome)
        return known[message.lock_token]

    @asynccontextmanager
    async def _recorded(
        self, decision: Decision, holds: Sequence[Hold], known: Mapping[UUID, Outcome]
    ) -> AsyncGenerator[None]:
        """Write the records around settlements, of which a mapping has the outcomes by lock token in the end."""
        records = AsyncExitStack()
        try:
            for record in self._records:
                await records.enter_async_context(record(decision, holds, known))
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await records.aclose()

    def let_lapse(self, messages: Iterable[LockedMessage]) -> datetime | None:
        """Let go of messages of this batch without a word to the service; return when the last of their locks ends.

        Then the messages are delivered again, with a delivery count one higher; until then no receiver can settle them.
        """
        chosen = self.table.check_ours(messages)
        holds = [hold for message in chosen if (hold := self.table.of(message)) is not None]
        for hold in holds:
            self.table.leave(hold)
        return max((hold.locked_until for hold in holds), default=None)

    async def _settle_held(self, settling: Settling, messages: Sequence[LockedMessage]) -> None:
        async with self._turn_of(messages) as holds:
            if holds and self._receivers:
                async with self._recorded(settling.decision, holds, settling.outcomes):
                    await settling.run(holds)
        self.renewal.tell_lost()

    @asynccontextmanager
    async def _turn_of(self, messages: Sequence[LockedMessage]) -> AsyncGenerator[list[Hold]]:
        """Wait until no other task settles any of some messages, and give the locks that are held then."""
        while not self._in_work.isdisjoint(
            holds := [hold for hold in map(self.table.of, messages) if hold is not None]
        ):
            await self._settled.wait()
        self._in_work.update(holds)
        try:
            yield holds
        finally:
            self._in_work.difference_update(holds)
            self._settled.set()
            self._settled = anyio.Event()

    # ---------------------------------------------------------------- the end

    async def _release_and_close(self) -> None:
        self.release_report = Report()
        if not any(map(connections.is_open, self._receivers[-1:])):
            self._locking.cancel()  # it opens the link, which may take long
        try:
            await self.ask_no_more()  # what a receive of another task is given now would stay locked
        finally:
            self._locking.cancel()  # where it has not ended in time, it must take nothing later
            try:
                await self._release_left()
            finally:
                await self._close_links()

    async def _release_left(self) -> None:
        # Deferred messages stay deferred after their locks, and adopted messages came on the link of another receiver.
        left = [hold.message for hold in self.table if hold.lock.delivery_id >= 0]
        if not left:
            return
        pairs = [(message, Release()) for message in left]
        settling = Settling(self._receivers, pairs, self.table, now=self.clock.now)
        try:
            with anyio.move_on_after(_CLOSE_TIMEOUT, shield=True):
                await self._settle_held(settling, left)
        finally:
            self.release_report = settling.report(left)

    async def _close_links(self) -> None:
        receivers = [*self._receivers]
        self._receivers.clear()
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([coming])
            receivers += [coming.result()] if _is_opened(coming) else []
        for each in receivers:
            await connections.close(each)

    def _new_receiver(self) -> LockReceiver:
        return self._connection.receiver(self.address)

    def _open_receiver(self) -> LockReceiver:
        if not self._receivers:
            raise BatchClosedError(_CLOSED)
        return self._receivers[-1]


async def _opened(new_receiver: Callable[[], LockReceiver]) -> LockReceiver:
    return await new_receiver().__aenter__()  # an open that fails has cleaned up after itself


def _is_opened(coming: asyncio.Task[LockReceiver]) -> bool:
    return coming.done() and not coming.cancelled() and coming.exception() is None
