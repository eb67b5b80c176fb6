from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError

from sbnotebook.emulator import running
from sbnotebook.errors import InvalidEntityAddressError
from sbnotebook.model import DeadLetter, Message
from sbnotebook.settlement import AsyncNamespace, Connection, Journal

pytestmark = pytest.mark.anyio


async def test_queues_are_made_listed_with_their_counts_and_removed(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("Counted", lock_duration=timedelta(seconds=30), max_delivery_count=2)
    queue = namespace.entity("counted")
    await queue.send([Message(body=b"x")] * 3)
    async with queue.batch() as batch:
        await batch.receive(1)
        await batch.settle(DeadLetter("Bad"))

    (counts,) = [entity for entity in await namespace.entities() if entity.address == queue.address]

    assert (counts.kind, counts.active, counts.dead_letter, counts.scheduled) == ("queue", 2, 1, 0)
    with pytest.raises(ResourceExistsError):
        await namespace.create_queue("counted")
    await namespace.delete_queue("counted")
    assert all(entity.address != queue.address for entity in await namespace.entities())


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
        async with AsyncNamespace(
            Connection(emulator.connection_string), journal=Journal(tmp_path / "journal")
        ) as namespace:
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
