"""Clients that take all of the emulator's connections, never end what they began, or write into its log."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import aiohttp
import pytest

from sbnotebook.amqp import encode
from sbnotebook.emulator.amqp.performatives import SENDER, Accepted, Close, Error
from sbnotebook.emulator.process import PROOF, prove_lease
from sbnotebook.emulator.server import EmulatorServer
from sbnotebook.emulator.service import broker
from sbnotebook.emulator.service.peer import WEBSOCKET_PATH
from tests.emulator.corpus.generate import BEGUN, OPEN, attach
from tests.emulator.service.conftest import RawClient
from tests.security.attacked import AttackedEmulator, attacked

LEASE = b"GET /lease HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedEmulator]:
    with attacked(tmp_path_factory.mktemp("connections"), files=256) as emulator:
        yield emulator


def connected(port: int, data: bytes, stack: ExitStack) -> socket.socket:
    client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
    with suppress(OSError):
        client.sendall(data)
    return client


@pytest.mark.parametrize("greeting", [LEASE, b"", b"AMQP\x00\x01\x00\x00", b"GET / HTTP/1.1\r\n"])
def test_no_one_client_takes_all_connections(greeting: bytes, emulator: AttackedEmulator) -> None:
    with ExitStack() as stack:
        others = [RawClient(emulator.connection_string) for _ in range(3)]
        for _ in range(300):
            connected(emulator.port, greeting, stack)
        others.append(RawClient(emulator.connection_string))
        for other in others:  # older ones keep their place
            stack.callback(other.socket.close)
            other.sender("orders")
            assert other.transfer(b"\x00\x53\x75" + encode(b"x")).state == Accepted()


def test_malformed_bytes_do_not_fill_the_log(tmp_path: Path) -> None:
    with attacked(tmp_path) as emulator:
        for number in range(800):
            with ExitStack() as stack:
                connected(emulator.port, b"\x16\x03" if number % 2 else OPEN + b"\0\0\0\4\2\0\0\0", stack).recv(100)
        text = emulator.log.read_text(encoding="utf-8")
    assert 0 < len(text.splitlines()) < 250
    assert len(text) < 50_000


def test_a_client_writes_no_lines_into_the_log(tmp_path: Path) -> None:
    with attacked(tmp_path) as emulator:
        client = RawClient(emulator.connection_string)
        client.write(Close(error=Error("x", "bye\n2026-11-22 CRITICAL all is lost\x1b[2J\u202e" + "x" * 50_000)))
        client.read(Close)
        client.socket.close()
        until = time.monotonic() + 10  # it is logged when the connection is gone, after the answer
        while "bye" not in (text := emulator.log.read_text(encoding="utf-8")) and time.monotonic() < until:
            time.sleep(0.01)
    assert "bye\\n2026-11-22 CRITICAL all is lost\\x1b[2J\\u202e" in text
    assert len(text) < 5000
    assert text.replace("\n", "").isprintable()


@pytest.mark.anyio
async def test_a_proven_lease_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "_MOST_HTTP", 3)
    async with EmulatorServer() as server, aiohttp.ClientSession(server.http_url) as http:
        proven = await http.get("/lease", headers={PROOF: prove_lease(server.broker.secret)})
        taken = [await http.get("/lease", headers={PROOF: "00"}) for _ in range(5)]
        for lease in (proven, *taken):
            with suppress(aiohttp.ClientError):
                assert await lease.content.readline() == b"held\n"
        with pytest.raises(aiohttp.ClientError):
            await taken[0].content.readline()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(proven.content.readline(), 0.1)
        for lease in (proven, *taken):
            lease.close()


@pytest.mark.anyio
async def test_a_body_that_never_comes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbnotebook.emulator.service.http_app._BODY_TIMEOUT", 0.2)
    async with EmulatorServer() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = (
            b"POST /faults HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
        )
        writer.write(head + b"{")
        assert b" 408 " in await asyncio.wait_for(reader.readline(), 30)
        writer.close()


@pytest.mark.anyio
async def test_a_request_without_a_key_is_refused_before_its_body() -> None:
    async with EmulatorServer() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"PUT /orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n")
        assert b" 401 " in await asyncio.wait_for(reader.readline(), 5)
        writer.close()


@pytest.mark.anyio
async def test_a_body_has_a_limit() -> None:
    async with EmulatorServer() as server, aiohttp.ClientSession(server.http_url) as http:
        text = '{"x": "' + "x" * 300_000 + '"}'
        async with http.post("/faults", data=text, headers={"Content-Type": "application/json"}) as answer:
            assert answer.status == 413


@pytest.mark.anyio
async def test_a_websocket_message_has_a_limit() -> None:
    async with EmulatorServer() as server, aiohttp.ClientSession(server.http_url) as http:
        socket = await http.ws_connect(WEBSOCKET_PATH, protocols=["AMQPWSB10"])
        with suppress(ConnectionError):
            await socket.send_bytes(BEGUN + bytes(1_000_000))
        message = await asyncio.wait_for(socket.receive(), 30)
        assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, aiohttp.WSCloseCode.MESSAGE_TOO_BIG)


@pytest.mark.anyio
async def test_a_client_that_does_not_read_its_answers_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbnotebook.emulator.server._DEAF", 0.2)
    async with EmulatorServer(queues=[f"queue-{number}" for number in range(1000)]) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(b"GET /entities HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)
        async with asyncio.timeout(20):
            while len(server.broker.connections):  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.05)
        writer.close()


@pytest.mark.anyio
async def test_others_have_their_turn_while_much_is_read() -> None:
    async with EmulatorServer(queues=["orders"]) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(BEGUN + b"".join(attach(handle, SENDER, "$cbs") for handle in range(1000)))
        counts: set[int] = set()
        async with asyncio.timeout(30):
            while 1000 not in counts:
                counts |= {len(peer.handlers) for peer in server.broker.peers}
                await asyncio.sleep(0)
        writer.close()
    assert len(counts) > 3
