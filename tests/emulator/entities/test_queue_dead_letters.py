"""What an entity forwards that was dead-lettered."""

from __future__ import annotations

import pytest

from sbnotebook.emulator.entities.message import BrokeredMessage, SentMessage
from sbnotebook.emulator.entities.options import QueueOptions, SubscriptionOptions
from sbnotebook.emulator.entities.queue import Queue
from sbnotebook.emulator.entities.registry import Registry
from tests.emulator.entities.conftest import BURY, lock, sent

FORWARDING = QueueOptions(forward_dead_letters_to="errors")


@pytest.fixture
def errors(registry: Registry) -> Queue:
    return registry.create_queue("errors")


def dead_letter(queue: Queue, sent: SentMessage) -> None:
    queue.send(sent, 0)
    queue.settle(lock(queue)[1], BURY, 0)


def standing(queue: Queue) -> list[BrokeredMessage]:
    return list(queue.peek(0, 10))


def test_old_dead_letters_are_forwarded_in_order(registry: Registry, errors: Queue) -> None:
    queue = registry.create_queue("orders")
    for body in ("a", "b"):
        dead_letter(queue, sent(body))
    locked = queue.dead_letter.receive(0)
    registry.update(queue, FORWARDING, now=1)
    assert locked is not None
    assert locked.lock_token is None
    assert (queue.counts.dead_letter, errors.counts.active) == (0, 2)
    assert [errors.rendered(message)[-1:] for message in standing(errors)] == [b"a", b"b"]
    assert {message.dead_letter_source for message in standing(errors)} == {"orders"}


def test_a_dead_letter_stays_until_its_target_takes_it(registry: Registry) -> None:
    queue = registry.create_queue("orders", FORWARDING)
    dead_letter(queue, sent("a"))
    assert queue.counts.dead_letter == 1
    registry.update(queue, FORWARDING, now=1)
    assert queue.counts.dead_letter == 1
    errors = registry.create_queue("errors")
    registry.update(queue, FORWARDING, now=2)
    assert (queue.counts.dead_letter, errors.counts.active) == (0, 1)


def test_dead_letters_of_a_subscription_are_forwarded(registry: Registry, errors: Queue) -> None:
    topic = registry.create_topic("events")
    options = SubscriptionOptions(requires_session=True, forward_dead_letters_to="errors")
    subscription = registry.create_subscription(topic, "chats", options)
    topic.send(sent("without a session"), 0)
    assert (subscription.counts.dead_letter, errors.counts.active) == (0, 1)
    assert standing(errors)[0].dead_letter_source == "events/Subscriptions/chats"
