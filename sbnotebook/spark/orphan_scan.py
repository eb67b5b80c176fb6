"""Finding messages that are deferred in an entity and belong to no micro-batch: nobody receives them by himself."""

from __future__ import annotations

import logging
from collections.abc import Container
from typing import Final

import anyio

from sbnotebook.model import MessageState, PeekedMessage
from sbnotebook.settlement import AsyncEntity
from sbnotebook.spark.scrubbing import in_words

__all__ = ["find_orphans", "report_orphans"]

_LOG: Final = logging.getLogger(__name__)
_SHARE: Final = 2.0
"""How long to rest after a page, in times that it took: the stream goes first."""
_NAMED: Final = 5


async def find_orphans(entity: AsyncEntity, ours: Container[int], *, rests: bool = False) -> dict[int, PeekedMessage]:
    """Look at the whole entity once.

    Args:
        entity: which one.
        ours: the numbers that belong to the stream.
        rests: whether to leave most of the time to others.
    """
    orphans: dict[int, PeekedMessage] = {}
    began = anyio.current_time()
    async for page in entity.pages(state=MessageState.DEFERRED):
        orphans |= {message.sequence_number: message for message in page if message.sequence_number not in ours}
        if rests:
            await anyio.sleep((anyio.current_time() - began) * _SHARE)
            began = anyio.current_time()
    return orphans


async def report_orphans(entity: AsyncEntity, ours: Container[int]) -> int:
    """Look, and warn once if there are any; gives how many there are.

    Args:
        entity: which one.
        ours: the numbers that belong to the stream; those that it takes meanwhile are added to them.
    """
    try:
        found = [number for number in await find_orphans(entity, ours, rests=True) if number not in ours]
    except Exception as error:  # noqa: BLE001 (it is a look only, and must not end the stream)
        _LOG.warning("Deferred messages of %s could not be looked for: %s", entity.address, in_words(error))
        return 0
    if found:
        _LOG.warning(
            "%d messages of %s are deferred and belong to no micro-batch of this stream (the first are %s): nobody "
            'receives them by himself. .option("orphans", "adopt") takes them into the stream, and "ignore" ends this '
            "warning.",
            len(found), entity.address, ", ".join(f"#{number}" for number in found[:_NAMED]),
        )  # fmt: skip
    return len(found)
