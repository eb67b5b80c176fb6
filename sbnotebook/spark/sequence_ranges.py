"""Ranges of the sequence numbers of an entity, of about as many messages each, to peek in parallel.

:mod:`sbnotebook.settlement.sequence_numbers` finds the numbers that messages have.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import accumulate, pairwise
from typing import Final

from pyspark.sql.datasource import InputPartition

from sbnotebook.model.partition import end_of_partition
from sbnotebook.settlement.sequence_numbers import NextNumber, first_numbers, last_number

__all__ = ["SequenceRange", "divide", "plan_ranges"]

_FEWEST_PIECES: Final = 16
"""Pieces into which the numbers are cut, and two more for each range."""
_FINEST: Final = 250
"""Numbers that one peek covers."""
_MOST_PROBES: Final = 200


@dataclass
class SequenceRange(InputPartition):
    """The sequence numbers that one task peeks.

    Args:
        first: where to begin, included.
        last: where to stop, included; None for the end of the entity.
    """

    first: int
    last: int | None


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


async def plan_ranges(count: int, whole: SequenceRange, next_number: NextNumber) -> list[SequenceRange]:
    """Cut a range into ranges of about as many messages each.

    Together the ranges cover the whole, even when messages come or go in the meantime: the messages decide only where
    to cut. A partitioned entity stays one range.

    Args:
        count: of the ranges; fewer where there are fewer sequence numbers.
        whole: the range to cut.
        next_number: asks Service Bus: as for :func:`last_numbers`, then a few times for each range, and never for one
            range.
    """
    if count == 1:
        return [whole]

    async def within(number: int) -> int | None:
        found = await next_number(max(number, whole.first))
        return None if found is None or (whole.last is not None and found > whole.last) else found

    # Find the spans that have messages.
    firsts = [each async for each in first_numbers(within)]
    if any(partition for partition, _ in firsts):
        return [whole]  # partitions come in no order that ranges could follow
    spans = [(first, await last_number(first, end_of_partition(partition), within)) for partition, first in firsts]
    pieces = await _without_gaps(spans, count, within)
    # Cut where the pieces, laid end to end, are divided evenly.
    starts = [0, *accumulate(last - first + 1 for first, last in pieces)]
    total = starts[-1]
    count = max(1, min(count, total))
    cuts = [whole.first]
    for part in range(1, count):
        place = total * part // count
        piece = bisect_right(starts, place) - 1
        cuts.append(pieces[piece][0] + place - starts[piece])
    ranges = [SequenceRange(start, end - 1) for start, end in pairwise(cuts)]
    return [*ranges, SequenceRange(cuts[-1], whole.last)]


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
