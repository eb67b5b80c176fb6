"""Sending as a plan: what is to be sent can be looked at before anything is."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from sbnotebook.model import Message, Report, Send
from sbnotebook.settlement.actions.schedule import schedule_many
from sbnotebook.settlement.plan import Limits, Plan, Preview
from sbnotebook.settlement.sending.send import send_many
from sbnotebook.settlement.terms import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sbnotebook.settlement.place import Place
    from sbnotebook.settlement.wire.encoded_rows import EncodedRows

__all__ = ["plan_send"]

_SHOWN: Final = 5


class _SendPlan(Plan):
    """A plan whose messages stand nowhere yet: it has none, and a total."""

    __slots__ = ()

    async def apply(self, limits: Limits | None = None, progress: Progress | None = None) -> Report:
        return await self.carry_out(self, limits or Limits(), progress)


def plan_send(
    entity: Place,
    data: Collection[Any],
    decision: Send,
    messages_of: Callable[[Collection[Any]], Iterator[Message]],
    to_send: Callable[[Collection[Any]], Iterator[Message | EncodedRows]],
) -> Plan:
    """A plan to send messages, at once or later.

    Args:
        entity: where they go.
        data: what they are made of, one for each.
        decision: when they become active.
        messages_of: makes the messages as they are sent, so that all of them need not be there at once.
        to_send: makes of the same data what is sent at once, where that is quicker.

    Raises:
        Exception: what ``messages_of`` raises for the first messages, which a preview shows.
    """
    first = tuple(islice(messages_of(data), _SHOWN))

    async def carry_out(plan: Plan, limits: Limits, progress: Progress | None) -> Report:  # noqa: ARG001 (as all are)
        pool = entity.namespace.pool(entity.address)
        pace, at_once = limits.pace(), limits.max_in_flight
        if decision.is_for_now:
            return await send_many(pool, to_send(data), max_in_flight=at_once, pace=pace, progress=progress)
        at, delay = decision.at, decision.delay
        return await schedule_many(
            pool, messages_of(data), at=at, delay=delay, max_in_flight=at_once, pace=pace, progress=progress
        )

    def describe(rows: int) -> Preview:
        return Preview(_sentence(entity, len(data), decision), first[:rows])

    return _SendPlan(entity.address, decision, (), carry_out, describe=describe, total=len(data))


def _sentence(entity: Place, count: int, decision: Send) -> str:
    when = ""
    if decision.at is not None:
        when = f", active at {decision.at.isoformat(sep=' ', timespec='seconds')}"
    elif decision.delay is not None:
        when = f", active {decision.delay} later"
    return f"send {count:,} message{'s' if count != 1 else ''} to {entity.address}{when}."
