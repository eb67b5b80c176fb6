"""Sending with a limit on what is in flight, and an outcome for every message."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError, ServiceBusServerBusyError
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, Message, Outcome, OutcomeStatus, Report
from sbnotebook.settlement import sdk_internals
from sbnotebook.settlement.connection import Connection
from sbnotebook.settlement.conversion import payload_of
from sbnotebook.settlement.failures import outcome_of_error
from sbnotebook.settlement.pace import Pace
from sbnotebook.settlement.settle import DEFAULT_MAX_IN_FLIGHT, Progress

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from azure.servicebus import ServiceBusMessageBatch
    from azure.servicebus.aio import ServiceBusSender

__all__ = ["SenderPool", "send_many"]

_MAX_IDLE: Final = 240.0
"""Seconds after which an idle sender is replaced: the service drops idle connections, and the SDK does not notice."""
_ENVELOPE_BYTES: Final = 1024
_ITEM_BYTES: Final = 8
_MAX_BATCH_COUNT: Final = 1000
_MAX_BUFFERED: Final = 5000
_BUSY_ATTEMPTS: Final = 6
_ANSWER_WITHIN: Final = 60.0
"""Seconds to wait for a confirmation; then nobody knows whether the messages arrived."""
_CLOSE_WITHIN: Final = 5.0
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


class SenderPool:
    """Senders to one entity that are kept warm: one for each transfer in flight, because none is safe to share.

    Args:
        connection: the namespace.
        address: a queue or a topic.
    """

    def __init__(self, connection: Connection, address: EntityAddress) -> None:
        self.address = address
        self._connection = connection
        self._idle: list[tuple[ServiceBusSender, float]] = []
        self.max_batch_bytes: int | None = None
        """The entity's limit for one batch in bytes, known once a sender was open."""

    async def warm(self, count: int) -> None:
        """Open senders at once, so that the first sends do not wait for connections.

        Raises:
            azure.servicebus.exceptions.ServiceBusError: the entity cannot be sent to.
        """
        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(count - len(self._idle)):
                    tasks.start_soon(self._open_one)
        except ExceptionGroup as group:
            raise group.exceptions[0] from None  # they all failed for the same reason

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[ServiceBusSender]:
        """A sender of one's own for a while."""
        sender = await self._take()
        try:
            yield sender
        except ServiceBusError:
            self._keep(sender)  # the SDK has closed and reopens the link by itself where that is needed
            raise
        except BaseException:
            # Cut off in the middle: what it waits for may still come, and must not be taken for something else.
            with anyio.move_on_after(_CLOSE_WITHIN, shield=True):
                await sender.close()
            raise
        self._keep(sender)

    async def close(self) -> None:
        """Close all idle senders."""
        idle, self._idle = self._idle, []
        async with anyio.create_task_group() as tasks:
            for sender, _ in idle:
                tasks.start_soon(sender.close)

    async def _take(self) -> ServiceBusSender:
        while self._idle:
            sender, since = self._idle.pop()
            if time.monotonic() - since < _MAX_IDLE:
                return sender
            await sender.close()
        return await self._open()

    async def _open(self) -> ServiceBusSender:
        sender = self._connection.sender(self.address)
        # The public call that opens the link; it learns the entity's limits, too.
        await sender.create_message_batch()
        self.max_batch_bytes = sdk_internals.max_batch_bytes(sender)
        return sender

    async def _open_one(self) -> None:
        self._keep(await self._open())

    def _keep(self, sender: ServiceBusSender) -> None:
        self._idle.append((sender, time.monotonic()))


@dataclass(slots=True)
class _Item:
    index: int
    message: Message
    payload: bytes


@dataclass(slots=True)
class _Pack:
    """Messages that travel in one transfer: of one session or partition key, or of none."""

    key: str | None
    items: list[_Item] = field(default_factory=list[_Item])
    size: int = _ENVELOPE_BYTES

    def fits(self, payload: bytes, max_bytes: int, max_count: int) -> bool:
        return len(self.items) < max_count and self.size + len(payload) + _ITEM_BYTES <= max_bytes

    def add(self, item: _Item) -> None:
        self.items.append(item)
        self.size += len(item.payload) + _ITEM_BYTES

    def halves(self) -> tuple[_Pack, _Pack]:
        middle = len(self.items) // 2
        return _Pack(self.key, self.items[:middle]), _Pack(self.key, self.items[middle:])


async def send_many(
    pool: SenderPool,
    messages: Iterable[Message],
    *,
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
    batch_size: int | None = None,
    pace: Pace | None = None,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Send messages and wait for the confirmation of each.

    Args:
        pool: senders to the entity.
        messages: pulled in a thread, one by one as there is room, not read ahead.
        max_in_flight: transfers that wait for their confirmation at once.
        batch_size: messages in one transfer at most; None packs as many as the entity's size limit allows, 1
            sends each on its own.
        pace: how many a second at most, None for no limit.
        progress: told of every message that is finished.

    Returns:
        An outcome for each message, in the same order. A transfer without an answer is UNCONFIRMED and is not
        repeated, because its messages may have arrived.

    Raises:
        ConfigurationError: a limit that cannot be.
        Exception: what the iterable itself raises; what was pulled before is sent first, and a note on the exception
            says how that ended.
    """
    if max_in_flight < 1 or (batch_size is not None and batch_size < 1):
        raise ConfigurationError("max_in_flight and batch_size are 1 or more.")
    run = _Run(pool, batch_size or _MAX_BATCH_COUNT, pace or Pace(None), progress)
    async with pool.slot():
        pass  # opens the first sender: the packer has to know the entity's limit
    failure: Exception | None = None
    to_workers, from_packer = anyio.create_memory_object_stream[_Pack](0)
    async with anyio.create_task_group() as tasks:
        for _ in range(max_in_flight):
            tasks.start_soon(run.work, from_packer.clone())
        from_packer.close()
        async with to_workers:
            failure = await run.feed(messages, to_workers)
    outcomes = [run.outcomes[index] for index in range(len(run.outcomes))]
    if failure is not None:
        failure.add_note(f"The messages before it: {Report(outcomes)}.")
        raise failure
    return outcomes


class _Run:
    """The state of one call of :func:`send_many`."""

    def __init__(self, pool: SenderPool, batch_size: int, pace: Pace, progress: Progress | None) -> None:
        self.outcomes: dict[int, Outcome] = {}
        self._pool = pool
        self._pace = pace
        # With a rate no transfer holds more than a second's messages, so that a short send is spread, too.
        self._batch_size = min(batch_size, pace.at_once or batch_size)
        self._progress = progress
        self._order: dict[str, anyio.Lock] = {}

    async def feed(self, messages: Iterable[Message], to_workers: MemoryObjectSendStream[_Pack]) -> Exception | None:
        """Pull the messages, pack them and hand them over; the exception with which the iterable ended, if any."""
        packs = self._packs(messages)
        while True:
            try:
                # In a thread: the user's code behind the iterable must not hold up what keeps locks alive.
                pack = await anyio.to_thread.run_sync(next, packs, None, abandon_on_cancel=True)
            except Exception as error:  # noqa: BLE001 (the user's own; it is raised when everything is settled)
                return error
            if pack is None:
                return None
            await self._pace.wait(len(pack.items))
            await to_workers.send(pack)

    async def work(self, packs: MemoryObjectReceiveStream[_Pack]) -> None:
        async with packs:
            async for pack in packs:
                # Messages of one session keep their order: one transfer of a key at a time, first come first.
                async with self._turn(pack.key):
                    await self._deliver(pack)
                self._forget_turn(pack.key)

    def _forget_turn(self, key: str | None) -> None:
        turn = self._order.get(key) if key is not None else None
        if key is not None and turn is not None and not turn.locked():
            del self._order[key]

    def _turn(self, key: str | None) -> AbstractAsyncContextManager[None]:
        return nullcontext() if key is None else self._order.setdefault(key, anyio.Lock())

    def _packs(self, messages: Iterable[Message]) -> Iterator[_Pack]:
        failure: Exception | None = None
        open_packs: dict[str | None, _Pack] = {}
        try:
            yield from self._full_packs(messages, open_packs)
        except Exception as error:  # noqa: BLE001 (the user's iterable; what it gave before is sent first)
            failure = error
        yield from open_packs.values()
        if failure is not None:
            raise failure

    def _full_packs(self, messages: Iterable[Message], open_packs: dict[str | None, _Pack]) -> Iterator[_Pack]:
        limit = self._pool.max_batch_bytes or 0
        buffered = 0
        for index, message in enumerate(messages):
            item = self._encode(index, message, limit)
            if item is None:
                continue
            key = message.session_id or message.partition_key
            pack = open_packs.get(key)
            if pack is not None and not pack.fits(item.payload, limit, self._batch_size):
                buffered -= len(pack.items)
                yield open_packs.pop(key)
            open_packs.setdefault(key, _Pack(key)).add(item)
            buffered += 1
            if len(open_packs[key].items) >= self._batch_size:
                buffered -= len(open_packs[key].items)
                yield open_packs.pop(key)
            elif buffered > _MAX_BUFFERED:  # many sessions with a few messages each
                yield from [open_packs.pop(each) for each in list(open_packs)]
                buffered = 0

    def _encode(self, index: int, message: Message, limit: int) -> _Item | None:
        try:
            payload = payload_of(message)
        except (TypeError, ValueError, OverflowError) as error:
            self._finish_without_asking(index, message, "amqp:encode-error", str(error))
            return None
        if len(payload) + _ITEM_BYTES + _ENVELOPE_BYTES > limit:
            self._finish_without_asking(
                index,
                message,
                "amqp:link:message-size-exceeded",
                f"The message is {len(payload):,} bytes, {self._pool.address} takes {limit - _ENVELOPE_BYTES:,}.",
            )
            return None
        return _Item(index, message, payload)

    async def _deliver(self, pack: _Pack) -> None:
        may_have_arrived = False
        try:
            async with self._pool.slot() as sender:
                async for attempt in _while_the_service_is_busy():
                    with attempt:
                        batch = await _batch_of(pack, sender)
                        may_have_arrived = True
                        with anyio.fail_after(_ANSWER_WITHIN):
                            await sender.send_messages(batch)
        except Exception as error:  # noqa: BLE001 (each message has an outcome, whatever the SDK raises)
            if len(pack.items) > 1 and _can_split(error):
                for half in pack.halves():
                    await self._deliver(half)
            else:
                self._fail(pack, error, may_have_arrived)
        else:
            for item in pack.items:
                self._finish(item.index, self._outcome(item.message, OutcomeStatus.SETTLED))

    def _fail(self, pack: _Pack, error: Exception, may_have_arrived: bool) -> None:
        for item in pack.items:
            outcome = outcome_of_error(
                error,
                verb="send",
                entity=self._pool.address,
                sequence_number=None,
                message_id=item.message.message_id,
            )
            if not may_have_arrived and outcome.status is OutcomeStatus.UNCONFIRMED:
                # The connection could not be opened: it is certain that nothing was sent.
                outcome = replace(outcome, status=OutcomeStatus.FAILED, retryable=True)
            self._finish(item.index, outcome)

    def _outcome(self, message: Message, status: OutcomeStatus) -> Outcome:
        return Outcome(status, "send", self._pool.address, message_id=message.message_id)

    def _finish_without_asking(self, index: int, message: Message, condition: str, description: str) -> None:
        outcome = Outcome(
            OutcomeStatus.FAILED,
            "send",
            self._pool.address,
            message_id=message.message_id,
            condition=condition,
            description=description,
            retryable=False,
        )
        self._finish(index, outcome)

    def _finish(self, index: int, outcome: Outcome) -> None:
        self.outcomes[index] = outcome
        if self._progress is not None:
            self._progress(1)


def _can_split(error: Exception) -> bool:
    # Refused for what is in it, not for where it goes or who sends it: alone, most of its messages may be taken.
    condition, _ = sdk_internals.condition_of(error)
    return isinstance(error, MessageSizeExceededError) or condition in _CONTENT_CONDITIONS


def _while_the_service_is_busy() -> AsyncRetrying:
    return AsyncRetrying(
        retry=retry_if_exception_type(ServiceBusServerBusyError),
        wait=wait_exponential(multiplier=0.5, max=30),
        stop=stop_after_attempt(_BUSY_ATTEMPTS),
        sleep=anyio.sleep,
        reraise=True,
    )


async def _batch_of(pack: _Pack, sender: ServiceBusSender) -> ServiceBusMessageBatch:
    batch = await sender.create_message_batch()
    first = pack.items[0].message
    envelope = (first.message_id, first.session_id, first.partition_key)
    sdk_internals.fill_batch(batch, (item.payload for item in pack.items), envelope)
    return batch
