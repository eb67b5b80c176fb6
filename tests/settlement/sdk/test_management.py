# ruff: noqa: SLF001 (this tests private parts of the SDK)
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportOptionalMemberAccess=false
# pyright: reportAttributeAccessIssue=false, reportUnknownVariableType=false

from __future__ import annotations

import pytest
from azure.servicebus.exceptions import MessageLockLostError, MessageNotFoundError

from sbnotebook.model import Complete, Defer, EntityAddress, Message
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.sdk import links, management, senders, settling
from sbnotebook.settlement.wire.conversion import payload_of

pytestmark = pytest.mark.anyio


async def test_payloads_are_peeked_and_received_as_sent(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("bytes")
    payload = payload_of(Message(body=b"exactly", message_id="m"))
    sender = namespace.connection.sender(EntityAddress("bytes"))
    async with sender:
        await senders.make_ready(sender)
        await senders.send_payload(sender, payload)
    browser = namespace.connection.browser(EntityAddress("bytes"))
    (seen,) = await management.peek_payloads(browser, 1, 10)
    await browser.close()
    assert seen.endswith(payload)
    async with namespace.connection.receiver(EntityAddress("bytes")) as receiver:
        (message,) = await receiver.take(1, max_wait=3)
        assert (message.payload or b"").endswith(payload)


@pytest.mark.parametrize("size", [1, 200_000], ids=["one frame", "several frames"])
async def test_message_that_the_sdk_cannot_decode_is_received(namespace: AsyncNamespace, size: int) -> None:
    deep = b"\x45"
    for _ in range(100):  # a list in a list in a list
        deep = b"\xd0" + (len(deep) + 4).to_bytes(4) + (1).to_bytes(4) + deep
    properties = b"\xa1\x01k" + deep
    properties = b"\xd1" + (len(properties) + 4).to_bytes(4) + (2).to_bytes(4) + properties
    payload = b"\x00\x53\x74" + properties + b"\x00\x53\x75\xb0" + size.to_bytes(4) + b"x" * size
    await namespace.create_queue(f"deep-{size}")
    queue = namespace.entity(f"deep-{size}")
    await queue.send([Message(message_id="before")])
    async with namespace.connection.sender(queue.address) as sender:
        await senders.make_ready(sender)
        await senders.send_payload(sender, payload)
    await queue.send([Message(message_id="behind")])
    async with queue.batch() as batch:
        await batch.receive(3, max_wait=3)
        assert [message.sequence_number for message in batch.messages] == [1, 2, 3]
        assert batch.messages[1].body.endswith(payload)
        assert batch.messages[1].locked_until == batch.messages[0].locked_until
        assert (await batch.settle(Defer())).ok
        deferred = await batch.receive_deferred([1, 2, 3])
        assert [message.sequence_number for message in deferred] == [1, 2, 3]
        assert deferred[1].body.endswith(payload)
        assert (await batch.settle(Complete())).ok
    assert not await queue.peek()


@pytest.mark.parametrize("operation", ["complete", "abandon", "defer", "dead-letter"])
async def test_settle_by_tokens_works_after_the_link_is_gone(namespace: AsyncNamespace, operation: str) -> None:
    name = f"token-{operation}"
    await namespace.create_queue(name)
    await namespace.entity(name).send([Message(body=b"x")])
    async with namespace.connection.receiver(EntityAddress(name)) as receiver:
        (message,) = await receiver.take(1, max_wait=3)
        assert settling.is_on_link(receiver, message)
        await receiver._close_handler()
        await links.reopen(receiver)
        assert not settling.is_on_link(receiver, message)
        token = message.lock_token
        await management.settle_by_tokens(receiver, [token], operation, "r", "d", answer_within=5)
        with pytest.raises(MessageLockLostError):
            await management.settle_by_tokens(receiver, [token], operation, answer_within=5)
    left = await namespace.entity(name).peek() + await namespace.entity(f"{name}/$dlq").peek()
    assert [(each.dead_letter_reason, each.dead_letter_error_description) for each in left] == {
        "complete": [],
        "dead-letter": [("r", "d")],
    }.get(operation, [(None, None)])


async def test_deferred_messages_are_removed_all_or_none(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("removed")
    queue = namespace.entity("removed")
    await queue.send([Message(body=b"x")] * 3)
    async with namespace.connection.receiver(queue.address) as receiver:
        messages = await receiver.take(3, max_wait=3)
        await management.settle_by_tokens(receiver, [m.lock_token for m in messages], "defer", answer_within=20)
        first, *others = [message.sequence_number or 0 for message in messages]
        with pytest.raises(MessageNotFoundError):
            await management.delete_deferred(receiver, [first, 99])
        assert await management.delete_deferred(receiver, others) == len(others)
    assert [message.sequence_number for message in await queue.peek()] == [first]
