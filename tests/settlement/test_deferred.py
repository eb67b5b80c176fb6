from __future__ import annotations

import uuid
from datetime import timedelta

import pytest

from sbnotebook.model import Abandon, Complete, Defer, Message, MessageState, OutcomeStatus
from sbnotebook.model.amqp import Long
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.deferred import same_partition_chunks

pytestmark = pytest.mark.anyio


async def with_deferred(namespace: AsyncNamespace, count: int, defer: int) -> str:
    """A new queue with messages, of which the first are deferred."""
    name = f"queue-{uuid.uuid4().hex[:8]}"
    await namespace.create_queue(name, lock_duration=timedelta(minutes=1))
    queue = namespace.entity(name)
    messages = [
        Message(body=b"x", message_id=str(n), application_properties={"n": Long(n)}) for n in range(1, count + 1)
    ]
    (await queue.send(messages)).raise_for_failures()
    async with queue.batch() as batch:
        await batch.receive(defer)
        (await batch.settle(Defer())).raise_for_failures()
    return name


async def test_deferred_messages_are_locked_by_their_numbers(namespace: AsyncNamespace) -> None:
    queue = namespace.entity(await with_deferred(namespace, 70, 60))
    async with queue.batch() as batch:
        locked = await batch.receive_deferred(range(60, 0, -1))
        assert [message.sequence_number for message in locked] == list(range(1, 61))
        assert all(isinstance(message.application_properties["n"], Long) for message in locked)
        assert (await batch.settle(Complete())).settled == 60
    assert [m.message_id for m in await queue.peek()] == [str(n) for n in range(61, 71)]


async def test_those_that_cannot_be_had_are_left_out(namespace: AsyncNamespace) -> None:
    queue = namespace.entity(await with_deferred(namespace, 5, 4))
    async with queue.batch() as other, queue.batch() as batch:
        assert len(await other.receive_deferred([2])) == 1
        locked = await batch.receive_deferred([1, 2, 3, 4, 5, 999])  # 2 is locked, 5 active, 999 not there
        assert [message.sequence_number for message in locked] == [1, 3, 4]
        assert await batch.receive_deferred([]) == ()


async def test_what_is_not_settled_stays_deferred(namespace: AsyncNamespace) -> None:
    queue = namespace.entity(await with_deferred(namespace, 2, 2))
    async with queue.batch() as batch:
        first, _ = await batch.receive_deferred([1, 2])
        assert (await batch.settle(Abandon(), [first])).ok
    assert batch.release_report is not None
    assert [o.status for o in batch.release_report] == [OutcomeStatus.SKIPPED]
    assert [m.state for m in await queue.peek()] == [MessageState.DEFERRED] * 2


def test_chunks_keep_partitions_apart() -> None:
    numbers = [3, (1 << 48) + 1, 1, 2, (1 << 48) + 2]
    assert list(same_partition_chunks(numbers, 2)) == [[1, 2], [3], [(1 << 48) + 1, (1 << 48) + 2]]
