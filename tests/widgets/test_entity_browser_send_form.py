from __future__ import annotations

import gzip
from datetime import UTC, datetime
from typing import Any

import pytest

from sbnotebook.amqp import Decimal32, Long, encode, type_name
from sbnotebook.client import Namespace
from sbnotebook.emulator import RunningEmulator, SubscriptionOptions
from sbnotebook.emulator.entities.rules.rule import Rule, sql_filter
from sbnotebook.errors import DecisionError
from sbnotebook.model import Message
from sbnotebook.widgets.action_panel import ActionPanel
from sbnotebook.widgets.entity_browser import SendForm
from tests.widgets.conftest import click, until


def test_send_form_withdraws_a_plan_after_a_change(namespace: Namespace) -> None:
    namespace.create_queue("typed-late")
    panel = ActionPanel(namespace)
    form = SendForm(namespace, panel, "typed-late")
    form.body.value = "0"
    form.submit()
    form.body.value = "012345"  # while the kernel is busy, it comes after the click on the button
    assert "The form was changed" in repr(panel)
    form.submit()
    until(lambda: "012345" in repr(panel))
    form.properties.value = "attempt = 2 (long)"
    assert "The form was changed" in repr(panel)
    form.submit()
    until(lambda: "attempt = 2" in repr(panel))
    form.properties.value = "attempt = 3 (long)"
    assert "The form was changed" in repr(panel)
    namespace.delete_queue("typed-late")


def test_a_message_is_scheduled(namespace: Namespace) -> None:
    namespace.create_queue("timed")
    panel = ActionPanel(namespace)
    form = SendForm(namespace, panel, "timed")
    form.at.value = "2050-01-31 07:30"
    form.submit()
    until(lambda: "Send 1 message to timed, active at 2050-01-31 07:30:00+00:00." in repr(panel))
    form.at.value, form.delay.value = "", "1h"
    form.submit()
    until(lambda: "active 1h later" in repr(panel))
    click(panel, "Carry out")
    until(lambda: panel.report)
    assert len(namespace.entity("timed").scheduled()) == 1
    namespace.delete_queue("timed")


def test_send_form_says_which_subscriptions_take_the_message(
    namespace: Namespace, shared_emulator: RunningEmulator
) -> None:
    shared_emulator.create_topic("form-events")
    rules = [Rule("large", sql_filter("size > 5"), None)]
    shared_emulator.create_subscription("form-events", "large", SubscriptionOptions(), rules=rules)
    panel = ActionPanel(namespace)
    form = SendForm(namespace, panel, "form-events")
    form.submit()
    until(lambda: "WARNING: no subscription of form-events takes 1 of 1 message" in repr(panel))
    form.properties.value = "size = 9"
    form.submit()
    until(lambda: "form-events/subscriptions/large takes 1." in repr(panel))
    assert "WARNING" not in repr(panel)


def test_send_form_shows_problems_at_their_fields(namespace: Namespace) -> None:
    panel = ActionPanel(namespace)
    form = SendForm(namespace, panel, "orders/$dlq")
    form.properties.value = "count = many (int)"
    form.delay.value, form.at.value = "soon", "later"
    form.submit()
    assert form.to.problem == "A message cannot be sent to orders/$dlq: name a queue or a topic."
    assert form.properties.problem == "The value of 'count' is not of the type int."
    assert "soon" in form.delay.problem
    assert not panel.is_looking
    form.properties.value = f"count = {2**63}"
    form.submit()
    assert form.properties.problem == "The value of 'count' is not of the type long."
    for wrong in ("= 1", "count", "count = 1\ncount = 2"):
        form.properties.value = wrong
        form.submit()
        assert form.properties.problem.startswith("Each property has a name, and no two have the same")
    assert form.at.problem == "Write the time as 2030-01-31 07:30+00:00."


def test_send_form_warns_of_a_body_that_is_not_json(namespace: Namespace) -> None:
    panel = ActionPanel(namespace)
    form = SendForm(namespace, panel, "orders")
    form.content_type.value = "application/json"
    form.body.value = "{broken"
    form.submit()
    assert "not JSON" in form.problem
    until(lambda: "Send 1 message to orders." in repr(panel))


def test_send_form_copies_a_message(namespace: Namespace) -> None:
    form = SendForm(namespace, ActionPanel(namespace))
    when = datetime(2026, 1, 2, tzinfo=UTC)
    properties: Any = {"a": "x", "n": 5, "t": when, "yes": True}
    original = Message(body=b"<a/>", subject="s", message_id="m", application_properties=properties)
    form.properties.value = "old = 1"
    form.fill(original)
    again = form.message()
    assert (again.body, again.subject, again.message_id) == (b"<a/>", "s", None)
    assert {name: type_name(value) for name, value in again.application_properties.items()} == {
        "a": "string",
        "n": "int",
        "t": "timestamp",
        "yes": "boolean",
    }
    strange: Any = {"2": "2", "two": " lines\n and (int)", "long": Long(5), "d": Decimal32(b"1234"), "b": b"\0"}
    form.fill(original.with_changes(application_properties=strange))
    assert encode(dict(form.message().application_properties)) == encode(strange)
    form.fill(Message(body="ß".encode("latin-1"), content_type="text/plain; charset=latin-1"))
    assert form.message().body == b"\xdf"
    for message in (
        original.with_changes(body=b"\xff\xfe"),
        Message.of_value("a JMS text"),
        Message(body=gzip.compress(b"no mark says so")),
        original.with_changes(application_properties={"a=b": 1}),
    ):
        with pytest.raises(DecisionError):
            form.fill(message)
