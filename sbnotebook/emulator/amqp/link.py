"""Links: one direction of messages each, seen from the server.

The owner of the connection talks to a link through its public methods. On a link that is not
attached (not yet, or no more) they do nothing, except for ``accept`` and ``refuse`` on one that waits
for an answer: a detach may always overtake.

Source: AMQP 1.0 part 2, transport, section 2.6.
"""

from __future__ import annotations

from sbnotebook.emulator.amqp.outcomes import Error, Outcome
from sbnotebook.emulator.amqp.termini import Coordinator, Source, Target
from sbnotebook.model.amqp import AmqpValue

__all__ = ["Link", "ReceivingLink", "SendingLink"]


class Link:
    """What both directions have in common.

    Attributes:
        name: the peer's name for the link.
        source: where messages come from, as the peer asked for it.
        target: where messages go to, as the peer asked for it.
        properties: the link properties that the peer sent, by symbol.
        snd_settle_mode: 0 unsettled, 1 settled, 2 mixed.
        rcv_settle_mode: 0 first, 1 second.
    """

    name: str
    source: Source | None
    target: Target | Coordinator | None
    properties: dict[str, AmqpValue]
    snd_settle_mode: int
    rcv_settle_mode: int

    @property
    def attached(self) -> bool:
        """True from ``accept()`` until either side detaches."""
        raise NotImplementedError

    @property
    def address(self) -> AmqpValue:
        """Address of our end: the target's if the peer sends, the source's if it receives."""
        raise NotImplementedError

    def accept(
        self,
        *,
        source: Source | None = None,
        properties: dict[str, AmqpValue] | None = None,
        max_message_size: int = 0,
    ) -> None:
        """Answer the peer's attach: the link is attached now.

        Args:
            source: sent back instead of the peer's own source, for example with another filter.
            properties: link properties to send back.
            max_message_size: bytes; 0 for no limit. A longer message from the peer is rejected with
                ``amqp:link:message-size-exceeded`` without being kept, and is no event.
        """
        raise NotImplementedError

    def refuse(self, error: Error) -> None:
        """Answer the peer's attach with an attach without our terminus, and detach with this error."""
        raise NotImplementedError

    def detach(self, error: Error | None = None) -> None:
        """Close the link from our side."""
        raise NotImplementedError


class ReceivingLink(Link):
    """The peer sends, we receive."""

    @property
    def credit(self) -> int:
        """Deliveries that the peer may still send; below zero if it does not care."""
        raise NotImplementedError

    def grant_credit(self, credit: int) -> None:
        """Let the peer send this many deliveries from now on; replaces what is left."""
        raise NotImplementedError

    def settle(self, delivery_id: int, outcome: Outcome) -> None:
        """Tell the peer what became of a delivery that it did not send settled; one frame for each."""
        raise NotImplementedError


class SendingLink(Link):
    """We send, the peer receives.

    Attributes:
        drain: the peer waits for ``drained()``.
    """

    drain: bool

    @property
    def credit(self) -> int:
        """Deliveries that may be sent now; 0 on a link that is not attached."""
        raise NotImplementedError

    def send(self, delivery_tag: bytes, payload: bytes, *, settled: bool = False, message_format: int = 0) -> None:
        """Send one message, in as many frames as it needs; takes one credit.

        Args:
            delivery_tag: 1 to 32 bytes, unique on the link among unsettled deliveries. For
                azure-servicebus it is the lock token, 16 bytes, also when settled.
            payload: the encoded message.
            settled: the peer need not answer (receive-and-delete).
            message_format: 0 for one message.

        Raises:
            ValueError: there is no credit; look at ``credit`` first.
        """
        raise NotImplementedError

    def settle(self, delivery_tag: bytes, outcome: Outcome) -> None:
        """Confirm the peer's disposition: settled, with this outcome; then the tag is forgotten.

        azure-servicebus takes only an outcome of the kind that it asked for as a success, a
        ``Rejected()`` without an error for a dead-lettering, and any ``Rejected(error)`` as a failure.
        Does nothing for a delivery that is already settled or unknown.
        """
        raise NotImplementedError

    def drained(self) -> None:
        """Give back all credit: nothing more is there to send."""
        raise NotImplementedError
