from __future__ import annotations

from dataclasses import replace

import pytest

from sbnotebook.amqp import AmqpValue, Symbol
from sbnotebook.emulator.amqp.frames import HEADER_SIZE
from sbnotebook.emulator.amqp.link import DispositionReceived, LinkState, SendingLink
from sbnotebook.emulator.amqp.performatives import (
    RECEIVER,
    SENDER,
    Accepted,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Outcome,
    Received,
    Released,
    Transfer,
)
from sbnotebook.errors import ProtocolViolationError
from tests.costs import steps
from tests.emulator.amqp.conftest import (
    RECEIVING_ATTACH,
    SENDING_ATTACH,
    Peer,
    attaching,
    frame,
    split_body,
)


def test_a_session_is_answered_with_its_windows() -> None:
    peer = Peer().open()
    peer.write(Begin(next_outgoing_id=7, incoming_window=1, outgoing_window=1), channel=5)
    begin = peer.answer(Begin)
    assert begin.remote_channel == 5
    assert begin.incoming_window == 2**31 - 1
    assert begin.outgoing_window > 0
    assert begin.handle_max == 4095


def test_an_end_is_answered_and_takes_the_links_with_it(peer: Peer) -> None:
    sender, receiver = peer.sender(), peer.receiver()
    refused = peer.attaching(replace(SENDING_ATTACH, handle=3))
    refused.detach()
    peer.read()
    assert peer.write(End()) == [sender, receiver]
    assert {link.state for link in (sender, receiver)} == {LinkState.ENDED}
    assert peer.answer(End) == End()
    receiver.detach()
    assert peer.answers() == []


def test_frames_after_an_end_are_ignored(peer: Peer) -> None:
    peer.sender()
    peer.write(End())
    peer.read()
    assert peer.write(Detach(handle=1, closed=True)) == []
    assert peer.transfer(0, b"late") == []
    assert peer.write(End()) == []
    assert peer.answers() == []
    assert not peer.connection.is_closed


def test_a_channel_can_be_used_again(peer: Peer) -> None:
    peer.write(End())
    peer.write(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    assert [type(each) for each in peer.answers()] == [End, Begin]
    assert peer.attaching(SENDING_ATTACH).state is not LinkState.ATTACHED


@pytest.mark.parametrize("unknown", [Detach(handle=9, closed=True), Transfer(handle=9, delivery_id=0)])
def test_an_unknown_handle_is_ignored(peer: Peer, unknown: Detach | Transfer) -> None:
    assert peer.write(unknown) == []
    assert peer.flow(handle=9, link_credit=1) == []
    assert peer.answers() == []
    assert not peer.connection.is_closed


def test_a_handle_that_we_detached_can_be_used_again(peer: Peer) -> None:
    peer.sender().detach()
    peer.read()
    assert attaching(peer.write(SENDING_ATTACH)).name == SENDING_ATTACH.name


# -------------------------------------------------------------------------------------------- windows


def test_a_session_flow_is_echoed(peer: Peer) -> None:
    peer.sender()
    peer.transfer(0)
    peer.flow(echo=True)
    flow = peer.answer(Flow)
    assert (flow.handle, flow.next_incoming_id, flow.incoming_window) == (None, 1, 2**31 - 1)


def test_each_credit_opens_our_window_anew() -> None:
    peer = Peer().open()
    link = peer.sender()
    peer.transfer(0)
    link.grant_credit(5)
    flow = peer.answer(Flow)
    assert (flow.link_credit, flow.next_incoming_id, flow.incoming_window) == (5, 1, 2**31 - 1)


def test_frames_wait_for_the_window() -> None:
    peer = Peer().open(incoming_window=2)
    link = peer.receiver()
    peer.flow(window=2, handle=2, delivery_count=0, link_credit=5)
    for at in range(5):
        link.send(bytes([at]), b"")
    assert [transfer.delivery_id for transfer in peer.answers()] == [0, 1]
    peer.flow(window=1, seen=2)
    assert [transfer.delivery_id for transfer in peer.answers()] == [2]
    # The peer has not seen the third yet: one of its two places is taken.
    peer.flow(window=2, seen=2)
    assert [transfer.delivery_id for transfer in peer.answers()] == [3]
    peer.flow(window=5, seen=4)
    assert [transfer.delivery_id for transfer in peer.answers()] == [4]


def test_a_window_smaller_than_the_sent_frames_is_shut(peer: Peer) -> None:
    link = peer.receiver(credit=5)
    link.send(b"0", b"")
    link.send(b"1", b"")
    peer.read()
    peer.flow(window=1, seen=0)
    link.send(b"2", b"")
    assert peer.answers() == []


def test_waiting_messages_of_an_ended_link_are_dropped() -> None:
    peer = Peer().open(incoming_window=0)
    ending, staying = peer.receiver(), peer.receiver(handle=3)
    for link in (ending, staying):
        peer.flow(window=0, handle=link.handle, delivery_count=0, link_credit=1)
        link.send(b"t", link.name.encode())
    peer.write(Detach(handle=2, closed=True))
    peer.read()
    peer.flow(window=10)
    ((transfer, payload),) = peer.read()
    assert (transfer.handle, transfer.delivery_id, payload) == (3, 0, b"from-3")


@pytest.mark.parametrize("max_frame_size", [512, 1000])
@pytest.mark.parametrize("size", [0, 1, 400, 511, 512, 5000])
def test_a_message_is_split_at_the_frame_size_of_the_peer(max_frame_size: int, size: int) -> None:
    peer = Peer().open(max_frame_size=max_frame_size)
    link = peer.receiver(credit=1)
    payload = bytes(at % 251 for at in range(size))
    link.send(b"t" * 16, payload)
    bodies = peer.read_bodies()
    frames = [split_body(body) for body in bodies]
    assert b"".join(part for _, part in frames) == payload
    assert [transfer.more for transfer, _ in frames] == [True] * (len(frames) - 1) + [False]
    assert {(transfer.delivery_id, transfer.delivery_tag) for transfer, _ in frames} == {(0, b"t" * 16)}
    sizes = [HEADER_SIZE + len(body) for body in bodies]
    assert all(each == max_frame_size for each in sizes[:-1])
    assert sizes[-1] <= max_frame_size


@pytest.mark.parametrize(("size", "answered"), [(100, True), (2_000, False)])
def test_an_attach_is_answered_within_the_frames_of_the_peer(size: int, answered: bool) -> None:
    peer = Peer().open(max_frame_size=512)
    link = peer.attaching(replace(SENDING_ATTACH, name="n" * size))
    properties: dict[str, AmqpValue] = {Symbol("p"): "x" * 1_000}
    if not answered:
        with pytest.raises(ProtocolViolationError, match="The attach needs a frame of") as refused:
            link.accept(properties=properties)
        assert refused.value.condition == "amqp:frame-size-too-small"
        return
    link.accept(properties=properties)
    (body,) = peer.read_bodies()
    assert HEADER_SIZE + len(body) <= 512
    assert split_body(body)[0].name == "n" * size


def test_a_large_message_continues_when_the_window_opens() -> None:
    peer = Peer().open(max_frame_size=512, incoming_window=1)
    link = peer.receiver()
    peer.flow(window=1, handle=2, delivery_count=0, link_credit=1)
    payload = bytes(range(256)) * 5
    link.send(b"tag", payload)
    parts = [part for _, part in peer.read()]
    assert len(parts) == 1
    for seen in range(1, 5):
        peer.flow(window=1, seen=seen)
        parts += [part for _, part in peer.read()]
    assert b"".join(parts) == payload


# --------------------------------------------------------------------------------------- dispositions


def _sent(peer: Peer, count: int) -> SendingLink:
    link = peer.receiver(credit=count)
    for at in range(count):
        link.send(bytes([at]), b"")
    peer.read()
    return link


def test_deliveries_settled_by_the_peer_are_forgotten(peer: Peer) -> None:
    link = _sent(peer, 1)
    settled = Disposition(role=RECEIVER, first=0, settled=True, state=Released())
    assert peer.write(settled) == [DispositionReceived(link, b"\x00", Released(), settled=True)]
    assert peer.write(settled) == []
    link.settle(b"\x00", Released())
    assert peer.answers() == []


def test_deliveries_settled_by_us_are_forgotten(peer: Peer) -> None:
    link = _sent(peer, 1)
    link.settle(b"\x00", Accepted())
    assert peer.write(Disposition(role=RECEIVER, first=0, state=Accepted())) == []


@pytest.mark.parametrize("state", [None, Received()])
def test_settling_without_an_outcome_releases(peer: Peer, state: Received | None) -> None:
    link = _sent(peer, 1)
    assert peer.write(Disposition(role=RECEIVER, first=0, state=state)) == []
    assert peer.write(Disposition(role=RECEIVER, first=0, settled=True, state=state)) == [
        DispositionReceived(link, b"\x00", Released(), settled=True)
    ]


def test_a_sender_has_nothing_to_say_about_what_it_sent(peer: Peer) -> None:
    _sent(peer, 1)
    outcome: Outcome = Accepted()
    assert peer.write(Disposition(role=SENDER, first=0, settled=True, state=outcome)) == []


def test_a_range_of_four_thousand_million_costs_nothing(peer: Peer) -> None:
    link = _sent(peer, 3)
    events: list[object] = []
    everything = Disposition(role=RECEIVER, first=1, last=0, settled=True, state=Accepted())
    assert steps(lambda: events.extend(peer.write(everything))) < 10_000
    # 1 to 0 goes all the way round and names everything.
    assert {event.delivery_tag for event in events if isinstance(event, DispositionReceived)} == {b"\0", b"\1", b"\2"}
    assert all(isinstance(event, DispositionReceived) and event.link is link for event in events)


def test_settling_one_of_many_does_not_look_at_all_of_them(peer: Peer) -> None:
    count = 5_000
    link = peer.receiver(credit=count)
    peer.flow(window=count, handle=2, delivery_count=0, link_credit=count)
    for at in range(count):
        link.send(at.to_bytes(4, "big"), b"")
    frames = [frame(Disposition(role=RECEIVER, first=at, last=at, state=Accepted())) for at in range(count)]
    events: list[object] = []
    for each in frames[:100]:
        assert steps(lambda each=each: events.extend(peer.write_bytes(each))) < count
    assert len(events) == 100


def test_a_range_names_only_what_is_in_it(peer: Peer) -> None:
    _sent(peer, 3)
    events = peer.write(Disposition(role=RECEIVER, first=2, last=2**31, state=Accepted()))
    assert [event.delivery_tag for event in events if isinstance(event, DispositionReceived)] == [b"\2"]


def test_two_links_may_use_the_same_tag(peer: Peer) -> None:
    links = [peer.receiver(handle=handle, credit=1) for handle in (2, 3)]
    for link in links:
        link.send(b"tag", b"")
    events = peer.write(Disposition(role=RECEIVER, first=0, last=1, state=Accepted()))
    assert events == [DispositionReceived(link, b"tag", Accepted(), settled=False) for link in links]


def test_sessions_do_not_share_handles_or_deliveries() -> None:
    peer = Peer().open()
    _sent(peer, 1)
    peer.write(Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9), channel=2)
    assert peer.write(Disposition(role=RECEIVER, first=0, state=Accepted()), channel=2) == []
    assert attaching(peer.write(RECEIVING_ATTACH, channel=2)).name == RECEIVING_ATTACH.name


def test_only_a_sessions_own_performatives_belong_to_it(peer: Peer) -> None:
    assert peer.write(Accepted()) == []
    assert peer.connection.is_closed
    assert "Accepted is not a performative" in str(peer.answer(Close).error)
