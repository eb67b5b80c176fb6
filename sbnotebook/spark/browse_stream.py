"""Streaming an entity by peeking onward: nothing is locked, and nothing is removed.

A read can be narrowed to the messages that an expression may match. Spark's own way, ``DataSourceReader.pushFilters``,
loses rows in Spark 4.3, also where Spark applies each filter again. All queries of one frame share what the last of
them pushed down: a count without a filter, and a union of two filters. Source: ``PythonScanBuilder`` and
``PythonBatch`` of Spark 4.3.0; ``tests/spark/test_browse_stream_narrowing.py`` shows it.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from sbnotebook.client.portal import run
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, MessageState
from sbnotebook.model.message import end_of_partition, partition_of
from sbnotebook.settlement import (
    OUTAGE_PATIENCE,
    AsyncEntity,
    AsyncNamespace,
    PeekCursor,
    SequenceNumbers,
)
from sbnotebook.spark.options import MAX_NUMBER, ReadOptions, StreamOptions
from sbnotebook.spark.peek_reader import RangesOfTask, divide, read_ranges
from sbnotebook.spark.schema import MessageBatches
from sbnotebook.spark.scrubbing import scrubbed
from sbnotebook.spark.shipping import Shipped

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_VALUE: Final = r"-?[0-9]{1,18}|'[^'\\]*'"
_CONDITION: Final = re.compile(
    rf"(?P<column>[a-z_]\w*)(?:\s+BETWEEN\s+(?P<least>[0-9]{{1,18}})\s+AND\s+(?P<most>[0-9]{{1,18}})"
    rf"|\s*(?P<sign>==?|>=?|<=?|<>|!=|\s(?:NOT\s+)?LIKE\s)\s*(?P<value>{_VALUE})|\s+IS\s+(?:NOT\s+)?NULL)",
    re.IGNORECASE | re.ASCII,
)
_AND: Final = re.compile(r"\s+AND\s+", re.IGNORECASE)


def narrowed(expression: str, options: ReadOptions) -> dict[str, str]:
    """Return options for a read of those messages that an expression may match; of all for one of other forms.

    It knows comparisons of columns with values, joined by AND: those of ``sequence_number`` and ``state`` become
    options. Two columns do not. Times may differ from the order of the numbers, by the clocks of nodes that take over
    an entity (Microsoft's documentation, "Message sequencing and timestamps"), and dead letters keep their own. A
    session's name may be on messages of an entity without sessions, and no source says what Service Bus returns to a
    peek that names a session there.
    """
    first, last, state = options.from_sequence_number, options.to_sequence_number or MAX_NUMBER, options.state
    for column, sign, value, least, most in _conditions(expression.strip()):
        if column == "sequence_number":
            low, high = _bounds(sign, value) if sign else (int(least or 1), int(most or MAX_NUMBER))
            first, last = max(first, low), min(last, high)
        elif column == "state" and sign in ("=", "==") and value[1:-1] in list(MessageState):
            state = state or MessageState(value[1:-1])
    # Where no number matches, a read of one message is the least.
    numbers = {"fromSequenceNumber": str(first), "toSequenceNumber": str(max(first, last))}
    return numbers if state is None else numbers | {"state": state.value}


def _conditions(text: str) -> list[tuple[str, str, str, str, str]]:
    """Return column, sign, value, and the ends of BETWEEN, of each condition; nothing for an expression of other forms.

    Example:
        >>> _conditions("sequence_number > 5 AND Subject = 'UA'")
        [('sequence_number', '>', '5', '', ''), ('subject', '=', "'UA'", '', '')]
        >>> _conditions("sequence_number > 5 OR subject = 'UA'")
        []
    """
    conditions: list[tuple[str, str, str, str, str]] = []
    place: int | None = 0
    while place is not None:
        found = _CONDITION.match(text, place)
        if found is None:
            return []
        column, sign, value, least, most = found.group("column", "sign", "value", "least", "most")
        conditions.append((column.lower(), sign or "", value or "", least or "", most or ""))
        joint = _AND.match(text, found.end())
        if joint is None and found.end() < len(text):
            return []
        place = None if joint is None else joint.end()
    return conditions


def _bounds(sign: str, value: str) -> tuple[int, int]:
    if value.startswith("'"):
        return 1, MAX_NUMBER
    number = int(value)
    least = {">": number + 1}.get(sign, number if sign in ("=", "==", ">=") else 1)
    most = {"<": number - 1}.get(sign, number if sign in ("=", "==", "<=") else MAX_NUMBER)
    return least, most


_LOG: Final = logging.getLogger(__name__)
_ORDER_OF_DEATH: Final = (
    "Messages keep their numbers in %s, which they come to in any order: one that comes there behind another with a "
    "larger number is not a row of this stream. Use mode=consume, or read it as a batch."
)
_IDLE: Final = 0.5
"""Seconds to wait when nothing has come: Spark asks again at once, and Service Bus counts each request."""
_DENSE: Final = 2
"""Numbers for each message up to which looking at all messages to count them takes too long."""


class BrowseStream(Shipped, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Yields each new message once and consumes nothing, so that others can read and settle the messages, too.

    A micro-batch that is read again, by a repeated task, a second action or after a restart, has the same sequence
    numbers. Messages that were removed in the meantime are missing then. The stream never shows messages that were
    removed before it came to them, and shows no message a second time when its state changes. In a dead-letter queue,
    messages keep the numbers of the original entity and come in any order. The stream does not show a message that
    comes later with a smaller number than the last, and logs a warning about this when it begins.

    The stream is pickled and sent to the workers, so it holds no connection until the driver asks for an offset.

    Example:
        >>> letters = spark.readStream.format("servicebus").options(entity="orders/$dlq", target="emulator").load()
        ... # doctest: +SKIP
    """

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        MessageBatches(schema, options.decode)  # refuses it here, not in each worker
        self._namespace: AsyncNamespace | None = None
        self._until: Mapping[int, int] | None = None
        self._latest: BrowseOffset | None = None
        self._has_news = True

    # ---------------------------------------------------------------- where the query is driven

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """Return where a new stream begins: before all messages, at a number, or behind the last message."""
        options = self._options
        if options.entity.sub_queue is not None:
            _LOG.warning(_ORDER_OF_DEATH, options.entity)
        if options.from_sequence_number is not None:
            return BrowseOffset(options.entity, options.from_sequence_number).as_dict()
        with scrubbed(options.namespace.secrets):
            return BrowseOffset(options.entity, read=run(SequenceNumbers.of(self._entity()).lasts)).as_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        """Return how many messages a micro-batch has at most."""
        return ReadMaxRows(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """Read the messages of this moment, and none that come later."""
        with scrubbed(self._options.namespace.secrets):
            self._until = run(SequenceNumbers.of(self._entity()).lasts)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """Return where the next micro-batch ends."""
        with scrubbed(self._options.namespace.secrets):
            before = BrowseOffset.parse(start, self._options.entity)
            after = before.reading(run(self._reached, before, limit))
        self._has_news = after != before
        self._latest = after
        if not self._has_news and self._until is None:
            time.sleep(_IDLE)
        return after.as_dict()

    async def _reached(self, before: BrowseOffset, limit: ReadLimit) -> Mapping[int, int]:
        entity = self._entity()
        # Fail at once if Service Bus cannot be reached at first, but wait for it if it restarts later.
        patience = 0.0 if self._latest is None else OUTAGE_PATIENCE
        if isinstance(limit, ReadAllAvailable):
            return await self._last_numbers(before, patience)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_messages
        room = Room(rows, self._options.max_bytes or math.inf)
        return await end_of_batch(entity, before.read, room, first=before.first, until=self._until, patience=patience)

    async def _last_numbers(self, before: BrowseOffset, patience: float) -> Mapping[int, int]:
        return await SequenceNumbers.of(self._entity(), first=before.first, patience=patience).lasts(before.read)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 (Spark's name)
        """Return the last messages of the entity, for the query's progress: those behind its offset are the backlog."""
        latest = self._latest
        if latest is None or not self._has_news:
            return None if latest is None else latest.as_dict()
        with scrubbed(self._options.namespace.secrets):
            return latest.reading(run(self._last_numbers, latest, OUTAGE_PATIENCE)).as_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangesOfTask]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Divide the numbers of a micro-batch among tasks."""
        with scrubbed(self._options.namespace.secrets):
            entity = self._options.entity
            spans = BrowseOffset.parse(start, entity).spans_to(BrowseOffset.parse(end, entity))
            return [RangesOfTask(ranges) for ranges in divide(spans, self._options.partitions)]

    def stop(self) -> None:
        """Close the connection."""
        namespace, self._namespace = self._namespace, None
        if namespace is not None:
            with contextlib.suppress(Exception):  # the process ends
                run(namespace.close)

    def _entity(self) -> AsyncEntity:
        if self._namespace is None:
            self._namespace = AsyncNamespace(self._options.namespace.connection(), archive=None)
        return self._namespace.entity(self._options.entity)

    # ---------------------------------------------------------------- in the workers

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Peek the messages of one partition."""
        yield from read_ranges(self._options, self._schema, partition.ranges, patience=OUTAGE_PATIENCE)


@dataclass(frozen=True, slots=True)
class BrowseOffset:
    """How far a stream that browses has read: its checkpoint.

    A later message of a partitioned entity may have a lower number than an earlier one of another partition, so the
    offset has a number for each partition. An entity without partitions has the partition 0.
    """

    entity: EntityAddress
    first: int = 1
    read: Mapping[int, int] = field(default_factory=dict[int, int])  # the last number that was read, by partition

    def as_dict(self) -> dict[str, Any]:
        """Return the offset as Spark writes it; equal offsets are equal as text.

        Example:
            >>> BrowseOffset(EntityAddress("orders"), read={0: 17}).as_dict()
            {'entity': 'orders', 'first': 1, 'read': {'0': 17}}
        """
        read = {str(partition): self.read[partition] for partition in sorted(self.read)}
        return {"entity": str(self.entity), "first": self.first, "read": read}

    @classmethod
    def parse(cls, offset: Mapping[str, Any], entity: EntityAddress) -> Self:
        """Return the offset that :meth:`as_dict` wrote."""
        try:
            read = {int(partition): int(number) for partition, number in offset["read"].items()}
            found = cls(EntityAddress.parse(offset["entity"]), int(offset["first"]), read)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ConfigurationError(
                "The checkpoint is of another kind of stream than one that browses Service Bus: "
                "give this stream a checkpointLocation of its own."
            ) from None
        if found.entity != entity:
            raise ConfigurationError(
                f"The checkpoint is of a stream of {found.entity}, and this one reads {entity}: "
                "give it a checkpointLocation of its own."
            )
        return found

    def reading(self, read: Mapping[int, int]) -> Self:
        """Return the offset of the same stream after reading more."""
        return replace(self, read=read)

    def spans_to(self, end: Self) -> list[tuple[int, int]]:
        """Return the first and last numbers, by partition, to read from this offset to another one.

        Example:
            >>> orders = EntityAddress("orders")
            >>> BrowseOffset(orders, read={0: 5}).spans_to(BrowseOffset(orders, read={0: 9, 2: 2**49 + 3}))
            [(6, 9), (562949953421312, 562949953421315)]
        """
        starts = {
            partition: max(self.first, self.read.get(partition, end_of_partition(partition - 1)) + 1)
            for partition in sorted(end.read)
        }
        return [(first, end.read[partition]) for partition, first in starts.items() if first <= end.read[partition]]


class Room(NamedTuple):
    """Messages and bytes that a micro-batch may take, or has taken."""

    messages: int
    size: float = math.inf


async def end_of_batch(
    entity: AsyncEntity,
    read: Mapping[int, int],
    room: Room,
    *,
    first: int = 1,
    until: Mapping[int, int] | None = None,
    patience: float = 0.0,
) -> dict[int, int]:
    """Return the last number of a micro-batch, by partition.

    No number is beyond the last message of its partition, because messages may still come in between.

    Where most numbers have a message, a micro-batch takes as many numbers as it may take messages: that is never too
    many, and only a few messages are peeked. Where messages are rare, or their sizes count, each one is peeked.
    """
    numbers = SequenceNumbers.of(entity, first=first, patience=patience)
    reached, taken = dict(read), Room(0, 0)
    firsts = [number async for _, number in numbers.firsts(read)]
    if until is not None:
        firsts = [number for number in firsts if number <= until.get(partition_of(number), -1)]
    # Fill the room partition by partition; each one leaves its rest to the others.
    firsts.sort(key=lambda number: number - end_of_partition(partition_of(number) - 1))  # about the oldest first
    for place, number in enumerate(firsts):
        partition, count = partition_of(number), len(firsts) - place
        share = Room(-(-(room.messages - taken.messages) // count), (room.size - taken.size) / count)
        # Stop at the last message of this moment, however quickly more of them come.
        end = await numbers.last(number, end_of_partition(partition)) if until is None else until[partition]
        last, more = await _fill(entity, number, end, share, takes_any=not taken.messages)
        if last >= number:
            reached[partition] = last
        taken = Room(taken.messages + more.messages, taken.size + more.size)
    return reached


async def _fill(entity: AsyncEntity, first: int, end: int, room: Room, *, takes_any: bool) -> tuple[int, Room]:
    """Return the last number of one partition that fits, less than ``first`` where none does; and what fills the room.

    A message that is larger than the room is taken alone.
    """
    peeker, last, count, size = entity.namespace.peeker(entity.address), first - 1, 0, 0
    async for page in peeker.unread_pages(PeekCursor(first, end, room.messages), only_busy=False):
        for message, payload in zip(page.messages(()), page.payloads, strict=True):
            fits = size + len(payload) <= room.size or (takes_any and not count)
            if count == room.messages or not fits or not last < message.sequence_number <= end:
                return last, Room(count, size)
            count, size, last = count + 1, size + len(payload), message.sequence_number
        if count < room.messages and room.size == math.inf and last - page.first < _DENSE * len(page.payloads):
            most = await _by_numbers(entity, last, min(end, last + room.messages - count))
            return most, Room(count + most - last, size)
    return last, Room(count, size)


async def _by_numbers(entity: AsyncEntity, last: int, most: int) -> int:
    """Return the last number up to ``most`` that has a message; every number from ``last`` on counts as one."""
    numbers = SequenceNumbers.of(entity, patience=OUTAGE_PATIENCE)
    following = await numbers.next(most) if most > last else None
    is_there = following is not None and partition_of(following) == partition_of(most)
    return most if is_there else await numbers.last(last, most)
