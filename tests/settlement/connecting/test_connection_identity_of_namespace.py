from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus.exceptions import ServiceBusConnectionError

from sbnotebook.emulator import running
from sbnotebook.model import Complete, Defer, Message
from sbnotebook.model.connection_strings import canonical_host
from sbnotebook.settlement import AsyncNamespace, Connection
from sbnotebook.settlement.connecting import connection
from sbnotebook.settlement.connecting.connection import identity_of
from sbnotebook.settlement.memory.journal import ResubmitEntry
from tests.other_emulators import silent, stranger
from tests.settlement.deferrals import deferrals_of
from tests.settlement.namespaces import namespace_of

HOST = "shop.servicebus.windows.net"
KEY = "SharedAccessKeyName=n;SharedAccessKey=a2V5"


def says(**answer: str) -> bytes:
    """Return the answer of an emulator that is asked for its identity."""
    body = json.dumps(answer).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


@pytest.mark.parametrize(
    ("host", "canonical"),
    [
        (HOST, HOST),
        ("SHOP.ServiceBus.windows.net", HOST),
        (f"{HOST}.", HOST),
        (f"{HOST}:5671", HOST),
        (f"{HOST}.:443", HOST),
        (f"{HOST}:9000", f"{HOST}:9000"),
        ("localhost", "localhost"),
        ("127.0.0.1:5672", "localhost"),
        ("[::1]", "localhost"),
        ("[::1]:5671", "localhost:5671"),
        ("[fe80::1]:5672", "[fe80::1]"),
    ],
)
def test_a_host_has_one_spelling(host: str, canonical: str) -> None:
    assert canonical_host(host) == canonical


@pytest.mark.parametrize("endpoint", [f"sb://{HOST.upper()}/", f"sb://{HOST}.:5671", HOST])
def test_a_namespace_in_azure_is_known_by_its_host(endpoint: str) -> None:
    assert identity_of(Connection(f"Endpoint={endpoint};{KEY}")) == HOST


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1"])
def test_an_emulator_is_the_same_by_every_name(host: str) -> None:
    with running() as emulator:
        port = emulator.http_url.rpartition(":")[2]
        spelled = Connection(f"Endpoint=sb://{host}:{port};{KEY};UseDevelopmentEmulator=true;")
        assert identity_of(spelled) == identity_of(Connection(emulator.connection_string))
        assert identity_of(spelled).startswith("emulator:")


def test_each_emulator_in_memory_has_its_own() -> None:
    with running() as one, running() as other:
        first, second = (identity_of(Connection(each.connection_string)) for each in (one, other))
        assert first != second
        one.reset()
        assert identity_of(Connection(one.connection_string)) != first


@pytest.mark.parametrize(
    "answer",
    [
        b"AMQP\x00\x01\x00\x00",
        b"",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"id": "*"}',
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK",
        says(id=""),
        says(id="a-b"),
        says(id="a" * 101),
    ],
)
def test_an_emulator_without_identity_is_known_by_its_address(answer: bytes) -> None:
    with stranger(answer) as quiet:
        port = (quiet.host or "").rpartition(":")[2]
        assert identity_of(quiet) == f"address:localhost:{port}"


@pytest.mark.parametrize("name", ["a", "a" * 100])
def test_an_emulator_says_its_identity(name: str) -> None:
    with stranger(says(id=name)) as quiet:
        assert identity_of(quiet) == f"emulator:{name}"


@pytest.mark.parametrize(("host", "name"), [("localhost", "localhost"), ("127.0.0.1:5673", "127.0.0.1")])
def test_an_emulator_has_a_port_by_default(host: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def refuse(address: object, *_: object, **__: object) -> None:
        asked.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(ServiceBusConnectionError, match="does not answer"):
        identity_of(Connection(f"Endpoint=sb://{host};{KEY};UseDevelopmentEmulator=true;"))
    assert asked == [(name, 5673 if host.endswith("3") else 5672)]


def test_an_emulator_that_resets_http_has_its_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def reset() -> None:
            client, _ = server.accept()
            client.recv(8)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()

        threading.Thread(target=reset, daemon=True).start()
        port = server.getsockname()[1]
        found = identity_of(Connection(f"Endpoint=sb://127.0.0.1:{port};{KEY};UseDevelopmentEmulator=true;"))
    assert found == f"address:localhost:{port}"


@pytest.mark.parametrize("at_once", [True, False])
def test_silence_about_http_is_no_failure(at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_ANSWERS_WITHIN", 60.0 if at_once else 1.0)
    with silent(speaks=b"AMQP\x03\x01\x00\x00", at_once=at_once) as quiet:
        began = time.monotonic()
        assert identity_of(quiet).startswith("address:localhost:")
        assert not at_once or time.monotonic() - began < 30, "its header is an answer"


def test_an_emulator_that_answers_nothing_is_not_guessed_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_ANSWERS_WITHIN", 0.2)
    with silent() as quiet, pytest.raises(ServiceBusConnectionError, match="does not answer"):
        identity_of(quiet)


@asynccontextmanager
async def restarted(folder: Path) -> AsyncGenerator[AsyncNamespace]:
    """The emulator of one data directory, on any free port, with the same files of the user."""
    with running(queues=["orders"], data_dir=folder / "emulator") as emulator:
        async with namespace_of(emulator, folder) as namespace:
            yield namespace


@pytest.mark.anyio
async def test_what_is_remembered_survives_another_port(tmp_path: Path) -> None:
    async with restarted(tmp_path) as namespace:
        hosts, queue = {namespace.host}, namespace.entity("orders")
        (await queue.send([Message(message_id=name) for name in "123"])).raise_for_failures()
        async with queue.batch() as batch:
            first, second, third = await batch.receive(3)
            await batch.settle(Complete(), [first])
            await batch.settle(Defer(), [second])
        namespace.tables.write_note("cause", "a note")
        namespace.tables.remember_done([third])
        namespace.journal.intend([ResubmitEntry(namespace.identity(), "orders", 3, "3", "orders", "3~1")])
    async with restarted(tmp_path) as namespace:
        assert namespace.host not in hosts
        queue = namespace.entity("orders")
        assert list((await deferrals_of(queue)).entries) == [2]
        assert namespace.tables.notes() == {"cause": "a note"}
        assert namespace.tables.done_at([third], timedelta(days=1))
        assert len(await namespace.resume()) == 1
        assert len((await namespace.undo(entity="orders")).messages) == 1
