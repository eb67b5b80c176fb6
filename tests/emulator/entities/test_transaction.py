from __future__ import annotations

from functools import partial

import pytest

from sbnotebook.emulator.entities.box import COMPLETE
from sbnotebook.emulator.entities.message import SentMessage
from sbnotebook.emulator.entities.options import QueueOptions
from sbnotebook.emulator.entities.queue import Queue, Topic
from sbnotebook.emulator.entities.refusals import RefusedError
from sbnotebook.emulator.entities.registry import Registry
from sbnotebook.emulator.entities.transaction import Transaction
from tests.emulator.entities.conftest import sent


def sent_on(closed: Queue, via: Queue | Topic, message: SentMessage) -> Transaction:
    transaction = Transaction(b"t")
    transaction.send(closed, [message], via=via)
    return transaction


def test_a_transaction_stays_within_one_partition(registry: Registry) -> None:
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
        transaction.settle(queue, token, partial(queue.settle, token, COMPLETE), 0)
    message = sent("c", partition_key="a")
    transaction.send(queue, [message])
    for refused in (
        lambda: transaction.settle(queue, tokens[2], partial(queue.settle, tokens[2], COMPLETE), 0),
        lambda: transaction.send(queue, [sent("d", partition_key="b")]),
        lambda: transaction.send(queue, [sent("no key")]),
    ):
        with pytest.raises(RefusedError, match="cannot span multiple entities or partitions"):
            refused()
    transaction.commit(1)
    assert queue.counts == (2, 1, 0, 0, 0, 0)


def test_what_is_sent_by_way_of_its_destination_is_simply_sent(registry: Registry) -> None:
    queue = registry.create_queue("q")
    sent_on(queue, queue, sent()).commit(1)
    assert queue.counts == (1, 0, 0, 0, 0, 0)


def test_a_destination_that_is_gone_ends_the_transaction(registry: Registry) -> None:
    queue, via = registry.create_queue("q"), registry.create_queue("via")
    transactions = [sent_on(queue, queue, sent()), sent_on(registry.create_queue("other"), via, sent())]
    for entity, transaction in zip((queue, via), transactions, strict=True):
        registry.delete(entity)
        with pytest.raises(RefusedError, match=f"The entity '{entity.path}' was deleted"):
            transaction.commit(1)
