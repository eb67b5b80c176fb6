"""Entities by the SDK's administration client."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    CorrelationRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleFilter,
)

from sbnotebook.emulator import ManualClock, RunningEmulator, Tier, running
from sbnotebook.testing import administration_client

START = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def admin(emulator: RunningEmulator) -> Iterator[ServiceBusAdministrationClient]:
    with administration_client(emulator.connection_string) as client:
        yield client


FIXED: dict[str, Any] = {"requires_session": True, "requires_duplicate_detection": True, "enable_partitioning": True}


# Those that the SDK's own tests of its administration client, run by tests/conformance, do not set.
OPTIONS: dict[str, Any] = {"status": "SendDisabled", "user_metadata": "<any> text"}


@pytest.mark.parametrize(
    ("kind", "path", "options"),
    [
        ("queue", ["Team/Bills"], OPTIONS | {"max_message_size_in_kilobytes": 2048}),
        ("topic", ["events"], OPTIONS | {"max_message_size_in_kilobytes": 2048, "support_ordering": False}),
        ("subscription", ["events", "audit"], OPTIONS | {"dead_lettering_on_filter_evaluation_exceptions": False}),
    ],
)
def test_further_options_are_set_and_kept(
    admin: ServiceBusAdministrationClient, kind: str, path: list[str], options: dict[str, Any]
) -> None:
    if kind == "subscription":
        admin.create_topic("events")
    getattr(admin, f"create_{kind}")(*path)
    found = getattr(admin, f"get_{kind}")(*(name.upper() for name in path))
    for name, value in options.items():
        assert getattr(found, name) != value
        setattr(found, name, value)
    getattr(admin, f"update_{kind}")(*path[:-1], found)
    kept = dict(getattr(admin, f"get_{kind}")(*path))
    assert {name: kept[name] for name in options} == options


def only_rule(properties: Any) -> AuthorizationRule:
    """The one rule of an entity."""
    (rule,) = properties.authorization_rules
    return rule


def rights(rule: AuthorizationRule) -> list[str]:
    """What a rule allows."""
    return [str(right) for right in rule.rights or ()]


def test_keys_of_an_entity_are_kept(admin: ServiceBusAdministrationClient) -> None:
    listening: list[str | AccessRights] = [AccessRights.LISTEN]
    given = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        key_name="reader",
        rights=[*listening, AccessRights.SEND],
        primary_key="first",
        secondary_key="second",
    )
    for create in (admin.create_queue, admin.create_topic):
        rule = only_rule(create(f"{create.__name__}d", authorization_rules=[given]))
        assert (rule.type, rule.key_name) == ("SharedAccessAuthorizationRule", "reader")
        assert (rule.primary_key, rule.secondary_key) == ("first", "second")
        assert rights(rule) == ["Send", "Listen"]
        assert rule.created_at_utc is not None
        assert rule.modified_at_utc == rule.created_at_utc
    given.primary_key = given.secondary_key = None
    given.rights = listening
    queue = admin.get_queue("create_queued")
    queue.authorization_rules = [given]
    admin.update_queue(queue)
    rule = only_rule(admin.get_queue("create_queued"))
    assert rights(rule) == ["Listen"]
    assert len({str(key) for key in (rule.primary_key, rule.secondary_key, "first", "second", None)}) == 5


@pytest.mark.parametrize("name", FIXED)
def test_fixed_properties_cannot_be_changed(admin: ServiceBusAdministrationClient, name: str) -> None:
    queue = admin.create_queue("q")
    setattr(queue, name, True)
    with pytest.raises(HttpResponseError, match="property of an existing Queue cannot be changed") as caught:
        admin.update_queue(queue)
    assert caught.value.status_code == 400


def test_entities_with_sessions_do_not_forward_to_queues(admin: ServiceBusAdministrationClient) -> None:
    admin.create_topic("t")
    sessions: dict[str, Any] = {"requires_session": True, "forward_dead_lettered_messages_to": "orders"}
    queue, subscription = admin.create_queue("q", **sessions), admin.create_subscription("t", "s", **sessions)
    queue.forward_to = subscription.forward_to = "orders"
    for call in (
        lambda: admin.create_queue("more", **sessions, forward_to="orders"),
        lambda: admin.create_subscription("t", "more", **sessions, forward_to="orders"),
        lambda: admin.update_queue(queue),
        lambda: admin.update_subscription("t", subscription),
    ):
        with pytest.raises(HttpResponseError, match=r"SubCode=40000\. Bad Request.*sessions cannot") as caught:
            call()
        assert caught.value.status_code == 400
    assert (admin.get_queue("q").forward_to, admin.get_subscription("t", "s").forward_to) == (None, None)


def test_entities_with_sessions_forward_to_topics(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    admin.create_topic("t")
    admin.create_subscription("t", "s", requires_session=True)
    admin.create_queue("q", requires_session=True, forward_to="t")
    with client.get_queue_sender("q") as sender, client.get_subscription_receiver("t", "s", session_id="a") as receiver:
        sender.send_messages(ServiceBusMessage("on", session_id="a"))
        (message,) = receiver.receive_messages(max_wait_time=5)
        assert (str(message), message.session_id) == ("on", "a")


@pytest.mark.parametrize("option", ["forward_to", "forward_dead_lettered_messages_to"])
def test_an_entity_that_forwards_is_not_deleted(
    admin: ServiceBusAdministrationClient, clock: ManualClock, option: str
) -> None:
    forwarding: dict[str, Any] = {option: "orders", "auto_delete_on_idle": timedelta(minutes=5)}
    admin.create_topic("t")
    admin.create_queue("q", **forwarding)
    admin.create_subscription("t", "s", **forwarding)
    changed = admin.create_queue("changed", auto_delete_on_idle=timedelta(minutes=5))
    setattr(changed, option, "orders")
    admin.update_queue(changed)
    # Service Bus shows the longest time for a subscription, and the time that was asked for for a queue.
    times = [each.auto_delete_on_idle for each in (admin.get_subscription("t", "s"), admin.get_queue("q"))]
    assert times == [admin.get_queue("orders").auto_delete_on_idle, timedelta(minutes=5)]
    clock.advance(600)
    assert [each.name for each in admin.list_queues()] == ["changed", "orders", "q"]
    assert [each.name for each in admin.list_subscriptions("t")] == ["s"]
    # Without a target, they are.
    queue = admin.get_queue("changed")
    setattr(queue, option, None)
    admin.update_queue(queue)
    clock.advance(300)
    assert [each.name for each in admin.list_queues()] == ["orders", "q"]


@pytest.mark.parametrize("option", ["forward_to", "forward_dead_lettered_messages_to"])
def test_a_target_of_forwarding_must_exist(admin: ServiceBusAdministrationClient, option: str) -> None:
    admin.create_topic("t")
    admin.create_subscription("t", "s")
    queue, subscription = admin.get_queue("orders"), admin.get_subscription("t", "s")
    itself: dict[str, Any] = {option: "q"}  # which does not exist yet
    missing: dict[str, Any] = {option: "missing"}
    for properties in (queue, subscription):
        setattr(properties, option, "missing")
    for call in (
        lambda: admin.create_queue("q", **itself),
        lambda: admin.create_subscription("t", "more", **missing),
        lambda: admin.update_queue(queue),
        lambda: admin.update_subscription("t", subscription),
    ):
        with pytest.raises(
            HttpResponseError, match=r"SubCode=40400\. The auto forwarding destination.*not exist"
        ) as caught:
            call()
        assert caught.value.status_code == 400
    assert [each.name for each in admin.list_queues()] == ["orders"]
    assert getattr(admin.get_queue("orders"), option) is None


def test_used_names_conflict_and_unknown_ones_are_not_found(admin: ServiceBusAdministrationClient) -> None:
    for create in (admin.create_queue, admin.create_topic):
        with pytest.raises(ResourceExistsError):
            create("Orders")
    for parent in ("nobody", "orders"):  # a queue has no subscriptions
        with pytest.raises(ResourceNotFoundError):
            admin.create_subscription(parent, "s")
    # As in Azure, which answers with an empty feed.
    assert list(admin.list_subscriptions("nobody")) == []
    admin.create_topic("t")
    admin.create_subscription("t", "s")
    with pytest.raises(ResourceExistsError):
        admin.create_subscription("t", "S")
    for rule in (lambda: admin.get_rule("t", "s", "r"), lambda: admin.delete_rule("t", "s", "r")):
        with pytest.raises(ResourceNotFoundError):
            rule()


def test_an_entity_keeps_its_kind(admin: ServiceBusAdministrationClient) -> None:
    topic = admin.create_topic("t")
    topic.name = "orders"
    with pytest.raises(HttpResponseError, match="another kind of entity"):
        admin.update_topic(topic)


def test_entities_are_listed_in_pages(admin: ServiceBusAdministrationClient) -> None:
    for name in "abcde":
        admin.create_queue(name)
        admin.create_topic(f"t{name}")
        admin.create_subscription("ta", name)
        admin.create_rule("ta", "a", name)
    assert [each.name for each in admin.list_queues(max_page_size=2)] == ["a", "b", "c", "d", "e", "orders"]
    assert [each.name for each in admin.list_queues_runtime_properties(max_page_size=6)][-1] == "orders"
    assert [each.name for each in admin.list_topics(max_page_size=2)] == ["ta", "tb", "tc", "td", "te"]
    assert [each.name for each in admin.list_topics_runtime_properties(max_page_size=5)][-1] == "te"
    assert [each.name for each in admin.list_subscriptions("ta", max_page_size=2)] == list("abcde")
    assert [each.name for each in admin.list_subscriptions_runtime_properties("ta", max_page_size=1)] == list("abcde")
    assert [each.name for each in admin.list_rules("ta", "a", max_page_size=2)] == ["$Default", *"abcde"]


def test_runtime_properties_count_messages(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient, clock: ManualClock
) -> None:
    with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
        sender.send_messages([ServiceBusMessage("x" * 100) for _ in range(4)])
        sender.schedule_messages(ServiceBusMessage("later"), START + timedelta(days=40_000))
        first, second = receiver.receive_messages(2, max_wait_time=5)
        receiver.defer_message(first)
        receiver.dead_letter_message(second)
    counts = admin.get_queue_runtime_properties("orders")
    assert counts.active_message_count == 3  # with the deferred one
    assert (counts.dead_letter_message_count, counts.scheduled_message_count) == (1, 1)
    assert (counts.transfer_message_count, counts.transfer_dead_letter_message_count) == (0, 0)
    assert counts.total_message_count == 5
    assert counts.size_in_bytes is not None
    assert counts.size_in_bytes > 400
    assert counts.created_at_utc is not None
    clock.advance(60)
    admin.update_queue(admin.get_queue("orders"))
    changed = admin.get_queue_runtime_properties("orders")
    assert changed.created_at_utc == counts.created_at_utc
    assert changed.updated_at_utc is not None
    assert changed.updated_at_utc - counts.created_at_utc >= timedelta(seconds=60)


def test_runtime_properties_of_a_topic_count_what_it_has(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    admin.create_topic("t")
    for name in "ab":
        admin.create_subscription("t", name)
    admin.create_rule("t", "a", "sql", filter=SqlRuleFilter("1=1"))
    admin.create_rule("t", "a", "correlation", filter=CorrelationRuleFilter(correlation_id="x"))
    with client.get_topic_sender("t") as sender:
        sender.send_messages(ServiceBusMessage("now"))
        sender.schedule_messages(ServiceBusMessage("later"), START + timedelta(days=40_000))
    topic = admin.get_topic_runtime_properties("t")
    assert (topic.subscription_count, topic.scheduled_message_count) == (2, 1)
    assert (topic.sql_filter_count, topic.correlation_filter_count) == (3, 1)
    subscription = admin.get_subscription_runtime_properties("t", "b")
    assert (subscription.active_message_count, subscription.total_message_count) == (1, 1)
    admin.delete_topic("t")
    with pytest.raises(ResourceNotFoundError):
        admin.get_subscription("t", "b")


def test_large_messages_need_the_tier_premium() -> None:
    with running(tier=Tier.STANDARD) as emulator, administration_client(emulator.connection_string) as admin:
        assert admin.get_namespace_properties().messaging_sku == "Standard"
        with pytest.raises(HttpResponseError, match="Premium only"):
            admin.create_topic("t", max_message_size_in_kilobytes=1024)
        topic = admin.create_topic("t")
        assert topic.max_message_size_in_kilobytes == 256
        admin.update_topic(topic)  # with the size that was read
        topic.max_message_size_in_kilobytes = 1024
        with pytest.raises(HttpResponseError, match="Premium only"):
            admin.update_topic(topic)
