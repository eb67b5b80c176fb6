from __future__ import annotations

import asyncio
from contextlib import suppress

import aiohttp
import pytest
from azure.servicebus import ServiceBusClient as SyncClient
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient

from sbnotebook.emulator import running
from sbnotebook.emulator.amqp.frames import FrameReader, FrameWriter
from sbnotebook.emulator.amqp.performatives import Close, Open, decode_composite, encode_composite
from sbnotebook.emulator.server import EmulatorServer

PATH = "/$servicebus/websocket"
HEADER = b"AMQP\x00\x01\x00\x00"


def sdk_client(server: EmulatorServer) -> ServiceBusClient:
    # The SDK goes to the port 443 of the connection string's host, unless it gets another endpoint.
    return ServiceBusClient.from_connection_string(
        server.connection_string,
        transport_type=TransportType.AmqpOverWebsocket,
        custom_endpoint_address=server.http_url,
        retry_total=0,
    )


@pytest.mark.anyio
async def test_the_sdk_sends_and_receives_over_a_websocket() -> None:
    async with EmulatorServer(queues=["orders"]) as server, sdk_client(server) as client:
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("x" * 500_000))
        async with client.get_queue_receiver("orders", max_wait_time=10) as receiver:
            (message,) = await receiver.receive_messages()
            assert len(str(message)) == 500_000
            await receiver.complete_message(message)
            assert await receiver.peek_messages() == []


@pytest.mark.anyio
async def test_bytes_go_both_ways_and_an_end_is_an_end() -> None:
    async with EmulatorServer() as server, aiohttp.ClientSession(server.http_url) as http:
        async with http.ws_connect(PATH, protocols=["AMQPWSB10"]) as socket:
            assert socket.protocol == "AMQPWSB10"
            writer, reader = FrameWriter(), FrameReader(2**20)
            writer.write_bytes(HEADER)
            writer.write(0, encode_composite(Open(container_id="c")))
            writer.write(0, encode_composite(Close()))
            for byte in writer.take():
                await socket.send_bytes(bytes((byte,)))
            reader.receive(b"".join([message.data async for message in socket]))
            assert reader.next_header() == HEADER
            answers = [decode_composite(frame[2])[0] for frame in iter(reader.next_frame, None)]
            assert [type(answer) for answer in answers] == [Open, Close]
            assert socket.closed
        await no_peers(server)


async def no_peers(server: EmulatorServer) -> None:
    """Wait until no connection is left."""
    async with asyncio.timeout(30):
        while server.broker.peers:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0)


@pytest.mark.anyio
@pytest.mark.parametrize("ending", ["text", "too large", "gone"])
async def test_input_other_than_amqp_ends_the_connection(ending: str) -> None:
    async with EmulatorServer() as server, aiohttp.ClientSession(server.http_url) as http:
        async with http.ws_connect(PATH, protocols=["AMQPWSB10"]) as socket:
            await socket.send_bytes(HEADER)
            assert (await socket.receive()).data == HEADER
            assert len(server.broker.peers) == 1
            if ending == "text":
                await socket.send_str("hello")
            elif ending == "too large":
                with suppress(ConnectionError):  # the answer may come before it has sent all of it
                    await socket.send_bytes(bytes(5_000_000))
        await no_peers(server)


@pytest.mark.anyio
async def test_a_client_that_does_not_read_is_paused_and_resumed() -> None:
    async with (
        EmulatorServer(queues=["orders"]) as server,
        sdk_client(server) as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders", max_wait_time=10, prefetch_count=50) as receiver,
    ):
        for _ in range(30):
            await sender.send_messages(ServiceBusMessage("x" * 900_000))
        got = 0
        while got < 30:
            for message in await receiver.receive_messages(30, max_wait_time=10):
                await receiver.complete_message(message)
                got += 1


@pytest.mark.anyio
async def test_only_websocket_requests_get_one_and_no_browser_page() -> None:
    async with EmulatorServer() as server, aiohttp.ClientSession(server.http_url) as http:
        async with http.get(PATH) as response:
            assert response.status == 400
        # A browser names itself and the origin of its page, which may be under the emulator's own host name.
        for origin in ("https://example.com", server.http_url):
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                await http.ws_connect(PATH, protocols=["AMQPWSB10"], origin=origin)


def test_the_synchronous_sdk_with_an_origin_is_accepted() -> None:
    with (
        running(queues=["orders"]) as emulator,
        SyncClient.from_connection_string(
            emulator.connection_string,
            transport_type=TransportType.AmqpOverWebsocket,
            custom_endpoint_address=emulator.http_url,
            retry_total=0,
        ) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("hello"))
        assert emulator.counts("orders").active == 1
