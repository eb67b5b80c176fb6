from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from sbnotebook.emulator.entities import EntityStatus, Queue, QueueOptions, Registry, SentMessage, Topic, Transaction
from sbnotebook.emulator.entities.refusals import RefusedError

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
