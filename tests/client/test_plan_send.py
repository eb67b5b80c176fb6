from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sbnotebook.client import Namespace
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import Message


def test_send_plan_sends_only_when_applied(namespace: Namespace) -> None:
    namespace.create_queue("planned")
    queue = namespace.entity("planned")
    plan = queue.plan_send([f"<b>{n}</b>" for n in range(7)])
    assert (str(plan.entity), len(plan), len(plan.preview().messages), len(plan.preview(2).messages)) == (
        "planned",
        7,
        5,
        2,
    )
    assert repr(plan).startswith("Plan: send 7 messages to planned.")
    assert "&lt;b&gt;0&lt;/b&gt;" in plan._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert len(queue.peek()) == 0
    assert plan.apply(max_in_flight=2, rate=1000, show_progress=False).settled == 7
    assert len(queue.peek()) == 7


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ({"delay": "1h"}, "send 1 message to later, active 1h later."),
        ({"at": datetime(2050, 1, 2, tzinfo=UTC)}, "send 1 message to later, active at 2050-01-02 00:00:00+00:00."),
    ],
)
def test_send_plan_for_later_says_when(namespace: Namespace, when: dict[str, str | datetime], words: str) -> None:
    namespace.create_queue("later")
    queue = namespace.entity("later")
    plan = queue.plan_send(Message(body=b"x"), **when)  # pyright: ignore[reportArgumentType]
    assert plan.preview().sentence == words
    assert plan.apply().settled == 1
    (message,) = queue.scheduled()
    assert message.scheduled_enqueue_time is not None
    assert message.scheduled_enqueue_time > datetime.now(UTC) + timedelta(minutes=50)
    namespace.delete_queue("later")


def test_send_plan_refuses_wrong_data_at_once(namespace: Namespace) -> None:
    queue = namespace.entity("orders")
    with pytest.raises(DecisionError, match="not both"):
        queue.plan_send("x", at=datetime.now(UTC), delay="1h")
    with pytest.raises(ConfigurationError, match="cannot be made of int"):
        queue.plan_send([1])


def test_a_send_plan_is_applied_once(namespace: Namespace) -> None:
    namespace.create_queue("sent-once")
    queue = namespace.entity("sent-once")
    plan = queue.plan_send(["a", "b"])
    assert plan.start().result().settled == 2
    for again in (plan.apply, plan.start):
        with pytest.raises(DecisionError, match="applied already"):
            again()
    assert len(queue.peek()) == 2


def test_an_iterator_is_planned_as_it_is_sent(namespace: Namespace) -> None:
    namespace.create_queue("iterated")
    queue = namespace.entity("iterated")
    plan = queue.plan_send(Message(body=str(n).encode()) for n in range(7))
    assert repr(plan).startswith("Plan: send 7 messages to iterated.")
    assert len(plan) == len(plan.to_pandas()) == plan.apply().settled == len(queue.peek()) == 7
    with pytest.raises(ConfigurationError, match="Messages cannot be made of int"):
        queue.plan_send(7)
    with pytest.raises(ConfigurationError, match=r"at most 100,000 .* nothing was sent"):
        queue.plan_send("a" for _ in range(100_001))
