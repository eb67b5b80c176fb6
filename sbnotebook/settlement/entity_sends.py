"""What is sent to an entity, asynchronously."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Unpack

from sbnotebook.model import EntityAddress, Message, Report
from sbnotebook.settlement.locking.settle import DEFAULT_MAX_IN_FLIGHT, Progress
from sbnotebook.settlement.pace import Pace
from sbnotebook.settlement.plan import Limits
from sbnotebook.settlement.sending.schedule import schedule_many
from sbnotebook.settlement.sending.send import SendOptions, send_many
from sbnotebook.settlement.wire.encoded_rows import EncodedRows

if TYPE_CHECKING:
    from sbnotebook.settlement.namespace import AsyncNamespace

__all__ = ["AsyncEntitySends"]


class AsyncEntitySends:
    """The part of :class:`sbnotebook.settlement.AsyncEntity` that sends.

    Args:
        namespace: where the entity is.
        address: which one.
    """

    def __init__(self, namespace: AsyncNamespace, address: EntityAddress) -> None:
        self.namespace = namespace
        self.address = address

    async def send(
        self,
        messages: Iterable[Message | EncodedRows],
        *,
        max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
        batch_size: int | None = None,
        rate: float | None = None,
        progress: Progress | None = None,
    ) -> Report:
        """Send messages here and wait for every confirmation.

        See :func:`sbnotebook.settlement.sending.send.send_many`.
        """
        return await send_many(
            self.namespace.pool(self.address),
            messages,
            max_in_flight=max_in_flight,
            batch_size=batch_size,
            pace=Pace(Limits(max_in_flight, rate).rate),
            progress=progress,
        )

    async def schedule(
        self,
        messages: Iterable[Message],
        *,
        at: datetime | None = None,
        delay: timedelta | None = None,
        **options: Unpack[SendOptions],
    ) -> Report:
        """Send messages that become active later: see :func:`sbnotebook.settlement.sending.schedule.schedule_many`."""
        return await schedule_many(self.namespace.pool(self.address), messages, at=at, delay=delay, **options)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address} on {self.namespace.host}>"
