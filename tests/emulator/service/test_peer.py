from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.amqp import AmqpValue, Int, Long, Symbol, encode
from sbnotebook.emulator import QueueOptions, RunningEmulator
from sbnotebook.emulator.amqp.frames import EMPTY_FRAME, FrameWriter
from sbnotebook.emulator.amqp.link import TransferReceived
from sbnotebook.emulator.amqp.performatives import (
    RECEIVER,
    Attach,
    Close,
    Detach,
    Source,
    Target,
    Transfer,
    encode_composite,
)
from sbnotebook.emulator.clock import SystemClock
from sbnotebook.emulator.entities.queue import Queue
from sbnotebook.emulator.entities.registry import Registry
from sbnotebook.emulator.faults import EntityFaults
from sbnotebook.emulator.server import EmulatorServer
from sbnotebook.emulator.service.broker import Broker
from sbnotebook.emulator.service.links import LinkHandler, SenderLink
from sbnotebook.emulator.service.peer import AmqpPeer
from tests.emulator.service.conftest import Connect, RawClient


class BrokenHandler(LinkHandler[Any]):
    def received(self, event: TransferReceived, faults: EntityFaults) -> None:
        del faults
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
        (link,) = (link for link in peer.held.links.values() if isinstance(link.handler, SenderLink))
        link.handler = BrokenHandler(peer, link, None)
        with pytest.raises(ServiceBusError, match="its log says why"):
            await broken.send_messages(ServiceBusMessage("x"))
        async with client.get_queue_sender("orders") as whole:
            await whole.send_messages(ServiceBusMessage("x"))
    (record,) = (each for each in caplog.records if "was not handled" in each.getMessage())
    assert "a fault of the emulator with" in (record.exc_text or "")


def test_an_idle_client_that_wants_to_hear_something_does(connect: Connect) -> None:
    client = connect(idle_time_out=100)
    assert [client.read_frame() for _ in range(3)] == [b""] * 3


def test_a_broken_protocol_closes_its_own_connection_only(connect: Connect) -> None:
    bad, good = connect(), connect()
    bad.socket.sendall(b"\xff" * 100)
    error = bad.read(Close).error
    assert error is not None
    assert error.condition.startswith("amqp:")
    assert bad.socket.recv(10) == b""
    assert good.receiver("orders").source is not None


def test_no_client_hears_more_than_twenty_signs_of_life_a_second(connect: Connect) -> None:
    client = connect(idle_time_out=1)
    begun = time.monotonic()
    assert [client.read_frame() for _ in range(6)] == [b""] * 6
    assert time.monotonic() - begun >= 0.25


@pytest.mark.anyio
@pytest.mark.parametrize("greeting", [b"A", b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"])
async def test_only_a_client_that_opens_its_connection_stays(greeting: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AmqpPeer, "token_timeout", 2)
    broker = Broker(Registry(), SystemClock(), None, lambda _: None)
    create_server = asyncio.get_running_loop().create_server
    async with await create_server(lambda: AmqpPeer(broker), "127.0.0.1", 0) as listener:
        host, port = listener.sockets[0].getsockname()
        open_client = await asyncio.to_thread(RawClient, f"Endpoint=sb://{host}:{port};")
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(greeting)
        with suppress(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 30)
        writer.close()
        assert len(broker.peers) == 1
        open_client.socket.close()


@pytest.mark.anyio
async def test_only_a_client_that_sends_a_token_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AmqpPeer, "token_timeout", 2)
    broker = Broker(Registry(), SystemClock(), None, lambda _: None)
    create_server = asyncio.get_running_loop().create_server
    async with await create_server(lambda: AmqpPeer(broker), "127.0.0.1", 0) as listener:
        host, port = listener.sockets[0].getsockname()
        known = await asyncio.to_thread(RawClient, f"Endpoint=sb://{host}:{port};")
        stranger = await asyncio.to_thread(RawClient, f"Endpoint=sb://{host}:{port};", text=None)
        assert len(broker.peers) == 2
        with suppress(ConnectionResetError):
            assert await asyncio.to_thread(stranger.socket.recv, 1) == b""
        assert len(broker.peers) == 1
        known.socket.close()
        stranger.socket.close()


@pytest.mark.anyio
async def test_a_silent_client_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AmqpPeer, "idle_timeout", 1)
    broker = Broker(Registry(), SystemClock(), None, lambda _: None)
    create_server = asyncio.get_running_loop().create_server
    async with await create_server(lambda: AmqpPeer(broker), "127.0.0.1", 0) as listener:
        host, port = listener.sockets[0].getsockname()
        silent = await asyncio.to_thread(RawClient, f"Endpoint=sb://{host}:{port};", text=None)
        alive = await asyncio.to_thread(RawClient, f"Endpoint=sb://{host}:{port};", text=None)

        def talk_while_the_other_is_silent() -> Close:
            silent.socket.settimeout(0.05)
            while True:
                alive.socket.sendall(EMPTY_FRAME)
                with suppress(TimeoutError):
                    return silent.read(Close)

        close = await asyncio.to_thread(talk_while_the_other_is_silent)
        assert close.error is not None
        assert close.error.condition == "amqp:connection:forced"
        assert "inactive for more than the allowed 1000 milliseconds" in str(close.error.description)
        assert len(broker.peers) == 1
        alive.socket.close()


def test_a_client_hears_how_long_it_may_be_silent(connect: Connect) -> None:
    assert connect().opened.idle_time_out == 240_000


def transfer(payload: bytes) -> bytes:
    """The frame of a message on the link 0."""
    writer = FrameWriter()
    first = Transfer(handle=0, delivery_id=0, delivery_tag=b"0", message_format=0, settled=False)
    writer.write(0, encode_composite(first), payload)
    return writer.take()


def test_a_client_that_does_not_read_is_not_read_from(connect: Connect) -> None:
    client = connect()
    client.sender("$cbs")
    client.receiver("$cbs")
    client.flow(1, 1_000_000)
    request = transfer(b"\x00\x53\x73" + encode(["x" * 10_000]) + b"\x00\x53\x74" + encode({"operation": "put-token"}))
    client.socket.settimeout(0.5)
    sent = 0
    with suppress(TimeoutError):
        while sent < 10_000:
            client.socket.sendall(request)
            sent += 1
    assert sent < 10_000
    client.socket.settimeout(60)
    for _ in range(sent):
        client.read(Transfer)


def test_a_client_that_takes_no_replies_is_dropped(connect: Connect) -> None:
    client = connect()
    client.sender("$cbs")
    client.receiver("$cbs")  # without credit
    request = transfer(b"\x00\x53\x74" + encode({"operation": "put-token"}))
    client.socket.sendall(request * 101)
    with pytest.raises((AssertionError, ConnectionResetError)):
        client.read(Transfer)
    assert connect().sender("$cbs").target is not None


def large_peek(client: RawClient) -> bytes:
    """Return the frame of a small request whose answer has a megabyte; the client can take any number of answers."""
    client.sender("orders")
    for number in range(4):
        client.transfer(b"\x00\x53\x75" + encode(b"x" * 240_000), number)
    client.write(Detach(handle=0, closed=True))
    client.sender("orders/$management")
    client.receiver("orders/$management", target="orders/$management")
    client.flow(1, 1_000_000)
    arguments: AmqpValue = {"from-sequence-number": Long(0), "message-count": Int(4)}
    operation = encode({"operation": "com.microsoft:peek-message"})
    return transfer(b"\x00\x53\x74" + operation + b"\x00\x53\x77" + encode(arguments))


def test_small_requests_do_not_fill_the_memory_with_answers(connect: Connect) -> None:
    client = connect()
    client.socket.sendall(large_peek(client) * 1_000)
    answers = 0
    with suppress(AssertionError, ConnectionResetError):
        while answers < 1_000:
            client.read(Transfer)
            answers += 1
    assert answers < 1_000
    assert connect().sender("orders").target is not None


def test_a_dropped_client_keeps_no_session_it_gave_back(connect: Connect, emulator: RunningEmulator) -> None:
    emulator.create_queue("chats", QueueOptions(requires_session=True))
    client = connect()
    peek = large_peek(client)
    session: dict[str, AmqpValue] = {Symbol("com.microsoft:session-filter"): "a"}
    given: dict[str, Any] = {"role": RECEIVER, "source": Source("chats", filter=session), "target": Target("x")}
    client.write(Attach(name="a", handle=2, initial_delivery_count=0, **given))
    assert client.read(Attach).source is not None
    writer = FrameWriter()
    writer.write(0, encode_composite(Detach(handle=2, closed=True)))
    client.socket.sendall(peek * 200 + writer.take())
    with pytest.raises((AssertionError, ConnectionResetError)):
        client.read(Close)
    other = connect()
    other.write(Attach(name="a", handle=2, initial_delivery_count=0, **given))
    assert other.read(Attach).source is not None


@pytest.mark.anyio
async def test_a_client_that_sends_much_at_once_lets_others_in_between() -> None:
    async with EmulatorServer(queues=["orders"]) as server:
        client = await asyncio.to_thread(RawClient, server.connection_string)
        await asyncio.to_thread(client.sender, "orders")
        (peer,), writer = server.broker.peers, FrameWriter()
        assert isinstance(peer, AmqpPeer)
        for number in range(5000):
            transfer = Transfer(handle=0, delivery_id=number, delivery_tag=b"0", message_format=0, settled=True)
            writer.write(0, encode_composite(transfer), b"\0\x53\x77\x40")
        peer.data_received(writer.take())
        queue = server.broker.registry.find("orders")
        assert isinstance(queue, Queue)
        assert 0 < len(queue.log) < 5000
        async with asyncio.timeout(30):
            while len(queue.log) < 5000:  # noqa: ASYNC110 (it is the work of this loop)
                await asyncio.sleep(0)
        client.socket.close()
