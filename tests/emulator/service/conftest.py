"""An AMQP client of our own, for what the SDK never sends."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from sbnotebook.emulator import RunningEmulator
from sbnotebook.emulator.amqp import Source, Target
from sbnotebook.emulator.amqp.composites import decode_composite, encode_composite
from sbnotebook.emulator.amqp.frames import FrameReader, FrameWriter
from sbnotebook.emulator.amqp.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Detach,
    Disposition,
    Flow,
    Open,
    Transfer,
)

T = TypeVar("T")


class RawClient:
    """Frames in and out over a real socket: no SASL, one session on channel 0."""

    def __init__(self, connection_string: str, *, idle_time_out: int | None = None) -> None:
        port = int(connection_string.split(";", maxsplit=1)[0].rsplit(":", 1)[1])
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self._reader = FrameReader(2**31)
        self._writer = FrameWriter()
        self.socket.sendall(b"AMQP\x00\x01\x00\x00")
        self.write(Open(container_id="raw", idle_time_out=idle_time_out))
        self.write(Begin(next_outgoing_id=0, incoming_window=1000, outgoing_window=1000))
        assert self.socket.recv(8, socket.MSG_WAITALL) == b"AMQP\x00\x01\x00\x00"
        self.read(Begin)

    def write(self, performative: Any, payload: bytes = b"") -> None:
        self._writer.write(0, encode_composite(performative), payload)
        self.socket.sendall(self._writer.take())

    def read_frame(self) -> bytes:
        """The body of the next frame."""
        while (frame := self._reader.next_frame()) is None:
            data = self.socket.recv(65_536)
            assert data, "the emulator has closed the connection"
            self._reader.receive(data)
        return frame.body

    def read(self, kind: type[T]) -> T:
        """The next performative of a kind, the others passed over."""
        while True:
            body = self.read_frame()
            performative = decode_composite(body)[0] if body else None
            if isinstance(performative, kind):
                return performative

    def sender(self, address: str, handle: int = 0) -> Attach:
        """Attach a link that sends; the answer."""
        self.write(Attach(name=f"to {handle}", handle=handle, role=SENDER, source=Source("x"), target=Target(address)))
        return self.read(Attach)

    def receiver(self, address: str, handle: int = 1, target: str = "x", **fields: Any) -> Attach:
        """Attach a link that receives; the answer."""
        given: dict[str, Any] = {"source": Source(address), "target": Target(target), **fields}
        self.write(Attach(name=f"from {handle}", handle=handle, role=RECEIVER, initial_delivery_count=0, **given))
        return self.read(Attach)

    def flow(self, handle: int, credit: int, **fields: Any) -> None:
        given: dict[str, Any] = {"next_incoming_id": 0, "incoming_window": 10_000, "delivery_count": 0, **fields}
        self.write(Flow(next_outgoing_id=0, outgoing_window=1000, handle=handle, link_credit=credit, **given))

    def transfer(self, payload: bytes, delivery_id: int = 0, **fields: Any) -> Disposition:
        """Send a message on the link 0; the answer."""
        self.push(payload, delivery_id, **fields)
        return self.read(Disposition)

    def push(self, payload: bytes, delivery_id: int = 0, **fields: Any) -> None:
        """Send a message on the link 0 without waiting for an answer."""
        given: dict[str, Any] = {"message_format": 0, "settled": False, **fields}
        tag = delivery_id.to_bytes(4)
        self.write(Transfer(handle=0, delivery_id=delivery_id, delivery_tag=tag, **given), payload)

    def refusal(self) -> str:
        """Condition and description of the detach that follows a refused attach."""
        error = self.read(Detach).error
        assert error is not None
        return f"{error.condition} {error.description}"


Connect = Callable[..., RawClient]


@pytest.fixture
def connect(emulator: RunningEmulator) -> Iterator[Connect]:
    """Connect a client of our own to the emulator."""
    clients: list[RawClient] = []

    def connect(**options: Any) -> RawClient:
        clients.append(RawClient(emulator.connection_string, **options))
        return clients[-1]

    yield connect
    for client in clients:
        client.socket.close()
