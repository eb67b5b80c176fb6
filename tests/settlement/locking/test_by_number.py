from __future__ import annotations

import anyio
import pytest

from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import SbNotebookError
from sbnotebook.model import Abandon, Complete
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.locking import by_number
from sbnotebook.settlement.locking.by_number import DeferredDeleter, Removal
from tests.filled_queues import deferred_queue

pytestmark = pytest.mark.anyio


async def test_an_answer_with_one_message_is_not_the_end(
    shared_emulator: RunningEmulator, namespace: AsyncNamespace
) -> None:
    queue, numbers = await deferred_queue(namespace, 6, 6), [*range(1, 7)]
    shared_emulator.faults.entity(str(queue.address)).short_answers = 1
    async with queue.batch() as batch:
        assert [message.sequence_number for message in await batch.receive_deferred(numbers[:3])] == numbers[:3]
        assert (await batch.settle(Complete())).settled == 3
    deleter = DeferredDeleter(namespace.connection, namespace.peeker(queue.address))
    await deleter.delete(numbers[3:])
    await deleter.close()
    assert await queue.peek() == []


async def test_a_removal_that_leaves_some_out_goes_on(
    shared_emulator: RunningEmulator, namespace: AsyncNamespace
) -> None:
    queue, numbers = await deferred_queue(namespace, 5, 5), [*range(1, 6)]
    shared_emulator.faults.entity(str(queue.address)).short_answers = 2
    deleter, ends = DeferredDeleter(namespace.connection, namespace.peeker(queue.address)), Removal(set(), set())
    await deleter.remove(numbers, ends)
    await deleter.close()
    assert ends == Removal({*numbers}, set())
    assert await queue.peek() == []


@pytest.mark.parametrize("fault", ["drop_before_nth", "drop_after_nth", "server_busy"])
async def test_a_removal_without_an_answer_is_repeated(
    shared_emulator: RunningEmulator, namespace: AsyncNamespace, fault: str
) -> None:
    queue, numbers = await deferred_queue(namespace, 160, 150), [*range(1, 151)]
    setattr(shared_emulator.faults.entity(str(queue.address)), fault, 1)
    deleter = DeferredDeleter(namespace.connection, namespace.peeker(queue.address))
    await deleter.delete(numbers)
    await deleter.close()
    assert len(await queue.peek()) == 10


async def test_what_another_receiver_holds_is_waited_for(
    namespace: AsyncNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, numbers = await deferred_queue(namespace, 5, 5), [*range(1, 6)]
    deleter = DeferredDeleter(namespace.connection, namespace.peeker(queue.address))
    async with queue.batch() as other:
        await other.receive_deferred(numbers[1:3])
        monkeypatch.setattr(by_number, "_PAUSES", (0.0, 0.1))
        with pytest.raises(SbNotebookError, match=r"^2 deferred messages .*first is #2.*another receiver holds"):
            await deleter.delete(numbers)
        assert [message.sequence_number for message in await queue.peek()] == numbers[1:3]
        monkeypatch.setattr(by_number, "_PAUSES", (0.0, *[0.1] * 300))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(deleter.delete, numbers)
            assert (await other.settle(Abandon())).ok
    assert await queue.peek() == []
    await deleter.close()
