"""Looking for chosen messages from the head of an entity, without locking any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

import anyio

from sbnotebook.model import MessageState, PeekedMessage
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.terms import Progress

__all__ = ["Survey", "survey"]


@dataclass(slots=True)
class Survey:
    """What a peek from the head to the last chosen message has found.

    Args:
        found: the chosen messages that are there, by number.
        standing: active messages up to the last chosen one that is active; that many are locked.
        delivered: how many of them were delivered before.
        by_session: the same as ``standing`` among the messages of each session that a chosen one is of.
        seconds: how long the peek took.
    """

    found: dict[int, PeekedMessage] = field(default_factory=dict[int, PeekedMessage])
    standing: int = 0
    delivered: int = 0
    by_session: dict[str | None, int] = field(default_factory=dict[str | None, int])
    seconds: float = 0.0

    def in_state(self, state: MessageState) -> set[int]:
        """Numbers of the chosen messages that were in a state."""
        return {number for number, message in self.found.items() if message.state is state}


async def survey(entity: Place, numbers: Collection[int], progress: Progress | None = None) -> Survey:
    """Peek from the head to the last of some messages; nothing is locked.

    Args:
        entity: where they stand.
        numbers: their sequence numbers.
        progress: told of every page, in messages.
    """
    seen = Survey()
    active = delivered = 0
    in_session: Counter[str | None] = Counter()
    began = anyio.current_time()
    async for page in entity.pages(to_sequence_number=max(numbers, default=0)):
        for message in page:
            is_active = message.state is MessageState.ACTIVE
            active += is_active
            delivered += is_active and message.delivery_count > 0
            in_session[message.session_id] += is_active
            if message.sequence_number in numbers:
                seen.found[message.sequence_number] = message
                if is_active:
                    seen.standing, seen.delivered = active, delivered
                    seen.by_session[message.session_id] = in_session[message.session_id]
        if progress is not None:
            progress(len(page))
    seen.seconds = anyio.current_time() - began
    return seen
