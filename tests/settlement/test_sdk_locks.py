"""What is reached below the SDK's public interface to hold many locks; these tests fail when a version moves it."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError

from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import Message
from sbnotebook.settlement import AsyncEntity, AsyncNamespace, sdk_internals, sdk_locks

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage
    from azure.servicebus.aio import ServiceBusReceiver

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def received(
    namespace: AsyncNamespace, name: str, count: int, wanted: set[int] | None = None
) -> AsyncGenerator[tuple[AsyncEntity, ServiceBusReceiver, list[ServiceBusReceivedMessage]]]:
    await namespace.create_queue(name)
    queue = namespace.entity(name)
    await queue.send((Message(body=b"%d" % n, message_id=f"m{n}") for n in range(count)), max_in_flight=1)
    receiver = namespace.connection.receiver(queue.address)
    async with receiver:
        sdk_locks.keep_bodies_of(receiver, wanted)
        yield queue, receiver, await receiver.receive_messages(count, max_wait_time=5)


async def counts(queue: AsyncEntity) -> list[int]:
    return [message.delivery_count for message in await queue.peek()]


async def test_a_bare_lock_says_of_the_lock_what_the_whole_message_says(namespace: AsyncNamespace) -> None:
    async with received(namespace, "sdk-locks-bare", 3, wanted={2}) as (queue, receiver, (first, second, third)):
        kinds = [type(one).__name__ for one in (first, second, third)]
        assert kinds == ["BareLock", "ServiceBusReceivedMessage", "BareLock"]
        assert [one.sequence_number for one in (first, second, third)] == [1, 2, 3]
        assert first.locked_until_utc is not None
        assert second.locked_until_utc is not None
        assert abs((second.locked_until_utc - first.locked_until_utc).total_seconds()) < 5
        before = first.locked_until_utc
        await sdk_internals.renew_locks(receiver, [first, second, third])
        assert first.locked_until_utc >= before
        assert all(sdk_internals.is_on_link(receiver, one) for one in (first, second, third))
        await sdk_internals.settle(receiver, first, "complete", 20)
        await sdk_internals.release(receiver, third, 20)
        await sdk_internals.settle(receiver, second, "complete", 20)
        assert await counts(queue) == [0]


async def test_a_range_is_released_in_one_frame_and_each_is_confirmed(namespace: AsyncNamespace) -> None:
    async with received(namespace, "sdk-locks-range", 250) as (queue, receiver, messages):
        ranges = sdk_locks.ranges(messages)
        assert [(part.start, part.stop) for part in ranges] == [(0, 100), (100, 200), (200, 250)]
        for part in ranges:
            assert await sdk_locks.release_range(receiver, messages[part], 20) == [None] * (part.stop - part.start)
        assert not any(sdk_internals.is_on_link(receiver, message) for message in messages)
        assert await counts(queue) == [0] * 250
        again = await receiver.receive_messages(250, max_wait_time=5)
        assert [one.sequence_number for one in again] == list(range(1, 251))


async def test_of_a_range_those_whose_lock_is_lost_say_so_and_the_others_are_released(
    namespace: AsyncNamespace,
) -> None:
    async with received(namespace, "sdk-locks-partly", 9) as (queue, receiver, messages):
        # Settled behind its back by its token, as another process would.
        async with namespace.connection.receiver(queue.address) as other:
            await other.complete_message(messages[4])
        ends = await sdk_locks.release_range(receiver, messages, 20)
        assert [type(end) for end in ends] == [MessageLockLostError if n == 4 else type(None) for n in range(9)]
        assert await counts(queue) == [0] * 8


async def test_without_a_connection_each_has_its_error(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    async with received(namespace, "sdk-locks-broken", 4) as (queue, receiver, messages):
        shared_emulator.drop_connections("sdk-locks-broken")
        ends = await sdk_locks.release_range(receiver, messages, 5)
        assert len(ends) == 4
        assert all(isinstance(end, ServiceBusError) for end in ends)
        await namespace.peeker(queue.address).close()
        assert await counts(queue) == [0] * 4


async def test_a_closed_receiver_releases_nothing_and_says_so(namespace: AsyncNamespace) -> None:
    async with received(namespace, "sdk-locks-closed", 2) as (_, receiver, messages):
        await receiver.close()
        ends = await sdk_locks.release_range(receiver, messages, 5)
        assert [isinstance(end, ServiceBusError) for end in ends] == [True, True]
