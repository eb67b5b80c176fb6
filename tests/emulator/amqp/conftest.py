from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import pytest

from sbnotebook.emulator.amqp.connection import AmqpConnection
from sbnotebook.emulator.amqp.frames import FrameReader, FrameWriter, HeldMemory, SharedMemory
from sbnotebook.emulator.amqp.link import Event, LinkState, ReceivingLink, SendingLink
from sbnotebook.emulator.amqp.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Flow,
    Open,
    Performative,
    Source,
    Target,
    Transfer,
    decode_composite,
    encode_composite,
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


class Peer:
    """A client that says what a test tells it to say, and shows what the server answered."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("held", trusted_memory())
        self.connection = AmqpConnection(**options)
        self._reader = FrameReader(2**31)

    def write(self, performative: Any, payload: bytes = b"", *, channel: int = 1) -> list[Event]:
        """Send one performative, and return the events that it leads to."""
        return self.write_bytes(frame(performative, payload, channel=channel))

    def write_bytes(self, data: bytes) -> list[Event]:
        self.connection.receive_data(data)
        events: list[Event] = []
        has_more = True
        while has_more:
            has_more = self.connection.read()
            events += self.take_events()
        return events

    def take_events(self) -> list[Event]:
        events = self.connection.events[:]
        self.connection.events.clear()
        return events

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
        self.write_bytes(AMQP_HEADER)
        assert self.connection.data_to_send() == AMQP_HEADER
        self.write(Open(container_id="peer", max_frame_size=max_frame_size), channel=0)
        self.write(Begin(next_outgoing_id=0, incoming_window=incoming_window, outgoing_window=1000))
        assert [type(each) for each in self.answers()] == [Open, Begin]
        return self

    def attaching(self, attach: Attach) -> ReceivingLink | SendingLink:
        """Return the server's link for this attach, not answered yet."""
        return attaching(self.write(attach))

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

    def flow(self, *, window: int = 1000, seen: int = 0, **link_state: Any) -> list[Event]:
        return self.write(
            Flow(next_incoming_id=seen, incoming_window=window, next_outgoing_id=0, outgoing_window=1000, **link_state)
        )

    def transfer(self, delivery_id: int | None, payload: bytes = b"", **fields: Any) -> list[Event]:
        tag = None if delivery_id is None else delivery_id.to_bytes(4, "big")
        given: dict[str, Any] = {
            "handle": 1,
            "delivery_id": delivery_id,
            "delivery_tag": tag,
            "message_format": 0,
        } | fields
        return self.write(Transfer(**given), payload)


def attaching(events: list[Event]) -> ReceivingLink | SendingLink:
    """Return the link that these events are about, which waits for an answer."""
    (link,) = events
    assert isinstance(link, ReceivingLink | SendingLink)
    assert link.state is LinkState.ATTACHING
    return link


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
