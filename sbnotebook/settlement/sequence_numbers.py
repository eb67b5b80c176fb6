"""The sequence numbers that messages of an entity have now, found by peeking single messages.

Service Bus counts the messages of an entity but does not say which numbers they have. Many numbers may have no message
any more. In a partitioned entity, the top 16 bits are the number of a partition, and each partition counts in the bits
below.

Source: Service Bus documentation, "Message sequencing and timestamps".
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final, Self

from sbnotebook.model.partition import end_of_partition, partition_of
from sbnotebook.settlement.place import Place

NextNumber = Callable[[int], Awaitable[int | None]]
"""Returns the first sequence number from this one on that has a message, None when there is none."""

_LARGEST: Final = 2**63 - 1
_FIRST_STEP, _GROWTH = 256, 8
_NOTHING: Final[Mapping[int, int]] = MappingProxyType({})


class SequenceNumbers:
    """Finds the sequence numbers that messages of an entity have now.

    Args:
        next_number: returns the first number from one on that has a message, None when there is none; see :meth:`of`.

    Example:
        >>> async def newest(entity: AsyncEntity) -> dict[int, int]:
        ...     return await SequenceNumbers.of(entity).lasts()
    """

    def __init__(self, next_number: NextNumber) -> None:
        self.next = next_number

    @classmethod
    def of(cls, entity: Place, *, first: int = 1, patience: float = 0.0) -> Self:
        """Return the numbers of an entity from ``first`` on, which peeks one message at a time.

        While Service Bus does not answer, it is asked again for ``patience`` seconds.
        """

        async def next_number(number: int) -> int | None:
            page = await entity.peeker.page(max(number, first), 1, patience=patience)
            return page.last_number if page.payloads else None

        return cls(next_number)

    async def spans(self) -> list[tuple[int, int]]:
        """Return the first and the last number of each partition that has messages, in the order of Service Bus."""
        firsts = [each async for each in self.firsts()]
        return [(first, await self.last(first, end_of_partition(partition))) for partition, first in firsts]

    async def lasts(self, known: Mapping[int, int] = _NOTHING) -> dict[int, int]:
        """Return the last number that has a message, by partition; some partitions have none.

        With the last numbers of an earlier call, only greater ones are looked for.
        """
        lasts = dict(known)
        async for partition, first in self.firsts(known):
            lasts[partition] = await self.last(first, end_of_partition(partition))
        return lasts

    async def firsts(self, known: Mapping[int, int] = _NOTHING) -> AsyncIterator[tuple[int, int]]:
        """Yield the partitions that have messages, each with its first number: see :meth:`lasts`.

        Behind the last message of a partition, Service Bus continues with another one, in any order.
        """
        seen: set[int] = set()
        first = await self.next(known.get(0, 0) + 1)
        while first is not None and (partition := partition_of(first)) not in seen:
            seen.add(partition)
            passed = known.get(partition, -1)
            if first <= passed:  # the request was for another partition
                first = await self.next(passed + 1) if passed < _LARGEST else None
                if first is None or partition_of(first) != partition:
                    continue
            yield partition, first
            end = end_of_partition(partition)
            if partition == 0 and await self.next(end + 1) is None:
                return  # there are no partitions
            last = await self.last(first, end)
            first = await self.next(last + 1) if last < _LARGEST else None

    async def last(self, first: int, end: int, step: int = _FIRST_STEP) -> int:
        """Return the last number up to ``end`` that has a message; ``first`` has one.

        The search looks ``step`` beyond it at first; steps grow, then halve.
        """
        low, high = first, end + 1
        while high - low > 1:
            asked = low + step if low + step < high else (low + high) // 2
            found = await self.next(asked)
            if found is None or not asked <= found <= end:
                high = asked
            else:
                low, step = found, step * _GROWTH
        return low
