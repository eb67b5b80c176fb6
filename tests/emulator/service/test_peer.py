from __future__ import annotations

import time

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.emulator.amqp import TransferReceived
from sbnotebook.emulator.amqp.performatives import Close
from sbnotebook.emulator.server import EmulatorServer
from sbnotebook.emulator.service.links import LinkHandler, SenderLink
from sbnotebook.emulator.service.peer import AmqpPeer
from tests.emulator.service.conftest import Connect


class BrokenHandler(LinkHandler):
    def transfer_received(self, event: TransferReceived) -> None:
        raise RuntimeError(f"a fault of the emulator with {len(event.payload)} bytes")


@pytest.mark.anyio
async def test_a_fault_of_the_emulator_is_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        EmulatorServer(queues=["orders"]) as server,
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
        client.get_queue_sender("orders") as broken,
    ):
        await broken.send_messages(ServiceBusMessage("x"))
        (peer,) = server.broker.peers
        assert isinstance(peer, AmqpPeer)
        (link,) = (link for link, handler in peer.handlers.items() if isinstance(handler, SenderLink))
        peer.handlers[link] = BrokenHandler(None)
        with pytest.raises(ServiceBusError, match="its log says why"):
            await broken.send_messages(ServiceBusMessage("x"))
        async with client.get_queue_sender("orders") as whole:
            await whole.send_messages(ServiceBusMessage("x"))
    assert "a fault of the emulator with" in caplog.text


def test_an_idle_client_that_wants_to_hear_something_does(connect: Connect) -> None:
    client = connect(idle_time_out=100)
    begun = time.monotonic()
    assert [client.read_frame() for _ in range(3)] == [b""] * 3
    assert time.monotonic() - begun < 1


def test_a_broken_protocol_closes_its_own_connection_only(connect: Connect) -> None:
    bad, good = connect(), connect()
    bad.socket.sendall(b"\xff" * 100)
    error = bad.read(Close).error
    assert error is not None
    assert error.condition.startswith("amqp:")
    assert bad.socket.recv(10) == b""
    assert good.receiver("orders").source is not None
