"""Links: one direction of messages each, seen from the server.

The owner of the connection uses ``accept``, ``detach``, and the methods that the two kinds of link add.
A call that comes too late, because the link is gone, does nothing: a detach may always overtake it. The methods
named ``receive_…`` and ``end`` are for the session.

Source: AMQP 1.0 part 2, transport, section 2.6.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar, Final

from sbnotebook.amqp import AmqpValue
from sbnotebook.emulator.amqp.frames import footprint
from sbnotebook.emulator.amqp.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Coordinator,
    DeliveryState,
    Detach,
    Error,
    Flow,
    Outcome,
    Rejected,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from sbnotebook.errors import ProtocolViolationError

if TYPE_CHECKING:
    from sbnotebook.emulator.amqp.session import AmqpSession

_LINK_SIZE: Final = 2048  # Bytes that a link takes in memory, with its handler and without what the peer sent
# Bytes of a link's name, source, target and properties in memory: as many as a frame of Azure has on the wire
_MAX_ATTACH: Final = 65_536
_PIECE_SIZE: Final = 64  # Bytes that a piece of a message takes in memory beside its content
_MAX_TAG: Final = 32  # Bytes of a delivery tag (section 2.8.7)
_SERIAL: Final = 2**32  # Delivery-count is a serial number (RFC 1982): it counts on from 0 after 2**32 - 1


class LinkState(Enum):
    ATTACHING = auto()  # by the peer's attach
    ATTACHED = auto()  # by ``accept``
    DETACHING = auto()  # by ``detach``, until the peer answers
    DETACHED = auto()  # by the peer's detach


class Link:
    role: ClassVar[bool]

    def __init__(self, session: AmqpSession, attach: Attach) -> None:
        self.name = attach.name  # the peer's name for the link
        self.handle = attach.handle  # the link's number in the session, the same in both directions
        self.source = attach.source
        self.target = attach.target
        self.properties: dict[str, AmqpValue] = attach.properties or {}
        self.snd_settle_mode = attach.snd_settle_mode  # 0 unsettled, 1 settled (receive-and-delete), 2 mixed
        self.rcv_settle_mode = attach.rcv_settle_mode  # 0 first, 1 second (the peer waits for our ``settle``)
        self.state = LinkState.ATTACHING
        self.size = 0  # bytes that it takes in memory
        self.session = session
        self.handler: Any = None  # of its events; the connection's owner sets it
        self._max_message_size = 0
        size = footprint(self.name, self.source, self.target, self.properties)
        if size > _MAX_ATTACH:
            text = f"The name, source, target and properties of a link take {size} bytes, the limit is {_MAX_ATTACH}."
            raise ProtocolViolationError(text, "amqp:resource-limit-exceeded")
        self._take(size)

    @property
    def address(self) -> AmqpValue:
        """Return the address of our end: the target's if the peer sends, the source's if it receives."""
        terminus = self.target if self.role is RECEIVER else self.source
        return None if terminus is None or isinstance(terminus, Coordinator) else terminus.address

    @property
    def attached(self) -> bool:
        return self.state is LinkState.ATTACHED

    def accept(
        self,
        *,
        source: Source | None = None,
        properties: dict[str, AmqpValue] | None = None,
        max_message_size: int = 0,
    ) -> None:
        if self.state is LinkState.ATTACHING:
            self._max_message_size = max_message_size
            self._answer_attach(source or self.source or Source(), self.target or Target(), properties)
            self.state = LinkState.ATTACHED
            self._forget_attach()

    def detach(self, error: Error | None = None) -> None:
        if self.state in (LinkState.ATTACHING, LinkState.ATTACHED):
            self._write_detach(error)
            self.end(LinkState.DETACHING)

    def receive_detach(self, detach: Detach | None) -> None:
        """Answer the peer's detach, unless it is itself the answer to ours; None for the end of the session."""
        if detach is not None:
            self._write_detach(None, closed=detach.closed)
        self.end(LinkState.DETACHED)

    def _write_detach(self, error: Error | None, *, closed: bool = True) -> None:
        if self.state is LinkState.ATTACHING:
            # Our terminus is the one that the peer's messages go to or come from; null means "no link". With both,
            # azure-servicebus would send before it reads the detach.
            source, target = (self.source, None) if self.role is RECEIVER else (None, self.target)
            self._answer_attach(source, target)
        if self.state in (LinkState.ATTACHING, LinkState.ATTACHED):
            self.session.write(Detach(handle=self.handle, closed=closed, error=error))

    def end(self, state: LinkState) -> None:
        self.state = state
        self._forget_attach()
        links = self.session.held.links
        if links.get((self.role, self.name)) is self:
            del links[self.role, self.name]

    def leave(self) -> None:
        self.session.held.add_state(-self.size)
        self.size = 0

    def _forget_attach(self) -> None:
        """Keep only the parts that are used after the answer to the attach."""
        self.source = self.source and Source(self.source.address)
        self.target = Target(self.target.address) if isinstance(self.target, Target) else self.target
        self.properties = {}
        self._take(footprint(self.name, *(getattr(end, "address", None) for end in (self.source, self.target))))

    def _take(self, size: int) -> None:
        before, self.size = self.size, _LINK_SIZE + size
        self.session.held.add_state(self.size - before)

    def _answer_attach(
        self,
        source: Source | None,
        target: Target | Coordinator | None,
        properties: dict[str, AmqpValue] | None = None,
    ) -> None:
        self.session.write(
            Attach(
                name=self.name,
                handle=self.handle,
                role=self.role,
                snd_settle_mode=self.snd_settle_mode,
                rcv_settle_mode=self.rcv_settle_mode,
                source=source,
                target=target,
                initial_delivery_count=0 if self.role is SENDER else None,
                max_message_size=self._max_message_size,
                properties=properties or {},
            )
        )


class ReceivingLink(Link):
    """The peer sends, we receive."""

    role = RECEIVER

    def __init__(self, session: AmqpSession, attach: Attach) -> None:
        super().__init__(session, attach)
        self._delivery_count = attach.initial_delivery_count or 0
        self.credit = 0  # deliveries that the peer may still send; below zero if it ignores its credit
        # Of the message that is coming in: its first frame, the content of its frames, and the bytes of memory for it.
        self._first: Transfer | None = None
        self._pieces: list[bytes] = []
        self._size = self._kept = 0

    @property
    def arriving_txn_id(self) -> bytes | None:
        """Return the transaction of a message whose last frame has not come yet; None for none."""
        return None if self._first is None else _txn_id(self._first)

    def grant_credit(self, credit: int) -> None:
        """Let the peer send so many messages; also in place of a delivery of which the link's owner never hears."""
        if self.attached:
            self.credit = credit
            self.write_flow()

    def settle(self, delivery_id: int, outcome: DeliveryState) -> None:
        if self.state is LinkState.ATTACHED:
            self.session.write_disposition(RECEIVER, delivery_id, outcome)

    def end(self, state: LinkState) -> None:
        super().end(state)
        self._keep(0)
        self._first = None

    def write_flow(self) -> None:
        self.session.write_flow(
            handle=self.handle, delivery_count=self._delivery_count, link_credit=max(self.credit, 0)
        )

    def receive_flow(self, flow: Flow) -> None:
        if flow.echo and self.attached:
            self.write_flow()

    def receive_transfer(self, transfer: Transfer, payload: bytes) -> TransferReceived | None:
        """Take one frame of a message, and return the event once the message is whole."""
        if self.state is not LinkState.ATTACHED:
            return None
        first, limit = self._first, self._max_message_size
        if first is None:
            first = self._begin(transfer)
        elif transfer.delivery_id not in (None, first.delivery_id):
            raise ProtocolViolationError("A message began before the one before it had ended.")
        first.settled = first.settled or transfer.settled
        # Beyond the limit no more of it is kept.
        self._size += len(payload)
        if limit and self._size > limit:
            self._pieces.clear()
        else:
            self._pieces.append(payload)
        if transfer.more and not transfer.aborted:
            pieces = len(self._pieces)
            self._keep(footprint(first.state) + (self._size + _PIECE_SIZE * pieces if pieces else 0))
            return None
        if self._kept:
            self._keep(0)
        self._first = None
        if transfer.aborted:
            self.grant_credit(self.credit + 1)
            return None
        return self._arrived(first)

    def _begin(self, first: Transfer) -> Transfer:
        if first.delivery_id is None or first.delivery_tag is None:
            raise ProtocolViolationError("The first frame of a message needs a delivery id and a tag.")
        if len(first.delivery_tag) > _MAX_TAG:
            text = f"A delivery tag has at most {_MAX_TAG} bytes, not {len(first.delivery_tag)}."
            raise ProtocolViolationError(text, "amqp:invalid-field")
        self._delivery_count = (self._delivery_count + 1) % _SERIAL
        self.credit -= 1
        self._first, self._pieces, self._size = first, [], 0
        return first

    def _keep(self, size: int) -> None:
        before, self._kept = self._kept, size
        self.session.held.add_messages(size - before)

    def _arrived(self, first: Transfer) -> TransferReceived | None:
        delivery_id, limit = first.delivery_id or 0, self._max_message_size
        if limit and self._size > limit:
            text = f"The message has {self._size} bytes, the limit is {limit}."
            if not first.settled:
                self.settle(delivery_id, Rejected(Error("amqp:link:message-size-exceeded", text)))
            self.grant_credit(self.credit + 1)
            return None
        txn_id = None if first.state is None else _txn_id(first)  # nearly no message has a state
        payload = b"".join(self._pieces)
        return TransferReceived(self, delivery_id, first.message_format or 0, payload, bool(first.settled), txn_id)


def _txn_id(transfer: Transfer) -> bytes | None:
    # Of the first frame: .NET sends the state with it alone, the specification asks for it on each.
    return transfer.state.txn_id if isinstance(transfer.state, TransactionalState) else None


class SendingLink(Link):
    """We send, the peer receives."""

    role = SENDER

    def __init__(self, session: AmqpSession, attach: Attach) -> None:
        super().__init__(session, attach)
        self.drain = False  # the peer waits for ``drained()``
        self.delivery_ids: dict[bytes, int] = {}  # of unsettled deliveries, by tag
        self._delivery_count = 0
        self._credit = 0

    def end(self, state: LinkState) -> None:
        super().end(state)
        self.session.forget_deliveries(self)

    @property
    def credit(self) -> int:
        """Return the number of deliveries that may be sent now; a peer may grant some together with its attach."""
        return self._credit if self.attached and not self.session.is_shut else 0

    def send(self, delivery_tag: bytes, payload: bytes, *, settled: bool = False) -> None:
        """Send one message, in as many frames as it needs, for one credit, which the peer must have given.

        Frames for which the session's window has no room wait.
        """
        self._credit -= 1
        self._delivery_count = (self._delivery_count + 1) % _SERIAL
        self.session.deliver(self, delivery_tag, payload, settled=settled)

    def report(self, delivery_tag: bytes, state: DeliveryState, *, settled: bool) -> None:
        """Report the state of a delivery that may change again: a transaction may be rolled back."""
        delivery_id = self.delivery_ids.get(delivery_tag)
        if delivery_id is not None:
            self.session.write_disposition(SENDER, delivery_id, state, settled=settled)

    def settle(self, delivery_tag: bytes, outcome: DeliveryState) -> None:
        """Confirm the peer's disposition: settled, with this outcome. Then the tag is forgotten.

        azure-servicebus takes only an outcome of the kind that it asked for as a success, a
        ``Rejected()`` without an error for a dead-lettering, and any ``Rejected(error)`` as a failure.
        A delivery that is already settled or unknown is ignored.
        """
        delivery_id = self.session.forget_delivery(self, delivery_tag)
        if delivery_id is not None:
            self.session.write_disposition(SENDER, delivery_id, outcome)

    def forget(self, delivery_tag: bytes) -> None:
        """Forget a delivery that ended without the peer: its lock was lost, or it was settled over another link.

        A disposition of the peer still comes as an event for some time, so that ``settle`` can answer it. After that
        the delivery takes no memory, even if the peer never settles.
        """
        self.session.end_delivery(self, delivery_tag)

    def drained(self) -> None:
        """Give back all credit, because there is nothing more to send."""
        if self.attached:
            self._delivery_count = (self._delivery_count + self._credit) % _SERIAL
            self._credit = 0
            self.write_flow()
            self.drain = False

    def write_flow(self) -> None:
        self.session.write_flow(
            handle=self.handle, delivery_count=self._delivery_count, link_credit=self._credit, drain=self.drain
        )

    def receive_flow(self, flow: Flow) -> None:
        limit = (flow.delivery_count or 0) + (flow.link_credit or 0)
        # Messages sent since the peer wrote this flow count against its credit.
        credit = (limit - self._delivery_count) % _SERIAL
        self._credit = credit if credit < _SERIAL // 2 else 0
        self.drain = flow.drain
        if flow.echo and self.attached and not flow.drain:
            self.write_flow()


# ------------------------------------------------------------ the events of a connection
# They are not frozen, because freezing costs twice as much.


@dataclass(slots=True)
class TransferReceived:
    """A whole message came in; one that is not ``settled`` waits for ``link.settle()``."""

    link: ReceivingLink
    delivery_id: int  # names the delivery when it is settled
    message_format: int  # 0 for one message, 0x80013700 for a Service Bus batch
    payload: bytes  # the encoded message, its frames joined
    settled: bool
    txn_id: bytes | None = None  # of the transaction that the message belongs to; None for none


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


Event = TransferReceived | DispositionReceived | ReceivingLink | SendingLink
"""A message, a decision, or a link whose state says what it needs.

ATTACHING: the peer wants it. Answer, now or later, with ``link.accept()`` or ``link.detach()``.

ATTACHED: the peer changed its credit. With ``link.drain`` set, send the messages that are available now, and then call
``link.drained()``.

DETACHING or DETACHED: it is gone, by detach, or with its session or connection. No answer is needed. There is no event
for links that we refused or detached ourselves.
"""
