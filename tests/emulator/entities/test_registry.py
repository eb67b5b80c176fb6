from __future__ import annotations

from collections.abc import Callable

import pytest

from sbnotebook.emulator.entities import (
    BrokeredMessage,
    MessageState,
    QueueCreated,
    QueueDeleted,
    QueueOptions,
    QueueUpdated,
    Registry,
    SentMessage,
)
from sbnotebook.errors import EmulatorError, InvalidEntityAddressError

Sent = Callable[[object], SentMessage]


def test_entities_are_found_in_any_case() -> None:
    registry = Registry()
    queue = registry.create_queue("Team/Orders")
    assert registry.find("team/ORDERS") is queue
    assert registry.find("team/orders/$deadletterqueue") is queue.dead_letter
    assert registry.find("team/orders/$dlq") is queue.dead_letter


@pytest.mark.parametrize(
    "path", ["", "nobody", "orders/$Transfer/$DeadLetterQueue", "orders/Subscriptions/a", "//", "$x"]
)
def test_what_is_not_there_is_not_found(path: str) -> None:
    registry = Registry()
    registry.create_queue("orders")
    assert registry.find(path) is None


def test_a_name_is_given_once() -> None:
    registry = Registry()
    registry.create_queue("orders")
    with pytest.raises(EmulatorError, match="already an entity 'Orders'"):
        registry.create_queue("Orders")


@pytest.mark.parametrize("name", ["", "a b", "orders/$dlq", "topic/subscriptions/one", "x" * 261, "Health", "entities"])
def test_a_name_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(InvalidEntityAddressError):
        Registry().create_queue(name)


def test_changes_are_handed_out_once() -> None:
    registry = Registry()
    queue = registry.create_queue("orders", now=5)
    registry.update_queue(queue, QueueOptions(max_delivery_count=2))
    registry.delete_queue(queue)
    assert registry.take_changes() == [
        QueueCreated("orders", QueueOptions(), 5),
        QueueUpdated("orders", QueueOptions(max_delivery_count=2)),
        QueueDeleted("orders"),
    ]
    assert registry.take_changes() == []
    assert registry.queues == []


def test_changed_options_lose_the_locks_without_a_failure(sent: Sent) -> None:
    registry = Registry()
    queue = registry.create_queue("orders")
    queue.send(sent(1), 0)
    message = queue.receive(0)
    assert message is not None
    registry.update_queue(queue, QueueOptions(lock_duration=5_000))
    assert (message.delivery_count, message.lock_token, queue.has_available) == (0, None, True)


def test_the_next_deadline_is_the_earliest_of_all(sent: Sent) -> None:
    registry = Registry()
    assert registry.next_deadline is None
    for name, scheduled_time in (("a", 70), ("b", 50), ("c", None)):
        registry.create_queue(name).send(sent(1)._replace(scheduled_time=scheduled_time), 0)
    assert registry.next_deadline == 50
    registry.expire(60)
    assert registry.next_deadline == 70


def test_a_restored_queue_is_as_it_was() -> None:
    registry = Registry()
    registry.restore_queue(
        "orders",
        QueueOptions(),
        last_sequence_number=9,
        created_time=5,
        messages=[
            (BrokeredMessage(3, 1, 7, b"a"), False),
            (BrokeredMessage(4, 4, 7, b"b", MessageState.DEFERRED), False),
            (BrokeredMessage(5, 5, 7, b"c", MessageState.SCHEDULED, 50), False),
            (BrokeredMessage(6, 6, 7, b"d"), True),
        ],
    )
    queue = registry.find_queue("orders")
    assert queue is not None
    assert queue.counts == (1, 0, 1, 1, 1)
    assert registry.next_deadline == 50
    assert registry.take_changes() == []
