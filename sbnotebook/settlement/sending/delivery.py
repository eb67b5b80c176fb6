"""Send messages over a pool of warm senders: with a limit on transfers in flight, and an outcome for every message."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.lowlevel
import anyio.to_thread
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    OperationTimeoutError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, Message, Outcome, OutcomeStatus, Report, Tally
from sbnotebook.model.decision import AUTO
from sbnotebook.settlement.connecting.connection import Connection
from sbnotebook.settlement.connecting.failures import Failure
from sbnotebook.settlement.interrupts import Grace, in_flight, reporting
from sbnotebook.settlement.pace import SENDERS, InFlight, Limiter, Pace, check_in_flight, transfers_in_flight
from sbnotebook.settlement.requests import OUTAGE_PATIENCE, in_parallel
from sbnotebook.settlement.sdk import clients, connections
from sbnotebook.settlement.sending.packing import EncodedMessage, Pack, Packer, Sizes
from sbnotebook.settlement.wire.encoding import EncodedRows

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from azure.servicebus.aio import ServiceBusSender

_MAX_IDLE: Final = 240.0
"""Seconds after which an idle sender is replaced. Service Bus drops idle connections, and the SDK does not notice."""
_FRESH: Final = 1.0
"""Seconds after which the connection of an idle sender is checked before it is used."""
_OPEN_WITHIN: Final = 60.0


class SenderPool:
    """Warm senders to one entity: one for each transfer in flight, because the SDK's senders are not safe to share."""

    def __init__(self, connection: Connection, address: EntityAddress) -> None:
        connection.require_writing()
        self.address = address
        self.answer_within = 60.0
        self.limiter = Limiter(in_flight=SENDERS)
        self._connection = connection
        self._idle: list[tuple[ServiceBusSender, float]] = []
        """Senders, each with the wall-clock time since which it is idle: it counts the sleep of the machine, too."""
        self._in_use = 0
        self._opening: set[asyncio.Task[None]] = set()
        self._sizes: Sizes | None = None

    async def warm(self, count: int) -> None:
        """Open senders until so many are idle; where that fails, all of them fail for the same reason."""
        await in_parallel(lambda _: self._open_one(), range(count - len(self._idle)), count)

    def open_another(self, count: int, then: Callable[[bool], None]) -> None:
        """Open a sender where there are no more than ``count``, and then tell whether there is one more."""
        if len(self._idle) + self._in_use > count:
            then(True)
            return
        opening = asyncio.create_task(self._open_one())
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)
        opening.add_done_callback(lambda ended: then(not ended.cancelled() and ended.exception() is None))

    async def sizes(self) -> Sizes:
        """Return the size limits of the entity. Open a sender if none was open yet."""
        if self._sizes is None:
            async with self.slot() as sender:
                self._sizes = _sizes_of(sender)
        return self._sizes

    def doubt(self) -> None:
        """Check each idle sender before its next use, and read the size limits again: the entity may be a new one."""
        self._sizes = None
        self._idle = [(sender, since - 2 * _FRESH) for sender, since in self._idle]

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[ServiceBusSender]:
        """Open a context with a sender that no other task uses, with an open link."""
        self._in_use += 1
        try:
            sender = await self._take()
            line = connections.line_of(sender)
            try:
                yield sender
            except BaseException as error:
                is_refused = isinstance(error, ServiceBusError) and not isinstance(error, OperationTimeoutError)
                if is_refused and connections.is_open(sender):
                    self._keep(sender)  # only the transfer was refused
                else:
                    # An answer may still come, and must not count as the answer to the next transfer.
                    await _close(sender, line)
                raise
            self._keep(sender)
        finally:
            self._in_use -= 1

    async def close(self) -> None:
        for opening in tuple(self._opening):
            opening.cancel()
        if self._opening:
            await asyncio.wait(self._opening)
        idle, self._idle = self._idle, []
        async with anyio.create_task_group() as tasks:
            for sender, _ in idle:
                tasks.start_soon(_close, sender)

    async def _take(self) -> ServiceBusSender:
        while self._idle:
            sender, since = self._idle.pop()
            idle = abs(time.time() - since)  # the clock may be put back
            # A send over a lost connection would be UNCONFIRMED.
            try:
                if idle > _FRESH:
                    await connections.catch_up(sender)
                if idle < _MAX_IDLE and connections.is_open(sender):
                    return sender
            except BaseException:  # cancelled, and no longer in the pool
                await _close(sender)
                raise
            await _close(sender)
        return await self._open()

    async def _open(self) -> ServiceBusSender:
        sender = self._connection.sender(self.address)
        try:
            with anyio.fail_after(_OPEN_WITHIN):
                await connections.reopen(sender)
        except BaseException as error:
            await _close(sender)
            if isinstance(error, TimeoutError):
                raise OperationTimeoutError(message=f"{self.address} did not answer.") from None
            raise
        self._sizes = _sizes_of(sender)
        return sender

    async def _open_one(self) -> None:
        self._keep(await self._open())

    def _keep(self, sender: ServiceBusSender) -> None:
        self._idle.append((sender, time.time()))


def _sizes_of(sender: ServiceBusSender) -> Sizes:
    return Sizes(clients.max_message_bytes(sender), clients.max_batch_bytes(sender))


async def _close(sender: ServiceBusSender, line: Any = None) -> None:
    line = line or connections.line_of(sender)
    await connections.close(sender)
    await connections.hang_up(line)


Withhold = Callable[[int], tuple[OutcomeStatus, str] | None]
"""Asked about a message by its position just before each attempt to send it: the status and the reason of one that is
not to be sent any more, None for one that is."""


@dataclass(frozen=True, slots=True)
class DeliveryMethod:
    verb: str
    deliver: Callable[[ServiceBusSender, Pack], Awaitable[Sequence[int | None]]]
    max_count: int
    share: float = 1.0
    withhold: Withhold | None = None


_MAX_BYTES_IN_HAND: Final = 32 * 1024 * 1024
"""Bytes of messages that wait or are in flight, after which no more are pulled."""
_WHILE_BUSY: Final = 20
"""Messages in a transfer at most, once Service Bus was busy: larger ones are halved. Service Bus takes or refuses a
transfer as a whole, so a client with large ones would find the allowed rate only roughly, and take it from others."""
_RECONNECT_AFTER: Final = 0.5, 1.0
"""Seconds before the second attempt to connect, and before the third, which is the last."""
_SLOWEST: Final = 50_000
"""Bytes a second: the slowest connection on which the answer to a large transfer is awaited."""
_BEFORE_MORE: Final = 50
"""Answers of a send after which it tells how long they take: a shorter send is over before further senders are open."""
_OPEN_AGAIN_AFTER: Final = 5.0
"""Seconds after a failed attempt to open a further sender in which ``"auto"`` makes no other."""
_FINISH_WITHIN: Final = 10.0
"""Seconds to wait for transfers in flight when the caller is cancelled."""
_LOOK_AGAIN: Final = 0.5
"""Seconds after which open packs are checked again for messages that have waited long enough."""
_PULL_WITHIN: Final = 1.0
"""Seconds to wait for the input's next message when the caller is cancelled."""
_CUT_OFF: Final = {
    True: (OutcomeStatus.UNCONFIRMED, "It was interrupted before the answer came: the message may have arrived."),
    False: (OutcomeStatus.SKIPPED, "It was interrupted before the message was sent."),
}


async def _send(sender: ServiceBusSender, pack: Pack) -> Sequence[int | None]:
    await clients.send_payload(sender, pack.transfer(), batch=pack.is_batch)
    return [None] * len(pack.items)


SEND: Final = DeliveryMethod("send", _send, max_count=1_000)


async def send_many(  # noqa: PLR0913 (all but two have a default)
    pool: SenderPool,
    messages: Iterable[Message | EncodedRows],
    method: DeliveryMethod = SEND,
    *,
    max_in_flight: InFlight = AUTO,
    batch_size: int | None = None,
    pace: Pace | None = None,
    progress: Callable[[int], None] | None = None,
    tally: Tally | None = None,
    total: int | None = None,
) -> Report:
    """Send or schedule messages and wait for the confirmation of each.

    Where the ``total`` is known, the report has those, too, that were not read because the send ended before.

    Messages of one session or partition key are sent in their order, one transfer at a time. A message that is larger
    than a batch may be is sent alone if the entity takes it.
    """
    check_in_flight(max_in_flight)
    if batch_size is not None and batch_size < 1:
        raise ConfigurationError("batch_size is 1 or more.")
    pace = pace or Pace(None)
    # With a rate no transfer holds more than a second's messages, so that a short send is spread, too.
    max_count = min(method.max_count, batch_size or method.max_count, pace.at_once or method.max_count)
    if pool.limiter.is_limited:
        max_count = min(max_count, _WHILE_BUSY)
    sizes = await pool.sizes()
    sizes = sizes._replace(batch=int(sizes.batch * method.share))
    packer = Packer(messages, method.verb, pool.address, sizes, max_count)
    delivery = _Delivery(pool, packer, method, max_in_flight, pace, progress, tally or Tally())
    start = anyio.current_time()
    with reporting(delivery.tally.report):
        try:
            await delivery.run()
        finally:
            delivery.close(total)
        report = delivery.tally.report().timed(anyio.current_time() - start, in_flight().most)
    if packer.failure is not None:
        if report:
            packer.failure.add_note(f"Until then: {report}.")
        raise packer.failure
    return report


class _Delivery:
    """The state of one call: one task queues packs for as many workers as may be in flight."""

    def __init__(
        self,
        pool: SenderPool,
        packer: Packer,
        method: DeliveryMethod,
        max_in_flight: InFlight,
        pace: Pace,
        progress: Callable[[int], None] | None,
        tally: Tally,
    ) -> None:
        self.tally = tally
        self._pool = pool
        self._packer = packer
        self._method = method
        self._max_in_flight = None if max_in_flight == AUTO else max_in_flight
        self._answers = 0
        self._pace = pace
        self._pull_pace = Pace(pace.rate)
        self._progress = progress
        self._order: dict[str, anyio.Lock] = {}
        self._unfinished: set[Pack] = set()
        """Packs that wait for a worker or for their answer."""
        self._workers = self._ready = 0
        """``_ready`` counts those workers that need not open a sender before they take a pack."""
        self._open_again_at = 0.0
        self._queue: asyncio.Queue[Pack | None] = asyncio.Queue()
        self._tasks: TaskGroup
        self._freed = asyncio.Event()
        self._is_over = False
        self._thread, self._packing = anyio.CapacityLimiter(1), anyio.Lock()
        self._grace = Grace(packer.stop)

    async def run(self) -> None:
        async with self._grace.watching() as aside, anyio.create_task_group() as self._tasks:
            aside.start_soon(self._pack_often)
            try:
                await self._feed()
            finally:
                self._is_over = True
            for _ in range(self._ready):
                self._queue.put_nowait(None)

    def close(self, total: int | None) -> None:
        """Give an outcome to every message without one, because the caller was cancelled or the input failed."""
        if total is not None and (self._packer.failure is not None or not self._packer.is_ended):
            unread = range(self._packer.count, total)
            end = Outcome(
                OutcomeStatus.SKIPPED,
                self._method.verb,
                self._pool.address,
                description="Not attempted: the send ended before.",
            )
            self.tally.note_alike(unread, end.status, repeat(end, len(unread)))
        packs, refused = self._packer.take(all_open=True)
        for index, outcome in refused:
            self._finish([index], outcome.status, [outcome])
        for pack in (*self._unfinished, *packs):
            status, description = _CUT_OFF[pack.in_doubt]
            self._finish_pack(pack, Outcome(status, self._method.verb, self._pool.address, description=description))

    # ------------------------------------------------------------------ from the input to the workers

    @property
    def _most(self) -> int:
        """Return how many transfers may wait for their answer at once."""
        return self._max_in_flight or self._pool.limiter.in_flight

    @property
    def _room(self) -> int:
        """Return how many more packs to pull; none where that is not worth the way to a thread."""
        in_hand = len(self._unfinished)
        if sum(pack.size for pack in self._unfinished) > _MAX_BYTES_IN_HAND:
            return 0
        if self._pace.at_once:
            return min(self._most - in_hand, 1)
        # As many packs wait as are in flight, so that transfers answered together are followed together.
        room = 2 * self._most - in_hand
        return room if room >= max(1, self._most // 2) else 0

    async def _feed(self) -> None:
        while not self._packer.is_ended:
            if self._room > 0:
                await self._pull()
                await self._pack()
            else:
                await self._freed.wait()
            self._freed.clear()
        await self._pack(all_open=True)
        while self._unfinished:  # a worker may queue the halves of a pack
            await self._freed.wait()
            self._freed.clear()

    async def _pull(self) -> None:
        with self._grace.period(_PULL_WITHIN):
            # In a thread, because the user's code behind the iterable must not delay the renewal of locks.
            most = self._room * self._packer.max_count
            await anyio.to_thread.run_sync(self._packer.pull, most, abandon_on_cancel=True, limiter=self._thread)

    async def _pack_often(self) -> None:
        """Send packs that have waited long enough, although the input gives no more now."""
        while not self._is_over:
            await anyio.sleep(_LOOK_AGAIN)
            await self._pack()

    async def _pack(self, *, all_open: bool = False) -> None:
        """Give packs to the workers, in their order."""
        async with self._packing:
            packs, refused = self._packer.take(all_open=all_open)
            for index, outcome in refused:
                self._finish([index], outcome.status, [outcome])
            self._unfinished.update(packs)
            for pack in packs:
                # Messages are not pulled before their time. It always yields, so that packs are begun in their order.
                await self._pull_pace.wait(len(pack.items))
                self._put(pack)

    def _put(self, pack: Pack) -> None:
        self._queue.put_nowait(pack)
        if self._workers >= min(len(self._unfinished), self._most):
            return
        if self._max_in_flight is not None or self._workers < transfers_in_flight(AUTO):
            self._workers += 1
            self._begin_worker(is_open=True)
        elif time.monotonic() >= self._open_again_at:
            # Opening takes several round trips, in which the other workers may send the rest.
            self._workers += 1
            self._pool.open_another(self._ready, self._begin_worker)

    def _begin_worker(self, is_open: bool) -> None:
        if is_open and not self._is_over:
            self._ready += 1
            self._tasks.start_soon(self._work)
        else:
            self._workers -= 1
            self._open_again_at = time.monotonic() + _OPEN_AGAIN_AFTER

    async def _work(self) -> None:
        while (pack := await self._queue.get()) is not None:
            async with self._turn(pack.key):
                await self._deliver(pack)
            self._freed.set()

    @asynccontextmanager
    async def _turn(self, key: str | None) -> AsyncGenerator[None]:
        """Keep the order of messages of one session: one transfer of a key at a time, in the order of the queue."""
        if key is None:
            yield
            return
        turn = self._order.setdefault(key, anyio.Lock())
        async with turn:
            yield
        if not turn.locked():
            del self._order[key]

    # ------------------------------------------------------------------ one pack

    async def _deliver(self, pack: Pack) -> None:
        error = await self._try_often(pack)
        if error is None:
            return
        failure = Failure.of(error)
        # If the batch was refused for its content, and not for its entity or its sender, most messages may be fine.
        if pack.is_batch and not pack.in_doubt and (failure.is_too_large or failure.is_for_content):
            halves = pack.halves()
            self._unfinished.remove(pack)
            self._unfinished.update(halves)
            if pack.key is None and self._most > 1:  # no order to keep: other workers take them, too
                for half in halves:
                    self._put(half)
            else:
                for half in halves:
                    await self._deliver(half)
            return
        outcome = failure.outcome(self._method.verb, self._pool.address)
        if not pack.in_doubt and outcome.status is OutcomeStatus.UNCONFIRMED:
            # The connection could not be opened: it is certain that nothing was sent.
            outcome = replace(outcome, status=OutcomeStatus.FAILED, retryable=True)
        self._finish_pack(pack, outcome)

    async def _try_often(self, pack: Pack) -> Exception | None:
        """Try to deliver a pack as often as that can do no harm. Return the last error, None after a delivery."""
        rate, count = self._pool.limiter, len(pack.items)
        until, attempt = rate.now() + OUTAGE_PATIENCE, 0
        while True:
            await anyio.lowlevel.checkpoint_if_cancelled()  # what follows need not wait, and a transfer is shielded
            if pack.is_batch and count > _WHILE_BUSY and rate.is_limited:
                return MessageSizeExceededError(message="The transfer is too large to find the allowed rate.")
            await rate.wait(count)
            asked = rate.now()
            await self._pace.begin(count)
            until += rate.now() - asked  # it may be paused for an hour
            try:
                await self._try_once(pack)
            except ServiceBusServerBusyError as latest:
                rate.refused()
                self._packer.max_count = min(self._packer.max_count, _WHILE_BUSY)
                if rate.now() > until:
                    return latest
            except Exception as latest:  # noqa: BLE001 (each message has an outcome, for any error of the SDK)
                # Only a connection that could not be opened is tried again.
                if pack.in_doubt or not Failure.of(latest).is_unanswered or attempt >= len(_RECONNECT_AFTER):
                    return latest
                await anyio.sleep(_RECONNECT_AFTER[attempt])
                attempt += 1
            else:
                rate.accepted(count)
                return None
            finally:
                self._pace.end()

    async def _try_once(self, pack: Pack) -> None:
        answer_within = self._pool.answer_within + pack.size / _SLOWEST
        async with self._pool.slot() as sender:
            with self._grace.period(_FINISH_WITHIN, answer_within) as scope:
                await clients.make_ready(sender)  # until then it is certain that nothing was sent
                if self._is_withheld(pack):
                    return
                pack.in_doubt = True
                in_flight().began(len(pack.items))
                begun = time.monotonic()
                try:
                    numbers = await self._method.deliver(sender, pack)
                    self._answers += 1
                    if self._answers >= _BEFORE_MORE:
                        self._pool.limiter.answered(time.monotonic() - begun)
                except Exception as error:
                    pack.in_doubt = Failure.of(error).is_unanswered
                    raise
                finally:
                    in_flight().ended(len(pack.items))
                self._finish_pack(pack, Outcome(OutcomeStatus.SETTLED, self._method.verb, self._pool.address), numbers)
            await anyio.lowlevel.checkpoint_if_cancelled()
            if scope.cancelled_caught:
                raise OperationTimeoutError(message=f"No answer came within {answer_within:.0f} seconds.")

    def _is_withheld(self, pack: Pack) -> bool:
        """Take out the messages that are not to be sent any more; tell whether none is left."""
        if self._method.withhold is None:
            return False
        ends = [(item, self._method.withhold(item.index)) for item in pack.items]
        pack.items = [item for item, end in ends if end is None]
        for item, end in ends:
            if end is not None:
                outcome = Outcome(end[0], self._method.verb, self._pool.address, description=end[1])
                self._finish([item.index], end[0], [_of_message(outcome, item, None)])
        if not pack.items:
            self._unfinished.discard(pack)
        return not pack.items

    def _finish_pack(self, pack: Pack, outcome: Outcome, numbers: Sequence[int | None] | None = None) -> None:
        self._unfinished.discard(pack)
        each = map(_of_message, repeat(outcome), pack.items, numbers or repeat(None))
        self._finish([item.index for item in pack.items], outcome.status, each)

    def _finish(self, indexes: Sequence[int], status: OutcomeStatus, outcomes: Iterable[Outcome]) -> None:
        self.tally.note_alike(indexes, status, outcomes)
        if self._progress is not None:
            self._progress(len(indexes))


def _of_message(outcome: Outcome, item: EncodedMessage, number: int | None) -> Outcome:
    # Not replace(), which takes as long as the rest of sending a message.
    return Outcome(
        outcome.status,
        outcome.verb,
        outcome.entity,
        number,
        item.message_id,
        outcome.condition,
        outcome.description,
        outcome.tracking_id,
        outcome.retryable,
    )
