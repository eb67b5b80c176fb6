"""Clients that try to fill the emulator's memory, with and without a token, over one connection and over many."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from sbnotebook.amqp import AmqpValue, encode
from sbnotebook.emulator.amqp.performatives import (
    SENDER,
    Accepted,
    Attach,
    Begin,
    Disposition,
    Source,
    Target,
    Transfer,
)
from tests.emulator.corpus.generate import BEGUN, OPEN, frame
from tests.emulator.service.conftest import RawClient, token_request
from tests.security.attacked import AttackedEmulator, attacked

MOST_MORE = 40
"""Megabytes that an attack may add: a part of what it sends, however much that is."""
EMPTY_LISTS: list[AmqpValue] = [[] for _ in range(60_000)]


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedEmulator]:
    with attacked(tmp_path_factory.mktemp("memory")) as emulator:
        yield emulator


def attaching(handle: int, **fields: Any) -> bytes:
    given: dict[str, Any] = {"name": f"{handle}", "source": Source("x"), "target": Target("orders"), **fields}
    return frame(Attach(handle=handle, role=SENDER, initial_delivery_count=0, **given))


def begun(channel: int) -> bytes:
    return frame(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1), channel=channel)


# How many clients, what each sends first, and what it sends after that, for the numbers from 0 on.
ATTACKS: dict[str, tuple[int, bytes, int, Callable[[int], bytes]]] = {
    "names": (20, BEGUN, 50, lambda number: attaching(number, name=f"{number}".zfill(60_000))),
    "sources": (2, BEGUN, 10, lambda number: attaching(number, source=Source("x", filter={"x": EMPTY_LISTS}))),
    "properties": (2, BEGUN, 10, lambda number: attaching(number, properties={"x": EMPTY_LISTS})),
    "unfinished tokens": (20, BEGUN + attaching(0, target=Target("$cbs")), 50, lambda _: unfinished(bytes(60_000))),
    "sessions": (10, OPEN, 50, lambda number: b"".join(begun(80 * number + each) for each in range(80))),
}


def unfinished(payload: bytes, handle: int = 0) -> bytes:
    return frame(Transfer(handle=handle, delivery_id=0, delivery_tag=b"0", message_format=0, more=True), payload)


def attack(port: int, name: str, stack: ExitStack) -> None:
    """Send an attack over connections that stay open as long as the emulator lets them."""
    clients, prologue, count, part = ATTACKS[name]
    parts = [part(number) for number in range(count)]
    for _ in range(clients):
        client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
        client.settimeout(1)
        with suppress(OSError):
            client.sendall(prologue)
            for each in parts:
                client.sendall(each)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_client_without_a_token_fills_no_memory(name: str, emulator: AttackedEmulator) -> None:
    before = emulator.megabytes
    with ExitStack() as stack:
        attack(emulator.port, name, stack)
        works_for_others(emulator)
        assert emulator.megabytes - before < MOST_MORE


def test_messages_that_never_end_fill_no_memory(emulator: AttackedEmulator) -> None:
    before = emulator.megabytes
    with ExitStack() as stack:
        for _ in range(30):
            client = RawClient(emulator.connection_string)
            stack.callback(client.socket.close)
            with suppress(OSError):
                for handle in range(10):
                    client.write(Attach(name=f"{handle}", handle=handle, role=SENDER, target=Target("orders")))
                    client.socket.sendall(unfinished(bytes(65_000), handle) * 14)
        works_for_others(emulator)
        assert emulator.megabytes - before < 3 * MOST_MORE  # 270 MB were sent


def test_what_real_clients_send_is_taken(emulator: AttackedEmulator) -> None:
    client = RawClient(emulator.connection_string)
    long: dict[str, AmqpValue] = {"com.microsoft:x": "p" * 30_000, "other": ["x", "y"]}
    client.write(
        Attach(name="n" * 20_000, handle=0, role=SENDER, source=Source("x"), target=Target("orders"), properties=long)
    )
    assert client.read(Attach).target is not None
    assert client.transfer(b"\x00\x53\x75" + encode(bytes(1_000_000))).state == Accepted()
    client.socket.close()


def test_a_token_of_the_longest_kind_is_taken(emulator: AttackedEmulator) -> None:
    client = RawClient(emulator.connection_string, text=None)
    client.sender("$cbs")
    client.push(token_request("x" * 60_000))
    assert client.read(Disposition).settled
    client.socket.close()


def works_for_others(emulator: AttackedEmulator) -> None:
    """Connect as another client, and send a message."""
    client = RawClient(emulator.connection_string)
    client.sender("orders")
    assert client.transfer(b"\x00\x53\x75" + encode(bytes(200_000))).state == Accepted()
    client.socket.close()
