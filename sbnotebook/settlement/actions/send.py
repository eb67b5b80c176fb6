"""Sending as a plan: a preview shows what would be sent before anything is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from sbnotebook.model import Message, Report, Send, Tally
from sbnotebook.model.durations import duration_text
from sbnotebook.model.outcome import counted
from sbnotebook.settlement.actions.schedule import SCHEDULE, timed
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import Limits, Plan, Preview
from sbnotebook.settlement.sending.delivery import SEND, send_many
from sbnotebook.settlement.terms import Progress

if TYPE_CHECKING:
    from sbnotebook.settlement.wire.encoded_rows import EncodedRows


def plan_send(
    place: Place,
    messages: Callable[[], Iterable[Message | EncodedRows]],
    decision: Send | None = None,
    *,
    own_times: bool = False,
    batch_size: int | None = None,
    tally: Tally | None = None,
    total: int | None = None,
    shown: Iterable[Message] = (),
) -> Plan:
    """Return a plan to send messages, which are read as it is applied; ``shown`` are the first, for the preview."""
    decision = decision or Send()

    async def carry_out(plan: Plan, limits: Limits, progress: Progress | None) -> Report:  # noqa: ARG001
        is_later = own_times or not decision.is_for_now
        given: Any = messages()  # rows that are encoded already are sent at once only
        return await send_many(
            place.namespace.pool(place.address),
            timed(given, decision) if is_later else given,
            SCHEDULE if is_later else SEND,
            max_in_flight=limits.max_in_flight,
            batch_size=batch_size,
            pace=limits.pace(),
            progress=progress,
            tally=tally,
        )

    return Plan(
        place.address,
        decision,
        (),
        carry_out,
        described=Preview(_sentence(place, total, decision), tuple(shown)),
        total=total,
        costs=place.namespace.costs,
        on=place.namespace.in_plans,
    )


def _sentence(place: Place, count: int | None, decision: Send) -> str:
    when = ""
    if decision.at is not None:
        when = f", active at {decision.at.isoformat(sep=' ', timespec='seconds')}"
    elif decision.delay is not None:
        when = f", active {duration_text(decision.delay)} later"
    return f"send {counted(count)} to {place.in_plans}{when}."
