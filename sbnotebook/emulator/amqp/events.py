"""What a connection tells its owner: everything that the peer did and that needs a decision.

The two events that come with every message are not frozen, because that costs twice as much.
"""

from __future__ import annotations

from dataclasses import dataclass

from sbnotebook.emulator.amqp.link import Link, ReceivingLink, SendingLink, TransferReceived
from sbnotebook.emulator.amqp.performatives import Error, Outcome

__all__ = [
    "ConnectionClosed",
    "CreditChanged",
    "DispositionReceived",
    "Event",
    "LinkAttaching",
    "LinkDetached",
]


@dataclass(frozen=True, slots=True)
class LinkAttaching:
    """The peer wants a link: answer, now or later, with ``link.accept()`` or ``link.refuse()``."""

    link: ReceivingLink | SendingLink


@dataclass(frozen=True, slots=True)
class CreditChanged:
    """The peer said how much it takes: see ``link.credit``.

    With ``link.drain`` set, send what is there now and then call ``link.drained()``.
    """

    link: SendingLink


@dataclass(slots=True)
class DispositionReceived:
    """The peer decided about one message that we sent: answer with ``link.settle()``.

    A range of deliveries comes as one event for each. A delivery is told at most once as
    ``settled``; after that, or once ``link.settle()`` was called, it is forgotten.

    Attributes:
        delivery_tag: the tag that was given to ``link.send()``.
        outcome: what to do with the message; a peer that settles without saying so means Released.
        settled: the peer does not wait for an answer; ``link.settle()`` would do nothing.
    """

    link: SendingLink
    delivery_tag: bytes
    outcome: Outcome
    settled: bool


@dataclass(frozen=True, slots=True)
class LinkDetached:
    """A link that was attached or attaching is gone, by detach, or with its session or connection.

    Nothing needs to be answered. Links that we refused or detached ourselves are not told of again.
    """

    link: Link
    error: Error | None


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """Always the last event: no more is read.

    Attributes:
        error: what the peer or the protocol complained of; None after an orderly close, and when the
            peer's socket ended.
    """

    error: Error | None


Event = LinkAttaching | TransferReceived | CreditChanged | DispositionReceived | LinkDetached | ConnectionClosed
