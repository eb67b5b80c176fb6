"""Private parts of the SDK for holding many locks; these tests fail if a version moves them."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast
from uuid import UUID, uuid4

import anyio
import pytest

from sbnotebook.model import Message
from sbnotebook.settlement import AsyncEntity, AsyncNamespace
from sbnotebook.settlement.pace import Window
from sbnotebook.settlement.sdk import management, receivers, settling
from sbnotebook.settlement.sdk.settling import LinkSettling

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
        receivers.keep_bodies_of(receiver, wanted)
        yield queue, receiver, await receiver.receive_messages(count, max_wait_time=5)


async def counts(queue: AsyncEntity) -> list[int]:
    return [message.delivery_count for message in await queue.peek()]


async def test_bare_lock_matches_the_message_it_replaces(namespace: AsyncNamespace) -> None:
    async with received(namespace, "sdk-locks-bare", 3, wanted={2}) as (queue, receiver, (first, second, third)):
        kinds = [type(one).__name__ for one in (first, second, third)]
        assert kinds == ["BareLock", "ServiceBusReceivedMessage", "BareLock"]
        assert [one.sequence_number for one in (first, second, third)] == [1, 2, 3]
        assert first.locked_until_utc is not None
        assert second.locked_until_utc is not None
        assert abs((second.locked_until_utc - first.locked_until_utc).total_seconds()) < 5
        before = first.locked_until_utc
        await management.renew_locks(receiver, [first, second, third])
        assert first.locked_until_utc >= before
        assert all(settling.is_on_link(receiver, one) for one in (first, second, third))
        ends: dict[int, list[Exception | None]] = {}
        await LinkSettling(receiver, "release").run(
            [[first], [second], [third]],
            window=Window(2),
            answer_within=lambda: 20,
            began=lambda _: True,
            ended=ends.__setitem__,
        )
        assert ends == {0: [None], 1: [None], 2: [None]}
        assert await counts(queue) == [0, 0, 0]


def test_a_lock_token_that_is_a_text_is_read() -> None:
    token = uuid4()
    for given in (token, str(token)):
        assert receivers.token_of(receivers.lock_by_token(cast("UUID", given), None)) == token


async def test_messages_of_a_cancelled_call_wait_for_the_next(namespace: AsyncNamespace) -> None:
    async with received(namespace, "sdk-locks-cancelled", 1, wanted=set()) as (queue, receiver, _):
        came: list[int] = []

        async def take() -> None:
            came.extend(message.sequence_number for message in await receivers.take(receiver, 10, max_wait=30))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take)
            await queue.send([Message(message_id="late")])
            while not (came or receivers.waiting(receiver)):  # noqa: ASYNC110 (the SDK has no event for it)
                await anyio.sleep(0.002)
            tasks.cancel_scope.cancel()  # while it waits for more
        await receivers.withdraw_credit(receiver) if came else await take()
        assert came == [2]
    assert await counts(queue) == [0, 0]


async def test_a_receiver_knows_what_may_be_on_its_way(namespace: AsyncNamespace) -> None:
    async with received(namespace, "sdk-locks-coming", 1, wanted=set()) as (_, receiver, _):
        assert not receivers.has_more_coming(receiver)
        assert await receivers.take(receiver, 2, max_wait=0.1) == []
        assert receivers.has_more_coming(receiver), "two were asked for, and did not come"
        await receivers.withdraw_credit(receiver)
        assert not receivers.has_more_coming(receiver)


async def test_all_that_are_wanted_are_waited_for_no_longer(
    namespace: AsyncNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receivers, "_MORE_WITHIN", 60.0)
    async with received(namespace, "sdk-locks-enough", 1, wanted=set()) as (queue, receiver, _):
        await queue.send([Message(message_id="late"), Message(message_id="later")])
        with anyio.fail_after(20):
            got = await receivers.take(receiver, 2, max_wait=60)
        assert [message.sequence_number for message in got] == [2, 3]


async def test_messages_between_two_calls_wait_for_the_next(namespace: AsyncNamespace) -> None:
    async with received(namespace, "sdk-locks-between", 2, wanted=set()) as (queue, receiver, messages):
        assert await receiver.receive_messages(10, max_wait_time=1) == [], "ten are asked for, and do not come"
        await queue.send([Message(message_id="late"), Message(message_id="later")])
        for message in messages:  # reads from the link, and so receives messages that arrived meanwhile
            await management.settle_by_tokens(receiver, [message.lock_token], "complete", answer_within=20)
        got = await receiver.receive_messages(2, max_wait_time=5)
        assert [message.sequence_number for message in got] == [3, 4]
        assert settling.ranges([*messages, *got]) == [slice(0, 4)], "they came once, and not again after a release"
        await receivers.withdraw_credit(receiver)
    assert await counts(queue) == [0, 0]
