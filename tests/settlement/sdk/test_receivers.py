"""Private parts of the SDK for holding many locks; these tests fail if a version moves them."""

# ruff: noqa: SLF001 (the tests look into the SDK)
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportOptionalMemberAccess=false
# pyright: reportAttributeAccessIssue=false, reportUnknownVariableType=false

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import EntityAddress, Message, Release
from sbnotebook.settlement import AsyncEntity, AsyncNamespace
from sbnotebook.settlement.sdk import connections, management, settling
from sbnotebook.settlement.sdk.receivers import LockReceiver, ReceivedLock
from sbnotebook.settlement.sdk.settling import LinkSettling
from sbnotebook.settlement.wire.decoding import peeked_from_payload
from tests.filled_queues import delivery_counts, filled_queue
from tests.settlement.waiting import until

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def received(
    namespace: AsyncNamespace, name: str, count: int, wanted: set[int] | None = None
) -> AsyncGenerator[tuple[AsyncEntity, LockReceiver, list[ReceivedLock]]]:
    queue = await filled_queue(namespace, name, count)
    receiver = namespace.connection.receiver(queue.address)
    async with receiver:
        receiver.wanted = wanted
        yield queue, receiver, await receiver.take(count, max_wait=5)


async def test_a_lock_without_its_message_is_renewed_and_settled(namespace: AsyncNamespace) -> None:
    async with received(namespace, "sdk-locks-bare", 3, wanted={2}) as (queue, receiver, (first, second, third)):
        assert [one.payload is None for one in (first, second, third)] == [True, False, True]
        assert [one.sequence_number for one in (first, second, third)] == [1, 2, 3]
        assert first.locked_until is not None
        before = first.locked_until
        assert min(await management.renew_locks(receiver, [first, second, third])) >= before
        assert {one.delivery_tag for one in (first, second, third)} <= settling.on_link(receiver)
        ends: dict[int, list[Exception | None]] = {}
        await LinkSettling(receiver).run(
            [([one], Release()) for one in (first, second, third)],
            in_flight=2,
            answer_within=lambda: 20,
            began=lambda _: True,
            ended=ends.__setitem__,
        )
        assert ends == {0: [None], 1: [None], 2: [None]}
        assert await delivery_counts(queue) == {1: 0, 2: 0, 3: 0}


async def test_no_more_come_than_were_asked_for(namespace: AsyncNamespace) -> None:
    async with received(namespace, "sdk-locks-asked", 2, wanted=set()) as (queue, receiver, messages):
        await queue.send(Message() for _ in range(4))
        got = await receiver.take(1, max_wait=20)
        # Messages on their way come before this answer.
        await management.renew_locks(receiver, [*messages, *got])
        assert len(settling.on_link(receiver)) == 3


def delivery_count(message: ReceivedLock) -> int:
    assert message.payload is not None
    return peeked_from_payload(message.payload, EntityAddress("orders")).delivery_count


async def test_withdraw_credit_releases_messages_on_their_way(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("on-its-way")
    async with namespace.connection.receiver(EntityAddress("on-its-way")) as receiver:
        assert await receiver.take(10, max_wait=0.01) == []
        await namespace.entity("on-its-way").send([Message(message_id="m")])
        await receiver.withdraw_credit()
        assert not receiver.has_more_coming
        async with namespace.connection.receiver(EntityAddress("on-its-way")) as another:
            (message,) = await another.take(1, max_wait=5)
            assert delivery_count(message) == 0


async def test_a_drain_ends_with_the_answer_of_the_service(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    await namespace.create_queue("answered")
    receiver = namespace.connection.receiver(EntityAddress("answered"))
    assert not await receiver.withdraw_credit(answer_within=20), "it is not open"
    async with receiver:
        assert await receiver.withdraw_credit(answer_within=20), "nothing was asked for"
        assert await receiver.take(10, max_wait=0.01) == []
        with anyio.fail_after(10):
            assert await receiver.withdraw_credit(answer_within=20)
    async with namespace.connection.receiver(EntityAddress("answered")) as receiver:
        shared_emulator.close_links("answered")
        with anyio.fail_after(20):
            while connections.is_open(receiver):
                await connections.catch_up(receiver)
        assert not await receiver.withdraw_credit(answer_within=20), "its link is closed"


async def test_only_a_flow_of_the_link_without_credit_ends_a_drain(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    await namespace.create_queue("drained")
    drained: list[bool] = []
    async with namespace.connection.receiver(EntityAddress("drained")) as receiver:
        assert await receiver.take(10, max_wait=0.01) == []
        link: Any = receiver._handler._link
        before = link._incoming_flow
        shared_emulator.freeze("drained")
        try:
            async with anyio.create_task_group() as tasks:

                async def drain() -> None:
                    began = time.monotonic()
                    drained.append(await receiver.withdraw_credit(answer_within=0.7))
                    assert time.monotonic() - began >= 0.7

                tasks.start_soon(drain)
                await until(lambda: link._incoming_flow is not before)
                for handle, credit in ((None, 0), (link.handle, 5)):
                    await link._incoming_flow([0, 100, 0, 100, handle, 0, credit, 0, False, False, None])
        finally:
            shared_emulator.thaw()
    assert drained == [False]
