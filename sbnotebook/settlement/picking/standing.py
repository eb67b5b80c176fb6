"""Which of some messages stand in an entity now, and whether a message is one of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sbnotebook.model import PeekedMessage, ReceivedMessage
from sbnotebook.settlement.peek import settled_up_to

if TYPE_CHECKING:
    from sbnotebook.settlement.entity import AsyncEntity

__all__ = ["is_same", "standing"]


def is_same(message: ReceivedMessage, chosen: ReceivedMessage) -> bool:
    """Whether a message with the number of a chosen one is that one.

    An entity that was made anew gives the same numbers to others, at other times. Where a time is not known, such as
    where only a number was given, the number decides.
    """
    times = message.enqueued_time, chosen.enqueued_time
    return None in times or times[0] == times[1]


async def standing(entity: AsyncEntity, numbers: Iterable[int]) -> dict[int, PeekedMessage]:
    """Peek at messages by their numbers, and at no more of the others than lie close by.

    Args:
        entity: where they may stand.
        numbers: which ones.

    Returns:
        Those that are there, by number.

    Raises:
        ServiceBusError: the entity cannot be looked into.
    """
    left = sorted(set(numbers))
    wanted = frozenset(left)
    found: dict[int, PeekedMessage] = {}
    peeker = entity.namespace.peeker(entity.address)
    while left:
        page = await peeker.page(left[0])
        found |= {message.sequence_number: message for message in page if message.sequence_number in wanted}
        past = settled_up_to(left[0], (message.sequence_number for message in page))
        left = [number for number in left if number > past]
    return found
