"""The preview of a plan to send."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sbnotebook.model import Message, Send
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.costs import Cost

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("decision", "total", "sentence"),
    [
        (None, 0, "send 0 messages to orders."),
        (None, 1, "send 1 message to orders."),
        (None, 2, "send 2 messages to orders."),
        (None, None, "send messages to orders."),
        (Send(delay=timedelta(minutes=5)), 3, "send 3 messages to orders, active 5m later."),
        (
            Send(at=datetime(2099, 1, 2, 3, 4, 5, tzinfo=UTC)),
            3,
            "send 3 messages to orders, active at 2099-01-02 03:04:05+00:00.",
        ),
    ],
)
async def test_a_plan_to_send_says_what_and_when(
    namespace: AsyncNamespace, decision: Send | None, total: int | None, sentence: str
) -> None:
    shown = [Message(body=b"%d" % n) for n in range(3)]
    plan = namespace.entity("orders").plan_send(lambda: shown, decision, total=total, shown=shown)
    preview = plan.preview(2)
    assert preview.sentence == sentence
    assert list(preview.messages) == shown[:2]
    assert plan.cost == Cost(settlements=0)
