# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportOptionalMemberAccess=false
# pyright: reportAttributeAccessIssue=false, reportUnknownVariableType=false

from __future__ import annotations

import pytest

from sbnotebook.model import Complete, Defer, Message
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.sdk import clients
from tests.filled_queues import filled_queue

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("size", [1, 200_000], ids=["one frame", "several frames"])
async def test_message_that_the_sdk_cannot_decode_is_received(namespace: AsyncNamespace, size: int) -> None:
    deep = b"\x45"
    for _ in range(100):  # a list in a list in a list
        deep = b"\xd0" + (len(deep) + 4).to_bytes(4) + (1).to_bytes(4) + deep
    properties = b"\xa1\x01k" + deep
    properties = b"\xd1" + (len(properties) + 4).to_bytes(4) + (2).to_bytes(4) + properties
    payload = b"\x00\x53\x74" + properties + b"\x00\x53\x75\xb0" + size.to_bytes(4) + b"x" * size
    queue = await filled_queue(namespace, f"deep-{size}", 1)
    async with namespace.connection.sender(queue.address) as sender:
        await clients.make_ready(sender)
        await clients.send_payload(sender, payload)
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
