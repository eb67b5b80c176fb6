from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from sbnotebook.emulator import QueueOptions, running
from sbnotebook.emulator.server import EmulatorServer
from sbnotebook.errors import ConfigurationError, EmulatorStartError


@pytest.mark.anyio
async def test_one_port_speaks_amqp_and_http() -> None:
    async with EmulatorServer(queues=["orders"]) as server, aiohttp.ClientSession(server.http_url) as http:
        assert server.connection_string == (
            f"Endpoint=sb://127.0.0.1:{server.port};SharedAccessKeyName=RootManageSharedAccessKey;"
            "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
        )
        async with (
            ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
            client.get_queue_sender("orders") as sender,
        ):
            await sender.send_messages(ServiceBusMessage("x"))
        async with http.get("/entities") as response:
            assert [queue["active"] for queue in (await response.json())["queues"]] == [1]


@pytest.mark.anyio
async def test_a_second_port_is_the_same(unused_port: int) -> None:
    async with (
        EmulatorServer(http_port=unused_port),
        aiohttp.ClientSession(f"http://127.0.0.1:{unused_port}") as http,
        http.get("/health") as response,
    ):
        assert (await response.json())["status"] == "ok"


@pytest.fixture
def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@pytest.mark.anyio
async def test_a_used_port_is_reported_and_nothing_stays_open(tmp_path: Path) -> None:
    async with EmulatorServer() as first:
        with pytest.raises(EmulatorStartError, match=f"port {first.port}"):
            async with EmulatorServer(port=first.port, data_dir=tmp_path):
                pass
    async with EmulatorServer(data_dir=tmp_path):  # the failed one has let go of the directory
        pass


@pytest.mark.anyio
@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 65536), ("127.0.0.1", -1), ("a" * 64, 0), ("no host", 0)])
async def test_an_unknown_host_address_is_reported(host: str, port: int) -> None:
    with pytest.raises(EmulatorStartError, match=f"cannot listen on {host}, port {port}"):
        async with EmulatorServer(host=host, port=port):
            pass


@pytest.mark.anyio
async def test_a_connection_that_stays_silent_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbnotebook.emulator.server._SILENCE", 0.2)
    async with (
        EmulatorServer() as server,
        aiohttp.ClientSession(server.http_url) as http,
        http.get("/lease") as lease,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert await asyncio.wait_for(reader.read(), 30) == b""
        writer.close()
        assert await lease.content.readline() == b"held\n"
        with pytest.raises(TimeoutError):  # one that has spoken stays
            await asyncio.wait_for(lease.content.readline(), 0.3)


@pytest.mark.anyio
async def test_a_head_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbnotebook.emulator.server._SILENCE", 0.3)
    async with EmulatorServer() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        dribble = asyncio.create_task(dribbling(writer))
        with suppress(ConnectionResetError):  # an end, too
            assert await asyncio.wait_for(reader.read(), 30) == b""
        dribble.cancel()
        writer.close()


async def dribbling(writer: asyncio.StreamWriter) -> None:
    """Send a header that is always one letter longer."""
    while True:
        writer.write(b"x")
        await asyncio.sleep(0.01)


@pytest.mark.anyio
async def test_a_head_may_come_in_pieces_and_must_not_be_too_long() -> None:
    async with EmulatorServer() as server:
        for head, status in (
            (b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", b" 200 "),
            (b"GET /health HTTP/1.1\r\nHost: " + b"x" * 70_000, b" 400 "),
            (b"GET /" + b"x" * 70_000, b" 400 "),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            pieces = [bytes((byte,)) for byte in head] if len(head) < 1000 else [head]
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            assert status in (await asyncio.wait_for(reader.read(), 30)).split(b"\r\n", 1)[0]
            writer.close()


@pytest.mark.anyio
async def test_many_clients_can_connect_while_it_is_busy() -> None:
    async with EmulatorServer() as server:
        # The loop does not run meanwhile, so nothing is accepted; one too many would not be answered.
        clients = [socket.create_connection(("127.0.0.1", server.port), timeout=2) for _ in range(300)]
        for client in clients:
            client.close()


@pytest.mark.anyio
async def test_a_name_keeps_the_options_and_options_replace_them(tmp_path: Path) -> None:
    for queues, expected in (
        ({"orders": QueueOptions(5_000, 2)}, QueueOptions(5_000, 2)),
        (["Orders"], QueueOptions(5_000, 2)),
        ({"ORDERS": QueueOptions(6_000, 3)}, QueueOptions(6_000, 3)),
    ):
        async with EmulatorServer(data_dir=tmp_path, queues=queues) as server:
            assert [queue.options for queue in server.broker.registry.queues] == [expected]


@pytest.mark.anyio
async def test_a_start_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="a b"):
        async with EmulatorServer(data_dir=tmp_path, queues=["a b"]):
            pass
    async with EmulatorServer(data_dir=tmp_path) as server:
        assert server.broker.registry.queues == []


@pytest.mark.anyio
async def test_server_ends_when_unused_for_a_while() -> None:
    async with EmulatorServer() as server:
        serving = asyncio.ensure_future(server.serve(end_after_unused=0.3))
        async with aiohttp.ClientSession(server.http_url) as http, http.get("/lease") as lease:
            assert await lease.content.readline() == b"held\n"
            await asyncio.sleep(1)
            assert not serving.done()
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"AMQP\x00\x01\x00\x00")  # A client uses it as well.
        await asyncio.sleep(1)
        assert not serving.done()
        writer.close()
        await asyncio.wait_for(serving, 30)


@pytest.mark.anyio
async def test_connections_are_closed_when_it_stops() -> None:
    async with EmulatorServer() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"AMQP\x00\x01\x00\x00")
        assert await reader.readexactly(8) == b"AMQP\x00\x01\x00\x00"
    assert await asyncio.wait_for(reader.read(), 30) == b""
    writer.close()


@pytest.mark.anyio
async def test_a_data_directory_keeps_its_identity(tmp_path: Path) -> None:
    async def identity(data_dir: Path | None) -> dict[str, str]:
        async with (
            EmulatorServer(data_dir=data_dir) as server,
            aiohttp.ClientSession(server.http_url) as http,
            http.get("/$identity") as response,
        ):
            return await response.json()

    first = await identity(tmp_path / "one")
    assert await identity(tmp_path / "one") == first
    assert len({(await identity(each))["id"] for each in (tmp_path / "one", tmp_path / "two", None, None)}) == 4


def test_an_emptied_namespace_has_another_identity(tmp_path: Path) -> None:
    def identity() -> str:
        with urlopen(f"{emulator.http_url}/$identity", timeout=60) as answer:  # noqa: S310
            return json.load(answer)["id"]

    with running(data_dir=tmp_path) as emulator:
        before = identity()
        emulator.reset()
        after = identity()
        assert after != before
    with running(data_dir=tmp_path) as emulator:
        assert identity() == after
