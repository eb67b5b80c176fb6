"""One session: the windows, the numbers of deliveries, and the links by handle.

Frames for a handle that is not known, or no longer, are ignored: the peer may not have read our
detach yet.

Source: AMQP 1.0 part 2, transport, sections 2.5 and 2.6.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from sbnotebook.emulator.amqp.frames import FrameWriter, HeldMemory
from sbnotebook.emulator.amqp.link import DispositionReceived, Event, LinkState, ReceivingLink, SendingLink
from sbnotebook.emulator.amqp.performatives import (
    SENDER,
    Attach,
    Begin,
    Declared,
    DeliveryState,
    Detach,
    Disposition,
    Error,
    Flow,
    Performative,
    Received,
    Released,
    TransactionalState,
    Transfer,
    encode_settlement,
    encode_transfer,
    encode_within,
)
from sbnotebook.errors import ProtocolViolationError

_SERIAL: Final = 2**32  # Transfer and delivery numbers are serial numbers (RFC 1982): after 2**32 - 1 comes 0
# Frames; huge, because azure-servicebus stops at 0 until a flow comes. Credit is what limits a peer, and each flow that
# gives it opens the window anew.
_INCOMING_WINDOW: Final = 2**31 - 1
_OUTGOING_WINDOW: Final = 2**31 - 1
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
        self._ended: deque[tuple[SendingLink, bytes]] = deque()
        self.write(
            Begin(
                remote_channel=channel,
                next_outgoing_id=0,
                incoming_window=_INCOMING_WINDOW,
                outgoing_window=_OUTGOING_WINDOW,
                handle_max=_HANDLE_MAX,
            )
        )

    @property
    def is_shut(self) -> bool:
        """Return whether the peer takes no more frames of messages until it sends another flow."""
        return self._remote_incoming_window == 0

    def end(self) -> None:
        links, self._links = self._links, {}
        self.held.handles -= len(links)
        self.held.add_state(-_SESSION_SIZE)
        for link in links.values():
            self._drop(link)

    def write(self, performative: Performative) -> None:
        self._writer.write(self._channel, encode_within(self._writer.max_body_size, performative))

    def write_flow(self, **link_state: Any) -> None:
        self.write(
            Flow(
                next_incoming_id=self._next_incoming_id,
                incoming_window=_INCOMING_WINDOW,
                next_outgoing_id=self._next_outgoing_id,
                outgoing_window=_OUTGOING_WINDOW,
                **link_state,
            )
        )

    def write_disposition(self, role: bool, delivery_id: int, state: DeliveryState, *, settled: bool = True) -> None:
        """Settle one delivery, or report its state. Never a range: azure-servicebus waits for each one's own frame."""
        if not settled:
            self.write(Disposition(role=role, first=delivery_id, last=delivery_id, settled=False, state=state))
            return
        self._writer.write(self._channel, encode_settlement(self._writer.max_body_size, role, delivery_id, state))

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

    def end_delivery(self, link: SendingLink, delivery_tag: bytes) -> None:
        """Drop an unsettled delivery soon. The peer may be about to settle it."""
        if delivery_tag in link.delivery_ids:
            self._ended.append((link, delivery_tag))
            if len(self._ended) > _MAX_ENDED:
                self.forget_delivery(*self._ended.popleft())

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
        if known is not None and known.state is not LinkState.DETACHING:
            raise ProtocolViolationError(f"The handle {attach.handle} is in use.", "amqp:session:handle-in-use")
        if attach.handle > _HANDLE_MAX:
            raise ProtocolViolationError(f"The handle {attach.handle} is larger than {_HANDLE_MAX}.")
        if known is None:
            self.held.add_handle()
        else:
            known.leave()
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
            self.held.handles -= 1
            self._drop(link, detach)

    def _drop(self, link: _AnyLink, detach: Detach | None = None) -> None:
        ours = link.state is LinkState.DETACHING
        link.receive_detach(detach)
        link.leave()
        if not ours:
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
            if isinstance(each, SendingLink) and each.attached:
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
    """What to do with a performative of a session, and the payload behind it."""
