"""Sending with a limit on what is in flight, and an outcome for every message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import anyio
import anyio.lowlevel
import anyio.to_thread
from azure.servicebus.exceptions import MessageSizeExceededError, OperationTimeoutError, ServiceBusServerBusyError

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, Message, Outcome, OutcomeStatus, Report, Tally
from sbnotebook.settlement.connecting.failures import outcome_of_error
from sbnotebook.settlement.grace import Grace
from sbnotebook.settlement.pace import Pace
from sbnotebook.settlement.sdk import errors, senders
from sbnotebook.settlement.sending.packing import Item, Pack, Packer
from sbnotebook.settlement.sending.sender_pool import SenderPool
from sbnotebook.settlement.terms import DEFAULT_MAX_IN_FLIGHT, Progress
from sbnotebook.settlement.watch import reporting
from sbnotebook.settlement.wire.encoded_rows import EncodedRows

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from azure.servicebus.aio import ServiceBusSender

__all__ = ["SendOptions", "SenderPool", "Way", "deliver_many", "send_many"]


@dataclass(frozen=True, slots=True)
class Way:
    """How packs get to the service.

    Args:
        verb: the verb of the outcomes.
        carry: brings a pack there with an open sender and waits for the confirmation; gives the sequence numbers where
            they are told.
        max_count: messages in one pack at most.
        share: how much of the size of a batch messages may take, because something else travels with them.
    """

    verb: str
    carry: Callable[[ServiceBusSender, Pack], Awaitable[Sequence[int | None]]]
    max_count: int
    share: float = 1.0


class SendOptions(TypedDict, total=False):
    """How fast messages are sent; see :func:`send_many`."""

    max_in_flight: int
    batch_size: int | None
    pace: Pace | None
    progress: Progress | None
    tally: Tally | None


_MAX_BATCH_COUNT: Final = 1000
_MAX_BYTES_IN_FLIGHT: Final = 32 * 1024 * 1024
"""What is in flight at once, in bytes; a message that is larger goes alone."""
_ATTEMPTS: Final = 8
"""How often a pack is tried that the service refused because it is busy: for about 50 seconds."""
_ATTEMPTS_TO_CONNECT: Final = 3
_RECONNECT_AFTER: Final = 0.5
"""Seconds, twice as many after each attempt."""
_SLOWEST: Final = 50_000
"""Bytes a second, at which a large transfer is still waited for."""
_FINISH_WITHIN: Final = 10.0
"""Seconds to wait for what is in flight when the caller is cancelled."""
_LOOK_AGAIN: Final = 0.5
"""Seconds after which it is looked whether messages have waited long enough for others."""
_PULL_WITHIN: Final = 1.0
"""Seconds to wait for the input's next message when the caller is cancelled."""
_CUT_OFF: Final = {
    True: (OutcomeStatus.UNCONFIRMED, "It was interrupted before the answer came: the message may have arrived."),
    False: (OutcomeStatus.SKIPPED, "It was interrupted before the message was sent."),
}
_CONTENT_CONDITIONS: Final = frozenset(
    {
        "amqp:decode-error",
        "amqp:invalid-field",
        "amqp:not-allowed",
        "amqp:precondition-failed",
        "com.microsoft:argument-error",
        "com.microsoft:argument-out-of-range",
    }
)
"""What a transfer is rejected with for its content (AMQP 1.0 section 2.8.15, and Service Bus's own)."""


async def send_many(
    pool: SenderPool, messages: Iterable[Message | EncodedRows], **options: Unpack[SendOptions]
) -> Report:
    """Send messages and wait for the confirmation of each.

    Messages of one session or partition key are sent in their order, one transfer of them at a time. A message that
    is larger than a batch may be is sent alone, as long as the entity takes it.

    Args:
        pool: senders to the entity.
        messages: pulled in a thread, one by one as there is room: as many transfers ahead as may be in flight. Rows
            that are encoded already count as so many messages.
        max_in_flight: transfers that wait for their confirmation at once, 10 by default; fewer while they have more
            than 32 MiB.
        batch_size: messages in one transfer at most; None packs as many as the entity's size limit allows, 1
            sends each on its own.
        pace: how many a second at most, None for no limit.
        progress: told of every message that is finished.
        tally: is told each outcome as it comes, and makes the report; None for one that keeps them all.

    Returns:
        An outcome for each message, in the same order. A transfer without an answer is UNCONFIRMED and is not
        repeated, because its messages may have arrived. One that the service refused because it is busy, or that
        found no connection, is tried again, and everybody goes slower for a while.

        When the caller is cancelled, no more is pulled, what is in flight is waited for, for ten seconds at most, and
        the report stays with who watches (:class:`sbnotebook.settlement.watch.Watch`): what had been pulled and was
        never sent is SKIPPED.

    Raises:
        ConfigurationError: a limit that cannot be.
        azure.servicebus.exceptions.ServiceBusError: the entity cannot be sent to; nothing was pulled.
        Exception: what the iterable itself raises; what was pulled before is sent first, and a note on the exception
            says how that ended.
    """
    return await deliver_many(pool, messages, _SEND, **options)


async def _send(sender: ServiceBusSender, pack: Pack) -> Sequence[int | None]:
    await senders.send_payload(sender, pack.transfer(), batch=pack.is_batch)
    return [None] * len(pack.items)


_SEND: Final = Way("send", _send, _MAX_BATCH_COUNT)


async def deliver_many(
    pool: SenderPool,
    messages: Iterable[Message | EncodedRows],
    way: Way,
    *,
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
    batch_size: int | None = None,
    pace: Pace | None = None,
    progress: Progress | None = None,
    tally: Tally | None = None,
) -> Report:
    """What :func:`send_many` does, for any way to bring packs to the service."""
    if max_in_flight < 1 or (batch_size is not None and batch_size < 1):
        raise ConfigurationError("max_in_flight and batch_size are 1 or more.")
    pace = pace or Pace(None)
    # With a rate no transfer holds more than a second's messages, so that a short send is spread, too.
    max_count = min(way.max_count, batch_size or way.max_count, pace.at_once or way.max_count)
    sizes = await pool.sizes()
    sizes = sizes._replace(batch=int(sizes.batch * way.share))
    arrived = _Bell()
    packer = Packer(messages, way.verb, pool.address, sizes, max_count, arrived.ring)
    run = _Run(pool, packer, arrived, way, max_in_flight, pace, progress, tally or Tally())
    with reporting(run.tally.report):
        try:
            await run.carry_out()
        finally:
            run.close()
    report = run.tally.report()
    if packer.failure is not None:
        packer.failure.add_note(f"The messages before it: {report}.")
        raise packer.failure
    return report


class _Bell:
    """Wakes this loop from another thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._rung.set)

    async def wait(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._rung.wait()
        self._rung.clear()


class _Run:
    """The state of one call of :func:`deliver_many`."""

    def __init__(
        self,
        pool: SenderPool,
        packer: Packer,
        arrived: _Bell,
        way: Way,
        max_in_flight: int,
        pace: Pace,
        progress: Progress | None,
        tally: Tally,
    ) -> None:
        self.tally = tally
        self._pool = pool
        self._packer = packer
        self._arrived = arrived
        self._way = way
        self._max_in_flight = max_in_flight
        self._pace = pace
        self._progress = progress
        self._order: dict[str, anyio.Lock] = {}
        self._unfinished: set[Pack] = set()
        self._in_hand = self._bytes = self._workers = 0
        self._handed: asyncio.Queue[Pack | None] = asyncio.Queue()
        # As much waits ready as is in flight, so that what is answered together is followed together; but what is paced
        # or can be held up begins at once when it is handed over.
        self._most_in_hand = max_in_flight * (2 if pace.is_free else 1)
        self._freed = asyncio.Event()
        self._grace = Grace(packer.stop)

    async def carry_out(self) -> None:
        async with self._grace.watching(), anyio.create_task_group() as workers:
            workers.start_soon(self._pull)
            await self._feed(workers)
            for _ in range(self._workers):
                self._handed.put_nowait(None)

    def close(self) -> None:
        """Give an outcome to everything that was pulled and has none, because the caller was cancelled."""
        packs, refused = self._packer.leftovers()
        for index, outcome in refused:
            self._finish(index, outcome)
        for pack in (*self._unfinished, *packs):
            status, said = _CUT_OFF[pack.asked]
            self._finish_pack(pack, Outcome(status, self._way.verb, self._pool.address, description=said))

    # ------------------------------------------------------------------ from the input to the workers

    async def _pull(self) -> None:
        with self._grace.period(_PULL_WITHIN):
            # In a thread: the user's code behind the iterable must not hold up what keeps locks alive.
            own = anyio.CapacityLimiter(1)
            await anyio.to_thread.run_sync(self._packer.run, abandon_on_cancel=True, limiter=own)

    def _want(self) -> None:
        room = 2 * self._max_in_flight - self._in_hand
        # What waits for its time is not pulled ahead.
        self._packer.want(min(room, 1) if self._pace.at_once else room)

    async def _feed(self, workers: TaskGroup) -> None:
        """Take what was pulled, packed, and hand it over as there is room."""
        self._want()
        while not self._packer.is_done:
            haul = self._packer.take()
            for index, outcome in haul.refused:
                self._finish(index, outcome)
            if haul.pack is not None:
                self._unfinished.add(haul.pack)
                self._in_hand += 1
                self._want()
                await self._hand_over(haul.pack, workers)
            elif not haul.refused:
                await self._arrived.wait(_LOOK_AGAIN)

    async def _hand_over(self, pack: Pack, workers: TaskGroup) -> None:
        await self._pace.wait(len(pack.items))  # always lets others run, so that packs are begun in their order
        while self._in_hand > self._most_in_hand or (self._bytes and self._bytes + pack.size > _MAX_BYTES_IN_FLIGHT):
            self._freed = asyncio.Event()
            await self._freed.wait()
        self._bytes += pack.size
        if self._workers < min(self._in_hand, self._max_in_flight):
            self._workers += 1
            workers.start_soon(self._work)
        self._handed.put_nowait(pack)

    async def _work(self) -> None:
        while (pack := await self._handed.get()) is not None:
            await self._work_on(pack)

    async def _work_on(self, pack: Pack) -> None:
        # Messages of one session keep their order: one transfer of a key at a time, first come first.
        async with self._turn(pack.key):
            await self._deliver(pack)
        self._forget_turn(pack.key)
        self._in_hand -= 1
        self._bytes -= pack.size
        self._want()
        self._freed.set()

    def _turn(self, key: str | None) -> AbstractAsyncContextManager[None]:
        return nullcontext() if key is None else self._order.setdefault(key, anyio.Lock())

    def _forget_turn(self, key: str | None) -> None:
        turn = self._order.get(key) if key is not None else None
        if key is not None and turn is not None and not turn.locked():
            del self._order[key]

    # ------------------------------------------------------------------ one pack

    async def _deliver(self, pack: Pack) -> None:
        error = await self._try_often(pack)
        if error is None:
            return
        if pack.is_batch and not pack.asked and _can_split(error):
            halves = pack.halves()
            self._unfinished.remove(pack)
            self._unfinished.update(halves)
            for half in halves:
                await self._deliver(half)
            return
        outcome = outcome_of_error(
            error, verb=self._way.verb, entity=self._pool.address, sequence_number=None, message_id=None
        )
        if not pack.asked and outcome.status is OutcomeStatus.UNCONFIRMED:
            # The connection could not be opened: it is certain that nothing was sent.
            outcome = replace(outcome, status=OutcomeStatus.FAILED, retryable=True)
        self._finish_pack(pack, outcome)

    async def _try_often(self, pack: Pack) -> Exception | None:
        """Deliver a pack, again and again while that can do no harm; the error that it ended with, if any."""
        error: Exception | None = None
        for attempt in range(_ATTEMPTS):
            await self._pool.throttle.wait()
            try:
                await self._try_once(pack)
            except ServiceBusServerBusyError as latest:
                error = latest
                self._pool.throttle.refused()
            except Exception as latest:  # noqa: BLE001 (each message has an outcome, whatever the SDK raises)
                if pack.asked or not _is_unanswered(latest) or attempt >= _ATTEMPTS_TO_CONNECT - 1:
                    return latest
                error = latest
                await anyio.sleep(_RECONNECT_AFTER * 2**attempt)
            else:
                self._pool.throttle.accepted()
                return None
        return error

    async def _try_once(self, pack: Pack) -> None:
        patience = self._pool.answer_within + pack.size / _SLOWEST
        async with self._pool.slot() as sender:
            with self._grace.period(_FINISH_WITHIN, patience) as scope:
                await self._ask(pack, sender)
            await anyio.lowlevel.checkpoint_if_cancelled()
            if scope.cancelled_caught:
                raise OperationTimeoutError(message=f"No answer came within {patience:.0f} seconds.")

    async def _ask(self, pack: Pack, sender: ServiceBusSender) -> None:
        pack.asked = True
        try:
            numbers = await self._way.carry(sender, pack)
        except Exception as error:
            pack.asked = _is_unanswered(error)
            raise
        self._finish_pack(pack, Outcome(OutcomeStatus.SETTLED, self._way.verb, self._pool.address), numbers)

    def _finish_pack(self, pack: Pack, outcome: Outcome, numbers: Sequence[int | None] | None = None) -> None:
        self._unfinished.discard(pack)
        each = map(_of_item, repeat(outcome), pack.items, numbers or repeat(None))
        self.tally.note_alike([item.index for item in pack.items], outcome.status, each)
        if self._progress is not None:
            self._progress(len(pack.items))

    def _finish(self, index: int, outcome: Outcome) -> None:
        self.tally.note(index, outcome)
        if self._progress is not None:
            self._progress(1)


def _of_item(outcome: Outcome, item: Item, number: int | None) -> Outcome:
    # Not replace(), which takes as long as the rest of a message together.
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


def _can_split(error: Exception) -> bool:
    # Refused for what is in it, not for where it goes or who sends it: alone, most of its messages may be taken.
    condition, _ = errors.condition_of(error)
    return isinstance(error, MessageSizeExceededError) or condition in _CONTENT_CONDITIONS


def _is_unanswered(error: Exception) -> bool:
    place = EntityAddress("unknown")
    outcome = outcome_of_error(error, verb="send", entity=place, sequence_number=None, message_id=None)
    return outcome.status is OutcomeStatus.UNCONFIRMED
