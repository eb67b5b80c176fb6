from __future__ import annotations

from dataclasses import replace

import pytest

from sbnotebook.emulator.amqp.link import DispositionReceived, LinkState, TransferReceived
from sbnotebook.emulator.amqp.performatives import (
    RECEIVER,
    Accepted,
    Begin,
    Detach,
    Disposition,
    Error,
    Rejected,
    Transfer,
)
from tests.emulator.amqp.conftest import (
    RECEIVING_ATTACH,
    SENDING_ATTACH,
    Peer,
    attaching,
    frame,
    trusted_memory,
)


def end_of(peer: Peer) -> str | None:
    """The condition with which the connection ended; None if it has not."""
    error = peer.connection.error
    return None if error is None else error.condition


def test_a_name_is_that_of_one_link(peer: Peer) -> None:
    first = peer.sender(handle=1)
    peer.write(replace(SENDING_ATTACH, name="other", handle=7))
    peer.read()
    stolen, link = peer.write(replace(SENDING_ATTACH, name=first.name, handle=2))
    assert stolen is first
    assert first.state is LinkState.ENDED
    attaching([link])
    detach = peer.answer(Detach)
    assert detach.error is not None
    assert (detach.handle, detach.closed, detach.error.condition) == (1, True, "amqp:link:stolen")
    # A link that receives may have the same name, and so may one on another connection.
    attaching(peer.write(replace(RECEIVING_ATTACH, name=first.name, handle=3)))


def test_a_link_may_be_attached_again_with_its_name_and_handle(peer: Peer) -> None:
    for _ in range(3):
        link = peer.sender(handle=1)
        assert [type(each) for each in peer.transfer(0, b"x")] == [TransferReceived]
        assert peer.write(Detach(handle=1, closed=True)) == [link]
        assert link.state is LinkState.ENDED
        peer.read()


def test_a_link_name_is_taken_over_from_another_session(peer: Peer) -> None:
    first = peer.sender(handle=1)
    peer.write(Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10), channel=2)
    events = peer.write(replace(SENDING_ATTACH, name=first.name, handle=1), channel=2)
    assert events[0] is first
    attaching(events[1:])


def test_frames_after_an_attach_wait_for_its_answer(peer: Peer) -> None:
    message = Transfer(handle=1, delivery_id=0, delivery_tag=b"0", message_format=0)
    peer.connection.receive_data(frame(SENDING_ATTACH) + frame(message, b"early"))
    assert peer.connection.read()
    attaching(peer.take_events()).accept()
    assert not peer.connection.read()
    (arrived,) = peer.take_events()
    assert isinstance(arrived, TransferReceived)
    assert arrived.payload == b"early"


def test_no_more_links_than_a_connection_can_have(peer: Peer) -> None:
    for channel in range(2, 6):
        peer.write(Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10), channel=channel)
    for number in range(16_000):
        channel, handle = 1 + number // 4000, number % 4000
        events = peer.write(replace(SENDING_ATTACH, name=f"{number}", handle=handle), channel=channel)
        if not events:
            assert number > 5000
            assert end_of(peer) == "amqp:resource-limit-exceeded"
            return
        attaching(events).detach(Error("amqp:not-found"))
    pytest.fail("the server kept every link")


def test_links_that_are_gone_do_not_count(peer: Peer) -> None:
    for number in range(6000):
        peer.write(replace(SENDING_ATTACH, name=f"{number}"))
        peer.write(Detach(handle=1, closed=True))
    assert not peer.connection.is_closed


def test_messages_that_never_end_do_not_fill_the_memory(peer: Peer) -> None:
    part = b"x" * 60_000
    for handle in range(1, 3000):
        peer.sender(handle=handle)
        events = peer.transfer(handle, part, handle=handle, more=True)
        if events:
            assert end_of(peer) == "amqp:resource-limit-exceeded"
            assert handle == 134_217_728 // (60_000 + 64 + 16) + 1  # what a piece takes beside its content
            return
    pytest.fail("the server kept everything")


def test_a_message_in_very_small_pieces_counts_for_more() -> None:
    held = trusted_memory()
    peer = Peer(held=held).open()
    peer.sender()
    before = held.messages_size
    peer.transfer(0, b"x", more=True)
    for _ in range(99):
        peer.transfer(None, b"x", more=True)
    assert held.messages_size - before > 50 * 100
    peer.transfer(None, b"x")
    assert held.messages_size == before == 0


def test_a_link_gives_back_what_it_took(peer: Peer) -> None:
    held = trusted_memory()
    peer = Peer(held=held).open()
    before = held.state_size
    for number in range(3):
        link = peer.attaching(replace(SENDING_ATTACH, handle=1, properties={"x": "y" * 5000}))
        link.accept() if number else link.detach(Error("amqp:not-found"))
        assert held.state_size - before > 5000
        peer.write(Detach(handle=1, closed=True))
        assert held.state_size == before
    peer.connection.close()
    assert held.state_size == 0


def test_a_frame_that_is_not_whole_counts() -> None:
    held = trusted_memory()
    peer = Peer(held=held).open()
    data = frame(SENDING_ATTACH)
    peer.write_bytes(data[:20])
    assert held.messages_size == 20
    peer.write_bytes(data[20:])
    assert held.messages_size == 0


@pytest.mark.parametrize("ending", ["last", "aborted", "too long", "detach"])
def test_whole_and_aborted_messages_do_not_count(ending: str) -> None:
    peer = Peer(max_frame_size=1_048_576).open()
    part = b"x" * 500_000
    for number in range(200):
        peer.sender(max_message_size=600_000)
        assert peer.transfer(number, part, more=True) == []
        if ending == "too long":
            assert peer.transfer(None, part, more=True) == []
            assert peer.transfer(None, part) == []
        elif ending != "detach":
            peer.transfer(None, aborted=ending == "aborted")
        peer.write(Detach(handle=1, closed=True))
        peer.read()
    assert not peer.connection.is_closed


def test_a_delivery_that_ended_elsewhere_is_forgotten_later(peer: Peer) -> None:
    link = peer.receiver(credit=3000)
    peer.flow(window=10_000, handle=2, delivery_count=0, link_credit=3000)
    for number in range(2000):
        link.send(number.to_bytes(16), b"x")
        link.forget(number.to_bytes(16))
    link.forget(b"never sent")
    events = peer.write(Disposition(role=RECEIVER, first=0, last=1999, state=Accepted()))
    tags = [event.delivery_tag for event in events if isinstance(event, DispositionReceived)]
    assert tags == [number.to_bytes(16) for number in range(1000, 2000)]
    peer.read()
    link.settle(tags[0], Rejected(Error("com.microsoft:message-lock-lost")))
    assert peer.answer(Disposition).first == 1000
