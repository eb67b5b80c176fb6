"""Where the messages of an entity stand in its sequence numbers, and ranges of them that are peeked in parallel.

The service tells how many messages there are but not which numbers they have: many of them may be gone, and in a
partitioned entity the top 16 bits are the number of a partition, with a count of its own in the bits below. So it is
found by peeking single messages.

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

from sbnotebook.settlement import AsyncEntity
from sbnotebook.settlement.patience import patiently
from sbnotebook.settlement.peek import end_of_partition, partition_of

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
"""Gives the first sequence number from this one on that there is a message for, None when there is none."""

_LARGEST: Final = 2**63 - 1
_FIRST_STEP, _GROWTH = 256, 8
_FEWEST_PIECES: Final = 16
"""In which the numbers are looked at, and two more for each range."""
_FINEST: Final = 250
"""Numbers that are no more than one peek."""
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
    """Ask an entity, by peeking one message.

    Args:
        entity: which one.
        patience: seconds for which a service that does not answer is asked again.
    """
    peeker = entity.namespace.peeker(entity.address)

    async def next_number(number: int) -> int | None:
        page = await patiently(peeker.payload_page, number, 1, address=entity.address, patience=patience)
        return page.last_number if page.payloads else None

    return next_number


async def last_numbers(next_number: NextNumber, known: Mapping[int, int] = _NOTHING) -> dict[int, int]:
    """The last sequence number that there is a message for, by partition; those without messages are left out.

    Args:
        next_number: asks the service: about twice the binary logarithm of the numbers in each partition, and once
            for each partition in which nothing has come.
        known: numbers by partition that are passed over; they stay in the answer where nothing stands behind them.
    """
    lasts = dict(known)
    async for partition, first in first_numbers(next_number, known):
        lasts[partition] = await last_number(first, end_of_partition(partition), next_number)
    return lasts


async def first_numbers(next_number: NextNumber, known: Mapping[int, int] = _NOTHING) -> AsyncIterator[tuple[int, int]]:
    """The partitions that have messages, each with the first of its numbers: see :func:`last_numbers`.

    Behind the last message of one the service goes on with another, in an order of its own.
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
    """The last number up to ``end`` that there is a message for: in steps that grow, then by halving.

    Args:
        first: a number that there is a message for.
        end: where to stop, included.
        next_number: asks the service.
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
    """Divide spans of numbers into so many lists of ranges, or fewer, with about as many numbers each.

    Args:
        spans: first and last numbers, both included.
        count: how many lists.

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

    Together they cover all that was asked for, whatever comes or goes in the meantime: only the cuts are found by
    where messages stand. An entity that has partitions of its own stays one range.

    Args:
        count: how many ranges; fewer where there are fewer sequence numbers.
        whole: what is cut.
        next_number: asks the service: as for :func:`last_numbers`, then a few times for each range, and never for
            one range.
    """
    if count == 1:
        return [whole]

    async def within(number: int) -> int | None:
        found = await next_number(max(number, whole.first))
        return None if found is None or (whole.last is not None and found > whole.last) else found

    firsts = [each async for each in first_numbers(within)]
    if any(partition for partition, _ in firsts):
        return [whole]  # partitions come in no order that ranges could follow
    spans = [(first, await last_number(first, end_of_partition(partition), within)) for partition, first in firsts]
    pieces = await _without_gaps(spans, count, within)
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
    """The spans in smaller pieces, without the large gaps in which there are no messages."""
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
