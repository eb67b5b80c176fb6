"""The events of a connection: everything that the peer did and that needs a decision.

The two events that come with every message are not frozen, because freezing costs twice as much.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sbnotebook.emulator.amqp.link import Link, ReceivingLink, SendingLink, TransferReceived
from sbnotebook.emulator.amqp.performatives import Error, Outcome


@dataclass(frozen=True, slots=True)
class LinkAttaching:
    """The peer wants a link: answer, now or later, with ``link.accept()`` or ``link.refuse()``."""

    link: ReceivingLink | SendingLink


@dataclass(frozen=True, slots=True)
class CreditChanged:
    """The peer changed its credit: see ``link.credit``.

    With ``link.drain`` set, send the messages that are available now and then call ``link.drained()``.
    """

    link: SendingLink


@dataclass(slots=True)
class DispositionReceived:
    """The peer decided about one message that we sent: answer with ``link.settle()``.

    A range of deliveries comes as one event for each. At most one event of a delivery is ``settled``. After that,
    or after ``link.settle()``, the delivery is forgotten.
    """

    link: SendingLink
    delivery_tag: bytes  # the tag that was given to ``link.send()``
    outcome: Outcome  # the peer's decision; Released if it settles without an outcome
    settled: bool  # the peer does not wait for an answer; ``link.settle()`` would do nothing
    in_range: bool = field(default=False, compare=False)  # the peer decided about several messages at once
    txn_id: bytes | None = None  # of the transaction that the decision belongs to; None for none


@dataclass(frozen=True, slots=True)
class LinkDetached:
    """A link that was attached or attaching is gone, by detach, or with its session or connection.

    No answer is needed. There is no event for links that we refused or detached ourselves.
    """

    link: Link
    error: Error | None


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """Always the last event: no more is read."""

    error: Error | None


Event = LinkAttaching | TransferReceived | CreditChanged | DispositionReceived | LinkDetached | ConnectionClosed
