"""Ranges of sequence numbers that are peeked in parallel.

The service tells how many messages there are but not which numbers they have, so their span is found by peeking
single messages. It only decides where the cuts are: the ranges together cover all that was asked for, whatever
comes or goes in the meantime.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pyspark.sql.datasource import InputPartition

__all__ = ["NextNumber", "SequenceRange", "plan_ranges"]

NextNumber = Callable[[int], Awaitable[int | None]]
"""Gives the first sequence number from this one on that there is a message for, None when there is none."""

_FIRST_STEP: Final = 256
_MAX_NUMBER: Final = 2**63 - 1
_PRECISION: Final = 16


@dataclass
class SequenceRange(InputPartition):
    """The sequence numbers that one task peeks.

    Args:
        first: where to begin, included.
        last: where to stop, included; None for the end of the entity.
    """

    first: int
    last: int | None


async def plan_ranges(count: int, whole: SequenceRange, next_number: NextNumber) -> list[SequenceRange]:
    """Cut a range into ranges of about as many sequence numbers each.

    They hold about as many messages each, too, unless messages were removed unevenly.

    Args:
        count: how many ranges; fewer where there are fewer sequence numbers.
        whole: what is cut.
        next_number: asks the service; about twice the binary logarithm of the span, and never for one range.
    """
    first = await next_number(whole.first) if count > 1 else None
    if first is None or _is_past(first, whole):
        return [whole]
    span = await _last_near(first, whole, next_number) - first + 1
    count = min(count, span)
    cuts = [whole.first, *(first + span * part // count for part in range(1, count))]
    ranges = [SequenceRange(start, end - 1) for start, end in pairwise(cuts)]
    return [*ranges, SequenceRange(cuts[-1], whole.last)]


async def _last_near(first: int, whole: SequenceRange, next_number: NextNumber) -> int:
    """A number that there is a message for, close to the last: first in steps that double, then by halving."""

    async def at_or_after(number: int) -> int | None:
        found = await next_number(number)
        return None if found is None or _is_past(found, whole) else found

    low, step, high = first, _FIRST_STEP, None
    while high is None and low < _MAX_NUMBER:
        asked = min(low + step, _MAX_NUMBER)
        found = await at_or_after(asked)
        if found is None:
            high = asked
        else:
            low, step = found, step * 2
    while high is not None and high - low > 1 + (low - first) // _PRECISION:
        middle = (low + high) // 2
        found = await at_or_after(middle)
        if found is None:
            high = middle
        else:
            low = found
    return low


def _is_past(number: int, whole: SequenceRange) -> bool:
    return whole.last is not None and number > whole.last
