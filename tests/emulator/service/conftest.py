"""An AMQP client of our own, for what the SDK never sends."""

from __future__ import annotations

import hmac
import socket
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import quote_plus

import pytest

from sbnotebook.amqp import AmqpValue, encode
from sbnotebook.emulator import ManualClock, QueueOptions, RunningEmulator, running
from sbnotebook.emulator.amqp.frames import OFFER, OUTCOMES, SASL_FRAME, FrameReader, FrameWriter, SaslInit
from sbnotebook.emulator.amqp.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
    decode_composite,
    encode_composite,
)
from sbnotebook.emulator.entities.options import SubscriptionOptions, TopicOptions
from tests.emulator.service.transaction_client import TransactionClient, Work

T = TypeVar("T")
_CHUNK = 65_000


ROOT_KEY = ("RootManageSharedAccessKey", "SAS_KEY_VALUE")


def token(path: str = "", *, key_name: str = ROOT_KEY[0], key: str = ROOT_KEY[1], end: float | None = None) -> str:
    """A shared access signature for a path, as the documentation of Service Bus makes it.

    Args:
        path: of the entity; "" for the namespace.
        key_name: name of the key.
        key: what it is signed with.
        end: seconds since 1970 when it expires; None for an hour from now.
    """
    scope, seconds = quote_plus(f"sb://127.0.0.1/{path}"), round(time.time() + 3600 if end is None else end)
    digest = hmac.digest(key.encode(), f"{scope}\n{seconds}".encode(), "sha256")
    return f"SharedAccessSignature sr={scope}&sig={quote_plus(b64encode(digest))}&se={seconds}&skn={key_name}"


def token_request(text: AmqpValue, message_id: AmqpValue = None, reply_to: str | None = None) -> bytes:
    """The message that puts a token."""
    return b"".join(
        (
            b"\x00\x53\x73" + encode([message_id, None, None, None, reply_to]),
            b"\x00\x53\x74" + encode({"operation": "put-token"}),
            b"\x00\x53\x77" + encode(text),
        )
    )


class RawClient:
    """Frames in and out over a real socket: one session on channel 0.

    Args:
        connection_string: where it connects to.
        idle_time_out: ms after which it wants to hear something.
        text: the token that it begins with; "" for one for the whole namespace, None for none.
        log_in: name and key for SASL PLAIN; None for no SASL.
    """

    def __init__(
        self,
        connection_string: str,
        *,
        idle_time_out: int | None = None,
        text: str | None = "",
        log_in: tuple[str, str] | None = None,
    ) -> None:
        port = int(connection_string.split(";", maxsplit=1)[0].rsplit(":", 1)[1])
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = FrameReader(2**31)
        self._writer = FrameWriter()
        if log_in is not None:
            self._log_in(*log_in)
        self.socket.sendall(b"AMQP\x00\x01\x00\x00")
        self.write(Open(container_id="raw", idle_time_out=idle_time_out))
        self.write(Begin(next_outgoing_id=0, incoming_window=1000, outgoing_window=1000))
        assert self.socket.recv(8, socket.MSG_WAITALL) == b"AMQP\x00\x01\x00\x00"
        self.opened = self.read(Open)
        self.read(Begin)
        if text is not None:
            self.put_token(text or token())

    def _log_in(self, name: str, key: str) -> None:
        init = encode_composite(SaslInit("PLAIN", f"\0{name}\0{key}".encode()))
        self._writer.write(0, init, kind=SASL_FRAME)
        self.socket.sendall(b"AMQP\x03\x01\x00\x00" + self._writer.take())
        assert self.socket.recv(8, socket.MSG_WAITALL) == b"AMQP\x03\x01\x00\x00"
        assert self.read_frame() == OFFER
        if self.read_frame() != OUTCOMES[True]:
            raise PermissionError

    def put_token(self, text: str) -> None:
        """In a session of its own, so that the numbers of links and deliveries begin at 0 in the other."""
        self.write(Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10), channel=1)
        cbs = Source("$cbs"), Target("$cbs")
        for handle, role in enumerate((SENDER, RECEIVER)):
            given: dict[str, Any] = {"source": cbs[0], "target": cbs[1], "initial_delivery_count": 0}
            self.write(Attach(name=f"cbs {handle}", handle=handle, role=role, **given), channel=1)
            self.read(Attach)
        window: dict[str, Any] = {"next_incoming_id": 0, "incoming_window": 10, "next_outgoing_id": 0}
        self.write(Flow(**window, outgoing_window=10, handle=1, link_credit=1, delivery_count=0), channel=1)
        put = Transfer(handle=0, delivery_id=0, delivery_tag=b"0", message_format=0, settled=True)
        self.write(put, token_request(text), channel=1)
        self.read(Transfer)
        self.write(End(), channel=1)
        self.read(End)

    def write(self, performative: Any, payload: bytes = b"", channel: int = 0) -> None:
        # A message that is too large for a frame is cut into several.
        while len(payload) > _CHUNK:
            self._writer.write(channel, encode_composite(replace(performative, more=True)), payload[:_CHUNK])
            payload = payload[_CHUNK:]
        self._writer.write(channel, encode_composite(performative), payload)
        self.socket.sendall(self._writer.take())

    def read_frame(self) -> bytes:
        """The body of the next frame."""
        while (frame := self._reader.next_frame()) is None:
            data = self.socket.recv(65_536)
            assert data, "the emulator has closed the connection"
            self._reader.receive(data)
        return frame[2]

    def read(self, kind: type[T]) -> T:
        """The next performative of a kind, the others passed over."""
        while True:
            body = self.read_frame()
            performative = decode_composite(body)[0] if body else None
            if isinstance(performative, kind):
                return performative

    def read_message(self) -> bytes:
        """The payload of the next message, whose frame is the only one."""
        while True:
            frame = self.read_frame()
            performative, end = decode_composite(frame)
            if isinstance(performative, Transfer):
                return frame[end:]

    def sender(self, address: str, handle: int = 0) -> Attach:
        """Attach a link that sends; the answer."""
        self.write(Attach(name=f"to {handle}", handle=handle, role=SENDER, source=Source("x"), target=Target(address)))
        return self.read(Attach)

    def receiver(self, address: str, handle: int = 1, target: str | None = "x", **fields: Any) -> Attach:
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


@pytest.fixture
def transaction_emulator(clock: ManualClock) -> Iterator[RunningEmulator]:
    """Has queues of each kind, and the topic ``events`` with the subscription ``audit``."""
    orders = QueueOptions(30_000, 10)
    queues: dict[str, QueueOptions | None] = {
        "orders": orders,
        "bills": orders,
        "parts": QueueOptions(enable_partitioning=True),
        "talks": QueueOptions(requires_session=True),
        "once": QueueOptions(requires_duplicate_detection=True),
    }
    with running(queues=queues, clock=clock) as emulator:
        emulator.create_topic("events", TopicOptions())
        emulator.create_subscription("events", "audit", SubscriptionOptions(lock_duration=30_000))
        yield emulator


@pytest.fixture
def work(connect: Connect) -> Work:
    """Connect a client with a control link."""

    def work(*, control: bool = True) -> TransactionClient:
        return TransactionClient(connect(), control=control)

    return work
