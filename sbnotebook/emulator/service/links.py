"""Links on entities: to send to a queue or topic, or to receive from a queue, subscription, sub-queue or session.

Source: Service Bus documentation, "AMQP 1.0 in Azure Service Bus and Event Hubs protocol guide" and "Message sessions".
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, cast
from uuid import UUID

from sbnotebook.amqp import AmqpValue, Described, Long, Symbol, UInt
from sbnotebook.amqp.sections import DATA, section_value, split
from sbnotebook.emulator.amqp.link import DispositionReceived, Link, ReceivingLink, SendingLink, TransferReceived
from sbnotebook.emulator.amqp.performatives import (
    Accepted,
    DeliveryState,
    Error,
    Modified,
    Outcome,
    Rejected,
    Released,
    Source,
    TransactionalState,
)
from sbnotebook.emulator.clock import no_alarm, ticks_of
from sbnotebook.emulator.entities.box import RELEASE, MessageSession, Receivable, ReceivingEntity
from sbnotebook.emulator.entities.message import SentMessage, read_sent
from sbnotebook.emulator.entities.queue import Queue, Topic
from sbnotebook.emulator.entities.refusals import Condition, RefusedError, error_of, new_error, with_tracking_id
from sbnotebook.emulator.entities.registry import AnyEntity
from sbnotebook.emulator.entities.transaction import Transaction
from sbnotebook.emulator.faults import EntityFaults
from sbnotebook.emulator.service.broker import check_age, settle, settle_later, settlement_of
from sbnotebook.errors import AmqpDecodeError

if TYPE_CHECKING:
    from sbnotebook.emulator.service.peer import AmqpPeer

SESSION_FILTER: Final = Symbol("com.microsoft:session-filter")
"""The session in the filter of a source, or null for the next free one."""
_LOCKED_UNTIL: Final = Symbol("com.microsoft:locked-until-utc")
_TIMEOUT: Final = Symbol("com.microsoft:timeout")
_GRACE: Final = 1000
"""Milliseconds that a link stays after the lock of its session has ended: azure-servicebus's own live tests rely on
some time. Nothing can be received or settled any more."""
_DEFAULT_TIMEOUT: Final = 60_000
_MAX_TIMEOUT: Final = 86_400_000

# Message format of a batch: one data section for each message, which it holds encoded
_BATCH_FORMAT: Final = 0x80013700
_CREDIT: Final = 2000
# Deliveries of one link up to which it does not check whether their locks have ended otherwise
_MANY_GIVEN: Final = 1000
_SETTLED: Final = 1  # The snd-settle-mode of receive-and-delete
_ACCEPTED: Final = Accepted()


class LinkHandler:
    """The handler of one link's events. Events that a link cannot have are ignored."""

    def __init__(self, peer: AmqpPeer, entity: AnyEntity | Receivable | None) -> None:
        self.attached_to = entity
        self.path = None if entity is None else entity.path
        self._peer = peer

    def transfer_received(self, event: TransferReceived, faults: EntityFaults) -> None:
        """Take a message that the client sent."""

    def disposition_received(self, event: DispositionReceived, faults: EntityFaults) -> None:
        """Take the client's decision about a message that it got."""

    def credit_changed(self) -> None:
        """Send waiting messages: the client changed its credit, or the connection can be written to again."""

    def detached(self) -> None:
        """Clean up, because the link is gone."""


class SenderLink(LinkHandler):
    def __init__(
        self, peer: AmqpPeer, link: ReceivingLink, destination: Queue | Topic, via: Queue | Topic | None = None
    ) -> None:
        super().__init__(peer, destination)
        self._link = link
        self._destination = destination
        self._via = via
        link.grant_credit(_CREDIT)

    def transfer_received(self, event: TransferReceived, faults: EntityFaults) -> None:
        """Store a message, or all messages of a batch, and accept them once they are stored."""
        link = self._link
        # First, so that an invalid delay leaves nothing half done.
        delay = faults.accept_delay_ms / 1000
        outcome = self._take_in(event, faults)
        if link.credit < _CREDIT // 2:
            link.grant_credit(_CREDIT)
        if event.settled:
            return
        if delay:
            _confirm(self._peer, partial(link.settle, event.delivery_id, outcome), delay)
        else:
            link.settle(event.delivery_id, outcome)

    def detached(self) -> None:
        self._peer.broker.was_used(self._destination)

    def _take_in(self, event: TransferReceived, faults: EntityFaults) -> DeliveryState:
        now = self._peer.broker.now  # when its bytes came in: asking the clock for every message costs more
        transaction: Transaction | None = None
        try:
            transaction = None if event.txn_id is None else self._peer.transactions.find(event.txn_id)
            # All messages of a batch are checked before the first is taken in.
            if event.message_format == _BATCH_FORMAT:
                messages = _batched(event.payload, self._peer.broker.registry.tier.quotas.max_batch_size)
                self._destination.check_batch(messages)
            else:
                messages = [read_sent(event.payload)]
            self._destination.check(messages)
            # A fault on demand refuses messages that are valid.
            broker = self._peer.broker
            if faults.server_busy or faults.reject_nth or broker.faults.operations_per_second:
                broker.admit(faults)
                if faults.rejects(len(messages)):
                    text = with_tracking_id("The message was rejected on demand.")
                    return self._refused(event, Error(faults.reject_condition, text), transaction)
                broker.charge(len(messages))
            if transaction is not None:
                transaction.send(self._destination, messages, self._via)
                return TransactionalState(transaction.txn_id, _ACCEPTED)
        except (AmqpDecodeError, RefusedError) as error:
            return self._refused(event, error_of(error), transaction)
        for message in messages:
            self._destination.send(message, now)
        return _ACCEPTED

    def _refused(self, event: TransferReceived, error: Error, transaction: Transaction | None) -> DeliveryState:
        if transaction is not None and event.settled:
            transaction.failure = "A message that was sent settled in it was refused."
        return _refused(self._peer, self._link, error, event.txn_id)


class ReceiverLink(LinkHandler):
    """A client receives messages, in peek-lock or receive-and-delete mode."""

    def __init__(self, peer: AmqpPeer, link: SendingLink, entity: Receivable) -> None:
        super().__init__(peer, entity)
        self._link = link
        self.entity = entity
        self.source: Receivable | SessionReceiverLink = entity
        self._session: MessageSession | None = None
        self._deletes = link.snd_settle_mode == _SETTLED
        self._late: deque[tuple[bytes, bytes, UUID | None]] = deque()
        # By delivery tag: the lock, and since when (ms) the client has it. Some of the locks have ended.
        self._given: dict[bytes, tuple[UUID, int]] = {}
        self._most_given = _MANY_GIVEN

    @property
    def can_take(self) -> bool:
        if self._link.credit <= len(self._late) or not self._peer.is_writable:
            return False
        if not self._given:
            return True
        faults = self._faults
        return not (0 < faults.max_unsettled <= len(self._given) and faults.over_max_unsettled == "stop")

    @property
    def is_draining(self) -> bool:
        """Return whether the client wants an answer when there are no more messages, instead of waiting."""
        return self._link.drain and not self._late

    def credit_changed(self) -> None:
        """Wait for messages, if the client takes some or wants to know that there are none."""
        if self.can_take or self.is_draining:
            self._peer.broker.wait(self)

    def deliver(self, now: int) -> int:
        """Send the next message, and return its size in bytes."""
        faults = self._faults
        delay = faults.delivery_delay_ms / 1000
        message = self.entity.receive(now, self._session, delete=self._deletes)
        if message is None:
            return 0
        with_lock = not self._deletes and self.source is self.entity
        payload = self.entity.rendered(message, is_delivery=True, with_lock=with_lock)
        # A message that is deleted already is not settled, so Service Bus gives it an empty tag.
        tag = message.lock_token.bytes_le if message.lock_token else b""
        self._late.append((tag, payload, message.lock_token))
        if message.lock_token is not None:
            self._given[tag] = message.lock_token, now
            if faults.max_unsettled:
                if len(self._given) > faults.max_unsettled and faults.over_max_unsettled == "detach":
                    asyncio.get_running_loop().call_soon(self._detach_forced)
            elif len(self._given) > self._most_given:
                self._forget_ended(now)
        if delay:
            asyncio.get_running_loop().call_later(delay, self._arrive)
        else:
            self._send_next()
        return len(payload)

    def end_drain(self) -> None:
        self._link.drained()
        self._peer.broker.touch(self._peer)

    def disposition_received(self, event: DispositionReceived, faults: EntityFaults) -> None:
        """Settle a message as the client decided, and confirm it once the change is stored."""
        delay = faults.settle_delay_ms / 1000
        if event.txn_id is not None:
            _confirm(self._peer, self._settle_in_transaction(event, event.txn_id, faults), delay)
            return
        now = self._peer.broker.advance()
        try:
            token, since = self._given.pop(event.delivery_tag, None) or (UUID(bytes_le=event.delivery_tag), now)
            settle(self.entity, [token], settlement_of(event.outcome), now, faults, since)
            # Echo the outcome, or the reason for which it is refused.
            echo = _echo(event.outcome)
        except RefusedError as error:
            echo = Rejected(error_of(error))
        if faults.unconfirmed and (event.in_range if faults.unconfirmed == "ranges" else event.outcome == Released()):
            self._link.forget(event.delivery_tag)
        else:
            _confirm(self._peer, partial(self._link.settle, event.delivery_tag, echo), delay)
        if faults.max_unsettled:
            self.credit_changed()

    def _settle_in_transaction(
        self, event: DispositionReceived, txn_id: bytes, faults: EntityFaults
    ) -> Callable[[], None]:
        """Let a transaction settle a message. Whether it is settled for the client before the discharge is a choice."""
        transactions, is_settled = self._peer.transactions, self._peer.broker.faults.settles_before_discharge
        token, now = UUID(bytes_le=event.delivery_tag), self._peer.broker.advance()
        try:
            transaction = transactions.find(txn_id)
            if transactions.settles_elsewhere(transaction, token):
                text = "Two open transactions settle the same message."
                self._peer.detach(transaction.link, new_error(Condition.TRANSACTION_ROLLBACK, text))
                transactions.find(txn_id)
            _, since = self._given.get(event.delivery_tag, (token, now))
            check_age(self.entity, now, faults, since)
            settle_later(transaction, self.entity, [token], settlement_of(event.outcome), now, self._forget)
            state: DeliveryState = TransactionalState(txn_id, _echo(event.outcome))
        except RefusedError as error:
            state, is_settled = _refused(self._peer, self._link, error_of(error), txn_id), True
        # The delivery is not forgotten: after a rollback the client can settle it again.
        return partial(self._link.report, event.delivery_tag, state, settled=is_settled)

    def _forget(self, token: UUID) -> None:
        """Forget a message that was settled when a transaction was committed."""
        self._given.pop(token.bytes_le, None)
        self._link.forget(token.bytes_le)

    def detached(self) -> None:
        self._peer.broker.forget(self)
        self._peer.broker.was_used(self.entity)

    @property
    def _faults(self) -> EntityFaults:
        return self._peer.broker.faults.at(self.entity.path)

    def _forget_ended(self, now: int) -> None:
        """Forget the deliveries that the client settled over another link, or whose locks were lost."""
        for tag in [tag for tag, (token, _) in self._given.items() if self.entity.held(token, now) is None]:
            del self._given[tag]
            self._link.forget(tag)
        # Rarely enough to cost next to nothing for each message.
        self._most_given = max(_MANY_GIVEN, 2 * len(self._given))

    def _detach_forced(self) -> None:
        text = f"The link '{self._link.name}' is force detached: too many of its messages are not settled."
        self._peer.detach(self._link, new_error(Condition.DETACH_FORCED, text))

    def _arrive(self) -> None:
        """Send a message whose delay has passed."""
        self._send_next()
        self.credit_changed()

    def _send_next(self) -> None:
        tag, payload, token = self._late.popleft()
        if self._link.credit > 0:
            self._link.send(tag, payload, settled=self._deletes)
        elif token is not None:
            with suppress(RefusedError):  # The client is gone, or took its credit back.
                self.entity.settle(token, RELEASE, self._peer.broker.advance())
        self._peer.broker.touch(self._peer)


class SessionReceiverLink(ReceiverLink):
    """A client receives from a session: it waits for one, and holds it until the link or the lock ends.

    Its link is attached once it gets the session.
    """

    def __init__(self, peer: AmqpPeer, link: SendingLink, entity: ReceivingEntity) -> None:
        super().__init__(peer, link, entity)
        self.source = self
        self._owner = entity
        self._name = (entity, link.name)
        self._token: UUID | None = None
        self._cancel_alarm: Callable[[], None] = no_alarm

    def wait(self, timeout: int) -> None:
        """Wait for a session, at most for ``timeout`` milliseconds."""
        broker = self._peer.broker
        broker.session_waiters[self] = None
        self._cancel_alarm = broker.clock.wake_at(broker.clock.now() + timeout, self._give_up)
        broker.schedule_turn()

    def accept(self, session_id: str | None, now: int) -> bool:
        """Take a session, or a free one for None, and attach the link; return whether there is one."""
        accepted = self._owner.accept_session(session_id, now)
        if accepted is None:
            return False
        self._stop_waiting()
        session, self._token = accepted
        self._session, session.on_lost = session, self._lose
        broker, link = self._peer.broker, self._link
        broker.session_links[self._name] = session.session_id
        # azure-servicebus compares the address byte by byte, so it goes back as it came.
        source, asked = link.source or Source(), _filter(link)
        held: AmqpValue = session.session_id
        if isinstance(asked, Described):
            held = Described(asked.descriptor, held)  # The SDK for Go writes and reads it like this.
        answer, until = Source(source.address, filter={SESSION_FILTER: held}), Long(ticks_of(session.locked_until))
        limit = broker.max_message_size(self._owner)
        link.accept(source=answer, properties={_LOCKED_UNTIL: until}, max_message_size=limit)
        self.credit_changed()
        broker.touch(self._peer)
        return True

    def detached(self) -> None:
        super().detached()
        self._stop_waiting()
        session, token = self._session, self._token
        if session is None or token is None:
            return
        if session.holder == token:
            session.on_lost = None
        self._peer.broker.session_links.pop(self._name, None)
        self._owner.close_session(session, token, self._peer.broker.advance())
        self._peer.broker.schedule_turn()

    @property
    def has_available(self) -> bool:
        return self._session is not None and self._session.holder == self._token and bool(self._session.ready)

    def _lose(self, until: int) -> None:
        self._peer.broker.session_links.pop(self._name, None)
        clock = self._peer.broker.clock
        if until <= clock.now():
            self._cancel_alarm = clock.wake_at(until + _GRACE, self._end)
        else:
            self._end()

    def _end(self) -> None:
        self._peer.detach(self._link, new_error(Condition.SESSION_LOCK_LOST, "The session lock was lost."))

    def _stop_waiting(self) -> None:
        self._peer.broker.session_waiters.pop(self, None)
        self._cancel_alarm()

    def _give_up(self) -> None:
        text = "The operation did not complete within the allotted time: no session became available."
        self._peer.detach(self._link, new_error(Condition.TIMEOUT, text))


def attach_session(peer: AmqpPeer, link: SendingLink, entity: ReceivingEntity) -> LinkHandler:
    """Attach a link to the session that its source names, or let it wait for the next one that is free."""
    wanted = _filter(link)
    wanted = wanted.value if isinstance(wanted, Described) else wanted
    if not isinstance(wanted, str | None):
        text = "The session id in the filter must be a string, or null."
        raise RefusedError(Condition.ARGUMENT_ERROR, text)
    handler = SessionReceiverLink(peer, link, entity)
    if not handler.accept(wanted, peer.broker.advance()):
        timeout = link.properties.get(_TIMEOUT)
        handler.wait(min(int(timeout), _MAX_TIMEOUT) if isinstance(timeout, UInt | int) else _DEFAULT_TIMEOUT)
    return handler


def _filter(link: SendingLink) -> AmqpValue:
    return (link.source.filter or {}).get(SESSION_FILTER) if link.source is not None else None


def _echo(outcome: Outcome) -> Outcome:
    """Return the outcome that confirms a decision: without the properties and the reason that were sent along."""
    match outcome:
        case Modified():
            return Modified(outcome.delivery_failed, outcome.undeliverable_here)
        case Rejected():
            return Rejected()
        case _:
            return outcome


def _refused(peer: AmqpPeer, link: Link, error: Error, txn_id: bytes | None) -> DeliveryState:
    """Return the answer to work that is refused; in a transaction, Azure was seen to detach the link in its place."""
    refusal = peer.broker.faults.transaction_refusal
    if txn_id is not None and refusal == "in_state":
        return TransactionalState(txn_id, Rejected(error))
    if txn_id is not None and refusal == "detach":
        peer.detach(link, error)
    return Rejected(error)


def _confirm(peer: AmqpPeer, confirm: Callable[[], None], delay: float) -> None:
    if not delay:
        confirm()
        return

    def late() -> None:
        confirm()
        peer.broker.touch(peer)

    asyncio.get_running_loop().call_later(delay, late)


def _batched(payload: bytes, limit: int) -> list[SentMessage]:
    if len(payload) > limit:
        text = f"The batch has {len(payload)} bytes, the limit is {limit}."
        raise RefusedError(Condition.MESSAGE_SIZE_EXCEEDED, text)
    sections = split(payload, in_order=False)
    bodies = [section_value(payload, section) for section in sections if section.code == DATA]
    if not bodies:
        raise AmqpDecodeError("The batch cannot be read: it has no data section, so it holds no message.")
    if not all(isinstance(body, bytes) for body in bodies):
        raise AmqpDecodeError("The batch cannot be read: a data section must hold the bytes of a message.")
    return [read_sent(cast("bytes", body)) for body in bodies]
