"""Microsoft's documented connection string, against its emulator's ports and ours.

Microsoft's emulator has AMQP alone at 5672, and HTTP at 5300. Other ports are used here, because a test may not need a
fixed one.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.emulator.server import EmulatorServer
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Message, connection_strings
from sbnotebook.settlement import Connection
from sbnotebook.settlement.connecting import administration_clients
from sbnotebook.settlement.connecting.administration_clients import administration_client
from tests.settlement.namespaces import namespace_of

pytestmark = pytest.mark.anyio
DOCUMENTED = (
    "Endpoint=sb://HOST;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;"
    "UseDevelopmentEmulator=true;"
)


@pytest.fixture
def emulator() -> Iterator[RunningEmulator]:
    with running(queues=["orders"]) as emulator:
        yield emulator


@pytest.fixture
def amqp_port(emulator: RunningEmulator) -> Iterator[int]:
    """A port that speaks AMQP alone, in front of an emulator."""
    target = int(emulator.http_url.rpartition(":")[2])
    loop = asyncio.new_event_loop()

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.read(8)
        if not head.startswith(b"AMQP"):
            writer.write(b"AMQP\x03\x01\x00\x00")
            writer.close()
            return
        there, back = await asyncio.open_connection("127.0.0.1", target)
        back.write(head)
        await asyncio.gather(pipe(reader, back), pipe(there, writer), return_exceptions=True)

    server = loop.run_until_complete(asyncio.start_server(accept, "127.0.0.1"))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield server.sockets[0].getsockname()[1]
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)


async def uses_all(text: str, tmp_path: Path) -> None:
    async with namespace_of(Connection(text), tmp_path) as namespace:
        assert (await namespace.entity("orders").send([Message(body=b"x")])).ok
        (counts,) = await namespace.entities()
        assert counts.active == len(await namespace.entity("orders").peek(10)) == 1
        async with namespace.entity("orders").batch() as batch:
            assert len(await batch.receive(1)) == 1
    with administration_client(text) as client:
        assert client.get_queue("orders").name == "orders"


@pytest.mark.parametrize("place", ["localhost", "127.0.0.1", "localhost:AMQP", "localhost/"])
@pytest.mark.parametrize("whose", ["microsofts", "ours", "ours at both"])
async def test_the_documented_string_works_as_it_is_written(
    emulator: RunningEmulator, amqp_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, whose: str
) -> None:
    ours = emulator.http_url.rpartition(":")[2]
    amqp = str(amqp_port) if whose == "microsofts" else ours
    with socket.create_server(("127.0.0.1", 0)) as closed:
        unused = closed.getsockname()[1]
    monkeypatch.setattr(connection_strings, "_EMULATOR_PORT", amqp)
    monkeypatch.setattr(administration_clients, "_ADMINISTRATION_PORT", unused if whose == "ours" else int(ours))
    await uses_all(DOCUMENTED.replace("HOST", place.replace("AMQP", amqp)), tmp_path)


def test_the_ports_are_those_of_microsofts_emulator() -> None:
    read = connection_strings.read_connection_string(DOCUMENTED.replace("HOST", "localhost"))
    assert (read.host, read.amqp_host) == ("localhost", "localhost:5672")
    assert read.for_sdk.reveal().startswith("Endpoint=sb://localhost:5672;")
    assert administration_clients._ADMINISTRATION_PORT == 5300  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    assert "5672" not in connection_strings.read_connection_string(DOCUMENTED.replace("true", "false")).for_sdk.reveal()


@pytest.mark.parametrize("kind", ["AmqpWebSockets", "websocket"])
async def test_amqp_over_a_websocket_reaches_an_emulator(emulator: RunningEmulator, tmp_path: Path, kind: str) -> None:
    await uses_all(f"{emulator.connection_string}TransportType={kind};", tmp_path)


async def test_a_websocket_that_does_not_open_leaves_nothing_behind(
    tmp_path: Path, free_tcp_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    text = f"{DOCUMENTED.replace('HOST', f'localhost:{free_tcp_port}')}TransportType=AmqpWebSockets"
    async with namespace_of(Connection(text), tmp_path) as namespace:
        with pytest.raises(Exception, match="Nothing listens at localhost"):
            await namespace.entity("orders").peek(1)
    gc.collect()
    assert "Unclosed" not in caplog.text


@pytest.mark.parametrize("host", ["::1", "::", "fe80::1"])
def test_an_emulator_is_not_at_an_ipv6_address(host: str) -> None:
    with pytest.raises(ConfigurationError, match="which azure-servicebus cannot read in a connection string: use"):
        EmulatorServer(host=host)
