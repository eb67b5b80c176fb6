"""Sessions and their links: the windows, the numbers of deliveries, and one direction of messages for each link.

The owner of the connection uses ``accept``, ``detach``, and the methods that the two kinds of link add. A call that
comes too late, because the link is gone, does nothing: a detach may always overtake it. The methods named
``receive_…`` and ``end`` are for the session. Frames for a handle that is not known, or no longer, are ignored: the
peer may not have read our detach yet.

Source: AMQP 1.0 part 2, transport, sections 2.5 and 2.6.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, ClassVar, Final

from sbnotebook.amqp import AmqpValue
from sbnotebook.emulator.amqp.frames import FrameWriter, HeldMemory, footprint
from sbnotebook.emulator.amqp.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Coordinator,
    Declared,
    DeliveryState,
    Detach,
    Disposition,
    Error,
    Flow,
    Outcome,
    Performative,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
    Transfer,
    encode_disposition,
    encode_transfer,
    encode_within,
)
from sbnotebook.errors import ProtocolViolationError

_LINK_SIZE: Final = 2048  # Bytes that a link takes in memory, with its handler and without what the peer sent
# Bytes of a link's name, source, target and properties in memory: as many as a frame of Azure has on the wire
_MAX_ATTACH: Final = 65_536
_PIECE_SIZE: Final = 64  # Bytes that a piece of a message takes in memory beside its content
_MAX_TAG: Final = 32  # Bytes of a delivery tag (section 2.8.7)
_SERIAL: Final = 2**32  # The numbers of transfers and deliveries are serial numbers (RFC 1982): they count on from 0


class LinkState(Enum):
    ATTACHING = auto()  # by the peer's attach
    ATTACHED = auto()  # by ``accept``
    ENDED = auto()  # by a detach of either side, or with its session


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
        self.session = session
        self.handler: Any = None  # of its events; the connection's owner sets it
        self._max_message_size = 0
        size = footprint(self.name, self.source, self.target, self.properties)
        if size > _MAX_ATTACH:
            raise ProtocolViolationError(
                f"The name, source, target and properties of a link take {size} bytes, the limit is {_MAX_ATTACH}.",
                "amqp:resource-limit-exceeded",
            )
        self.size = _LINK_SIZE + size  # bytes that it takes in memory
        session.held.add_state(self.size)

    @property
    def address(self) -> AmqpValue:
        """Return the address of our end: the target's if the peer sends, the source's if it receives."""
        return getattr(self.target if self.role is RECEIVER else self.source, "address", None)

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

    def detach(self, error: Error | None = None, *, closed: bool = True) -> None:
        if self.state is LinkState.ATTACHING:
            # Our terminus is the one that the peer's messages go to or come from; null means "no link". With both,
            # azure-servicebus would send before it reads the detach.
            source, target = (self.source, None) if self.role is RECEIVER else (None, self.target)
            self._answer_attach(source, target)
        if self.state is not LinkState.ENDED:
            self.session.write(Detach(handle=self.handle, closed=closed, error=error))
            self.end()

    def end(self) -> None:
        self.state = LinkState.ENDED
        links = self.session.held.links
        if links.get((self.role, self.name)) is self:
            del links[self.role, self.name]

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
        if self.state is LinkState.ATTACHED:
            self.credit = credit
            self.write_flow()

    def settle(self, delivery_id: int, outcome: DeliveryState) -> None:
        if self.state is LinkState.ATTACHED:
            self.session.write_disposition(RECEIVER, delivery_id, outcome)

    def end(self) -> None:
        super().end()
        self._keep(0)
        self._first = None

    def write_flow(self) -> None:
        self.session.write_flow(
            handle=self.handle, delivery_count=self._delivery_count, link_credit=max(self.credit, 0)
        )

    def receive_flow(self, flow: Flow) -> None:
        if flow.echo and self.state is LinkState.ATTACHED:
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
            raise ProtocolViolationError(
                f"A delivery tag has at most {_MAX_TAG} bytes, not {len(first.delivery_tag)}.", "amqp:invalid-field"
            )
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

    def end(self) -> None:
        super().end()
        self.session.forget_deliveries(self)

    @property
    def credit(self) -> int:
        """Return the number of deliveries that may be sent now; a peer may grant some together with its attach."""
        return self._credit if self.state is LinkState.ATTACHED and not self.session.is_shut else 0

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
        if delivery_tag in self.delivery_ids:
            ended = self.session.ended
            ended.append((self, delivery_tag))
            if len(ended) > _MAX_ENDED:
                self.session.forget_delivery(*ended.popleft())

    def drained(self) -> None:
        """Give back all credit, because there is nothing more to send."""
        if self.state is LinkState.ATTACHED:
            self._delivery_count = (self._delivery_count + self._credit) % _SERIAL
            self._credit = 0
            self.write_flow()
            self.drain = False

    def write_flow(self) -> None:
        self.session.write_flow(
            handle=self.handle, delivery_count=self._delivery_count, link_credit=self._credit, drain=self.drain
        )

    def receive_flow(self, flow: Flow) -> None:
        # Messages sent since the peer wrote this flow count against its credit.
        credit = ((flow.delivery_count or 0) + (flow.link_credit or 0) - self._delivery_count) % _SERIAL
        self._credit = credit if credit < _SERIAL // 2 else 0
        self.drain = flow.drain
        if flow.echo and self.state is LinkState.ATTACHED and not flow.drain:
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

ENDED: it is gone, by detach, or with its session or connection. No answer is needed. There is no event for links that
we refused or detached ourselves.
"""


# Frames; huge, because azure-servicebus stops at 0 until a flow comes. Credit is what limits a peer, and each flow that
# gives it opens the window anew.
_WINDOW: Final = 2**31 - 1
_HANDLE_MAX: Final = 4095
# Deliveries of a session that have ended without the peer and that the peer may still have something to say about
_MAX_ENDED: Final = 1000
_SESSION_SIZE: Final = 4096  # Bytes that a session takes in memory
_AnyLink = ReceivingLink | SendingLink
# Bytes of a transfer without the payload and the delivery tag
_TRANSFER_SIZE: Final = len(encode_transfer(0, 0, b"", settled=False, more=False))


@dataclass(slots=True)
class _Delivery:
    link: SendingLink
    delivery_tag: bytes
    payload: bytes
    settled: bool
    delivery_id: int | None = None
    sent: int = 0


class AmqpSession:
    """Our end of the session that the peer began on ``channel``; we use the same channel."""

    def __init__(
        self, channel: int, begin: Begin, writer: FrameWriter, tell: Callable[[Event], None], held: HeldMemory
    ) -> None:
        self.held = held
        self.notes: dict[str, Any] = {}  # of the connection's owner
        held.add_state(_SESSION_SIZE)
        self._channel = channel
        self._writer = writer
        self._tell = tell
        self._links: dict[int, _AnyLink] = {}
        self._next_incoming_id = begin.next_outgoing_id
        self._next_outgoing_id = 0
        self._remote_incoming_window = begin.incoming_window
        self._next_delivery_id = 0
        self._outbox: deque[_Delivery] = deque()
        self._unsettled: dict[int, tuple[SendingLink, bytes]] = {}
        self.ended: deque[tuple[SendingLink, bytes]] = deque()
        self.write(
            Begin(
                remote_channel=channel,
                next_outgoing_id=0,
                incoming_window=_WINDOW,
                outgoing_window=_WINDOW,
                handle_max=_HANDLE_MAX,
            )
        )

    @property
    def is_shut(self) -> bool:
        """Return whether the peer takes no more frames of messages until it sends another flow."""
        return self._remote_incoming_window == 0

    def end(self) -> None:
        links, self._links = self._links, {}
        self.held.add_state(-_SESSION_SIZE)
        for link in links.values():
            self._drop(link)

    def write(self, performative: Performative) -> None:
        self._writer.write(self._channel, encode_within(self._writer.max_body_size, performative))

    def write_flow(self, **link_state: Any) -> None:
        self.write(
            Flow(
                next_incoming_id=self._next_incoming_id,
                incoming_window=_WINDOW,
                next_outgoing_id=self._next_outgoing_id,
                outgoing_window=_WINDOW,
                **link_state,
            )
        )

    def write_disposition(self, role: bool, delivery_id: int, state: DeliveryState, *, settled: bool = True) -> None:
        """Settle one delivery, or report its state. Never a range: azure-servicebus waits for each one's own frame."""
        size = self._writer.max_body_size
        self._writer.write(self._channel, encode_disposition(size, role, delivery_id, state, settled=settled))

    def deliver(self, link: SendingLink, delivery_tag: bytes, payload: bytes, *, settled: bool) -> None:
        delivery = _Delivery(link, delivery_tag, payload, settled)
        if self._outbox or self._remote_incoming_window == 0 or not self._write_transfer(delivery):
            self._outbox.append(delivery)
            self.held.add_answers(len(payload))
            self._flush()

    def forget_delivery(self, link: SendingLink, delivery_tag: bytes) -> int | None:
        delivery_id = link.delivery_ids.pop(delivery_tag, None)
        if delivery_id is not None:
            del self._unsettled[delivery_id]
        return delivery_id

    def forget_deliveries(self, link: SendingLink) -> None:
        """Drop everything that was sent, or still waits, on a link that has ended."""
        for delivery_id in link.delivery_ids.values():
            del self._unsettled[delivery_id]
        link.delivery_ids.clear()
        dropped = [waiting for waiting in self._outbox if waiting.link is link]
        if dropped:
            self._outbox = deque(waiting for waiting in self._outbox if waiting.link is not link)
            self.held.add_answers(-sum(len(waiting.payload) for waiting in dropped))

    def _receive_attach(self, attach: Attach, _: bytes) -> None:
        known = self._links.get(attach.handle)
        if known is not None and known.state is not LinkState.ENDED:
            raise ProtocolViolationError(f"The handle {attach.handle} is in use.", "amqp:session:handle-in-use")
        if attach.handle > _HANDLE_MAX:
            raise ProtocolViolationError(f"The handle {attach.handle} is larger than {_HANDLE_MAX}.")
        if known is not None:
            self.held.add_state(-known.size)
        link = ReceivingLink(self, attach) if attach.role is SENDER else SendingLink(self, attach)
        # A name is that of one link (section 2.6.1): a peer that attaches it again takes it over.
        former = self.held.links.get((link.role, link.name))
        if former is not None:
            former.detach(Error("amqp:link:stolen", f"The link {link.name[:260]!r} was attached again."))
            self._tell(former)
        self.held.links[link.role, link.name] = self._links[attach.handle] = link
        self._tell(link)

    def _receive_detach(self, detach: Detach, _: bytes) -> None:
        link = self._links.pop(detach.handle, None)
        if link is not None:
            self._drop(link, detach)

    def _drop(self, link: _AnyLink, detach: Detach | None = None) -> None:
        """End a link, unless it has ended already: then the peer's detach answers ours."""
        self.held.add_state(-link.size)
        if link.state is not LinkState.ENDED:
            if detach is not None:
                link.detach(closed=detach.closed)
            link.end()
            self._tell(link)

    def _receive_transfer(self, transfer: Transfer, payload: bytes) -> None:
        self._next_incoming_id = (self._next_incoming_id + 1) % _SERIAL
        link = self._links.get(transfer.handle)
        if isinstance(link, ReceivingLink):
            event = link.receive_transfer(transfer, payload)
            if event is not None:
                self._tell(event)
        elif link is not None:
            raise ProtocolViolationError("A transfer came on a link of the other direction.", "amqp:not-allowed")

    def _receive_flow(self, flow: Flow, _: bytes) -> None:
        # What we sent and the peer had not seen when it wrote this flow counts against its window.
        was_shut = self.is_shut
        unseen = (self._next_outgoing_id - (flow.next_incoming_id or 0)) % _SERIAL
        self._remote_incoming_window = max(flow.incoming_window - unseen, 0)
        link = None if flow.handle is None else self._links.get(flow.handle)
        if link is not None:
            link.receive_flow(flow)
        elif flow.handle is None and flow.echo:
            self.write_flow()
        self._flush()
        # Once the window opens, the credit of all links counts again.
        for each in self._links.values() if was_shut and not self.is_shut else [link]:
            if isinstance(each, SendingLink) and each.state is LinkState.ATTACHED:
                self._tell(each)

    def _receive_disposition(self, disposition: Disposition, _: bytes) -> None:
        if disposition.role is SENDER:
            return  # We settle what a peer sends at once, so it has nothing to say about it.
        outcome, txn_id = disposition.state, None
        if isinstance(outcome, TransactionalState):
            outcome, txn_id = outcome.outcome, outcome.txn_id
        if outcome is None or isinstance(outcome, Received | Declared | TransactionalState):
            if not disposition.settled:
                return
            outcome = Released()
        in_range = disposition.last not in (None, disposition.first)
        for delivery_id in self._named_by(disposition):
            link, tag = self._unsettled[delivery_id]
            if disposition.settled:
                self.forget_delivery(link, tag)
            self._tell(DispositionReceived(link, tag, outcome, disposition.settled, in_range, txn_id))

    def _named_by(self, disposition: Disposition) -> list[int]:
        first, last = disposition.first, disposition.last
        if last is None or last == first:
            return [first] if first in self._unsettled else []
        # The peer may name four thousand million deliveries: walk what we know, unless the range is small.
        count = (last - first) % _SERIAL + 1
        if count <= len(self._unsettled):
            named = ((first + step) % _SERIAL for step in range(count))
            return [delivery_id for delivery_id in named if delivery_id in self._unsettled]
        return [delivery_id for delivery_id in self._unsettled if (delivery_id - first) % _SERIAL < count]

    def _flush(self) -> None:
        while self._outbox and self._remote_incoming_window > 0:
            if self._write_transfer(self._outbox[0]):
                self.held.add_answers(-len(self._outbox.popleft().payload))

    def _write_transfer(self, delivery: _Delivery) -> bool:
        """Write one frame of a message, and return whether it was the last one."""
        payload, tag, settled = delivery.payload, delivery.delivery_tag, delivery.settled
        delivery_id = delivery.delivery_id
        if delivery_id is None:
            delivery_id = delivery.delivery_id = self._next_delivery_id
            self._next_delivery_id = (delivery_id + 1) % _SERIAL
            if not settled:
                self._unsettled[delivery_id] = delivery.link, tag
                delivery.link.delivery_ids[tag] = delivery_id
        # One frame of at most the size that the peer takes.
        end = delivery.sent + self._writer.max_body_size - _TRANSFER_SIZE - len(tag)
        is_last = end >= len(payload)
        head = encode_transfer(delivery.link.handle, delivery_id, tag, settled=settled, more=not is_last)
        chunk = payload if is_last and not delivery.sent else payload[delivery.sent : end]
        self._writer.write(self._channel, head, chunk)
        # Each frame takes one place in the window.
        delivery.sent = end
        self._next_outgoing_id = (self._next_outgoing_id + 1) % _SERIAL
        self._remote_incoming_window -= 1
        return is_last

    RECEIVERS: ClassVar[dict[type, Callable[[AmqpSession, Any, bytes], None]]] = {
        Transfer: _receive_transfer,
        Disposition: _receive_disposition,
        Flow: _receive_flow,
        Attach: _receive_attach,
        Detach: _receive_detach,
    }
    """The function that takes each performative of a session, and the payload behind it."""
