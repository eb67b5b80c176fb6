"""The deferred messages of an entity, compared with the journal, as the tests of this folder need them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sbnotebook.model import MessageState
from sbnotebook.settlement import AsyncEntity, Deferrals


async def deferrals_of(entity: AsyncEntity, between: Callable[[], object] = lambda: None) -> Deferrals:
    """Compare the journal with the entity, and call ``between`` as the entity was peeked at."""

    async def look() -> dict[int, datetime | None]:
        found = await entity.peek(state=MessageState.DEFERRED)
        between()
        return {message.sequence_number: message.enqueued_time for message in found}

    return await entity.compare_deferrals(look)
