from __future__ import annotations

from collections.abc import Callable
from functools import partial
from uuid import UUID, uuid4

import pytest

from sbnotebook.emulator.entities import EntityStatus, Queue, QueueOptions, Registry, SentMessage, Topic, Transaction
from sbnotebook.emulator.entities.refusals import Refusal, RefusedError
from sbnotebook.emulator.entities.transaction import SPANS_ENTITIES, root_of

Sent = Callable[..., SentMessage]


@pytest.fixture
def closed(registry: Registry) -> Queue:
    return registry.create_queue("closed", QueueOptions(status=EntityStatus.DISABLED))


def sent_on(closed: Queue, via: Queue | Topic, message: SentMessage) -> Transaction:
    transaction = Transaction(b"t")
    transaction.send(closed, [message], via=via)
    return transaction


def test_a_queue_keeps_what_its_destination_does_not_take(registry: Registry, closed: Queue, sent: Sent) -> None:
    via = registry.create_queue("via")
    sent_on(closed, via, sent()).commit(1)
    assert (via.counts.transfer_dead_letter, closed.counts.active) == (1, 0)


def test_a_topic_commits_only_what_its_destination_takes(registry: Registry, closed: Queue, sent: Sent) -> None:
    transaction = sent_on(closed, registry.create_topic("via"), sent())
    with pytest.raises(RefusedError):
        transaction.commit(1)


def test_a_transaction_stays_within_one_partition(registry: Registry, sent: Sent) -> None:
    queue = registry.create_queue("parts", QueueOptions(enable_partitioning=True))
    for key in ("a", "a", "b"):
        queue.send(sent(key, partition_key=key), 0)
    while queue.receive(0) is not None:
        pass
    held = sorted(queue.peek(0, 9), key=lambda message: message.payload or b"")
    tokens = [message.lock_token for message in held if message.lock_token is not None]
    assert len(tokens) == 3
    transaction = Transaction(b"t")
    transaction.do(queue, lambda _: None, lambda _: None)
    for token in tokens[:2]:
        transaction.settle(queue, token, partial(queue.complete, token), 0)
    message = sent("c", partition_key="a")
    transaction.send(queue, [message])
    for refused in (
        lambda: transaction.settle(queue, tokens[2], partial(queue.complete, tokens[2]), 0),
        lambda: transaction.send(queue, [sent("d", partition_key="b")]),
        lambda: transaction.send(queue, [sent("no key")]),
    ):
        with pytest.raises(RefusedError, match="cannot span multiple entities or partitions"):
            refused()
    transaction.commit(1)
    assert queue.counts == (2, 1, 0, 0, 0, 0)


def test_the_size_of_a_transaction_is_that_of_its_messages(registry: Registry, sent: Sent) -> None:
    queue, transaction = registry.create_queue("q"), Transaction(b"t")
    assert transaction.size == 0
    messages = [sent("x"), sent("y" * 100)]
    transaction.send(queue, messages)
    assert transaction.size == sum(len(message.payload) for message in messages)


def test_what_is_sent_by_way_of_its_destination_is_simply_sent(registry: Registry, sent: Sent) -> None:
    queue = registry.create_queue("q")
    sent_on(queue, queue, sent()).commit(1)
    assert queue.counts == (1, 0, 0, 0, 0, 0)


def test_a_destination_that_is_gone_ends_the_transaction(registry: Registry, sent: Sent) -> None:
    queue, via = registry.create_queue("q"), registry.create_queue("via")
    transactions = [sent_on(queue, queue, sent()), sent_on(registry.create_queue("other"), via, sent())]
    for entity, transaction in zip((queue, via), transactions, strict=True):
        registry.delete(entity)
        with pytest.raises(RefusedError, match=f"The entity '{entity.path}' was deleted"):
            transaction.commit(1)


def test_a_transaction_sends_a_hundred_messages_at_most(registry: Registry, sent: Sent) -> None:
    queue, transaction = registry.create_queue("q"), Transaction(b"t")
    transaction.send(queue, [sent()] * 60)
    transaction.schedule(queue, [sent(scheduled_time=50)] * 40)
    size = transaction.size
    for more in (lambda: transaction.send(queue, [sent()]), lambda: transaction.schedule(queue, [sent()])):
        with pytest.raises(RefusedError, match="More than 100 messages are not allowed"):
            more()
    assert (
        transaction.size
        == size
        == 100 * len(sent().payload) + 40 * (len(sent(scheduled_time=50).payload) - len(sent().payload))
    )
    transaction.commit(1)
    assert queue.counts == (60, 0, 0, 40, 0, 0)


def test_scheduled_messages_get_the_numbers_that_were_told(registry: Registry, sent: Sent) -> None:
    queue, transaction = registry.create_queue("q"), Transaction(b"t")
    numbers = transaction.schedule(queue, [sent(n, scheduled_time=50) for n in range(3)])
    assert (len({*numbers}), queue.counts.scheduled) == (3, 0)
    transaction.commit(1)
    assert [message.sequence_number for message in queue.peek(0, 9)] == numbers


def held(queue: Queue, sent: Sent) -> UUID:
    queue.send(sent(), 0)
    message = queue.receive(0)
    assert message is not None
    assert message.lock_token is not None
    return message.lock_token


def test_a_message_is_settled_once_and_under_its_lock(registry: Registry, sent: Sent) -> None:
    queue, transaction = registry.create_queue("q", QueueOptions(10_000)), Transaction(b"t")
    token = held(queue, sent)
    transaction.settle(queue, token, partial(queue.complete, token), 0)
    assert transaction.tokens == {token}
    with pytest.raises(RefusedError, match="settled in this transaction already"):
        transaction.settle(queue, token, partial(queue.complete, token), 0)
    with pytest.raises(RefusedError, match="The lock supplied is invalid") as lost:
        transaction.settle(queue, uuid4(), lambda _: None, 0)
    assert lost.value.refusal is Refusal.MESSAGE_LOCK_LOST
    with pytest.raises(RefusedError, match="The lock supplied is invalid"):
        transaction.commit(10_000)
    assert queue.message_count == 1
    transaction.commit(9_999)
    assert queue.message_count == 0


def test_a_transaction_that_failed_is_never_committed(registry: Registry, sent: Sent) -> None:
    queue, transaction = registry.create_queue("q"), Transaction(b"t")
    transaction.send(queue, [sent()])
    transaction.failure = "It failed before."
    with pytest.raises(RefusedError, match="It failed before"):
        transaction.commit(1)
    assert queue.message_count == 0


def test_a_transaction_stays_within_one_queue_or_topic(registry: Registry, sent: Sent) -> None:
    topic, queue = registry.create_topic("t"), registry.create_queue("q")
    subscription = registry.create_subscription(topic, "s")
    assert [root_of(each) for each in (topic, *subscription.boxes)] == [topic] * 4
    assert [root_of(each) for each in queue.boxes] == [queue] * 3
    transaction, done = Transaction(b"t"), list[int]()
    transaction.do(subscription, lambda _: None, done.append)
    transaction.do(topic, lambda _: None, done.append)
    for refused in (lambda: transaction.send(queue, [sent()]), lambda: transaction.do(queue, done.append, done.append)):
        with pytest.raises(RefusedError, match=SPANS_ENTITIES):
            refused()
    transaction.commit(7)
    assert done == [7, 7]
