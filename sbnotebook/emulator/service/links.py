"""Links on entities: to send to a queue or topic, or to receive from a queue, subscription, sub-queue or session.

Control links are here, too, with the transactions of a connection, which other connections do not know.

Sources: Service Bus documentation, "AMQP 1.0 in Azure Service Bus and Event Hubs protocol guide", "Message sessions"
and "Transactional operations"; AMQP 1.0 part 4, transactions. What Azure does, where none says so, is a choice that the
faults offer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast
from uuid import UUID, uuid4

from sbnotebook.amqp import AmqpValue, Described, Long, Symbol, UInt
from sbnotebook.amqp.sections import DATA, VALUE, section_value, split
from sbnotebook.emulator.amqp.link import DispositionReceived, Link, ReceivingLink, SendingLink, TransferReceived
from sbnotebook.emulator.amqp.performatives import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    DeliveryState,
    Discharge,
    Error,
    Modified,
    Outcome,
    Rejected,
    Released,
    Source,
    TransactionalState,
    decode_composite,
)
from sbnotebook.emulator.clock import ticks_of
from sbnotebook.emulator.entities.box import RELEASE, MessageSession, Receivable, ReceivingEntity
from sbnotebook.emulator.entities.message import SentMessage, read_sent
from sbnotebook.emulator.entities.options import Tier
from sbnotebook.emulator.entities.queue import Queue, Topic
from sbnotebook.emulator.entities.refusals import Condition, RefusedError, error_of, new_error, with_tracking_id
from sbnotebook.emulator.entities.registry import AnyEntity
from sbnotebook.emulator.entities.transaction import Transaction
from sbnotebook.emulator.faults import EntityFaults
from sbnotebook.emulator.service.broker import Broker, check_age, settle, settle_later, settlement_of
from sbnotebook.errors import AmqpDecodeError, ProtocolViolationError

if TYPE_CHECKING:
    from sbnotebook.emulator.service.peer import AmqpPeer

SESSION_FILTER: Final = Symbol("com.microsoft:session-filter")
"""The session in the filter of a source, or null for the next free one."""
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
_L = TypeVar("_L", bound=Link)


class LinkHandler(Generic[_L]):
    """The handler of one link's events. Events that a link cannot have are ignored."""

    def __init__(self, peer: AmqpPeer, link: _L, entity: AnyEntity | Receivable | None) -> None:
        self.attached_to = entity
        self.path = None if entity is None else entity.path
        self._peer = peer
        self._link = link

    def received(self, event: Any, faults: EntityFaults) -> None:
        """Take a message that the client sent, or its decision about one that it got."""

    def credit_changed(self) -> None:
        """Send waiting messages: the client changed its credit, or the connection can be written to again."""

    def detached(self) -> None:
        """Clean up, because the link is gone: only from now on its entity is idle."""
        if self.attached_to is not None:
            self.attached_to.owner.accessed_time = self._peer.broker.clock.now()

    def detach(self, condition: Condition, sentence: str) -> None:
        self._peer.detach(self._link, new_error(condition, sentence))


class SenderLink(LinkHandler[ReceivingLink]):
    def __init__(
        self, peer: AmqpPeer, link: ReceivingLink, destination: Queue | Topic, via: Queue | Topic | None = None
    ) -> None:
        super().__init__(peer, link, destination)
        self._destination = destination
        self._via = via
        link.grant_credit(_CREDIT)

    def received(self, event: TransferReceived, faults: EntityFaults) -> None:
        link = self._link
        # First, so that an invalid delay leaves nothing half done.
        delay = faults.accept_delay_ms / 1000
        outcome = self._take_in(event, faults)
        if link.credit < _CREDIT // 2:
            link.grant_credit(_CREDIT)
        if delay and not event.settled:
            _confirm(self._peer, partial(link.settle, event.delivery_id, outcome), delay)
        elif not event.settled:
            link.settle(event.delivery_id, outcome)

    def _take_in(self, event: TransferReceived, faults: EntityFaults) -> DeliveryState:
        now = self._peer.broker.now  # when its bytes came in: asking the clock for every message costs more
        transaction: Transaction | None = None
        try:
            if event.txn_id is not None:
                transaction = self._peer.transactions.find(event.txn_id)
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
                if 0 < faults.count_down("reject_nth", len(messages)) <= len(messages):
                    text = with_tracking_id("The message was rejected on demand.")
                    return self._refused(event, Error(faults.reject_condition, text), transaction)
                broker.operations += len(messages)
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


class ReceiverLink(LinkHandler[SendingLink]):
    def __init__(self, peer: AmqpPeer, link: SendingLink, entity: Receivable) -> None:
        super().__init__(peer, link, entity)
        self.entity = entity
        self.source: Receivable | SessionReceiverLink = entity
        self._session: MessageSession | None = None
        self._deletes = link.snd_settle_mode == _SETTLED
        # Tag, payload and lock of messages whose delay has not passed
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
        if self.can_take or self.is_draining:
            self._peer.broker.receivers[self.source].setdefault(self)

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
                    text = f"The link '{self._link.name}' is force detached: too many of its messages are not settled."
                    asyncio.get_running_loop().call_soon(self.detach, Condition.DETACH_FORCED, text)
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

    def received(self, event: DispositionReceived, faults: EntityFaults) -> None:
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
            if any(token in each.tokens for each in transactions.open.values() if each is not transaction):
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
        self._given.pop(token.bytes_le, None)
        self._link.forget(token.bytes_le)

    def detached(self) -> None:
        super().detached()
        self._peer.broker.receivers[self.source].pop(self, None)

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

    def _arrive(self) -> None:
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
        self._name = (entity, link.name)
        self._token: UUID | None = None
        self._cancel_alarm: Callable[[], object] = lambda: None

    def wait(self, timeout: int) -> None:
        """Wait for a session, at most for ``timeout`` milliseconds."""
        broker = self._peer.broker
        broker.session_waiters[self] = None
        text = "The operation did not complete within the allotted time: no session became available."
        give_up = partial(self.detach, Condition.TIMEOUT, text)
        self._cancel_alarm = broker.clock.wake_at(broker.clock.now() + timeout, give_up)
        broker.schedule_turn()

    def accept(self, session_id: str | None, now: int) -> bool:
        """Take a session, or a free one for None, and attach the link; return whether there is one."""
        accepted = self.entity.owner.accept_session(session_id, now)
        if accepted is None:
            return False
        self._stop_waiting()
        session, self._token = accepted
        self._session, session.on_lost = session, self._lose
        broker, link = self._peer.broker, self._link
        broker.session_links[self._name] = session.session_id
        asked, held = _filter(link), session.session_id
        link.accept(
            # azure-servicebus compares the address byte by byte, so it goes back as it came. The SDK for Go writes and
            # reads the session as a described value.
            source=Source(
                link.source and link.source.address,
                filter={SESSION_FILTER: Described(asked.descriptor, held) if isinstance(asked, Described) else held},
            ),
            properties={Symbol("com.microsoft:locked-until-utc"): Long(ticks_of(session.locked_until))},
            max_message_size=broker.max_message_size(self.entity.owner),
        )
        self.credit_changed()
        broker.touch(self._peer)
        return True

    def detached(self) -> None:
        super().detached()
        self._stop_waiting()
        broker, session, token = self._peer.broker, self._session, self._token
        if session is None or token is None:
            return
        if session.holder == token:
            session.on_lost = None
        broker.session_links.pop(self._name, None)
        self.entity.owner.close_session(session, token, broker.advance())
        broker.schedule_turn()

    @property
    def has_available(self) -> bool:
        return self._session is not None and self._session.holder == self._token and bool(self._session.ready)

    def _lose(self, until: int) -> None:
        self._peer.broker.session_links.pop(self._name, None)
        clock, end = (
            self._peer.broker.clock,
            partial(self.detach, Condition.SESSION_LOCK_LOST, "The session lock was lost."),
        )
        if until <= clock.now():
            self._cancel_alarm = clock.wake_at(until + _GRACE, end)
        else:
            end()

    def _stop_waiting(self) -> None:
        self._peer.broker.session_waiters.pop(self, None)
        self._cancel_alarm()


def attach_session(peer: AmqpPeer, link: SendingLink, entity: ReceivingEntity) -> SessionReceiverLink:
    asked = _filter(link)
    wanted = asked.value if isinstance(asked, Described) else asked
    if not isinstance(wanted, str | None):
        raise RefusedError(Condition.ARGUMENT_ERROR, "The session id in the filter must be a string, or null.")
    handler = SessionReceiverLink(peer, link, entity)
    if not handler.accept(wanted, peer.broker.advance()):
        timeout = link.properties.get(Symbol("com.microsoft:timeout"))
        handler.wait(min(int(timeout), _MAX_TIMEOUT) if isinstance(timeout, UInt | int) else _DEFAULT_TIMEOUT)
    return handler


def _filter(link: SendingLink) -> AmqpValue:
    return (link.source.filter or {}).get(SESSION_FILTER) if link.source is not None else None


def _echo(outcome: Outcome) -> Outcome:
    """Return the outcome that confirms a decision: without the properties and the reason that were sent along."""
    if isinstance(outcome, Modified):
        return Modified(outcome.delivery_failed, outcome.undeliverable_here)
    return Rejected() if isinstance(outcome, Rejected) else outcome


def _refused(peer: AmqpPeer, link: Link, error: Error, txn_id: bytes | None) -> DeliveryState:
    """Return the answer to work that is refused; in a transaction, Azure was seen to detach the link in its place."""
    refusal = peer.broker.faults.transaction_refusal
    if txn_id is not None and refusal == "in_state":
        return TransactionalState(txn_id, Rejected(error))
    if txn_id is not None and refusal == "detach":
        peer.detach(link, error)
    return Rejected(error)


def _confirm(peer: AmqpPeer, confirm: Callable[[], None], delay: float) -> None:
    def late() -> None:
        confirm()
        peer.broker.touch(peer)

    if delay:
        asyncio.get_running_loop().call_later(delay, late)
    else:
        confirm()


def _batched(payload: bytes, limit: int) -> list[SentMessage]:
    if len(payload) > limit:
        raise RefusedError(
            Condition.MESSAGE_SIZE_EXCEEDED, f"The batch has {len(payload)} bytes, the limit is {limit}."
        )
    bodies = [section_value(payload, each) for each in split(payload, in_order=False) if each.code == DATA]
    if not bodies or not all(isinstance(body, bytes) for body in bodies):
        raise AmqpDecodeError("The batch cannot be read: it needs data sections, each with the bytes of a message.")
    return [read_sent(cast("bytes", body)) for body in bodies]


COORDINATOR: Final = "$coordinator"
"""The path of control links, for the faults that end a connection."""
_CONTROL_CREDIT: Final = 100
_MAX_OPEN: Final = 1000  # Open transactions of a connection, each of which may have been forgotten by its client
_MAX_BYTES: Final = 134_217_728  # Bytes of messages in all open transactions of all connections
_NUMBERS: Final = count(1)


class Transactions:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.open: dict[bytes, Transaction] = {}  # by id
        self._size = 0

    def declare(self, link: Link) -> bytes:
        if len(self.open) >= _MAX_OPEN:
            raise RefusedError(
                Condition.RESOURCE_LIMIT_EXCEEDED, f"A connection has at most {_MAX_OPEN} open transactions."
            )
        # As those that Azure was seen to give.
        txn_id = f"txn:{uuid4().hex}__G0:{next(_NUMBERS)}_G0".encode()
        self.open[txn_id] = Transaction(txn_id, link)
        return txn_id

    def find(self, txn_id: bytes) -> Transaction:
        """Return a transaction for an operation; from the first one on its time runs."""
        found = self._find_open(txn_id, "Transaction hasn't been declared yet, or has already been discharged.")
        if found.end is None:
            clock = self._broker.clock
            found.end = clock.now() + self._broker.faults.transaction_timeout_ms
            found.cancel_alarm = clock.wake_at(found.end, partial(self.roll_back, txn_id))
        self._count()
        if self._broker.memory.transactions > _MAX_BYTES:
            raise RefusedError(
                Condition.RESOURCE_LIMIT_EXCEEDED,
                f"The open transactions of all connections have at most {_MAX_BYTES} bytes of messages.",
            )
        return found

    def end(self, txn_id: bytes) -> Transaction:
        found = self._find_open(txn_id, "Transaction is not declared.")
        self.roll_back(txn_id)
        return found

    def roll_back(self, txn_id: bytes) -> None:
        """Forget a transaction, if it is open: nothing of it was carried out."""
        found = self.open.pop(txn_id, None)
        if found is not None:
            found.cancel_alarm()
            self._count()

    def _find_open(self, txn_id: bytes, sentence: str) -> Transaction:
        found = self.open.get(txn_id)
        if found is not None and found.end is not None and found.end <= self._broker.clock.now():
            self.roll_back(txn_id)  # Its alarm may not have been heard yet.
            found = None
        if found is None:
            raise RefusedError(Condition.UNKNOWN_TRANSACTION, sentence)
        return found

    def _count(self) -> None:
        before, self._size = self._size, sum(each.size for each in self.open.values())
        self._broker.memory.transactions += self._size - before


class CoordinatorLink(LinkHandler[ReceivingLink]):
    """A client declares and discharges transactions. Those that are open are rolled back with the link."""

    def __init__(self, peer: AmqpPeer, link: ReceivingLink) -> None:
        super().__init__(peer, link, None)
        self.path = COORDINATOR
        link.grant_credit(_CONTROL_CREDIT)

    def received(self, event: TransferReceived, faults: EntityFaults) -> None:  # noqa: ARG002
        self._link.grant_credit(_CONTROL_CREDIT)
        if event.settled:
            self.detach(
                Condition.NOT_ALLOWED,
                "A message to a coordinator must not be sent settled: its outcome is the answer.",
            )
        else:
            self._link.settle(event.delivery_id, self._answer(_body(event.payload)))

    def detached(self) -> None:
        transactions = self._peer.transactions
        for txn_id in [txn_id for txn_id, each in transactions.open.items() if each.link is self._link]:
            transactions.roll_back(txn_id)

    def _answer(self, body: object) -> DeliveryState:
        if isinstance(body, Declare):
            return Declared(self._peer.transactions.declare(self._link))
        if isinstance(body, Discharge):
            return self._discharge(body)
        raise AmqpDecodeError("A coordinator takes a declare or a discharge.")

    def _discharge(self, discharge: Discharge) -> DeliveryState:
        broker, transactions = self._peer.broker, self._peer.transactions
        links = [each for each in self._peer.held.links.values() if isinstance(each, ReceivingLink)]
        try:
            transaction = transactions.end(discharge.txn_id)
            if discharge.txn_id in (each.arriving_txn_id for each in links):
                transaction.failure = "One of its messages has not come in whole."
            if not discharge.fail:
                transaction.commit(broker.advance())
        except RefusedError as error:
            if error.condition is not Condition.UNKNOWN_TRANSACTION:
                return Rejected(new_error(Condition.TRANSACTION_ROLLBACK, f"The transaction was rolled back. {error}"))
            if broker.faults.late_discharge != "accepted":
                raise
        return Accepted()


def attach_coordinator(peer: AmqpPeer, link: ReceivingLink) -> CoordinatorLink:
    """Attach a control link, and return its handler.

    What Azure offers in its answer is not known. The emulator names no capabilities, so clients must cope with none.
    """
    if peer.broker.registry.tier is Tier.BASIC:
        raise RefusedError(
            Condition.NOT_ALLOWED, "Transactions are not supported for the pricing tier Basic of a namespace."
        )
    link.target = Coordinator()
    link.accept()
    link.session.notes.setdefault("via", [])
    return CoordinatorLink(peer, link)


def _body(payload: bytes) -> object:
    for section in split(payload, in_order=False):
        if section.code == VALUE:
            try:
                return decode_composite(payload, section.value_start)[0]
            except ProtocolViolationError as error:
                raise AmqpDecodeError(str(error)) from None
    raise AmqpDecodeError("A message to a coordinator has an amqp-value as its body.")
