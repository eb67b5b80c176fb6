"""Receiving messages that are removed as they are sent, for synchronous code."""

from __future__ import annotations

import warnings
from typing import Any

from sbnotebook.client import progress
from sbnotebook.client.messages import Messages
from sbnotebook.client.portal import run
from sbnotebook.model import PeekedMessage
from sbnotebook.settlement.entity import AsyncEntity
from sbnotebook.settlement.locking import receive_and_delete as settlement

__all__ = ["receive_and_delete"]


def receive_and_delete(
    entity: AsyncEntity, count: int, *, max_wait: float, archived: bool, show_progress: bool, stacklevel: int
) -> Messages:
    """Receive messages that the service removes as it sends them.

    Args:
        entity: where from.
        count: how many at most.
        max_wait: seconds to wait for the first.
        archived: whether they are written to the archive as they arrive.
        show_progress: False for no bar.
        stacklevel: whose line the warning names.

    Raises:
        KeyboardInterrupt: it was interrupted; the attribute ``messages`` has what had arrived.
    """
    warnings.warn(settlement.WARNING, stacklevel=stacklevel + 1)
    taken: list[PeekedMessage] = []
    with progress.bar(f"receive from {entity.address}", count, shown=show_progress) as advance:

        async def receive() -> None:
            await settlement.receive_and_delete(
                entity, count, max_wait=max_wait, archived=archived, into=taken, progress=advance
            )

        try:
            run(receive)
        except KeyboardInterrupt as interrupt:
            found: Any = interrupt
            found.messages = Messages(taken, where_from=str(entity.address))
            interrupt.add_note(f"{len(taken):,} messages were received before, and are in sys.last_value.messages.")
            raise
    return Messages(taken, where_from=str(entity.address))
