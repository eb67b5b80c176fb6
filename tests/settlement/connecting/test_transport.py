from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from azure.servicebus._pyamqp.aio import _connection_async  # pyright: ignore[reportPrivateUsage]
from azure.servicebus.exceptions import ServiceBusConnectionError

from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Complete, EntityAddress, Message
from sbnotebook.settlement import AsyncNamespace, Connection, Journal
from sbnotebook.settlement.connecting.transport import VARIABLE, is_over_websocket
from sbnotebook.settlement.sdk import links

AZURE = "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccessKey=a2V5"


def test_the_connection_string_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_over_websocket(AZURE)
    assert is_over_websocket(f"{AZURE};TransportType=AmqpWebSockets")
    monkeypatch.setenv(VARIABLE, "websocket")
    assert is_over_websocket(None)
    assert is_over_websocket(AZURE)
    assert not is_over_websocket(f"{AZURE};transporttype = amqp ;")
    assert not is_over_websocket("UseDevelopmentEmulator=true", is_emulator=True)
    monkeypatch.setenv(VARIABLE, "pigeon")
    with pytest.raises(ConfigurationError, match="SBNOTEBOOK_TRANSPORT is websocket for port 443, or amqp"):
        is_over_websocket(AZURE)


@pytest.mark.anyio
async def test_websocket_carries_every_operation(
    emulator: RunningEmulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The SDK knows port 443 only, which nobody may listen on here.
    port = urlsplit(emulator.connection_string.split(";")[0].removeprefix("Endpoint=")).port
    monkeypatch.setattr(_connection_async, "WEBSOCKET_PORT", port)
    connection = Connection(f"{emulator.connection_string.rstrip(';')};TransportType=AmqpWebSockets")
    journal = Journal(tmp_path / "journal.sqlite")
    async with AsyncNamespace(connection, journal=journal, archive=False) as namespace:
        await namespace.create_queue("orders")
        queue = namespace.entity("orders")
        assert (await queue.send([Message(body=bytes(100_000)) for _ in range(30)])).ok
        async with queue.batch() as batch:
            held = await batch.receive(20)
            assert (await batch.settle(Complete(), held[:10])).ok
        assert batch.release_report is not None
        assert batch.release_report.ok
        assert [message.delivery_count for message in await queue.peek()] == [0] * 20
    monkeypatch.setattr(_connection_async, "WEBSOCKET_PORT", 1)
    with pytest.raises(ServiceBusConnectionError, match="websocket"):
        await links.reopen(connection.sender(EntityAddress("orders")))
