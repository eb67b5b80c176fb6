"""An undo after the archive has changed since its plan, and the order in which it sends."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sbnotebook.model import Complete, Message, OutcomeStatus
from sbnotebook.settlement import AsyncNamespace
from tests.filled_queues import filled_queue
from tests.settlement.actions.test_undo import complete, ids

pytestmark = pytest.mark.anyio


async def test_undo_of_a_pruned_plan_leaves_later_removals(
    namespace: AsyncNamespace,
) -> None:
    queue = await filled_queue(namespace, "undo-pruned", 2)
    plan = await namespace.undo(await complete(queue, 1))
    archive = namespace.archive
    assert archive is not None
    archive.prune(older_than=timedelta(0))
    later = await complete(queue, 1)
    assert [outcome.status for outcome in await plan.apply()] == [OutcomeStatus.SKIPPED]
    assert (await (await namespace.undo(later)).apply()).ok
    assert ids(await queue.peek()) == ["m1"]


async def test_messages_of_a_session_come_back_in_their_order(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("undo-session", requires_session=True)
    queue = namespace.entity("undo-session")
    await queue.send([Message(message_id=f"m{n}", session_id="s") for n in range(4)])
    async with queue.session("s") as batch:
        held = await batch.receive(4)
        for message in (held[2], held[0], held[3], held[1]):
            assert (await batch.settle(Complete(), [message])).ok
    assert (await (await namespace.undo(entity="undo-session")).apply()).ok
    assert ids(await queue.peek()) == ["m0", "m1", "m2", "m3"]
