from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from sbnotebook.emulator.amqp.link import LinkState, ReceivingLink, SendingLink, TransferReceived
from sbnotebook.emulator.amqp.performatives import (
    Accepted,
    Attach,
    Close,
    Coordinator,
    Detach,
    Error,
    Flow,
    Source,
    Target,
)
from tests.emulator.amqp.conftest import RECEIVING_ATTACH, SENDING_ATTACH, Peer

NOT_FOUND = Error("amqp:not-found", "There is no such queue.")


@pytest.mark.parametrize("target", [None, Coordinator()])
def test_a_link_to_nowhere_has_no_address(peer: Peer, target: Coordinator | None) -> None:
    assert peer.attaching(replace(SENDING_ATTACH, target=target)).address is None


def test_both_termini_are_sent_even_if_the_peer_left_one_out(peer: Peer) -> None:
    peer.attaching(replace(SENDING_ATTACH, source=None)).accept()
    answer = peer.answer(Attach)
    assert answer.source == Source()
    assert answer.target == SENDING_ATTACH.target


def test_a_refused_link_has_no_more_events(peer: Peer) -> None:
    link = peer.attaching(SENDING_ATTACH)
    link.detach(NOT_FOUND)
    peer.read()
    link.accept()
    assert peer.transfer(0, b"too late") == []
    assert peer.write(Detach(handle=1, closed=True)) == []
    assert peer.answers() == []


def test_a_detach_that_does_not_close_is_answered_likewise(peer: Peer) -> None:
    peer.sender()
    peer.write(Detach(handle=1))
    assert peer.answer(Detach) == Detach(handle=1)


def test_the_peer_detaches_before_it_was_answered(peer: Peer) -> None:
    link = peer.attaching(RECEIVING_ATTACH)
    assert peer.write(Detach(handle=2, closed=True)) == [link]
    assert link.state is LinkState.ENDED
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
        TransferReceived(link, 0, 0, b"one,two,three", settled=True)
    ]
    assert peer.transfer(1, b"next") == [TransferReceived(link, 1, 0, b"next", settled=False)]


def test_an_aborted_message_is_forgotten(peer: Peer) -> None:
    link = peer.sender()
    link.grant_credit(2)
    peer.transfer(0, b"half", more=True)
    assert peer.transfer(0, b"", aborted=True) == []
    assert peer.transfer(1, b"whole") == [TransferReceived(link, 1, 0, b"whole", settled=False)]
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


def test_settling_on_a_link_that_is_gone_does_nothing(peer: Peer) -> None:
    link = peer.sender()
    peer.transfer(0)
    peer.write(Detach(handle=1, closed=True))
    peer.read()
    link.settle(0, Accepted())
    link.grant_credit(5)
    assert peer.answers() == []


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


def test_messages_sent_since_count_against_new_credit(peer: Peer) -> None:
    link = peer.receiver(credit=3)
    for at in range(3):
        link.send(bytes([at]), b"")
    assert link.credit == 0
    # The peer wrote this when it had seen one of the three.
    peer.flow(handle=2, delivery_count=1, link_credit=3)
    assert link.credit == 1
    peer.flow(handle=2, delivery_count=1, link_credit=0)
    assert link.credit == 0


def test_credit_that_came_with_the_attach_counts_after_accept(peer: Peer) -> None:
    link = peer.attaching(RECEIVING_ATTACH)
    peer.flow(handle=2, delivery_count=None, link_credit=10)
    assert isinstance(link, SendingLink)
    assert link.credit == 0
    link.accept()
    assert link.credit == 10


def test_echo_is_answered_with_the_state_of_the_link(peer: Peer) -> None:
    peer.receiver()
    peer.flow(handle=2, delivery_count=0, link_credit=4, echo=True)
    flow = peer.answer(Flow)
    assert (flow.handle, flow.link_credit, flow.drain) == (2, 4, False)


def test_a_link_that_is_gone_sends_nothing(peer: Peer) -> None:
    link = peer.receiver(credit=5)
    link.send(b"tag", b"")
    peer.write(Detach(handle=2, closed=True))
    peer.read()
    assert link.credit == 0
    link.settle(b"tag", Accepted())
    link.drained()
    assert peer.answers() == []


def test_delivery_count_wraps_around_to_zero() -> None:
    peer = Peer().open()
    link = peer.attaching(replace(SENDING_ATTACH, initial_delivery_count=2**32 - 1, target=Target("orders")))
    assert isinstance(link, ReceivingLink)
    link.accept()
    peer.transfer(0)
    peer.read()
    link.grant_credit(1)
    assert peer.answer(Flow).delivery_count == 0
