from __future__ import annotations

from datetime import timedelta

import pytest
from azure.core.exceptions import ResourceExistsError

from sbnotebook.model import DeadLetter, Message
from sbnotebook.settlement import AsyncNamespace

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
