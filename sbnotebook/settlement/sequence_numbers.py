"""The sequence numbers that messages of an entity have now, found by peeking single messages.

Service Bus counts the messages of an entity but does not say which numbers they have. Many numbers may have no message
any more. In a partitioned entity, the top 16 bits are the number of a partition, and each partition counts in the bits
below.

Source: Service Bus documentation, "Message sequencing and timestamps".
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

from sbnotebook.model.partition import end_of_partition, partition_of
from sbnotebook.settlement.patience import patiently
from sbnotebook.settlement.place import Place

NextNumber = Callable[[int], Awaitable[int | None]]
"""Returns the first sequence number from this one on that has a message, None when there is none."""

_LARGEST: Final = 2**63 - 1
_FIRST_STEP, _GROWTH = 256, 8
_NOTHING: Final[Mapping[int, int]] = MappingProxyType({})


async def spans_of(entity: Place) -> list[tuple[int, int]]:
    """Return the first and the last sequence number of each partition that has messages now, in their order."""
    next_number = next_number_of(entity)
    firsts = [each async for each in first_numbers(next_number)]
    return [(first, await last_number(first, end_of_partition(partition), next_number)) for partition, first in firsts]


def next_number_of(entity: Place, patience: float = 0.0) -> NextNumber:
    """Return a function that finds the next sequence number of an entity by peeking one message."""
    peeker = entity.namespace.peeker(entity.address)

    async def next_number(number: int) -> int | None:
        page = await patiently(peeker.page, number, 1, address=entity.address, patience=patience)
        return page.last_number if page.payloads else None

    return next_number


async def last_numbers(next_number: NextNumber, known: Mapping[int, int] = _NOTHING) -> dict[int, int]:
    """Return the last sequence number that has a message, by partition; partitions without messages are left out."""
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
        if first <= passed:  # the request was for another partition
            first = await next_number(passed + 1) if passed < _LARGEST else None
            if first is None or partition_of(first) != partition:
                continue
        yield partition, first
        end = end_of_partition(partition)
        if partition == 0 and await next_number(end + 1) is None:
            return  # there are no partitions
        last = await last_number(first, end, next_number)
        first = await next_number(last + 1) if last < _LARGEST else None


async def last_number(first: int, end: int, next_number: NextNumber, step: int = _FIRST_STEP) -> int:
    """Return the last number up to ``end`` that has a message; search in growing steps, then by halving."""
    low, high = first, end + 1
    while high - low > 1:
        asked = low + step if low + step < high else (low + high) // 2
        found = await next_number(asked)
        if found is None or not asked <= found <= end:
            high = asked
        else:
            low, step = found, step * _GROWTH
    return low
