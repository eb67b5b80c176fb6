"""A query that consumes, in the process that drives it: its locks, its scan for orphans, and its counts."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, Final, TypeVar

import anyio

from sbnotebook.client.portal import Keeper, Work, portal, run
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, MessageState
from sbnotebook.settlement import (
    OUTAGE_PATIENCE,
    AsyncEntity,
    AsyncNamespace,
    DeferredDeleter,
    LockEvent,
    SequenceNumbers,
)
from sbnotebook.spark.batch_locking import BatchLocker, dead_letters_deferred
from sbnotebook.spark.consume_offset import BatchMessage, ConsumeOffset, ranges_of
from sbnotebook.spark.held_batches import HeldBatches
from sbnotebook.spark.micro_batches import MicroBatches
from sbnotebook.spark.options import StreamOptions
from sbnotebook.spark.peek_reader import Range, divide, pages_up_to
from sbnotebook.spark.scrubbing import in_words
from sbnotebook.spark.session_batches import SessionLocker

T = TypeVar("T")

_MAX_BYTES: Final = 256 << 20
"""Bytes of a micro-batch by default, which its tasks read."""
_RENEW_FOR: Final = timedelta(days=3650)
_LOG: Final = logging.getLogger(__name__)
_CLOSE_WITHIN, _STEP_WITHIN = 6.0, 1.0
"""Seconds to close in, and for each step where none are left: a query that starts again waits for 10 seconds."""
_COUNT_EVERY, _COUNT_AGAIN, _COUNT_WITHIN = 15.0, 600.0, 15.0
"""Seconds: Service Bus throttles management operations, and where it refuses one it refuses the next."""
_MAXIMUM_WITHIN: Final = 5.0
_REST: Final = 2.0
"""How long to rest after each page of a scan, in times that the page took: the stream goes first."""
_NAMED: Final = 5
_NEEDS_SESSIONS: Final = "requires sessions"
_REFUSALS: Final = {
    _NEEDS_SESSIONS: (
        "{} requires sessions, whose order a stream keeps with exactly-once only: leave out the option delivery."
    ),
    "in its subscriptions": (
        "Messages cannot be consumed from the topic {0}: name a subscription, {0}/subscriptions/NAME."
    ),
}
"""Texts in the errors of opening an entity, and what sbnotebook says instead."""


class ConsumeQuery:
    """Connections and locks of one query, from its first micro-batch until it ends."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._namespace = AsyncNamespace(options.namespace.connection(), archive=None)
        self._entity = self._namespace.entity(options.entity)
        batch = self._entity.batch(renew_for=_RENEW_FOR, archived=False, journalled=False, keep_bodies=False)
        batch.renewal.watch(self._log_trouble)
        max_bytes = options.max_bytes or _MAX_BYTES
        self._keeper: Keeper | None = None
        self._locker: BatchLocker | SessionLocker = BatchLocker(self._entity, batch, max_bytes)
        self._deleter = DeferredDeleter(self._namespace.connection, self._namespace.peeker(options.entity))
        self._batches: MicroBatches | HeldBatches
        try:
            self._keeper = run(Keeper.opened, batch)
        except Exception as error:
            if _NEEDS_SESSIONS not in in_words(error) or not options.defers:
                run(self._namespace.close)
                if (refused := _refused(error, options.entity)) is not None:
                    raise refused from None
                raise
            self._locker = SessionLocker(self._entity, max_bytes)
        if not options.defers and isinstance(self._locker, BatchLocker):
            self._batches = HeldBatches(self._entity, self._locker)
        else:
            deleter = self._locker if isinstance(self._locker, SessionLocker) else self._deleter
            self._batches = MicroBatches(
                self._entity, self._locker, deleter, fails_on_data_loss=options.fail_on_data_loss
            )
        is_looking = options.defers and options.orphans != "ignore"
        self._scan = OrphanScan(self._entity) if is_looking else None
        self._scanning: Future[int] | None = None
        self._is_begun = False
        self._counted: tuple[float, int | None] | None = None
        """The time until which a count holds, and the count plus the messages that this process had removed by then."""
        self._work: Work[Any] | None = None

    def _log_trouble(self, event: LockEvent) -> None:
        if event.is_trouble:
            _LOG.warning("Locks of %s: %s", self._options.entity, event)

    def take_only_what_is_there(self) -> None:
        """Take the messages of this moment, and none that come later."""
        self._locker.until = run(SequenceNumbers.of(self._entity, patience=OUTAGE_PATIENCE).lasts)

    def latest(self, start: ConsumeOffset, max_messages: int) -> ConsumeOffset:
        """Remove the durable messages, and lock the next micro-batch: see :meth:`MicroBatches.latest`."""
        if not start.is_adopted:  # adopted ones that an earlier process left are orphans again
            self._leave_out(start)
        self._begin()
        end = self._run_cancellable(self._batches.latest, start, max_messages)
        if end != start:
            self._leave_out(end)
        elif self._locker.until is not None and self._scanning is not None and self._scan is not None:
            self._scan.rests = False  # it is the last time that Spark asks
            self._scanning.result()
        return end

    def plan(self, end: ConsumeOffset) -> tuple[int, ...]:
        """Defer the messages of a micro-batch; return their numbers."""
        self._leave_out(end)
        return self._run_cancellable(self._batches.plan, end)

    def _leave_out(self, offset: ConsumeOffset) -> None:
        if self._scan is not None:
            self._scan.except_for(offset.numbers)

    def divide(self, numbers: Sequence[int], count: int) -> list[list[Range]]:
        """Divide the messages of the last plan among tasks, each session to one of them."""
        if not isinstance(self._locker, SessionLocker):
            return divide(ranges_of(numbers), count) or [[]]
        sessions, whole = self._locker.sessions, dict[str, list[int]]()
        for number in numbers:
            whole.setdefault(sessions[number], []).append(number)
        parts: list[list[int]] = [[] for _ in range(max(1, min(count, len(whole))))]
        for session in sorted(whole.values(), key=len, reverse=True):
            min(parts, key=len).extend(session)
        return [ranges_of(sorted(part)) for part in parts]

    def _run_cancellable(self, function: Callable[..., Awaitable[T]], *arguments: object) -> T:
        self._work = work = Work(function, *arguments)
        return work.start().result()

    def _begin(self) -> None:
        if self._is_begun:
            return
        if self._options.defers and self._entity.address.sub_queue is None:  # which alone has a maximum
            run(self._require_deliveries)
        if self._scan is None:
            pass
        elif self._options.orphans == "report":
            self._scanning = portal().start_task_soon(self._scan.report)
        else:
            self._batches.orphans |= run(self._scan.find)
        self._is_begun = True

    async def _require_deliveries(self) -> None:
        """Refuse an entity whose maximum delivery count is 1 before a message of it is dead-lettered."""
        most: int | None = None
        with contextlib.suppress(Exception), anyio.fail_after(_MAXIMUM_WITHIN):  # it needs the right Manage
            most = await self._entity.max_delivery_count()
        if most == 1:
            raise dead_letters_deferred(self._entity.address)

    def progress(self) -> dict[str, Any]:
        """Return the entity and the counts of this process; the backlog and the orphans where they are known."""
        batches = self._batches
        known: dict[str, Any] = {
            "entity": self._options.entity.path,
            "locked": batches.locked,
            "deferred": batches.deferred,
            "removed": batches.removed,
            "inFlight": batches.held_count,
        }
        backlog = run(self._backlog)
        if backlog is not None:
            known["backlog"] = backlog
        if self._scanning is not None and self._scanning.done():
            known["orphans"] = self._scanning.result()
        return known

    async def _backlog(self) -> int | None:
        if self._counted is None or anyio.current_time() > self._counted[0]:
            count: int | None = None
            with contextlib.suppress(Exception), anyio.fail_after(_COUNT_WITHIN):  # it needs the right Manage
                address = self._entity.address
                (counts,) = await self._namespace.counts(address.entity)
                count = counts.count_in(address.sub_queue) + self._batches.removed
            self._counted = anyio.current_time() + (_COUNT_EVERY if count is not None else _COUNT_AGAIN), count
        count = self._counted[1]
        return None if count is None else max(0, count - self._batches.removed - self._batches.held_count)

    def close(self) -> None:
        """Release the locked messages that are not deferred, and close the connections, within some seconds."""
        if self._scanning is not None:
            self._scanning.cancel()
        until = time.monotonic() + _CLOSE_WITHIN
        with contextlib.suppress(Exception):  # locks end by themselves
            if self._work is not None:  # it still runs when a signal has ended the wait for it
                self._work.cancel()
                self._work.wait(_left(until))
        with contextlib.suppress(Exception):
            if isinstance(self._batches, HeldBatches):
                portal().start_task_soon(self._batches.close).result(_left(until))
            if self._keeper is not None:
                run(self._keeper.close, _left(until))
        with contextlib.suppress(Exception):
            portal().start_task_soon(self._close).result(_left(until))

    async def _close(self) -> None:
        await self._deleter.close()
        await self._namespace.close()


def _left(until: float) -> float:
    return max(_STEP_WITHIN, until - time.monotonic())


def _refused(error: Exception, entity: EntityAddress) -> ConfigurationError | None:
    words = in_words(error)
    return next((ConfigurationError(text.format(entity)) for found, text in _REFUSALS.items() if found in words), None)


class OrphanScan:
    """One scan of an entity for messages that are deferred and belong to no micro-batch.

    Without the stream, no receiver gets these orphans, because a deferred message is received by its number only.
    """

    def __init__(self, entity: AsyncEntity) -> None:
        self.rests = True
        """Whether the scan leaves most of the time to the stream; may be changed while it runs."""
        self._entity = entity
        self._ours: set[int] = set()
        self._is_done = False

    def except_for(self, numbers: Iterable[int]) -> None:
        """Leave out messages of the stream itself."""
        if not self._is_done:
            self._ours.update(numbers)

    async def find(self) -> dict[int, BatchMessage]:
        """Scan without rests; return the orphans by number."""
        self.rests = False
        return await self._scan()

    async def report(self) -> int:
        """Scan beside the stream, and warn once if there are orphans; return how many."""
        address = self._entity.address
        try:
            found = sorted(await self._scan())
        except Exception as error:  # noqa: BLE001 (the scan must not end the stream)
            _LOG.warning("Deferred messages of %s could not be looked for: %s", address, in_words(error))
            return 0
        if found:
            _LOG.warning(
                "%d messages of %s are deferred and belong to no micro-batch of this stream (the first: %s). Unless "
                "another stream or program deferred them and will receive them, they stay in the entity: "
                '.option("orphans", "adopt") takes them into this stream, and "ignore" ends this warning.',
                len(found),
                address,
                ", ".join(f"#{number}" for number in found[:_NAMED]),
            )
        return len(found)

    async def _scan(self) -> dict[int, BatchMessage]:
        orphans: dict[int, BatchMessage] = {}
        lasts = await SequenceNumbers.of(self._entity, patience=OUTAGE_PATIENCE).lasts()
        began = anyio.current_time()
        async for page in pages_up_to(self._entity, lasts):
            # The number and the state of a message are in none of its sections.
            deferred = [
                (payload, message)
                for payload, message in zip(page.payloads, page.messages(()), strict=True)
                if message.state is MessageState.DEFERRED
            ]
            orphans |= {
                message.sequence_number: BatchMessage.of(message, len(payload)) for payload, message in deferred
            }
            if self.rests:
                await anyio.sleep((anyio.current_time() - began) * _REST)
            began = anyio.current_time()
        # Messages that this stream took in the meantime were in its offset before they were deferred.
        ours, self._ours, self._is_done = self._ours, set(), True
        return {number: message for number, message in orphans.items() if number not in ours}
