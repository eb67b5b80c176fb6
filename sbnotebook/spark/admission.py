"""How much of what stands in an entity a micro-batch takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sbnotebook.settlement import AsyncEntity
from sbnotebook.settlement.patience import PATIENCE, patiently
from sbnotebook.settlement.peek import PAGE
from sbnotebook.spark.sequence_ranges import (
    end_of_partition,
    first_numbers,
    last_number,
    next_number_of,
    partition_of,
)

__all__ = ["Room", "admit"]

_DENSE = 2
"""Numbers for each message up to which it is not worth the time to look at all messages in order to count them."""


@dataclass(slots=True)
class Room:
    """What a micro-batch may still take.

    Args:
        messages: at most.
        size: bytes at most, None for no limit; a message that is larger is taken where there is nothing else.
    """

    messages: int
    size: int | None = None
    is_used: bool = False

    def split(self, count: int) -> Room:
        """Take out the share of one of so many that come yet; :meth:`join` puts back what it leaves, for the others."""
        share = Room(
            -(-self.messages // count), None if self.size is None else max(0, -(-self.size // count)), self.is_used
        )
        self.messages -= share.messages
        self.size = None if self.size is None else self.size - (share.size or 0)
        return share

    def join(self, rest: Room) -> None:
        """Put back what is left of a share."""
        self.messages += rest.messages
        self.size = None if self.size is None else self.size + (rest.size or 0)
        self.is_used = self.is_used or rest.is_used

    def take(self, messages: int, size: int = 0) -> None:
        """Note what is taken."""
        self.messages -= messages
        self.size = None if self.size is None else self.size - size
        self.is_used = self.is_used or messages > 0

    def has(self, size: int) -> bool:
        """Whether there is room for a message of so many bytes."""
        return self.messages > 0 and (self.size is None or size <= self.size or not self.is_used)


async def admit(
    entity: AsyncEntity,
    read: Mapping[int, int],
    room: Room,
    *,
    first: int = 1,
    until: Mapping[int, int] | None = None,
    patience: float = 0.0,
) -> dict[int, int]:
    """How far a micro-batch reads: by partition the last number, which stands or stood there.

    No number is given that is beyond the last message there is, because those in between come yet.

    Where most numbers have a message, so many numbers are taken as there may be messages: that is never too much, and
    only a few messages are looked at. Where messages are rare, or their sizes count, each is looked at.

    Args:
        entity: where the messages stand.
        read: what was read before, by partition.
        room: how much may be taken.
        first: the lowest number that is read.
        until: where to stop by partition, included; None for no end, and a partition that is not in it is not read.
        patience: seconds for which a service that does not answer at all is asked again.
    """
    ask = next_number_of(entity, patience)
    reached = dict(read)
    firsts = [number async for _, number in first_numbers(lambda number: ask(max(number, first)), read)]
    if until is not None:
        firsts = [number for number in firsts if number <= until.get(partition_of(number), -1)]
    firsts.sort(key=lambda number: number - end_of_partition(partition_of(number) - 1))  # about the oldest first
    for place, number in enumerate(firsts):
        partition, share = partition_of(number), room.split(len(firsts) - place)
        end = end_of_partition(partition) if until is None else until[partition]
        last = await _fill(entity, number, end, share)
        if last >= number:
            reached[partition] = last
        room.join(share)
    return reached


async def _fill(entity: AsyncEntity, first: int, end: int, room: Room) -> int:
    """The last number of one partition for which there is room; less than ``first`` where there is none."""
    peeker, last = entity.namespace.peeker(entity.address), first - 1
    while room.messages > 0 and last < end:
        count = min(PAGE, room.messages, end - last)
        page = await patiently(peeker.payload_page, last + 1, count, address=entity.address, patience=PATIENCE)
        for message, payload in zip(page.messages(()), page.payloads, strict=True):
            if not last < message.sequence_number <= end or not room.has(len(payload)):
                return last
            room.take(1, len(payload))
            last = message.sequence_number
        if not page.payloads:
            return last
        if room.size is None and last - page.first < _DENSE * len(page.payloads):
            return await _by_numbers(entity, last, min(end, last + room.messages), room)
    return last


async def _by_numbers(entity: AsyncEntity, last: int, most: int, room: Room) -> int:
    ask = next_number_of(entity, PATIENCE)
    following = await ask(most) if most > last else None
    reached = most if following is not None and partition_of(following) == partition_of(most) else None
    if reached is None:
        reached = await last_number(last, most, ask)
    room.take(reached - last)
    return reached
