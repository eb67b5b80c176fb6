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
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from sbnotebook.emulator import ManualClock, RunningEmulator, Tier, running
from sbnotebook.testing import administration_client

START = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def admin(emulator: RunningEmulator) -> Iterator[ServiceBusAdministrationClient]:
    with administration_client(emulator.connection_string) as client:
        yield client


QUEUE: dict[str, Any] = {
    "auto_delete_on_idle": timedelta(minutes=10),
    "dead_lettering_on_message_expiration": True,
    "default_message_time_to_live": timedelta(minutes=11),
    "duplicate_detection_history_time_window": timedelta(minutes=12),
    "enable_batched_operations": False,
    "lock_duration": timedelta(seconds=13),
    "max_delivery_count": 14,
    "max_size_in_megabytes": 3072,
    "max_message_size_in_kilobytes": 2048,
    "user_metadata": "<any> text",
    "status": "SendDisabled",
}
FIXED: dict[str, Any] = {"requires_session": True, "requires_duplicate_detection": True, "enable_partitioning": True}
TOPIC = {
    name: QUEUE[name]
    for name in QUEUE
    if name not in ("dead_lettering_on_message_expiration", "lock_duration", "max_delivery_count")
} | {"support_ordering": False}
SUBSCRIPTION = {
    name: QUEUE[name]
    for name in (
        *("auto_delete_on_idle", "dead_lettering_on_message_expiration", "default_message_time_to_live"),
        *("enable_batched_operations", "lock_duration", "max_delivery_count", "user_metadata", "status"),
    )
} | {"dead_lettering_on_filter_evaluation_exceptions": False}


def only_rule(properties: Any) -> AuthorizationRule:
    """The one rule of an entity."""
    (rule,) = properties.authorization_rules
    return rule


def rights(rule: AuthorizationRule) -> list[str]:
    """What a rule allows."""
    return [str(right) for right in rule.rights or ()]


def some(properties: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    """Those of the properties that are wanted."""
    return {name: dict(properties)[name] for name in wanted}


def test_every_option_of_a_queue_is_set_and_kept(admin: ServiceBusAdministrationClient) -> None:
    default = admin.create_queue("Team/Bills")
    assert default.max_message_size_in_kilobytes == 1024  # of the tier
    found = admin.get_queue("team/bills")
    assert dict(admin.get_queue("Team/Bills")) == dict(default)
    for name, value in QUEUE.items():
        assert getattr(found, name) != value
        setattr(found, name, value)
    admin.update_queue(found)
    assert some(admin.get_queue("Team/Bills"), QUEUE) == QUEUE
    admin.update_queue(default)
    assert dict(admin.get_queue("Team/Bills")) == dict(default)
    # Each of 16 partitions has the requested size.
    partitioned = QUEUE | FIXED | {"max_size_in_megabytes": 16 * 3072}
    assert some(admin.create_queue("all", **QUEUE, **FIXED), partitioned) == partitioned
    admin.update_queue(admin.get_queue("all"))
    assert some(admin.get_queue("all"), partitioned) == partitioned


def test_every_option_of_a_topic_is_set_and_kept(admin: ServiceBusAdministrationClient) -> None:
    default = admin.create_topic("events")
    found = admin.get_topic("EVENTS")
    for name, value in TOPIC.items():
        assert getattr(found, name) != value
        setattr(found, name, value)
    admin.update_topic(found)
    assert some(admin.get_topic("events"), TOPIC) == TOPIC
    admin.update_topic(default)
    assert dict(admin.get_topic("events")) == dict(default)


def test_every_option_of_a_subscription_is_set_and_kept(admin: ServiceBusAdministrationClient) -> None:
    admin.create_topic("team/events")
    default = admin.create_subscription("team/events", "audit")
    found = admin.get_subscription("Team/Events", "Audit")
    for name, value in SUBSCRIPTION.items():
        assert getattr(found, name) != value
        setattr(found, name, value)
    admin.update_subscription("team/events", found)
    assert some(admin.get_subscription("team/events", "audit"), SUBSCRIPTION) == SUBSCRIPTION
    admin.update_subscription("team/events", default)
    assert dict(admin.get_subscription("team/events", "audit")) == dict(default)
    assert admin.create_subscription("team/events", "sessions", requires_session=True).requires_session


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
    with pytest.raises(HttpResponseError, match="cannot be changed") as caught:
        admin.update_queue(queue)
    assert caught.value.status_code == 400


def test_forwarding_targets_are_returned_as_addresses(
    admin: ServiceBusAdministrationClient, emulator: RunningEmulator
) -> None:
    host = emulator.http_url.removeprefix("http://")
    queue = admin.create_queue("q", forward_to="orders", forward_dead_lettered_messages_to="orders")
    assert (queue.forward_to, queue.forward_dead_lettered_messages_to) == (f"sb://{host}/orders",) * 2
    admin.update_queue(queue)
    assert admin.get_queue("q").forward_to == f"sb://{host}/orders"
    queue.forward_to = queue.forward_dead_lettered_messages_to = None
    admin.update_queue(queue)
    queue = admin.get_queue("q")
    assert (queue.forward_to, queue.forward_dead_lettered_messages_to) == (None, None)


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
    for call in (
        lambda: admin.get_queue("nobody"),
        lambda: admin.delete_queue("nobody"),
        lambda: admin.get_topic("nobody"),
        lambda: admin.create_subscription("nobody", "s"),
        # A queue has no subscriptions.
        lambda: admin.create_subscription("orders", "s"),
    ):
        with pytest.raises(ResourceNotFoundError):
            call()
    # As in Azure, which answers with an empty feed.
    assert list(admin.list_subscriptions("nobody")) == []
    queue = admin.create_queue("q")
    admin.delete_queue("q")
    with pytest.raises(ResourceNotFoundError):
        admin.update_queue(queue)
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


def test_rules_keep_the_types_of_their_values(admin: ServiceBusAdministrationClient) -> None:
    admin.create_topic("t")
    admin.create_subscription("t", "s")
    values = {
        "text": "str1",
        "int": 2,
        "long": 2**31 + 2,
        "flag": False,
        "double": 2.5,
        "time": datetime(2020, 7, 5, 11, 12, 13),  # noqa: DTZ001 - as the SDK's own tests have it
        "span": timedelta(days=1, hours=2, minutes=3),
    }
    correlation = CorrelationRuleFilter(correlation_id="c", label="l", properties=values)
    action = SqlRuleAction("SET a = @a", parameters={"@a": values["time"]})
    admin.create_rule("t", "s", "r", filter=correlation, action=action)
    rule = admin.get_rule("t", "S", "R")
    assert rule.name == "R"  # the SDK says what it was asked for
    assert isinstance(rule.filter, CorrelationRuleFilter)
    assert (rule.filter.correlation_id, rule.filter.label, rule.filter.properties) == ("c", "l", values)
    assert rule.action is not None
    assert (rule.action.sql_expression, rule.action.parameters) == ("SET a = @a", {"@a": values["time"]})
    rule.filter, rule.action = SqlRuleFilter("a = @a", parameters={"@a": 1}), None
    admin.update_rule("t", "s", rule)
    default, changed = admin.list_rules("t", "s")
    assert isinstance(default.filter, TrueRuleFilter)
    assert isinstance(changed.filter, SqlRuleFilter)
    assert (changed.name, changed.filter.sql_expression, changed.filter.parameters) == ("r", "a = @a", {"@a": 1})
    assert changed.action is None
    admin.create_rule("t", "s", "never", filter=FalseRuleFilter())
    assert type(admin.get_rule("t", "s", "never").filter) is FalseRuleFilter
    with pytest.raises(ResourceExistsError):
        admin.create_rule("t", "s", "never")
    admin.delete_rule("t", "s", "$Default")
    assert [each.name for each in admin.list_rules("t", "s")] == ["never", "r"]
    rule.name = "nobody"
    with pytest.raises(ResourceNotFoundError):
        admin.update_rule("t", "s", rule)
    with pytest.raises(HttpResponseError) as caught:
        admin.create_rule("t", "s", "broken", filter=SqlRuleFilter("a ="))
    assert caught.value.status_code == 400


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
