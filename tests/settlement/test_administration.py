"""Descriptions of queues and topics, and the settings that sbnotebook keeps when it creates them elsewhere."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus.management import SqlRuleAction, SqlRuleFilter

from sbnotebook.emulator import QueueOptions, RunningEmulator, SubscriptionOptions, Tier, TopicOptions, running
from sbnotebook.errors import InvalidEntityAddressError
from sbnotebook.model import DeadLetter, EntityAddress, Message, Send
from sbnotebook.settlement import AsyncNamespace, Connection
from sbnotebook.settlement import administration as admin
from sbnotebook.settlement.administration import _explained  # pyright: ignore[reportPrivateUsage]
from tests.filled_queues import settle_first
from tests.settlement.clerks import CLERK, clerks_connection
from tests.settlement.namespaces import namespace_of

pytestmark = pytest.mark.anyio

MINUTE = 60_000


def connection_of(emulator: RunningEmulator) -> Connection:
    return Connection(emulator.connection_string)


def fill(emulator: RunningEmulator) -> None:
    """Make entities that differ in what decides on messages."""
    for name in ("later", "dead", "plain"):
        emulator.create_queue(name)
    own = QueueOptions(30_000, 4, requires_session=True, default_time_to_live=MINUTE, dead_letter_on_expiration=True)
    emulator.create_queue("Sessions", own)
    by_id = QueueOptions(
        requires_duplicate_detection=True, duplicate_detection_window=2 * MINUTE, forward_dead_letters_to="dead"
    )
    emulator.create_queue("by-id", by_id)
    parted = QueueOptions(
        requires_duplicate_detection=True, enable_partitioning=True, default_time_to_live=MINUTE, forward_to="later"
    )
    emulator.create_queue("parted", parted)
    emulator.create_topic("events", TopicOptions(default_time_to_live=3 * MINUTE))
    emulator.create_subscription("events", "all", SubscriptionOptions(forward_to="later"))
    dead = SubscriptionOptions(default_time_to_live=MINUTE, dead_letter_on_expiration=True)
    emulator.create_subscription("events", "dead", dead)
    emulator.create_topic("short")
    emulator.create_subscription("short", "all", SubscriptionOptions(default_time_to_live=2 * MINUTE))
    emulator.create_topic("alone")


async def test_a_lock_lasts_as_long_as_its_entity_says(emulator: RunningEmulator) -> None:
    fill(emulator)
    connection = connection_of(emulator)
    emulator.create_subscription("alone", "quick", SubscriptionOptions(lock_duration=7_000))
    assert (await admin.properties_of(connection, EntityAddress("Sessions"))).lock_duration == timedelta(seconds=30)
    assert (await admin.properties_of(connection, EntityAddress("alone", "quick"))).lock_duration == timedelta(
        seconds=7
    )
    assert await admin.tier_of(connection) == "Premium"


async def test_counts_tell_the_states_of_messages(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    emulator.create_topic("events")
    emulator.create_subscription("events", "all")
    emulator.create_queue("orders", QueueOptions(forward_to="nowhere"))
    assert (await own.entity("orders").send([Message(body=b"x")])).ok
    events, audit = own.entity("events"), own.entity("events/subscriptions/all")
    assert (await events.send([Message(body=b"x")] * 3)).ok
    assert (await events.send([Message()] * 2, Send(at=datetime.now(UTC) + timedelta(days=1)))).ok
    await settle_first(audit, DeadLetter("Bad"))
    queue, topic, subscription = await own.entities()
    assert repr(queue) == "<EntityCounts queue orders: 1 in the transfer dead-letter queue>"
    assert repr(topic) == "<EntityCounts topic events: 2 scheduled>"
    assert repr(subscription) == "<EntityCounts subscription events/subscriptions/all: 2 active, 1 dead-lettered>"
    assert None not in (queue.size_bytes, topic.size_bytes)
    assert subscription.size_bytes is None
    assert await own.counts(["events/subscriptions/all", "orders"]) == [subscription, queue]


async def test_new_entities_have_the_options_that_were_given(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    emulator.create_topic("events")
    await own.create_queue("usual")
    await own.create_queue("given", lock_duration=timedelta(seconds=9), max_delivery_count=3, requires_session=True)
    await own.create_subscription("events", "usual")
    await own.create_subscription(
        "events", "given", lock_duration=timedelta(seconds=9), max_delivery_count=3, requires_session=True
    )
    async with own.connection.administration_client() as client:
        found = [
            (each.lock_duration, each.max_delivery_count, each.requires_session)
            for name in ("usual", "given")
            for each in (await client.get_queue(name), await client.get_subscription("events", name))
        ]
    assert found == [(timedelta(minutes=1), 10, False)] * 2 + [(timedelta(seconds=9), 3, True)] * 2
    assert await admin.takes_all(own.connection, EntityAddress("events", "usual"))


async def test_a_replica_has_what_decides_on_messages(emulator: RunningEmulator) -> None:
    fill(emulator)
    source = connection_of(emulator)
    async with source.administration_client() as client:
        await client.create_subscription("events", "big")
        await client.delete_rule("events", "big", "$Default")
        await client.create_rule("events", "big", "large", filter=SqlRuleFilter("size > 5"))
        action = SqlRuleAction("SET seen = 1")
        await client.create_rule("events", "big", "marked", filter=SqlRuleFilter("size > 9"), action=action)
    assert not await admin.takes_all(source, EntityAddress("events", "big"))
    with running() as other:
        target = connection_of(other)
        names = ["events", "EVENTS", "Sessions", "by-id", "parted"]
        await admin.replicate_entities(source, target, names)
        made = [str(each.address) for each in await admin.list_entities(target)]
        assert made == [
            *("by-id", "dead", "later", "parted", "Sessions", "events"),
            *(f"events/subscriptions/{name}" for name in ("all", "big", "dead")),
        ]
        for name in ("events", "Sessions", "by-id", "parted"):
            assert await admin.describe(target, name) == await admin.describe(source, name)
        async with source.administration_client() as old, target.administration_client() as new:
            for client in (old, new):
                queue = await client.get_queue("Sessions")
                assert (queue.lock_duration, queue.max_delivery_count, queue.requires_session) == (
                    timedelta(seconds=30), 4, True
                )  # fmt: skip
                rules = [rule async for rule in client.list_rules("events", "big")]
                assert [rule.name for rule in rules] == ["large", "marked"]
                assert [getattr(rule.action, "sql_expression", None) for rule in rules] == [None, "SET seen = 1"]
                assert (await client.get_queue("parted")).enable_partitioning
        assert await admin.takes_all(target, EntityAddress("events", "all"))
        assert not await admin.takes_all(target, EntityAddress("events", "big"))


@pytest.mark.parametrize(
    ("status", "text", "words"),
    [
        (401, "No.", r"does not let this connection list or change its entities: .* the right Manage"),
        (403, "No.", r"does not let this connection list or change its entities: .* the right Manage"),
        (404, "It is gone.\nMore.", r"refused the request: It is gone\.$"),
        (
            500,
            "Busy <Code>5</Code><Detail>Try  it\nagain. TrackingId:x</Detail>",
            r"refused the request: Try it again\.$",
        ),
        (500, "Bad. To know more visit https://aka.ms/x", r"refused the request: Bad\.$"),
        (500, "Bad SubCode=40000. More", r"refused the request: Bad\.$"),
        (500, "x" * 501, r"refused the request: x{500}\.$"),
        (None, "No", r"refused the request: No\.$"),
    ],
    ids=range(8),
)
async def test_an_error_is_told_in_the_words_of_the_service(status: int | None, text: str, words: str) -> None:
    error = HttpResponseError(message=text)
    error.status_code = status
    connection = Connection("Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=a2V5")
    clear = await _explained(error, connection, EntityAddress("orders"))
    assert re.search(f"^shop.servicebus.windows.net {words}", str(clear))
    assert isinstance(clear, HttpResponseError)
    assert (clear.status_code, clear.reason) == (status, None)


async def test_the_tier_is_not_for_a_user_without_the_right_manage() -> None:
    with running(keys=[CLERK], tier=Tier.STANDARD) as emulator:
        assert await admin.tier_of(Connection(emulator.connection_string)) == "Standard"
        with pytest.raises(HttpResponseError, match=r"^127\.0\.0\.1:\d+ does not let this .* needs the right Manage"):
            await admin.tier_of(clerks_connection(emulator))


async def test_a_subscription_below_a_missing_topic_names_the_topic(namespace: AsyncNamespace) -> None:
    with pytest.raises(ResourceNotFoundError, match="There is no queue or topic 'no-topic'"):
        await namespace.create_subscription("no-topic", "audit")
    await namespace.create_topic("a-topic")
    await namespace.create_subscription("a-topic", "audit")
    with pytest.raises(ResourceExistsError, match="There is a subscription 'a-topic/subscriptions/audit'"):
        await namespace.create_subscription("a-topic", "audit")
    for name in ("", "a/b", "$dlq"):
        with pytest.raises(InvalidEntityAddressError):
            await namespace.create_subscription("a-topic", name)


async def test_subscriptions_of_some_topics_and_counts_of_some_entities(tmp_path: Path) -> None:
    topics = {"events": ["audit", "billing"], "alerts": ["all"]}
    with running(queues=["asked"], topics=topics) as emulator:
        async with namespace_of(emulator, tmp_path) as namespace:
            everything = [str(counts.address) for counts in await namespace.entities()]
            assert {repr(counts).partition(": ")[2] for counts in await namespace.entities()} == {"empty>"}
            assert [str(counts.address) for counts in await namespace.entities(topics=["Alerts"])] == [
                *("asked", "alerts", "alerts/subscriptions/all", "events")
            ]
            assert everything[-2:] == ["events/subscriptions/audit", "events/subscriptions/billing"]

            await namespace.entity("asked").send([Message(body=b"x")] * 2)
            queue, subscription = await namespace.counts(["asked", everything[-1]])
            assert await namespace.counts("asked") == [queue]
            assert (str(queue.address), queue.kind, queue.active) == ("asked", "queue", 2)
            assert (str(subscription.address), subscription.kind) == (everything[-1], "subscription")
            with pytest.raises(ResourceNotFoundError):
                await namespace.counts(["not-there"])
