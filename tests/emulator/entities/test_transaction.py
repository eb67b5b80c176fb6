from __future__ import annotations

from collections.abc import Callable

import pytest

from sbnotebook.emulator.entities import QueueOptions, Registry, SentMessage
from sbnotebook.emulator.entities.options import EntityStatus
from sbnotebook.emulator.entities.refusals import RefusedError
from sbnotebook.emulator.entities.transaction import Transaction

Sent = Callable[..., SentMessage]


def test_a_queue_keeps_what_its_destination_does_not_take(registry: Registry, sent: Sent) -> None:
    via, closed = (
        registry.create_queue("via"),
        registry.create_queue("closed", QueueOptions(status=EntityStatus.DISABLED)),
    )
    transaction = Transaction(b"t")
    transaction.send(closed, [sent()], via=via)
    transaction.commit(1)
    assert (via.counts.transfer_dead_letter, closed.counts.active) == (1, 0)


def test_a_topic_commits_only_what_its_destination_takes(registry: Registry, sent: Sent) -> None:
    via, closed = (
        registry.create_topic("via"),
        registry.create_queue("closed", QueueOptions(status=EntityStatus.DISABLED)),
    )
    transaction = Transaction(b"t")
    transaction.send(closed, [sent()], via=via)
    with pytest.raises(RefusedError):
        transaction.commit(1)
