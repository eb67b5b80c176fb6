"""Sending as a plan, to be looked at before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sbnotebook.analysis.frames import collect_spark_frame, messages_from, to_send
from sbnotebook.client.durations import duration
from sbnotebook.client.plan import Plan
from sbnotebook.model import Message, Send
from sbnotebook.settlement.entity import AsyncEntity
from sbnotebook.settlement.sending.send_plan import plan_send

__all__ = ["SendPlan"]


class SendPlan(Plan):
    """Messages that are to be sent; ``entity.plan_send`` makes one, which sends nothing; :meth:`apply` does.

    Args:
        entity: where they go.
        data: what :func:`sbnotebook.analysis.frames.messages_from` takes, of a length that is known.
        at: when they become active, with a time zone; None for at once.
        delay: how much later than when they are sent instead, such as ``"5m"``.

    Raises:
        ConfigurationError: the first messages cannot be made of the data, or the delay is none.
        DecisionError: the time is not clear.

    Example:
        >>> connect("emulator").entity("orders").plan_send(["a", "b"], delay="5m")  # doctest: +SKIP
        Plan: send 2 messages to orders, active 0:05:00 later.
    """

    def __init__(
        self, entity: AsyncEntity, data: Any, *, at: datetime | None = None, delay: str | timedelta | None = None
    ) -> None:
        held: Any = [data] if isinstance(data, (Message, str, bytes, Mapping)) else collect_spark_frame(data)
        decision = Send(at, duration(delay) if delay is not None else None)
        super().__init__(plan_send(entity, held, decision, messages_from, to_send))

    def __len__(self) -> int:
        return self.total
