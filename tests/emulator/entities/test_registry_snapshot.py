from __future__ import annotations

from dataclasses import replace

import pytest

from sbnotebook.emulator.entities.box import DEFER, Settlement
from sbnotebook.emulator.entities.message import BrokeredState
from sbnotebook.emulator.entities.options import QueueOptions, TopicOptions
from sbnotebook.emulator.entities.queue import Queue, Subscription
from sbnotebook.emulator.entities.registry import Registry, restore
from sbnotebook.emulator.entities.rules.rule import Rule, sql_filter
from sbnotebook.errors import EmulatorError
from tests.emulator.entities.conftest import lock, sent
from tests.emulator.entities.store_helpers import OnDisk


def again(registry: Registry, kept: OnDisk, now: int = 0) -> Registry:
    """The namespace after a restart."""
    kept.keep(registry)
    restored = Registry(registry.tier)
    restore(restored, kept.snapshot(now), kept, now=now)
    assert not restored.changes
    return restored


def test_entities_come_back_as_they_were(registry: Registry, kept: OnDisk) -> None:
    registry.create_queue("Orders", QueueOptions(5_000, 3), now=7)
    topic = registry.create_topic("t", TopicOptions(user_metadata="x"), now=8)
    registry.create_subscription(topic, "s", rules=[Rule("big", sql_filter("size > 3"))], now=9)
    restored = again(registry, kept, now=100)
    queue, subscription = restored.find("orders"), restored.find("t/subscriptions/s")
    assert isinstance(queue, Queue)
    assert (queue.path, queue.options, queue.created_time, queue.accessed_time) == (
        "Orders", QueueOptions(5_000, 3), 7, 100,
    )  # fmt: skip
    assert queue.counts == (0, 0, 0, 0, 0, 0)
    assert restored.topics[0].options == TopicOptions(user_metadata="x")
    assert isinstance(subscription, Subscription)
    assert subscription.rules == [Rule("big", sql_filter("size > 3"))]
    assert restored.create_queue("new").entity_id == 4


def test_messages_stay_in_the_store_until_they_are_asked_for(registry: Registry, kept: OnDisk) -> None:
    queue = registry.create_queue("q")
    for number in range(3):
        queue.send(sent("x" * 100 * number), 0)
    queue.send(sent("later", scheduled_time=50), 0)
    queue.settle(lock(queue)[1], DEFER, 0)
    queue.receive(0)
    restored = again(registry, kept)
    found = restored.find("q")
    assert isinstance(found, Queue)
    assert found.counts == (2, 0, 1, 1, 0, 0)  # Only the lock is lost.
    assert (restored.residency.size, restored.next_deadline, found.total_size) == (0, 50, queue.total_size)
    restored.expire(50)
    assert [message.state for message in found.peek(0, 9)] == [BrokeredState.DEFERRED, *[BrokeredState.ACTIVE] * 3]
    assert found.send(sent("next"), 60) == 6
    assert [found.rendered(message) for message in found.peek(2, 2)] == [
        queue.rendered(replace(message, lock_token=None)) for message in queue.peek(2, 2)
    ]


def test_sessions_that_come_back_are_forwarded_once(registry: Registry, kept: OnDisk) -> None:
    options = QueueOptions(requires_session=True)
    queue = registry.create_queue("q", options)
    registry.create_subscription(registry.create_topic("t"), "s")
    for name in ("a", "b"):
        queue.send(sent(name, session_id=name), 0)
    restored = again(registry, kept)
    (found,), (topic,) = restored.queues, restored.topics
    restored.update(found, replace(options, forward_to="t"))
    assert len(found.log) == 0
    assert len(topic.subscriptions[0].log) == 2


def test_messages_that_are_forwarded_at_the_start_are_counted_once(registry: Registry, kept: OnDisk) -> None:
    registry.create_queue("a").send(sent("x", session_id="s"), 0)
    registry.create_queue("calls", QueueOptions(requires_session=True))
    kept.keep(registry)
    snapshot = kept.snapshot(0)
    snapshot.entities[0][3]["Properties"]["ForwardTo"] = "calls"  # as if the process had ended before it forwarded
    restored = Registry()
    restore(restored, snapshot, kept, now=0)
    first, calls = restored.queues
    assert calls.sessions is not None
    assert (len(first.log), calls.session_ids(None)) == (0, ["s"])


def test_messages_of_sessions_are_forwarded_at_the_start(registry: Registry, kept: OnDisk) -> None:
    queue = registry.create_queue("q", QueueOptions(requires_session=True))
    registry.create_subscription(registry.create_topic("t"), "s")
    for _ in range(2):
        queue.send(sent("x", session_id="a"), 0)
    session, _ = queue.accept_session("a", 0) or (None, None)
    dead = queue.receive(0, session)
    assert dead is not None
    assert dead.lock_token is not None
    queue.settle(dead.lock_token, Settlement("dead_letter"), 0)
    kept.keep(registry)
    snapshot = kept.snapshot(0)
    # As if the process had ended before it forwarded.
    snapshot.entities[0][3]["Properties"] |= {"ForwardTo": "t", "ForwardDeadLetteredMessagesTo": "t"}
    restored = Registry()
    restore(restored, snapshot, kept, now=0)
    (found,), (topic,) = restored.queues, restored.topics
    assert (found.counts, len(topic.subscriptions[0].log)) == ((0, 0, 0, 0, 0, 0), 2)


def test_ids_are_remembered_and_numbers_go_on(registry: Registry, kept: OnDisk) -> None:
    options = QueueOptions(requires_duplicate_detection=True, enable_partitioning=True)
    queue, topic = registry.create_queue("q", options), registry.create_topic("t")
    queue.send(sent("x", message_id="a"), 0)
    duplicate = queue.send(sent("x", message_id="a"), 0)
    topic.send(sent("nobody gets it"), 0)
    restored = again(registry, kept, now=100)
    queue, topic = restored.queues[0], restored.topics[0]
    number = queue.send(sent("x", message_id="a"), 100)
    assert len(queue.log) == 1
    assert (duplicate & 0xFFFF, number & 0xFFFF) == (2, 3)
    assert topic.send(sent("x"), 100) == 2


def test_restore_refuses_a_snapshot_that_does_not_fit_together(registry: Registry, kept: OnDisk) -> None:
    registry.create_subscription(registry.create_topic("t"), "s")
    kept.keep(registry)
    snapshot = kept.snapshot(0)
    number, _, path, description, _, _, last = snapshot.entities[0]
    for wrong, why in (
        (snapshot.entities[1:], "or without its topic"),
        ([(number, "relay", path, description, 0, 0, last)], "another version"),
    ):
        with pytest.raises(EmulatorError, match=why):
            restore(Registry(), snapshot._replace(entities=wrong), kept, now=0)
