"""Peeking messages by their numbers, as many at once as the service gives."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Collection, Iterable

from sbnotebook.model import PeekedMessage
from sbnotebook.model.sections import SECTIONS
from sbnotebook.settlement import AsyncEntity
from sbnotebook.settlement.patience import patiently
from sbnotebook.settlement.peek import PAGE, settled_up_to

__all__ = ["numbered_pages"]


async def numbered_pages(
    entity: AsyncEntity, numbers: Iterable[int], sections: Collection[int] = SECTIONS
) -> AsyncIterator[list[PeekedMessage]]:
    """The messages with these numbers, in order, page after page; those that are not there are left out.

    What stands in between is peeked with them: that is quicker than to ask for each by itself.

    Args:
        entity: where they stand.
        numbers: which ones, in any order.
        sections: what is read of them beside what the service says: see :func:`peeked_from_payload`.
    """
    wanted = sorted(set(numbers))
    place, peeker = 0, entity.namespace.peeker(entity.address)
    while place < len(wanted):
        first = wanted[place]
        near = wanted[bisect_right(wanted, first + PAGE - 1) - 1] - first + 1
        count = max(near, min(PAGE, len(wanted) - place))
        page = (await patiently(peeker.payload_page, first, count, address=entity.address)).messages(sections)
        end = bisect_right(wanted, settled_up_to(first, (message.sequence_number for message in page)))
        asked = set(wanted[place:end])
        kept = [message for message in page if message.sequence_number in asked]
        if kept:
            yield kept
        place = max(end, place + 1)
