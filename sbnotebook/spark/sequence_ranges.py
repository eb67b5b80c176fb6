"""The sequence numbers of an entity, divided among tasks that peek about as many messages each.

:mod:`sbnotebook.settlement.sequence_numbers` finds the numbers that messages have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from pyspark.sql.datasource import InputPartition

from sbnotebook.model.partition import end_of_partition, partition_of
from sbnotebook.settlement.sequence_numbers import NextNumber, first_numbers, last_number

__all__ = ["RangesOfTask", "SequenceRange", "divide", "plan_tasks"]

_FEWEST_PIECES: Final = 16
"""Pieces into which the numbers are cut, and two more for each range."""
_FINEST: Final = 250
"""Numbers that one peek covers."""
_MOST_PROBES: Final = 200


@dataclass
class SequenceRange:
    """Sequence numbers to peek.

    Args:
        first: where to begin, included.
        last: where to stop, included.
    """

    first: int
    last: int


@dataclass
class RangesOfTask(InputPartition):
    """The sequence numbers that one task peeks.

    Args:
        ranges: in their order.
    """

    ranges: list[SequenceRange]


def divide(spans: Sequence[tuple[int, int]], count: int) -> list[list[SequenceRange]]:
    """Divide spans of numbers into lists of ranges with about the same count of numbers.

    Args:
        spans: first and last numbers, both included.
        count: of the lists, at most.

    Example:
        >>> divide([(1, 4), (11, 12)], 2)
        [[SequenceRange(first=1, last=3)], [SequenceRange(first=4, last=4), SequenceRange(first=11, last=12)]]
    """
    total = sum(last - first + 1 for first, last in spans)
    count = min(count, total)
    lists: list[list[SequenceRange]] = [[] for _ in range(count)]
    place = 0
    for span_first, last in spans:
        first = span_first
        while first <= last:
            part = ((place + 1) * count - 1) // total
            room = total * (part + 1) // count - place
            end = min(last, first + room - 1)
            lists[part].append(SequenceRange(first, end))
            place += end - first + 1
            first = end + 1
    return lists


async def plan_tasks(count: int, whole: SequenceRange, next_number: NextNumber) -> list[RangesOfTask]:
    """Divide the messages that a range of numbers has now among tasks, so that each has about as many.

    The tasks read to the last message of each partition of the entity and no further, so that a read ends although
    more messages come.

    Args:
        count: of the tasks; fewer where there are fewer sequence numbers, and one without ranges where no message is.
        whole: the range of numbers.
        next_number: asks Service Bus: as for :func:`last_numbers`, and for several tasks a few times for each.
    """
    spans = await _spans(whole, next_number)
    if count == 1:
        return [RangesOfTask([SequenceRange(first, last) for first, last in spans])]
    pieces = await _without_gaps(spans, count, next_number)
    return [RangesOfTask(_joined(ranges)) for ranges in divide(pieces, count)] or [RangesOfTask([])]


async def _spans(whole: SequenceRange, next_number: NextNumber) -> list[tuple[int, int]]:
    """Return the first and the last number in a range that have a message now, for each partition of the entity."""
    spans: list[tuple[int, int]] = []
    async for partition, oldest in first_numbers(next_number):
        start, end = max(oldest, whole.first), min(whole.last, end_of_partition(partition))
        first = oldest if start == oldest or start > end else await next_number(start)
        if first is not None and start <= first <= end:
            spans.append((first, await last_number(first, end, next_number)))
    return spans


def _joined(pieces: list[SequenceRange]) -> list[SequenceRange]:
    """Return pieces of the same partition as one range: peeking passes over the gaps between them at no cost."""
    ranges: list[SequenceRange] = []
    for piece in pieces:
        if ranges and partition_of(ranges[-1].last) == partition_of(piece.first):
            ranges[-1] = SequenceRange(ranges[-1].first, piece.last)
        else:
            ranges.append(piece)
    return ranges


async def _without_gaps(spans: list[tuple[int, int]], count: int, next_number: NextNumber) -> list[tuple[int, int]]:
    """Return the spans in smaller pieces, without large gaps that hold no messages; probe the longest piece first."""
    longest = [(first - last - 1, first, last) for first, last in spans]
    heapify(longest)
    total = sum(last - first + 1 for first, last in spans)
    for _ in range(_MOST_PROBES):
        if not longest or -longest[0][0] <= max(_FINEST, total // (_FEWEST_PIECES + 2 * count)):
            break
        _, first, last = heappop(longest)
        middle = (first + last + 1) // 2
        found = await next_number(middle)
        after = last + 1 if found is None or not middle <= found <= last else found
        total -= after - middle
        heappush(longest, (first - middle, first, middle - 1))
        if after <= last:
            heappush(longest, (after - last - 1, after, last))
    return sorted((first, last) for _, first, last in longest)
