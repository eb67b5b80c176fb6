"""Reading an entity into a frame by peeking: nothing is locked, and nothing is removed.

The sequence numbers of the entity are divided among tasks that peek about as many messages each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.datasource import DataSourceReader, InputPartition

from sbnotebook.client.portal import Work, run
from sbnotebook.model import PeekedMessage
from sbnotebook.model.message import end_of_partition, partition_of, start_of_partition
from sbnotebook.settlement import OUTAGE_PATIENCE, AsyncEntity, AsyncNamespace, Page, PeekCursor, SequenceNumbers
from sbnotebook.spark.options import MAX_NUMBER, ReadOptions, StreamOptions
from sbnotebook.spark.schema import MessageBatches
from sbnotebook.spark.scrubbing import scrubbed
from sbnotebook.spark.shipping import Shipped
from sbnotebook.spark.task_context import warm_namespace

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

T = TypeVar("T")
Range = tuple[int, int]
"""The first and the last of some sequence numbers."""

_CUT_OFF: Final = 30.0
"""Seconds that a page may take to end when the reader wants no more."""
_FEWEST_PIECES: Final = 16
"""Pieces into which the numbers are cut, and two more for each range."""
_FINEST: Final = 250
"""Numbers that one peek covers."""
_MOST_PROBES: Final = 200


class PeekReader(Shipped, DataSourceReader):
    """Reads the messages that an entity holds at the first action on a frame, anew for each action.

    Messages that come later are in no action on this frame, so that each action ends however quickly they come, and a
    frame that is joined with itself has the same end on both sides. Messages that were removed before a task came to
    them are missing. ``persist()`` keeps a frame as it was read.

    The reader is pickled and sent to the workers, so it holds no connection.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        MessageBatches(schema, options.decode)  # refuses it here, not in each worker

    def partitions(self) -> list[RangesOfTask]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Divide the messages of this moment among tasks. Spark does this at the first action on a frame."""
        target = self._options.namespace
        with scrubbed(target.secrets):
            return run(self._plan, AsyncNamespace(target.connection(), archive=None))

    async def _plan(self, namespace: AsyncNamespace) -> list[RangesOfTask]:
        options = self._options
        whole = options.from_sequence_number, options.to_sequence_number or MAX_NUMBER
        async with namespace:
            return await plan_tasks(options.partitions, whole, SequenceNumbers.of(namespace.entity(options.entity)))

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Peek the messages of one task."""
        most = self._options.max_messages
        yield from read_ranges(self._options, self._schema, partition.ranges, max_messages=most)


def read_ranges(
    options: ReadOptions | StreamOptions,
    schema: StructType,
    ranges: Iterable[Range],
    *,
    max_messages: int | None = None,
    patience: float = 0.0,
) -> Generator[pa.RecordBatch]:
    """Yield messages, and peek the next ones while some are converted. The connection stays open for the next task.

    Where Service Bus stops answering in the middle, peek again for a minute.
    """
    with scrubbed(options.namespace.secrets), warm_namespace(options.namespace) as namespace:
        peeker, batches = namespace.peeker(options.entity), MessageBatches(schema, options.decode)
        for first, last in ranges:
            # Two cursors, because peeking is a page ahead of reading.
            ahead = PeekCursor(first, last, None if options.state else max_messages)
            reader = PeekCursor(first, last, max_messages, options.state)
            with closing(prefetched(peeker.unread_pages(ahead, patience=patience, only_busy=False))) as pages:
                for page in pages:
                    yield from batches.add(page, reader)
                    if not reader.count_from(reader.next_number):
                        break
            max_messages = reader.max_messages  # those that are left for the other ranges
            if max_messages == 0:
                break
        yield from batches.rest()


def prefetched(pages: AsyncIterator[T]) -> Generator[T]:
    """Yield the items of an asynchronous iterator, which gets the next one on the background loop meanwhile."""
    work = Work(anext, pages, None)
    following = work.start()
    try:
        while (page := following.result()) is not None:
            work = Work(anext, pages, None)
            following = work.start()
            yield page
    finally:
        work.cancel()
        work.wait(_CUT_OFF)


async def pages_up_to(entity: AsyncEntity, lasts: Mapping[int, int]) -> AsyncIterator[Page]:
    """Yield the messages of an entity, and end however quickly more of them come."""
    peeker = entity.namespace.peeker(entity.address)
    for partition, last in lasts.items():
        pages: Any = peeker.unread_pages(PeekCursor(start_of_partition(partition), last), only_busy=False)
        async with aclosing(pages):
            async for page in pages:
                yield page


async def peeked(
    entity: AsyncEntity, numbers: Iterable[int], sections: Collection[int] = ()
) -> Collection[PeekedMessage]:
    """Return the messages that an entity has of these numbers."""
    peeker = entity.namespace.peeker(entity.address)
    return (await peeker.messages_of(numbers, sections, patience=OUTAGE_PATIENCE)).values()


@dataclass
class RangesOfTask(InputPartition):
    """The sequence numbers that one task peeks, as ranges with both ends included."""

    ranges: list[Range]
    batch: int = 0
    """The number of the micro-batch, for a stream that consumes."""

    @property
    def numbers(self) -> list[int]:
        """Return each of the numbers."""
        return [number for first, last in self.ranges for number in range(first, last + 1)]


def divide(spans: Sequence[Range], count: int) -> list[list[Range]]:
    """Divide spans of numbers into lists of ranges with about the same count of numbers.

    Example:
        >>> divide([(1, 4), (11, 12)], 2)
        [[(1, 3)], [(4, 4), (11, 12)]]
    """
    total = sum(last - first + 1 for first, last in spans)
    count = min(count, total)
    lists: list[list[Range]] = [[] for _ in range(count)]
    place = 0
    for span_first, last in spans:
        first = span_first
        while first <= last:
            part = ((place + 1) * count - 1) // total
            room = total * (part + 1) // count - place
            end = min(last, first + room - 1)
            lists[part].append((first, end))
            place += end - first + 1
            first = end + 1
    return lists


async def plan_tasks(count: int, whole: Range, numbers: SequenceNumbers) -> list[RangesOfTask]:
    """Divide the messages that a range of numbers has now among tasks, so that each has about as many.

    The tasks read to the last message of each partition of the entity and no further, so that a read ends although
    more messages come.
    """
    spans = await _spans(whole, numbers)
    if count == 1:
        return [RangesOfTask(spans)]
    pieces = await _without_gaps(spans, count, numbers)
    return [RangesOfTask(_joined(ranges)) for ranges in divide(pieces, count)] or [RangesOfTask([])]


async def _spans(whole: Range, numbers: SequenceNumbers) -> list[Range]:
    """Return the first and the last number in a range that have a message now, for each partition of the entity."""
    spans: list[Range] = []
    async for partition, oldest in numbers.firsts():
        start, end = max(oldest, whole[0]), min(whole[1], end_of_partition(partition))
        first = oldest if start == oldest or start > end else await numbers.next(start)
        if first is not None and start <= first <= end:
            spans.append((first, await numbers.last(first, end)))
    return spans


def _joined(pieces: list[Range]) -> list[Range]:
    """Return pieces of the same partition as one range: peeking passes over the gaps between them at no cost."""
    ranges: list[Range] = []
    for first, last in pieces:
        if ranges and partition_of(ranges[-1][1]) == partition_of(first):
            ranges[-1] = ranges[-1][0], last
        else:
            ranges.append((first, last))
    return ranges


async def _without_gaps(spans: list[Range], count: int, numbers: SequenceNumbers) -> list[Range]:
    """Return the spans in smaller pieces, without large gaps that hold no messages; probe the longest piece first."""
    longest = [(first - last - 1, first, last) for first, last in spans]
    heapify(longest)
    total = sum(last - first + 1 for first, last in spans)
    for _ in range(_MOST_PROBES):
        if not longest or -longest[0][0] <= max(_FINEST, total // (_FEWEST_PIECES + 2 * count)):
            break
        _, first, last = heappop(longest)
        middle = (first + last + 1) // 2
        found = await numbers.next(middle)
        after = last + 1 if found is None or not middle <= found <= last else found
        total -= after - middle
        heappush(longest, (first - middle, first, middle - 1))
        if after <= last:
            heappush(longest, (after - last - 1, after, last))
    return sorted((first, last) for _, first, last in longest)
