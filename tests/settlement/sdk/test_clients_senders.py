"""What a later version of the SDK may break."""

# ruff: noqa: SLF001 (this tests private parts of the SDK)

from __future__ import annotations

import time
from typing import Any, cast

import anyio
import pytest
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.emulator import QueueOptions, RunningEmulator
from sbnotebook.model import Defer, EntityAddress, Message, OutcomeStatus
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.connecting.failures import Failure
from sbnotebook.settlement.sdk import clients, connections
from sbnotebook.settlement.wire.encoding import payload_of
from tests.settlement.waiting import until

pytestmark = pytest.mark.anyio

_FRAME = 65_536
"""Bytes of the largest frame of the emulator, and of Azure."""


async def test_transfer_that_waited_for_credit_is_sent_once(
    namespace: AsyncNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    await namespace.create_queue("slow-line")
    async with namespace.connection.sender(EntityAddress("slow-line")) as sender:
        await connections.reopen(sender)
        handler = cast("Any", sender)._handler
        session, writer = handler._session, handler._connection._transport.writer
        session.remote_incoming_window = 0  # the service has told of no room
        await session._outgoing_flow({"echo": True})  # and says in a moment that there is some
        drain = writer.drain

        async def drain_slowly() -> None:
            await anyio.sleep(3 * handler._socket_timeout)
            await drain()

        monkeypatch.setattr(writer, "drain", drain_slowly)
        await clients.send_payload(sender, payload_of(Message()))
        monkeypatch.undo()
    assert len(await namespace.entity("slow-line").peek()) == 1


async def test_token_about_to_expire_is_renewed_before_a_send(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("token-renewed")
    async with namespace.connection.sender(EntityAddress("token-renewed")) as sender:
        await connections.reopen(sender)
        handler = cast("object", vars(sender)["_handler"])
        token = vars(cast("object", vars(handler)["_cbs_authenticator"]))
        token.update(_expires_on=time.time() + 3, _refresh_window=60)
        await clients.make_ready(sender)
        await clients.send_payload(sender, payload_of(Message()))
        assert token["_expires_on"] > time.time() + 60
    assert len(await namespace.entity("token-renewed").peek()) == 1


async def test_token_that_expires_before_confirmation_is_unconfirmed(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    await namespace.create_queue("token-ended")
    async with namespace.connection.sender(EntityAddress("token-ended")) as sender:
        await connections.reopen(sender)
        handler = cast("Any", sender)._handler
        shared_emulator.faults.entity("token-ended").accept_delay_ms = 60_000
        async with anyio.create_task_group() as tasks:

            async def end_the_token() -> None:
                await until(lambda: any(each.sent for each in handler._link._pending_deliveries))
                handler._cbs_authenticator._expires_on = time.time() - 1

            tasks.start_soon(end_the_token)
            with pytest.raises(ServiceBusError) as raised:
                await clients.send_payload(sender, payload_of(Message()))
            place = EntityAddress("token-ended")
            outcome = Failure.of(raised.value).outcome("send", place)
            assert outcome.status is OutcomeStatus.UNCONFIRMED


async def test_message_of_about_one_frame_arrives_whole(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    shared_emulator.create_queue("in-frames", QueueOptions(max_message_size_kb=10_240))
    # What the emulator adds to each message, some 200 bytes, puts other ones at the border on their way back.
    sizes = [
        _FRAME * frames + more for frames in (1, 3) for more in (-300, -250, -200, -100, -65, -60, -50, -40, -35, 5)
    ]
    bodies = [bytes([n]) * size for n, size in enumerate(sizes)]
    async with namespace.connection.sender(EntityAddress("in-frames")) as sender:
        await connections.reopen(sender)
        for body in bodies:
            await clients.send_payload(sender, payload_of(Message(body=body)))
    queue = namespace.entity("in-frames")
    assert [message.body for message in await queue.peek()] == bodies
    async with queue.batch() as batch:
        assert [message.body for message in await batch.receive(len(bodies))] == bodies
        assert (await batch.settle(Defer())).ok
        deferred = await batch.receive_deferred(range(1, len(bodies) + 1))
        assert [message.body for message in deferred] == bodies
