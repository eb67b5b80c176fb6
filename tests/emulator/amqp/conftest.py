from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pytest

from sbnotebook.emulator.amqp.composites import decode_composite, encode_composite
from sbnotebook.emulator.amqp.connection import AmqpConnection
from sbnotebook.emulator.amqp.frames import FrameReader, FrameWriter
from sbnotebook.emulator.amqp.held import HeldMemory, SharedMemory
from sbnotebook.emulator.amqp.link import (
    DispositionReceived,
    Event,
    LinkState,
    ReceivingLink,
    SendingLink,
    TransferReceived,
)
from sbnotebook.emulator.amqp.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Error,
    Flow,
    Open,
    Performative,
    Source,
    Target,
    Transfer,
)

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SENDING_ATTACH = Attach(
    name="to-orders",
    handle=1,
    role=SENDER,
    snd_settle_mode=0,
    rcv_settle_mode=1,
    source=Source("sender-link-1"),
    target=Target("orders"),
    initial_delivery_count=0,
)
RECEIVING_ATTACH = Attach(
    name="from-orders",
    handle=2,
    role=RECEIVER,
    snd_settle_mode=0,
    rcv_settle_mode=1,
    source=Source("orders"),
    target=Target("receiver-link-1"),
)

_Kind = TypeVar("_Kind")


def trusted_memory() -> HeldMemory:
    """Of a connection that has shown a token, and shares its memory with no other."""
    shared = SharedMemory()
    shared.state.limit = shared.messages.limit = 2**40
    held = HeldMemory(shared, lambda _reason: None)
    held.trust()
    return held


@dataclass(frozen=True)
class LinkAttaching:
    """The peer wants a link."""

    link: ReceivingLink | SendingLink


@dataclass(frozen=True)
class CreditChanged:
    """The peer changed the credit of a link."""

    link: SendingLink


@dataclass(frozen=True)
class LinkDetached:
    """A link is gone."""

    link: ReceivingLink | SendingLink


@dataclass(frozen=True)
class ConnectionClosed:
    """No more is read."""

    error: Error | None


Told = TransferReceived | DispositionReceived | LinkAttaching | CreditChanged | LinkDetached | ConnectionClosed


def told(event: Event) -> Told:
    """Say what an event means now: the state of a link tells it."""
    if isinstance(event, TransferReceived | DispositionReceived):
        return event
    if event.state is LinkState.ATTACHING:
        return LinkAttaching(event)
    if event.attached:
        assert isinstance(event, SendingLink)
        return CreditChanged(event)
    return LinkDetached(event)


class Connection(AmqpConnection):
    """A connection that reads all that comes in, and records what it tells its owner."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._told: list[Told] = []
        self._has_told_the_end = False

    def receive_data(self, data: bytes) -> None:
        """Take bytes, and read all of them."""
        super().receive_data(data)
        has_more = True
        while has_more:
            has_more = self.read()
            self._told += map(told, self.events)
            self.events.clear()

    def events_received(self) -> list[Told]:
        """Return what the connection has told since the last call, and at last that it is closed."""
        found = [*self._told, *map(told, self.events)]
        self._told, self.events[:] = [], []
        if self.is_closed and not self._has_told_the_end:
            self._has_told_the_end = True
            found.append(ConnectionClosed(self.error))
        return found


class Peer:
    """A client that says what a test tells it to say, and shows what the server answered."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("held", trusted_memory())
        self.connection = Connection(**options)
        self._reader = FrameReader(2**31)

    def write(self, performative: Any, payload: bytes = b"", *, channel: int = 1) -> list[Told]:
        """Send one performative; what the server makes of it."""
        return self.write_bytes(frame(performative, payload, channel=channel))

    def write_bytes(self, data: bytes) -> list[Told]:
        self.connection.receive_data(data)
        return self.connection.events_received()

    def read(self) -> list[tuple[Any, bytes]]:
        """The performatives, with their payloads, that the server sent since the last call."""
        return [split_body(body) for body in self.read_bodies()]

    def read_bodies(self) -> list[bytes]:
        """The bodies of the frames that the server sent since the last call."""
        self._reader.receive(self.connection.data_to_send())
        return [each[2] for each in iter(self._reader.next_frame, None)]

    def answers(self) -> list[Any]:
        return [performative for performative, _ in self.read()]

    def answer(self, kind: type[_Kind]) -> _Kind:
        """The one performative that the server sent, which is of this kind."""
        (found,) = self.answers()
        assert isinstance(found, kind)
        return found

    def open(self, *, max_frame_size: int = 65_536, incoming_window: int = 1000) -> Peer:
        """Open the connection, and one session on channel 1."""
        self.connection.receive_data(AMQP_HEADER)
        assert self.connection.data_to_send() == AMQP_HEADER
        self.write(Open(container_id="peer", max_frame_size=max_frame_size), channel=0)
        self.write(Begin(next_outgoing_id=0, incoming_window=incoming_window, outgoing_window=1000))
        assert [type(each) for each in self.answers()] == [Open, Begin]
        return self

    def attaching(self, attach: Attach) -> ReceivingLink | SendingLink:
        """Return the server's link for this attach, not answered yet."""
        (event,) = self.write(attach)
        assert isinstance(event, LinkAttaching)
        return event.link

    def sender(self, *, handle: int = 1, max_message_size: int = 0) -> ReceivingLink:
        """Attach a link on which the peer sends: the server's end of it."""
        link = self.attaching(replace(SENDING_ATTACH, handle=handle, name=f"to-{handle}"))
        assert isinstance(link, ReceivingLink)
        link.accept(max_message_size=max_message_size)
        self.answer(Attach)
        return link

    def receiver(self, *, handle: int = 2, credit: int = 0) -> SendingLink:
        """Attach a link on which the peer receives, with this credit: the server's end of it."""
        link = self.attaching(replace(RECEIVING_ATTACH, handle=handle, name=f"from-{handle}"))
        assert isinstance(link, SendingLink)
        link.accept()
        self.answer(Attach)
        if credit:
            self.flow(handle=handle, delivery_count=0, link_credit=credit)
        return link

    def flow(self, *, window: int = 1000, seen: int = 0, **link_state: Any) -> list[Told]:
        return self.write(
            Flow(next_incoming_id=seen, incoming_window=window, next_outgoing_id=0, outgoing_window=1000, **link_state)
        )

    def transfer(self, delivery_id: int | None, payload: bytes = b"", **fields: Any) -> list[Told]:
        tag = None if delivery_id is None else delivery_id.to_bytes(4, "big")
        given: dict[str, Any] = {
            "handle": 1,
            "delivery_id": delivery_id,
            "delivery_tag": tag,
            "message_format": 0,
        } | fields
        return self.write(Transfer(**given), payload)


def split_body(body: bytes) -> tuple[Any, bytes]:
    """The performative of a frame, and its payload."""
    performative, end = decode_composite(body)
    return performative, body[end:]


def frame(performative: Performative, payload: bytes = b"", *, channel: int = 1) -> bytes:
    writer = FrameWriter()
    writer.write(channel, encode_composite(performative), payload)
    return writer.take()


@pytest.fixture
def peer() -> Peer:
    """A peer with an open connection and one session."""
    return Peer().open()
