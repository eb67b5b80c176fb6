"""Which subscriptions take a message: as the emulator then hands it on, and as the preview of a plan says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sbnotebook.amqp import Long
from sbnotebook.client import Namespace
from sbnotebook.emulator import QueueOptions, RunningEmulator, SubscriptionOptions, TopicOptions
from sbnotebook.emulator.entities.options import AuthorizationRule, Claim, EntityStatus
from sbnotebook.emulator.entities.rules.rule import (
    FALSE_FILTER,
    TRUE_FILTER,
    Filter,
    Rule,
    SqlAction,
    correlation_filter,
    sql_filter,
)
from sbnotebook.errors import DecisionError
from sbnotebook.model import Message
from tests.namespaces import opened

RULES: dict[str, list[tuple[Filter, SqlAction | None]]] = {
    "all": [(TRUE_FILTER, None)],
    "none": [(FALSE_FILTER, None)],
    "no-rules": [],
    "sql": [(sql_filter("size > @least AND sys.Label LIKE 'o%'", {"@least": Long(5)}), None)],
    "twice": [(sql_filter("size > 5"), SqlAction("SET size = 1")), (TRUE_FILTER, SqlAction("SET seen = 'yes'"))],
    "correlated": [(correlation_filter(subject="order", properties={"region": "eu"}), None)],
    "to": [(correlation_filter(to="billing", session_id="s1"), None)],
    "missing": [(sql_filter("colour <> 'red'"), None), (sql_filter("NOT EXISTS(size)"), None)],
}
MESSAGES = [
    Message(subject="order", application_properties={"size": Long(9), "region": "eu"}),
    Message(subject="order", application_properties={"size": 2.5, "region": "us"}),
    Message(to="billing", session_id="s1", application_properties={"size": "text", "colour": "blue"}),
    Message(body=b"\x00\xff"),
]


def topic(emulator: RunningEmulator, name: str, rules: dict[str, list[tuple[Filter, SqlAction | None]]]) -> None:
    emulator.create_topic(name, TopicOptions())
    for each, filters in rules.items():
        found = [Rule(f"r{n}", kept, action) for n, (kept, action) in enumerate(filters)]
        emulator.create_subscription(name, each, SubscriptionOptions(), rules=found)


def test_who_takes_a_message_is_as_it_then_comes(namespace: Namespace, shared_emulator: RunningEmulator) -> None:
    topic(shared_emulator, "routed", RULES)
    place = namespace.entity("routed")
    for message in MESSAGES:
        said = {receiver.address.subscription: receiver.copies for receiver in place.receivers_of(message).taken}
        place.send(message).raise_for_failures()
        came: dict[str | None, int] = {}
        for name in RULES:
            copies = namespace.entity(f"routed/subscriptions/{name}")
            if count := len(copies.peek()):
                came[name] = count
                copies.purge(archived=False).apply()
        assert said == came
    assert "all (by r0)" in str(place.receivers_of("x"))


def test_a_message_that_no_subscription_takes_has_a_loud_warning(
    namespace: Namespace, shared_emulator: RunningEmulator
) -> None:
    topic(shared_emulator, "narrow-route", {"big": [(sql_filter("size > 5"), None)]})
    place = namespace.entity("narrow-route")
    found = place.receivers_of({"body_text": "x"})
    assert found.is_lost
    assert str(found).startswith("WARNING: no subscription of narrow-route takes it. Service Bus accepts and drops it.")
    plan = place.plan_send([MESSAGES[0], Message(message_id="lost")])
    assert "WARNING: no subscription of narrow-route takes 1 of 2 messages ('lost')" in plan.preview().sentence
    assert "narrow-route/subscriptions/big takes 1" in repr(plan)
    shared_emulator.create_topic("empty-route", TopicOptions())
    assert namespace.entity("empty-route").receivers_of("x").is_lost

    namespace.create_queue("routed-from")
    queue = namespace.entity("routed-from")
    queue.send(["a", "b"]).raise_for_failures()
    number = queue.peek()[0].sequence_number
    for plan in (queue.resubmit(queue.peek(), to="narrow-route"), queue.resubmit([number], to="narrow-route")):
        assert f"(#{number}" in plan.preview().sentence
        assert "WARNING: no subscription of narrow-route takes" in plan._repr_html_()  # pyright: ignore[reportPrivateUsage]
    edited = queue.resubmit(
        queue.peek(), to="narrow-route", edit=lambda m: m.with_changes(application_properties={"size": Long(6)})
    )
    assert "WARNING" not in edited.preview().sentence
    assert "takes 2" in edited.preview().sentence
    assert "subscription" not in queue.plan_send("a").preview().sentence


def test_forwarding_and_disabled_subscriptions_are_followed(
    namespace: Namespace, shared_emulator: RunningEmulator
) -> None:
    topic(shared_emulator, "second-route", {"seen": [(sql_filter("seen = 'yes'"), None)]})
    shared_emulator.create_topic("first-route", TopicOptions())
    every = [Rule("every", TRUE_FILTER, SqlAction("SET seen = 'yes'"))]
    options: Any = SubscriptionOptions(forward_to="second-route")
    shared_emulator.create_subscription("first-route", "on", options, rules=every)
    found = namespace.entity("first-route").receivers_of("x")
    assert [str(each.address) for each in found.taken] == ["second-route/subscriptions/seen"]
    shared_emulator.create_queue("to-route", QueueOptions(forward_to="first-route"))
    assert "second-route/subscriptions/seen" in namespace.entity("to-route").plan_send("x").preview().sentence

    shared_emulator.create_queue("last-route")
    shared_emulator.create_queue("middle-route", QueueOptions(forward_to="last-route"))
    shared_emulator.create_queue("queue-route", QueueOptions(forward_to="middle-route"))
    sentence = namespace.entity("queue-route").plan_send("x").preview().sentence
    assert "takes" not in sentence
    assert "rules" not in sentence
    with pytest.raises(DecisionError, match="is not a topic"):
        namespace.entity("queue-route").receivers_of("x")

    shared_emulator.create_topic("disabled-route", TopicOptions())
    asleep = SubscriptionOptions(status=EntityStatus.DISABLED, requires_session=True)
    shared_emulator.create_subscription("disabled-route", "asleep", asleep, rules=[Rule("all", TRUE_FILTER)])
    (taken,) = namespace.entity("disabled-route").receivers_of("x").taken
    for text in (str(taken), namespace.entity("disabled-route").plan_send("x").preview().sentence):
        assert "disabled" in text
        assert "no session id" in text


def test_what_service_bus_keeps_as_a_dead_letter_is_not_lost(
    namespace: Namespace, shared_emulator: RunningEmulator
) -> None:
    for number in range(5, 0, -1):
        forward_to = f"hop-{number + 1}" if number < 5 else "hop-topic"
        if number == 5:
            topic(shared_emulator, "hop-topic", {"all": [(TRUE_FILTER, None)]})
        shared_emulator.create_queue(f"hop-{number}", QueueOptions(forward_to=forward_to))
    far, near = (namespace.entity(name).receivers_of("x") for name in ("hop-1", "hop-2"))
    assert [str(each.address) for each in near.taken] == ["hop-topic/subscriptions/all"]
    assert str(far) == "Taken by hop-5 (dead-lettered there: Service Bus forwards a message 4 times at most)."
    assert not far.is_lost
    assert "hop-5 (dead-lettered there" in namespace.entity("hop-1").plan_send("x").preview().sentence
    namespace.entity("hop-1").send("x").raise_for_failures()
    assert not namespace.entity("hop-topic/subscriptions/all").peek()
    namespace.entity("hop-2").send("x").raise_for_failures()
    assert len(namespace.entity("hop-topic/subscriptions/all").peek()) == 1

    shared_emulator.create_topic("failing-route", TopicOptions())
    fails = [Rule("fails", sql_filter("size / 0 > 1"), None)]
    for name, kept in (("kept", True), ("dropped", False)):
        options = SubscriptionOptions(dead_letter_on_filter_errors=kept)
        shared_emulator.create_subscription("failing-route", name, options, rules=fails)
    found = namespace.entity("failing-route").receivers_of(MESSAGES[0])
    assert [str(each.address) for each in found.taken] == ["failing-route/subscriptions/kept/$dlq"]
    assert "a rule cannot be evaluated on it" in str(found)
    assert not found.is_lost
    namespace.entity("failing-route").send(MESSAGES[0]).raise_for_failures()
    assert len(namespace.entity("failing-route/subscriptions/kept/$dlq").peek()) == 1


def test_what_only_service_bus_knows_is_unknown(namespace: Namespace, shared_emulator: RunningEmulator) -> None:
    rules = {"new": [(sql_filter("sys.EnqueuedTimeUtc > '2026-01-01'"), None)], "all": [(TRUE_FILTER, None)]}
    topic(shared_emulator, "timed-route", rules)  # pyright: ignore[reportArgumentType]
    found = namespace.entity("timed-route").receivers_of("x")
    assert [each.address.subscription for each in found.taken] == ["all"]
    assert [each.subscription for each in found.unknown] == ["new"]


def test_without_the_right_manage_nothing_is_guessed(shared_emulator: RunningEmulator, tmp_path: Path) -> None:
    key = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA=="
    rule = AuthorizationRule("sender", key, key, frozenset((Claim.SEND,)))
    shared_emulator.create_topic("kept-route", TopicOptions(authorization_rules=(rule,)))
    host = shared_emulator.connection_string.split(";")[0]
    text = f"{host};SharedAccessKeyName=sender;SharedAccessKey={rule.primary_key};UseDevelopmentEmulator=true"
    with opened(text, tmp_path) as own:
        found = own.entity("kept-route").receivers_of("x")
        own.entity("kept-route").send("x").raise_for_failures()
        assert not found.is_lost
        assert "Unknown: kept-route: reading the rules needs the right Manage" in str(found)
        sentence = own.entity("kept-route").plan_send("x").preview().sentence
        assert "unknown which subscriptions take them: reading the rules needs the right Manage" in sentence
