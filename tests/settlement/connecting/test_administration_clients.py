from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest
from azure.core.exceptions import AzureError

from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.settlement.connecting.administration_clients import administration_client, async_administration_client

AZURE = "Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=n;SharedAccessKey=a2V5"


@pytest.fixture
def emulator() -> Iterator[RunningEmulator]:
    with running(queues=["orders"]) as emulator:
        yield emulator


def test_namespace_in_azure_is_reached_over_tls() -> None:
    first_bytes: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def listen() -> None:
            connection, _ = listener.accept()
            with connection:
                first_bytes.append(connection.recv(1))

        thread = threading.Thread(target=listen)
        thread.start()
        text = AZURE.format(port=listener.getsockname()[1])
        with administration_client(text) as client, pytest.raises(AzureError):
            client.get_queue("orders", retry_total=0)
        thread.join(10)
    assert first_bytes == [b"\x16"]  # a TLS handshake (RFC 8446, section 5.1)


@pytest.mark.anyio
@pytest.mark.parametrize(("host", "elsewhere"), [("127.0.0.1", "localhost"), ("localhost", "127.0.0.1")])
async def test_a_redirect_to_elsewhere_stays_encrypted(host: str, elsewhere: str) -> None:
    first_bytes: list[bytes] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first_bytes.append(await reader.read(1))
        writer.close()

    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10_000)
        location = f"https://{elsewhere}:{listening.sockets[0].getsockname()[1]}/"
        writer.write(f"HTTP/1.1 307 Elsewhere\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async with (
        await asyncio.start_server(note, "127.0.0.1") as listening,
        await asyncio.start_server(redirect, "127.0.0.1") as redirecting,
    ):
        here = f"{host}:{redirecting.sockets[0].getsockname()[1]}"
        text = f"{AZURE.replace('127.0.0.1:{port}', here)};UseDevelopmentEmulator=true"
        async with async_administration_client(text, retry_total=0) as client:
            with pytest.raises(AzureError):
                await client.get_queue("orders")
    assert first_bytes == [b"\x16"]  # a TLS handshake, as above


@pytest.mark.anyio
async def test_a_proxy_of_the_environment_is_not_asked(
    emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        with administration_client(emulator.connection_string) as client:
            assert client.get_queue("orders", read_timeout=5).name == "orders"
        async with async_administration_client(emulator.connection_string) as with_await:
            assert (await with_await.get_queue("orders", read_timeout=5)).name == "orders"
