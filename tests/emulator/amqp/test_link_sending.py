from __future__ import annotations

from dataclasses import replace

import pytest

from sbnotebook.emulator.amqp import (
    Accepted,
    CreditChanged,
    Modified,
    ReceivingLink,
    SendingLink,
    Target,
)
from sbnotebook.emulator.amqp.performatives import (
    SENDER,
    Detach,
    Disposition,
    Flow,
    Transfer,
)
from tests.emulator.amqp.conftest import RECEIVING_ATTACH, SENDING_ATTACH, Peer


def test_nothing_is_sent_without_credit(peer: Peer) -> None:
    link = peer.receiver()
    assert link.credit == 0
    with pytest.raises(ValueError, match="no credit"):
        link.send(b"tag", b"payload")
    assert peer.answers() == []


def test_credit_is_reported(peer: Peer) -> None:
    link = peer.receiver()
    assert peer.flow(handle=2, delivery_count=0, link_credit=3) == [CreditChanged(link)]
    assert (link.credit, link.drain) == (3, False)


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


def test_a_message_for_the_peer(peer: Peer) -> None:
    link = peer.receiver(credit=2)
    link.send(b"t" * 16, b"payload")
    link.send(b"u" * 16, b"payload", settled=True, message_format=5)
    assert peer.read() == [
        (
            Transfer(handle=2, delivery_id=0, delivery_tag=b"t" * 16, message_format=0, settled=False, more=False),
            b"payload",
        ),
        (
            Transfer(handle=2, delivery_id=1, delivery_tag=b"u" * 16, message_format=5, settled=True, more=False),
            b"payload",
        ),
    ]


def test_settling_confirms_with_the_outcome(peer: Peer) -> None:
    link = peer.receiver(credit=1)
    link.send(b"tag", b"")
    peer.read()
    outcome = Modified(delivery_failed=True, undeliverable_here=True)
    link.settle(b"tag", outcome)
    link.settle(b"tag", outcome)
    link.settle(b"unknown", outcome)
    assert peer.answer(Disposition) == Disposition(role=SENDER, first=0, last=0, settled=True, state=outcome)


def test_drain_gives_the_credit_back(peer: Peer) -> None:
    link = peer.receiver(credit=10)
    link.send(b"tag", b"")
    peer.read()
    assert peer.flow(handle=2, delivery_count=0, link_credit=10, drain=True) == [CreditChanged(link)]
    assert (link.credit, link.drain) == (9, True)
    link.drained()
    flow = peer.answer(Flow)
    assert (flow.handle, flow.delivery_count, flow.link_credit, flow.drain) == (2, 10, 0, True)
    assert (link.credit, link.drain) == (0, False)


def test_drain_without_credit_is_answered_too(peer: Peer) -> None:
    link = peer.receiver()
    peer.flow(handle=2, delivery_count=0, link_credit=0, drain=True, echo=True)
    assert peer.answers() == []
    link.drained()
    flow = peer.answer(Flow)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (0, 0, True)


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
