"""What is sent to an entity, at once or later."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from sbnotebook.analysis.frames import messages_from, to_send
from sbnotebook.client import progress
from sbnotebook.client.durations import duration
from sbnotebook.client.plan import Plan
from sbnotebook.client.portal import run
from sbnotebook.client.sending import SendPlan
from sbnotebook.model import EntityAddress, ReceivedMessage, Report
from sbnotebook.settlement.entity import AsyncEntity
from sbnotebook.settlement.locking.settle import DEFAULT_MAX_IN_FLIGHT
from sbnotebook.settlement.pace import Pace
from sbnotebook.settlement.plan import Limits

__all__ = ["EntitySends"]


class EntitySends:
    """The part of :class:`sbnotebook.client.Entity` that sends.

    Args:
        entity: the asynchronous entity that does it.
    """

    def __init__(self, entity: AsyncEntity) -> None:
        self._entity = entity

    @property
    def address(self) -> EntityAddress:
        """Its address."""
        return self._entity.address

    def send(
        self,
        messages: Any,
        *,
        max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
        batch_size: int | None = None,
        rate: float | None = None,
        show_progress: bool = True,
    ) -> Report:
        """Send messages and wait for every confirmation.

        Args:
            messages: what :func:`sbnotebook.analysis.frames.messages_from` takes: messages, texts, rows, a pandas
                frame, an Arrow table, or an iterable of them, which is pulled as there is room.
            max_in_flight: transfers that wait for their confirmation at once.
            batch_size: messages in one transfer at most, None for as many as fit.
            rate: messages a second at most, None for no limit.
            show_progress: False for no bar.

        Returns:
            An outcome for each message, in the same order.
        """
        with progress.bar(f"send to {self.address}", _count_of(messages), shown=show_progress) as advance:

            async def send() -> Report:
                return await self._entity.send(
                    to_send(messages),
                    max_in_flight=max_in_flight,
                    batch_size=batch_size,
                    rate=rate,
                    progress=advance,
                )

            return run(send)

    def plan_send(self, data: Any, *, at: datetime | None = None, delay: str | timedelta | None = None) -> SendPlan:
        """A plan to send messages, at once or later: see :class:`sbnotebook.client.SendPlan`."""
        return SendPlan(self._entity, data, at=at, delay=delay)

    def schedule(
        self,
        messages: Any,
        *,
        at: datetime | None = None,
        delay: str | timedelta | None = None,
        max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
        rate: float | None = None,
        show_progress: bool = True,
    ) -> Report:
        """Send messages that become active later; their outcomes have the numbers by which they are cancelled.

        Args:
            messages: as for :meth:`send`.
            at: when, with a time zone; None for each message's own ``scheduled_enqueue_time``.
            delay: how much later than now instead, such as ``"5m"``.
            max_in_flight: requests that wait for their confirmation at once.
            rate: messages a second at most, None for no limit.
            show_progress: False for no bar.
        """
        later = duration(delay) if delay is not None else None
        pace = Pace(Limits(max_in_flight, rate).rate)
        with progress.bar(f"schedule to {self.address}", _count_of(messages), shown=show_progress) as advance:

            async def schedule() -> Report:
                return await self._entity.schedule(
                    messages_from(messages),
                    at=at,
                    delay=later,
                    max_in_flight=max_in_flight,
                    pace=pace,
                    progress=advance,
                )

            return run(schedule)

    def cancel_scheduled(self, messages: Iterable[ReceivedMessage | int]) -> Plan:
        """A plan to remove scheduled messages, given as they were peeked or by their sequence numbers.

        See :func:`sbnotebook.settlement.sending.schedule.plan_cancel_scheduled`.

        Raises:
            DecisionError: a message does not stand here, or is not scheduled.
        """
        return Plan(self._entity.plan_cancel_scheduled(messages))

    def warm(self, senders: int) -> None:
        """Open connections for sending ahead of time, each takes about half a second.

        Args:
            senders: how many, as many as there will be transfers in flight.
        """
        run(self._entity.namespace.pool(self.address).warm, senders)


def _count_of(messages: Any) -> int | None:
    return len(messages) if hasattr(messages, "__len__") and not isinstance(messages, (str, bytes)) else None
