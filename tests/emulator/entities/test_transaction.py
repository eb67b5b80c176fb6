from __future__ import annotations

from collections.abc import Callable

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
