from __future__ import annotations

from typing import Any

import pytest

from sbnotebook.amqp import Described, Symbol, ULong, encode
from sbnotebook.emulator.amqp.frames import EMPTY_FRAME, HEADER_SIZE, OFFER, OUTCOMES, SASL_FRAME, FrameWriter
from sbnotebook.emulator.amqp.link import LinkState, TransferReceived
from sbnotebook.emulator.amqp.performatives import Begin, Close, Detach, End, Error, Open, Transfer
from tests.emulator.amqp.conftest import (
    AMQP_HEADER,
    SENDING_ATTACH,
    Peer,
    frame,
)

SASL_HEADER = b"AMQP\x03\x01\x00\x00"


def _sasl_init(mechanism: str = "ANONYMOUS") -> bytes:
    return _sasl_frame(encode(Described(ULong(0x41), [Symbol(mechanism), b"", "localhost"])))


def _sasl_frame(body: bytes) -> bytes:
    writer = FrameWriter()
    writer.write(0, body, kind=SASL_FRAME)
    return writer.take()


def _error(peer: Peer) -> Error:
    """The reason in the close frame, which is the last thing that was sent."""
    assert peer.connection.is_closed
    close = peer.answers()[-1]
    assert isinstance(close, Close)
    assert close.error is not None
    return close.error


# ------------------------------------------------------------------------------------------ handshake


def test_the_handshake_byte_by_byte() -> None:
    peer = Peer()
    for data, answer in (
        (SASL_HEADER, SASL_HEADER + _sasl_frame(OFFER)),
        (_sasl_init(), _sasl_frame(OUTCOMES[True])),
        (AMQP_HEADER, AMQP_HEADER),
        (
            frame(Open(container_id="c"), channel=0),
            frame(Open(container_id="emulator", max_frame_size=65_536, channel_max=4095), channel=0),
        ),
    ):
        assert peer.write_bytes(data) == []
        assert peer.connection.data_to_send() == answer
    assert not peer.connection.is_closed


@pytest.mark.parametrize(
    "first",
    [b"AMQP\x00\x00\x09\x01", b"AMQP\x02\x01\x00\x00", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01"],
)
def test_another_protocol_is_answered_with_ours(first: bytes) -> None:
    peer = Peer()
    assert peer.write_bytes(first) == []
    assert peer.connection.data_to_send() == SASL_HEADER
    assert peer.connection.is_closed
    assert "does not speak AMQP 1.0" in str(peer.connection.error)


def test_sasl_is_done_once() -> None:
    peer = Peer()
    peer.write_bytes(SASL_HEADER + _sasl_init() + SASL_HEADER)
    assert peer.connection.is_closed


def test_an_amqp_frame_is_no_sasl_frame_and_the_other_way_round() -> None:
    peer = Peer()
    peer.write_bytes(SASL_HEADER + frame(Open(container_id="c")))
    assert peer.connection.is_closed
    peer = Peer()
    peer.write_bytes(AMQP_HEADER)
    assert peer.connection.data_to_send() == AMQP_HEADER
    peer.write_bytes(_sasl_init())
    assert "type 1" in str(_error(peer))


# ------------------------------------------------------------------------------------- open and close


def test_the_open_frame_reports_our_limits() -> None:
    peer = Peer(idle_timeout_ms=240_000)
    peer.write_bytes(AMQP_HEADER)
    peer.connection.data_to_send()
    assert peer.connection.peer_idle_timeout_ms == 0
    peer.write(Open(container_id="c", idle_time_out=60_000), channel=0)
    assert peer.connection.peer_idle_timeout_ms == 60_000
    assert peer.answer(Open) == Open(
        container_id="emulator", max_frame_size=65_536, channel_max=4095, idle_time_out=240_000
    )


def test_an_idle_time_out_of_zero_is_none() -> None:
    peer = Peer()
    peer.write_bytes(AMQP_HEADER + frame(Open(container_id="c", idle_time_out=0), channel=0))
    assert peer.connection.peer_idle_timeout_ms == 0


def test_empty_frames_keep_both_sides_alive(peer: Peer) -> None:
    assert peer.write_bytes(EMPTY_FRAME * 2) == []
    assert peer.connection.data_to_send() == b""
    peer.connection.heartbeat()
    assert peer.connection.data_to_send() == EMPTY_FRAME


def test_no_heartbeat_before_open_or_after_close() -> None:
    peer = Peer()
    peer.connection.heartbeat()
    assert peer.connection.data_to_send() == b""
    peer.open().connection.close()
    peer.read()
    peer.connection.heartbeat()
    assert peer.connection.data_to_send() == b""


def test_a_close_is_answered(peer: Peer) -> None:
    link = peer.sender()
    error = Error("amqp:connection:forced", "going home")
    assert peer.write(Close(error=error), channel=0) == [link]
    assert peer.answer(Close) == Close()
    assert peer.connection.is_closed
    assert peer.connection.error == error


def test_we_close(peer: Peer) -> None:
    link = peer.sender()
    error = Error("amqp:connection:forced", "The emulator stops.")
    peer.connection.close(error)
    peer.connection.close()
    assert peer.connection.events == [link]
    assert peer.connection.error == error
    assert peer.answer(Close) == Close(error=error)


def test_after_the_close_nothing_is_read(peer: Peer) -> None:
    peer.connection.close()
    peer.read()
    assert peer.write(SENDING_ATTACH) == []
    assert peer.write_bytes(b"garbage garbage") == []
    assert peer.answers() == []


def test_the_end_of_the_socket_closes(peer: Peer) -> None:
    link = peer.receiver()
    peer.connection.close()
    peer.connection.close()
    assert peer.connection.events == [link]
    assert peer.connection.is_closed
    assert peer.connection.error is None
    assert peer.answers() == [Close()]


# ----------------------------------------------------------------------------------------- violations


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (frame(Open(container_id="again"), channel=0), "amqp:not-allowed"),
        (
            frame(Begin(remote_channel=1, next_outgoing_id=0, incoming_window=0, outgoing_window=0), channel=2),
            "amqp:not-allowed",
        ),
        (frame(Begin(next_outgoing_id=0, incoming_window=0, outgoing_window=0), channel=4096), "amqp:not-allowed"),
        (bytes.fromhex("0010000102000000"), "amqp:connection:framing-error"),
        (bytes.fromhex("0000000702000000"), "amqp:connection:framing-error"),
        (bytes.fromhex("0000000802070000"), "amqp:connection:framing-error"),
        (bytes.fromhex("0000000902000001") + b"\x40", "amqp:decode-error"),
        (bytes.fromhex("0000000902000001") + b"\x3f", "amqp:decode-error"),
        (bytes.fromhex("0000000c02000001") + b"\x00\x53\x7f\x45", "amqp:decode-error"),
        (bytes.fromhex("0000000c02000009") + b"\x00\x53\x24\x45", "amqp:connection:framing-error"),
        (bytes.fromhex("0000000c02000001") + b"\x00\x53\x14\x45", "amqp:invalid-field"),
    ],
)
def test_a_violation_closes_the_connection_with_the_reason(peer: Peer, data: bytes, condition: str) -> None:
    link = peer.sender()
    events = peer.write_bytes(data)
    error = _error(peer)
    assert error.condition == condition
    assert error.description
    assert events == [link]
    assert peer.connection.error == error


def test_events_before_a_violation_still_come(peer: Peer) -> None:
    link = peer.sender()
    good = frame(Transfer(handle=1, delivery_id=0, delivery_tag=b"t"), b"payload")
    events = peer.write_bytes(good + b"\xff" * 8 + good)
    assert events == [TransferReceived(link, 0, 0, b"payload", settled=False), link]
    assert link.state is LinkState.ENDED


def test_frames_larger_than_ours_are_never_sent() -> None:
    peer = Peer(max_frame_size=1024)
    peer.open(max_frame_size=2**32 - 1)
    link = peer.receiver(credit=1)
    link.send(b"tag", b"x" * 5000)
    bodies = peer.read_bodies()
    assert max(map(len, bodies)) == 1024 - HEADER_SIZE
    assert sum(body.count(b"x") for body in bodies) == 5000


@pytest.mark.parametrize("last", [Detach(handle=1, closed=True), End(), Close()])
def test_the_sdk_s_way_to_leave(peer: Peer, last: Any) -> None:
    peer.sender()
    peer.write_bytes(frame(Detach(handle=1, closed=True)) + frame(last) + frame(Close(), channel=0))
    assert peer.connection.is_closed
    assert peer.answers()[-1] == Close()


def test_frames_are_read_some_at_a_time(peer: Peer) -> None:
    peer.sender()
    one = frame(Transfer(handle=1, delivery_id=0, delivery_tag=b"t", settled=True), b"x")
    peer.connection.receive_data(EMPTY_FRAME * 200 + one * 200)
    assert peer.connection.read()
    assert peer.take_events() == []
    assert sum(peer.connection.read() for _ in range(5)) == 5
    assert len(peer.take_events()) == 6 * 64 - 200
    assert not peer.connection.read()
    assert len(peer.take_events()) == 400 - 6 * 64
