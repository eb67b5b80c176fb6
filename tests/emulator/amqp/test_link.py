from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from sbnotebook.emulator.amqp import (
    Accepted,
    Coordinator,
    Error,
    LinkDetached,
    Rejected,
    Source,
    TransferReceived,
)
from sbnotebook.emulator.amqp.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Close,
    Detach,
    Disposition,
    Flow,
)
from tests.emulator.amqp.conftest import RECEIVING_ATTACH, SENDING_ATTACH, Peer

NOT_FOUND = Error("amqp:not-found", "There is no such queue.")


def test_the_address_is_the_one_of_our_end(peer: Peer) -> None:
    assert peer.attaching(SENDING_ATTACH).address == "orders"
    assert peer.attaching(RECEIVING_ATTACH).address == "orders"


@pytest.mark.parametrize("target", [None, Coordinator()])
def test_a_link_to_nowhere_has_no_address(peer: Peer, target: Coordinator | None) -> None:
    assert peer.attaching(replace(SENDING_ATTACH, target=target)).address is None


def test_accepting_a_sender(peer: Peer) -> None:
    link = peer.attaching(SENDING_ATTACH)
    link.accept(max_message_size=1000, properties={"p": "v"})
    assert link.attached
    assert peer.answer(Attach) == Attach(
        name="to-orders",
        handle=1,
        role=RECEIVER,
        snd_settle_mode=0,
        rcv_settle_mode=1,
        source=SENDING_ATTACH.source,
        target=SENDING_ATTACH.target,
        max_message_size=1000,
        properties={"p": "v"},
    )


def test_accepting_a_receiver_with_a_session_of_our_choice(peer: Peer) -> None:
    link = peer.attaching(
        replace(RECEIVING_ATTACH, source=Source("orders", filter={"com.microsoft:session-filter": None}))
    )
    assert link.source is not None
    link.accept(source=replace(link.source, filter={"com.microsoft:session-filter": "s-1"}))
    answer = peer.answer(Attach)
    assert answer.role is SENDER
    assert answer.initial_delivery_count == 0
    assert answer.properties == {}
    assert answer.source == Source("orders", filter={"com.microsoft:session-filter": "s-1"})
    assert answer.target == RECEIVING_ATTACH.target


def test_both_termini_are_sent_even_if_the_peer_left_one_out(peer: Peer) -> None:
    peer.attaching(replace(SENDING_ATTACH, source=None)).accept()
    answer = peer.answer(Attach)
    assert answer.source == Source()
    assert answer.target == SENDING_ATTACH.target


def test_refusing_a_sender_leaves_out_the_target(peer: Peer) -> None:
    link = peer.attaching(SENDING_ATTACH)
    link.refuse(NOT_FOUND)
    attach, detach = peer.answers()
    assert (attach.source, attach.target) == (SENDING_ATTACH.source, None)
    assert detach == Detach(handle=1, closed=True, error=NOT_FOUND)
    assert not link.attached


def test_refusing_a_receiver_leaves_out_the_source(peer: Peer) -> None:
    peer.attaching(RECEIVING_ATTACH).refuse(NOT_FOUND)
    attach, detach = peer.answers()
    assert (attach.source, attach.target) == (None, RECEIVING_ATTACH.target)
    assert attach.initial_delivery_count == 0
    assert detach.error == NOT_FOUND


def test_a_refused_link_has_no_more_events(peer: Peer) -> None:
    link = peer.attaching(SENDING_ATTACH)
    link.refuse(NOT_FOUND)
    peer.read()
    link.accept()
    assert peer.transfer(0, b"too late") == []
    assert peer.write(Detach(handle=1, closed=True)) == []
    assert peer.answers() == []


def test_the_peer_detaches(peer: Peer) -> None:
    link = peer.sender()
    error = Error("amqp:resource-deleted")
    assert peer.write(Detach(handle=1, closed=True, error=error)) == [LinkDetached(link, error)]
    assert peer.answer(Detach) == Detach(handle=1, closed=True)
    assert not link.attached


def test_a_detach_that_does_not_close_is_answered_likewise(peer: Peer) -> None:
    peer.sender()
    peer.write(Detach(handle=1))
    assert peer.answer(Detach) == Detach(handle=1)


def test_the_peer_detaches_before_it_was_answered(peer: Peer) -> None:
    link = peer.attaching(RECEIVING_ATTACH)
    assert peer.write(Detach(handle=2, closed=True)) == [LinkDetached(link, None)]
    attach, detach = peer.answers()
    assert attach.source is None
    assert detach == Detach(handle=2, closed=True)
    link.accept()
    assert peer.answers() == []


def test_we_detach_and_the_peer_agrees(peer: Peer) -> None:
    link = peer.receiver()
    lost = Error("com.microsoft:session-lock-lost")
    link.detach(lost)
    link.detach()
    assert peer.answer(Detach) == Detach(handle=2, closed=True, error=lost)
    assert peer.write(Detach(handle=2, closed=True)) == []
    assert peer.answers() == []


def test_a_link_that_waits_for_its_answer_can_be_detached(peer: Peer) -> None:
    peer.attaching(RECEIVING_ATTACH).detach(NOT_FOUND)
    attach, detach = peer.answers()
    assert attach.source is None
    assert detach.error == NOT_FOUND


# ------------------------------------------------------------------------------------ the peer sends


def test_credit_counts_down(peer: Peer) -> None:
    link = peer.sender()
    link.grant_credit(2)
    flow = peer.answer(Flow)
    assert (flow.handle, flow.delivery_count, flow.link_credit) == (1, 0, 2)
    peer.transfer(0)
    assert link.credit == 1
    link.grant_credit(5)
    flow = peer.answer(Flow)
    assert (flow.delivery_count, flow.link_credit, flow.next_incoming_id) == (1, 5, 1)


def test_more_than_the_credit_is_taken(peer: Peer) -> None:
    link = peer.sender()
    link.grant_credit(1)
    peer.read()
    assert len(peer.transfer(0) + peer.transfer(1)) == 2
    assert link.credit == -1
    peer.flow(handle=1, delivery_count=2, link_credit=0, echo=True)
    assert peer.answer(Flow).link_credit == 0


def test_a_message_in_several_frames(peer: Peer) -> None:
    link = peer.sender()
    assert peer.transfer(0, b"one,", more=True) == []
    assert peer.transfer(0, b"two,", more=True, delivery_tag=None, message_format=None) == []
    assert peer.transfer(None, b"three", message_format=None, settled=True) == [
        TransferReceived(link, 0, b"\0\0\0\0", 0, b"one,two,three", settled=True)
    ]
    assert peer.transfer(1, b"next") == [TransferReceived(link, 1, b"\0\0\0\1", 0, b"next", settled=False)]


def test_an_aborted_message_is_forgotten(peer: Peer) -> None:
    link = peer.sender()
    link.grant_credit(2)
    peer.transfer(0, b"half", more=True)
    assert peer.transfer(0, b"", aborted=True) == []
    assert peer.transfer(1, b"whole") == [TransferReceived(link, 1, b"\0\0\0\1", 0, b"whole", settled=False)]
    assert link.credit == 1


@pytest.mark.parametrize("ending", ["aborted", "too large", "too large, settled"])
def test_a_delivery_without_an_event_gives_its_credit_back(peer: Peer, ending: str) -> None:
    link = peer.sender(max_message_size=100)
    link.grant_credit(3)
    peer.answers()
    for number in range(10):  # without it, the peer waits for ever from the fourth on
        if ending == "aborted":
            peer.transfer(number, b"half", more=True)
            peer.transfer(number, b"", aborted=True)
        else:
            peer.transfer(number, b"x" * 101, settled=ending.endswith("settled"))
        flows = [answer for answer in peer.answers() if isinstance(answer, Flow)]
        assert [(flow.delivery_count, flow.link_credit) for flow in flows] == [(number + 1, 3)]


@pytest.mark.parametrize(
    ("delivery_id", "fields"),
    [(None, {}), (0, {"delivery_tag": None})],
)
def test_a_message_needs_an_id_and_a_tag(peer: Peer, delivery_id: int | None, fields: dict[str, Any]) -> None:
    peer.sender()
    peer.transfer(delivery_id, **fields)
    assert peer.connection.is_closed
    assert "delivery id" in str(peer.answer(Close).error)


def test_a_message_ends_before_the_next_begins(peer: Peer) -> None:
    peer.sender()
    peer.transfer(0, b"half", more=True)
    peer.transfer(1, b"other")
    assert "before the one before it" in str(peer.answer(Close).error)


def test_settling_what_the_peer_sent(peer: Peer) -> None:
    link = peer.sender()
    for delivery_id in (4, 5):
        peer.transfer(delivery_id)
    link.settle(5, Accepted())
    link.settle(4, Rejected(NOT_FOUND))
    assert peer.answers() == [
        Disposition(role=RECEIVER, first=5, last=5, settled=True, state=Accepted()),
        Disposition(role=RECEIVER, first=4, last=4, settled=True, state=Rejected(NOT_FOUND)),
    ]


def test_settling_on_a_link_that_is_gone_does_nothing(peer: Peer) -> None:
    link = peer.sender()
    peer.transfer(0)
    peer.write(Detach(handle=1, closed=True))
    peer.read()
    link.settle(0, Accepted())
    link.grant_credit(5)
    assert peer.answers() == []


@pytest.mark.parametrize("pieces", [1, 4])
def test_a_message_that_is_too_large_is_rejected(peer: Peer, pieces: int) -> None:
    link = peer.sender(max_message_size=100)
    for piece in range(pieces):
        assert peer.transfer(0, b"x" * (200 // pieces), more=piece < pieces - 1) == []
    disposition = peer.answers()[0]
    assert (disposition.first, disposition.settled) == (0, True)
    assert isinstance(disposition.state, Rejected)
    assert disposition.state.error is not None
    assert disposition.state.error.condition == "amqp:link:message-size-exceeded"
    assert link.attached
    (event,) = peer.transfer(1, b"x" * 100)
    assert isinstance(event, TransferReceived)


def test_a_message_that_is_too_large_is_not_kept(peer: Peer) -> None:
    peer.sender(max_message_size=100)
    tracemalloc.start()
    try:
        for _ in range(100):
            peer.transfer(0, bytes(50_000), more=True)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000


# -------------------------------------------------------------------------------------------- we send
