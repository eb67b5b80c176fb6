"""The sequence numbers that messages of an entity have, found by peeking, and ranges of them to peek in parallel.

Service Bus counts the messages of an entity but does not say which numbers they have. Many numbers may have no message
any more. In a partitioned entity, the top 16 bits are the number of a partition, and each partition counts in the bits
below. So this module peeks single messages.

Source: Service Bus documentation, "Message sequencing and timestamps".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import Final

from pyspark.sql.datasource import InputPartition

from sbnotebook.model.partition import end_of_partition, partition_of
from sbnotebook.settlement import AsyncEntity
from sbnotebook.settlement.patience import patiently

__all__ = [
    "NextNumber",
    "SequenceRange",
    "divide",
    "end_of_partition",
    "first_numbers",
    "last_number",
    "last_numbers",
    "next_number_of",
    "partition_of",
    "plan_ranges",
]

NextNumber = Callable[[int], Awaitable[int | None]]
"""Returns the first sequence number from this one on that has a message, None when there is none."""

_LARGEST: Final = 2**63 - 1
_FIRST_STEP, _GROWTH = 256, 8
_FEWEST_PIECES: Final = 16
"""Pieces into which the numbers are cut, and two more for each range."""
_FINEST: Final = 250
"""Numbers that one peek covers."""
_MOST_PROBES: Final = 200
_NOTHING: Final[Mapping[int, int]] = MappingProxyType({})


@dataclass
class SequenceRange(InputPartition):
    """The sequence numbers that one task peeks.

    Args:
        first: where to begin, included.
        last: where to stop, included; None for the end of the entity.
    """

    first: int
    last: int | None


def next_number_of(entity: AsyncEntity, patience: float = 0.0) -> NextNumber:
    """Return a function that finds the next sequence number of an entity by peeking one message.

    Args:
        entity: a queue, a subscription, or a sub-queue.
        patience: seconds to go on trying where Service Bus does not answer.
    """
    peeker = entity.namespace.peeker(entity.address)

    async def next_number(number: int) -> int | None:
        page = await patiently(peeker.page, number, 1, address=entity.address, patience=patience)
        return page.last_number if page.payloads else None

    return next_number


async def last_numbers(next_number: NextNumber, known: Mapping[int, int] = _NOTHING) -> dict[int, int]:
    """Return the last sequence number that has a message, by partition; partitions without messages are left out.

    Args:
        next_number: asks Service Bus: about twice the binary logarithm of the numbers in each partition, and once for
            each partition without new messages.
        known: numbers by partition to pass over; they stay in the answer where no message follows them.
    """
    lasts = dict(known)
    async for partition, first in first_numbers(next_number, known):
        lasts[partition] = await last_number(first, end_of_partition(partition), next_number)
    return lasts


async def first_numbers(next_number: NextNumber, known: Mapping[int, int] = _NOTHING) -> AsyncIterator[tuple[int, int]]:
    """Yield the partitions that have messages, each with its first number: see :func:`last_numbers`.

    Behind the last message of a partition, Service Bus continues with another one, in any order.
    """
    seen: set[int] = set()
    first = await next_number(known.get(0, 0) + 1)
    while first is not None and (partition := partition_of(first)) not in seen:
        seen.add(partition)
        passed = known.get(partition, -1)
        if first <= passed:  # what was asked for was another partition
            first = await next_number(passed + 1) if passed < _LARGEST else None
            if first is None or partition_of(first) != partition:
                continue
        yield partition, first
        end = end_of_partition(partition)
        if partition == 0 and await next_number(end + 1) is None:
            return  # there are no partitions
        last = await last_number(first, end, next_number)
        first = await next_number(last + 1) if last < _LARGEST else None


async def last_number(first: int, end: int, next_number: NextNumber) -> int:
    """Return the last number up to ``end`` that has a message; search in growing steps, then by halving.

    Args:
        first: a number that has a message.
        end: where to stop, included.
        next_number: asks Service Bus.
    """
    low, high, step = first, end + 1, _FIRST_STEP
    while high - low > 1:
        asked = low + step if low + step < high else (low + high) // 2
        found = await next_number(asked)
        if found is None or not asked <= found <= end:
            high = asked
        else:
            low, step = found, step * _GROWTH
    return low


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
