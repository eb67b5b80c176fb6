"""Links on entities: a client sends to a queue or topic, or receives from a queue, subscription or sub-queue.

Source: Service Bus documentation, "AMQP 1.0 in Azure Service Bus and Event Hubs protocol guide".
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

from sbnotebook.emulator.amqp import (
    Accepted,
    DispositionReceived,
    Error,
    Modified,
    Outcome,
    ReceivingLink,
    Rejected,
    Released,
    SendingLink,
    TransferReceived,
)
from sbnotebook.emulator.entities import (
    AnyEntity,
    BrokeredMessage,
    DeadLetterReason,
    Queue,
    Receivable,
    Refusal,
    RefusedError,
    SentMessage,
    Topic,
    read_sent,
)
from sbnotebook.emulator.faults import EntityFaults
from sbnotebook.emulator.service.conditions import SERVER_BUSY, Condition, condition_of, explain
from sbnotebook.errors import AmqpDecodeError
from sbnotebook.model.amqp import AmqpValue
from sbnotebook.model.sections import DATA, section_value, split

if TYPE_CHECKING:
    from sbnotebook.emulator.service.peer import AmqpPeer

__all__ = ["LinkHandler", "Outlet", "ReceiverLink", "SenderLink"]

_BATCH_FORMAT: Final = 0x80013700
"""Message format of a batch: one data section for each message, which it holds encoded."""
_CREDIT: Final = 2000
_MANY_GIVEN: Final = 1000
"""Deliveries of one link that are not worth a look whether their locks have ended otherwise."""
_SETTLED: Final = 1
"""The snd-settle-mode of receive-and-delete."""
_ACCEPTED: Final = Accepted()


class LinkHandler:
    """What handles the events of one link; those that a link cannot have do nothing.

    Args:
        entity: what the link is attached to, None for a node without one.
    """

    def __init__(self, entity: AnyEntity | Receivable | None) -> None:
        self.attached_to = entity
        self.path = None if entity is None else entity.path

    def transfer_received(self, event: TransferReceived) -> None:
        """The client sent a message."""

    def disposition_received(self, event: DispositionReceived) -> None:
        """The client decided about a message that it was sent."""

    def credit_changed(self) -> None:
        """The client said how much it takes, or the connection can be written to again."""

    def detached(self) -> None:
        """The link is gone."""


class Outlet(Protocol):
    """What messages are received from: an entity, or a session that the client holds."""

    @property
    def has_available(self) -> bool:
        """Whether ``receive`` would find a message."""
        ...

    def receive(self, now: int) -> BrokeredMessage | None:
        """Lock the first available message."""
        ...

    def receive_and_delete(self, now: int) -> BrokeredMessage | None:
        """Take out the first available message."""
        ...


class SenderLink(LinkHandler):
    """A client sends messages to a queue or topic."""

    def __init__(self, peer: AmqpPeer, link: ReceivingLink, destination: Queue | Topic) -> None:
        super().__init__(destination)
        self._destination = destination
        self._peer = peer
        self._link = link
        link.grant_credit(_CREDIT)

    def transfer_received(self, event: TransferReceived) -> None:
        """Keep a message, or all messages of a batch, and accept them once they are kept."""
        faults, link = self._peer.broker.faults.at(self._destination.path), self._link
        # First, so that a delay that is none leaves nothing half done.
        delay = faults.accept_delay_ms / 1000
        outcome = self._take_in(event, faults)
        if link.credit < _CREDIT // 2:
            link.grant_credit(_CREDIT)
        if event.settled:
            return
        if delay:
            _confirm_later(self._peer, partial(link.settle, event.delivery_id, outcome), delay)
        else:
            link.settle(event.delivery_id, outcome)

    def detached(self) -> None:
        """The link is gone."""
        self._peer.broker.was_used(self._destination)

    def _take_in(self, event: TransferReceived, faults: EntityFaults) -> Outcome:
        now = self._peer.broker.moment()
        try:
            self._check_batch(event)
            messages = _messages(event)
            self._destination.admission.check(messages)
        except AmqpDecodeError as error:
            return Rejected(Condition.DECODE_ERROR.error(str(error)))
        except RefusedError as error:
            return Rejected(condition_of(error).error(str(error)))
        fault = _fault(faults, len(messages))
        if fault is not None:
            return Rejected(fault)
        for message in messages:
            self._destination.send(message, now)
        return _ACCEPTED

    def _check_batch(self, event: TransferReceived) -> None:
        limit = self._peer.broker.registry.tier.quotas.max_batch_size
        if event.message_format == _BATCH_FORMAT and len(event.payload) > limit:
            text = f"The batch has {len(event.payload)} bytes, the limit is {limit}."
            raise RefusedError(Refusal.TOO_LARGE, text)


class ReceiverLink(LinkHandler):
    """A client receives messages, in peek-lock or receive-and-delete mode.

    Args:
        peer: the connection.
        link: the client's link.
        entity: where its messages are.
        outlet: what it receives from; None for the entity.
    """

    lock_lost = Condition.MESSAGE_LOCK_LOST

    def __init__(self, peer: AmqpPeer, link: SendingLink, entity: Receivable, outlet: Outlet | None = None) -> None:
        super().__init__(entity)
        self.entity = entity
        self.outlet = outlet or entity
        self._link = link
        self._peer = peer
        self._deletes = link.snd_settle_mode == _SETTLED
        self._late: deque[tuple[bytes, bytes, UUID | None]] = deque()
        self._given: dict[UUID, None] = {}  # the locks that the client has of this link, and some that have ended
        self._most_given = _MANY_GIVEN

    @property
    def can_take(self) -> bool:
        """Whether a message can be sent to the client now."""
        return self._link.credit > len(self._late) and self._peer.is_writable

    @property
    def is_draining(self) -> bool:
        """Whether the client wants to hear that there are no more messages, instead of waiting."""
        return self._link.drain and not self._late

    def credit_changed(self) -> None:
        """The client said how much it takes, or the connection can be written to again."""
        if self.can_take or self.is_draining:
            self._peer.broker.dispatcher.wait(self)

    def deliver(self, now: int) -> int:
        """Send the next message; its bytes."""
        delay = self._faults.delivery_delay_ms / 1000
        message = self.outlet.receive_and_delete(now) if self._deletes else self.outlet.receive(now)
        if message is None:
            return 0
        with_lock = not self._deletes and self.outlet is self.entity
        payload = self.entity.rendered(message, is_delivery=True, with_lock=with_lock)
        # Nobody settles a message that is deleted already, so Service Bus gives it an empty tag.
        tag = message.lock_token.bytes_le if message.lock_token else b""
        self._late.append((tag, payload, message.lock_token))
        if message.lock_token is not None:
            self._given[message.lock_token] = None
            if len(self._given) > self._most_given:
                self._forget_ended(now)
        if delay:
            asyncio.get_running_loop().call_later(delay, self._arrive)
        else:
            self._send_next()
        return len(payload)

    def end_drain(self) -> None:
        """Say that there are no more messages."""
        self._link.drained()
        self._peer.broker.touch(self._peer)

    def disposition_received(self, event: DispositionReceived) -> None:
        """Settle a message as the client decided, and confirm it once that is kept."""
        delay = self._faults.settle_delay_ms / 1000
        token = UUID(bytes_le=event.delivery_tag)
        self._given.pop(token, None)
        try:
            is_held, echo = self._settle(token, event.outcome)
        except RefusedError as error:
            is_held, echo = True, Rejected(condition_of(error).error(str(error)))
        if not is_held:
            text = "The lock supplied is invalid: it has expired, or the message is no longer in the queue."
            echo = Rejected(self.lock_lost.error(text))
        if delay:
            _confirm_later(self._peer, partial(self._link.settle, event.delivery_tag, echo), delay)
        else:
            self._link.settle(event.delivery_tag, echo)

    def detached(self) -> None:
        """The link is gone; its locks stay."""
        self._peer.broker.dispatcher.forget(self)
        self._peer.broker.was_used(self.entity)

    @property
    def _faults(self) -> EntityFaults:
        return self._peer.broker.faults.at(self.entity.path)

    def _forget_ended(self, now: int) -> None:
        """Keep nothing of deliveries that the client has settled over another link, or whose locks were lost."""
        for token in [token for token in self._given if not self.entity.holds(token, now)]:
            del self._given[token]
            self._link.forget(token.bytes_le)
        # Seldom enough to cost next to nothing for each message.
        self._most_given = max(_MANY_GIVEN, 2 * len(self._given))

    def _arrive(self) -> None:
        """A message was under way for long enough."""
        self._send_next()
        self.credit_changed()

    def _send_next(self) -> None:
        tag, payload, token = self._late.popleft()
        if self._link.credit > 0:
            self._link.send(tag, payload, settled=self._deletes)
        elif token is not None:
            self.entity.release(token, self._peer.broker.moment())  # The client is gone, or took its credit back.
        self._peer.broker.touch(self._peer)

    def _settle(self, token: UUID, outcome: Outcome) -> tuple[bool, Outcome]:
        """Carry out a decision; whether the lock was held, and the echo that confirms it."""
        now = self._peer.broker.moment()
        match outcome:
            case Accepted():
                return self.entity.complete(token, now), outcome
            case Released():
                return self.entity.release(token, now), outcome
            case Modified():
                act = self.entity.defer if outcome.undeliverable_here else self.entity.abandon
                # The echo comes without the properties that were sent along.
                echo = Modified(outcome.delivery_failed, outcome.undeliverable_here)
                return act(token, now, outcome.message_annotations), echo
            case Rejected():
                return self._dead_letter(token, outcome, now)

    def _dead_letter(self, token: UUID, outcome: Rejected, now: int) -> tuple[bool, Outcome]:
        if self.entity.dead_letter is None:
            text = "A message of a dead-letter queue cannot be dead-lettered."
            return True, Rejected(Condition.NOT_ALLOWED.error(text))
        info: dict[Any, Any] = dict(outcome.error.info) if outcome.error is not None else {}
        keys = ("DeadLetterReason", "DeadLetterErrorDescription")
        why = DeadLetterReason(*(_text(info.pop(key, None)) for key in keys))
        return self.entity.dead_letter_message(token, now, why, info), Rejected()


def _fault(faults: EntityFaults, count: int) -> Error | None:
    if faults.is_busy():
        return Condition.SERVER_BUSY.error(SERVER_BUSY)
    if faults.rejects(count):
        return Error(faults.reject_condition, explain("The message was rejected on demand."))
    return None


def _confirm_later(peer: AmqpPeer, settle: Callable[[], None], delay: float) -> None:
    """Settle a delivery after some seconds."""

    def confirm() -> None:
        settle()
        peer.broker.touch(peer)

    asyncio.get_running_loop().call_later(delay, confirm)


def _messages(event: TransferReceived) -> list[SentMessage]:
    if event.message_format != _BATCH_FORMAT:
        return [read_sent(event.payload)]
    bodies = [section_value(event.payload, section) for section in split(event.payload) if section.code == DATA]
    if not bodies:
        raise AmqpDecodeError("The batch cannot be read: it has no data section, so it holds no message.")
    return [_read_batched(body) for body in bodies]


def _read_batched(body: AmqpValue) -> SentMessage:
    if not isinstance(body, bytes):
        raise AmqpDecodeError("The batch cannot be read: a data section must hold the bytes of a message.")
    return read_sent(body)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
