"""A box of messages and its sessions, from which clients receive: a queue, a subscription, or one of their sub-queues.

Source: Service Bus documentation, "Message sessions".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count, islice, takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, cast
from uuid import UUID, uuid4

from sbnotebook.amqp import AmqpValue
from sbnotebook.emulator.entities.message import (
    TRANSITIONS,
    BrokeredMessage,
    BrokeredState,
    DeadLetterReason,
    MessageEvent,
    Place,
    read_sent,
    render,
    with_application_properties,
    with_time_to_live,
)
from sbnotebook.emulator.entities.message_log import PARTITION_SHIFT, PARTITIONS, MessageLog, earliest, tour
from sbnotebook.emulator.entities.options import QueueOptions, ReceivingOptions
from sbnotebook.emulator.entities.refusals import Condition, RefusedError
from sbnotebook.model.address import SubQueue

if TYPE_CHECKING:
    from sbnotebook.emulator.entities.registry import Registry

_TURNS: Final = count(1)


class MessageSession:
    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.state: bytes | None = None  # bytes that its clients keep in it; None without a state
        self.updated_time = 0  # ms; when the state was set
        self.message_count = 0  # messages that belong to it, received or not, but for scheduled ones
        self.holder: UUID | None = None  # token of the client that holds it; None without one
        self.locked_until = 0  # ms; when the lock ends, 0 without a lock
        self.held: dict[UUID, BrokeredMessage] = {}  # its messages that were received, by lock token
        self.on_lost: Callable[[int], None] | None = None
        self.ready: dict[int, tuple[tuple[int, int], BrokeredMessage]] = {}  # by number, with the place in the order
        self._order: list[tuple[tuple[int, int], int]] = []  # a heap of places and numbers, with some that are gone

    def make_ready(self, message: BrokeredMessage, order: str) -> None:
        number = message.sequence_number
        place = number, 0
        if order == "front":
            place = -next(_TURNS), 0
        elif order == "back":
            place = max([number, *(place for (place, _), _ in self.ready.values())]), next(_TURNS)
        self.ready[number] = place, message
        heappush(self._order, (place, number))

    def take_ready(self) -> BrokeredMessage | None:
        while self._order:
            place, number = heappop(self._order)
            if number in self.ready and self.ready[number][0] == place:
                return self.ready.pop(number)[1]
        return None


class Sessions(dict[str, MessageSession]):
    """The sessions of an entity by id, as long as they have messages, a state, or a holder."""

    def __init__(self) -> None:
        super().__init__()
        self.free: OrderedDict[str, MessageSession] = OrderedDict()  # with messages, and without a holder
        self.held: dict[MessageSession, None] = {}  # in the order of locking

    def __missing__(self, session_id: str) -> MessageSession:
        session = self[session_id] = MessageSession(session_id)
        return session

    def make_ready(self, message: BrokeredMessage, order: str = "place") -> None:
        session = self[message.session_id or ""]
        session.make_ready(message, order)
        if session.holder is None:
            self.free.setdefault(session.session_id, session)

    def withdraw(self, message: BrokeredMessage) -> None:
        session = self[message.session_id or ""]
        session.ready.pop(message.sequence_number, None)
        if not session.ready:
            self.free.pop(session.session_id, None)

    def restore(self, messages: Iterable[BrokeredMessage]) -> None:
        for message in messages:
            if message.state is not BrokeredState.SCHEDULED:
                self.count(message, 1)
            if message.state is BrokeredState.ACTIVE:
                self.make_ready(message)

    def count(self, message: BrokeredMessage, more: int) -> None:
        session = self[message.session_id or ""]
        session.message_count += more
        self.forget_empty(session)

    def forget_empty(self, session: MessageSession) -> None:
        if not (session.message_count or session.holder or session.state is not None):
            self.pop(session.session_id, None)


BOXES_PER_ENTITY: Final = 4
"""An entity's number times this is its box; the next two are its dead-letter and its transfer dead-letter queue."""
_EXPIRED: Final = DeadLetterReason("TTLExpiredException", "The message expired and was dead lettered.")
_NO_SESSION_ID: Final = DeadLetterReason(
    "Session ID is null.",
    "Session enabled entity doesn't allow a message whose session identifier is null. Give it a session id.",
)


class Counts(NamedTuple):
    active: int  # that can be received, or are locked
    locked: int  # that are locked, counted with the active ones, too
    deferred: int  # that are set aside
    scheduled: int  # that become active later
    dead_letter: int  # in the dead-letter queue
    transfer_dead_letter: int = 0  # in the transfer dead-letter queue


class Settlement(NamedTuple):
    event: MessageEvent  # COMPLETE, RELEASE, ABANDON, DEFER or DEAD_LETTER
    properties: Mapping[str, AmqpValue] = MappingProxyType({})
    why: DeadLetterReason | None = None  # the reason for which it is dead-lettered


COMPLETE: Final = Settlement("complete")
RELEASE: Final = Settlement("release")
ABANDON: Final = Settlement("abandon")
DEFER: Final = Settlement("defer")


class Box:
    """Messages that can be received, settled and peeked at, as the table ``TRANSITIONS`` says.

    Locks belong to their tokens and not to a link: they outlive the connection that got them.

    Sources: Service Bus documentation, "Message transfers, locks, and settlement", "Message deferral",
    "Overview of dead-letter queues".
    """

    kind: ClassVar = ""  # of an entity: queue, topic or subscription

    def __init__(
        self, context: Registry, box: int, path: str, owner: ReceivingEntity | None = None, *, now: int = 0
    ) -> None:
        self.path = path
        self.box = box
        self.entity_id = box // BOXES_PER_ENTITY
        self.context = context
        self.owner = owner or cast("ReceivingEntity", self)  # a topic gives nothing out, and needs no owner
        self.boxes: tuple[Box, ...] = (self,)
        self.deferred_count = 0
        self.alarm: int | None = None
        self.is_deleted = False
        self.sessions: Sessions | None = None
        self.log = MessageLog(box, context.residency)
        self._ready: MessageLog | Sessions = self.log  # knows which messages can be received, and in which order
        self.scheduled_count = 0
        # By lock token, in the order in which the locks end: all of them last equally long. Those of a session end with
        # its own lock. Not a dict: its first item is slow to find when many before it were removed.
        self._locked: OrderedDict[UUID, BrokeredMessage] = OrderedDict()
        # Of an entity; its sub-queues do not use them.
        self.created_time = self.updated_time = now  # ms
        self.accessed_time: int | None = None
        self.last_sequence_number = 0  # the last one that it gave to a message

    def _next_number(self, partition: int = 0) -> int:
        self.last_sequence_number += 1
        self.context.changes.last[self.entity_id] = self.last_sequence_number
        return (partition % PARTITIONS) << PARTITION_SHIFT | self.last_sequence_number

    @property
    def total_size(self) -> int:
        return self.log.size_bytes

    @property
    def has_available(self) -> bool:
        """Tell whether ``receive`` would find a message; never in an entity with sessions."""
        return self.sessions is None and self.log.ready_count > 0

    def rendered(self, message: BrokeredMessage, **options: bool) -> bytes:
        return render(message, self.log.payload(message), **options)

    def receive(
        self, now: int, session: MessageSession | None = None, *, delete: bool = False
    ) -> BrokeredMessage | None:
        """Lock, or remove, the available message with the smallest sequence number; None if there is none."""
        self.owner.accessed_time = now
        message = (session or self.log).take_ready()
        if message is not None:
            self._give(message, now, session, delete=delete)
        return message

    def receive_deferred(
        self, sequence_numbers: Sequence[int], now: int, *, delete: bool = False, session: MessageSession | None = None
    ) -> list[BrokeredMessage] | None:
        """Lock, or remove, deferred messages; None, without any effect, if one of them is not available."""
        self.owner.accessed_time = now
        numbers = dict.fromkeys(sequence_numbers)
        messages = [
            message
            for message in map(self.log.get, numbers)
            if message is not None and message.state is BrokeredState.DEFERRED and message.lock_token is None
            if session is None or message.session_id == session.session_id
        ]
        # An expired deferred message stays until a receiver asks for it: now it goes.
        expired = [message for message in messages if message.has_expired(now)]
        for message in expired:
            self._apply(message, "expire", now)
        if expired or len(messages) < len(numbers):
            return None
        # All of them are available: lock them, or remove them.
        for message in messages:
            self._give(message, now, session, delete=delete)
        return messages

    def peek(self, sequence_number: int, count: int, session_id: str | None = None) -> Iterator[BrokeredMessage]:
        messages = (tour if self.owner.is_partitioned else MessageLog.walk)(self.log, sequence_number)
        if session_id is not None:
            messages = (message for message in messages if message.session_id == session_id)
        return islice(messages, count)

    def held(self, token: UUID, now: int) -> BrokeredMessage | None:
        message = None if self.is_deleted else self._locked.get(token)
        return message if message is not None and message.locked_until > now else None

    def expect_held(self, token: UUID, now: int) -> BrokeredMessage:
        message = self.held(token, now)
        if message is None:
            raise self.lock_lost()
        return message

    def lock_lost(self) -> RefusedError:
        if self.sessions is not None:
            text = "The session lock has expired on the MessageSession. Accept a new MessageSession."
            return RefusedError(Condition.SESSION_LOCK_LOST, text)
        text = "The lock supplied is invalid: it has expired, or the message is no longer in the queue."
        return RefusedError(Condition.MESSAGE_LOCK_LOST, text)

    def check_settlement(self, token: UUID, settlement: Settlement, now: int) -> tuple[BrokeredMessage, bytes | None]:
        """Return the message, and its payload if that changes."""
        if settlement.event == "dead_letter" and self.owner is not self:
            raise RefusedError(Condition.NOT_ALLOWED, "A message of a dead-letter queue cannot be dead-lettered.")
        message = self.expect_held(token, now)
        if not settlement.properties:
            return message, None
        payload = with_application_properties(self.log.payload(message), settlement.properties)
        excess = read_sent(payload).excess
        if excess is not None:
            raise RefusedError(Condition.MESSAGE_SIZE_EXCEEDED, excess)
        return message, payload

    def settle(self, token: UUID, settlement: Settlement, now: int) -> None:
        """Settle a locked message. To defer it counts as a delivery, so that it cannot be deferred for ever."""
        message, payload = self.check_settlement(token, settlement, now)
        if payload is not None:
            self.log.remove(message)
            self.context.changes.remove(self.box, message.sequence_number)
            message.payload, message.size = payload, len(payload)
            self.log.add(message)
            self.context.changes.add(self.box, message)
        self._apply(message, settlement.event, now, why=settlement.why)

    def renew(self, token: UUID, now: int) -> int:
        message = self.expect_held(token, now)
        message.locked_until = now + self.owner.options.lock_duration
        self._locked.move_to_end(token)
        return message.locked_until

    def delete(self, count: int, before: int, now: int, session: MessageSession | None = None) -> int:
        """Remove messages that can be received, the oldest first; never in a partitioned entity."""
        self.owner.accessed_time = now
        # Their order is that of their times, so the rest of a large entity need not be looked through.
        found = takewhile(lambda message: message.enqueued_time < before, self.log.walk())
        ready = (message for message in found if message.is_available)
        if session is not None:
            ready = (message for message in ready if message.session_id == session.session_id)
        messages = list(islice(ready, count))
        for message in messages:
            self._ready.withdraw(message)
            self._remove(message)
        return len(messages)

    def expire(self, now: int) -> None:
        """Give back the messages whose locks have ended, and remove those whose time has passed.

        The delivery counts as failed, except in a dead-letter queue.
        """
        for message in [*takewhile(lambda message: message.locked_until <= now, self._locked.values())]:
            self._apply(message, "lock_expired", now)
        for message in self.log.due(now):
            if message.state is BrokeredState.SCHEDULED:
                self._activate(message, now)
            else:
                self._ready.withdraw(message)
                self._apply(message, "expire", now)

    def drop_locks(self, now: int) -> None:
        for message in [*self._locked.values()]:
            self._apply(message, "lock_dropped", now)

    @property
    def next_deadline(self) -> int | None:
        first_locked = next(iter(self._locked.values()), None)
        return earliest(None if first_locked is None else first_locked.locked_until, self.log.next_due)

    def put(self, message: BrokeredMessage, now: int) -> None:
        """Put in a new message that is not locked; its number decides its place."""
        self.log.add(message)
        self.context.changes.add(self.box, message)
        if message.state is BrokeredState.ACTIVE:
            self._offer(message, now)
        elif message.state is BrokeredState.SCHEDULED:
            self.scheduled_count += 1
            self.log.expect(message)
            self.context.wake(self, message.scheduled_time or 0)

    def _activate(self, message: BrokeredMessage, now: int) -> None:
        """Make a scheduled message active: it gets a new number, and its scheduled time stays."""
        self.accessed_time = now
        message.payload = self.log.payload(message)
        self._remove(message)
        life = None if message.expires_at is None else message.expires_at - (message.scheduled_time or 0)
        # A new object: the records of earlier changes still hold the old one.
        active = replace(
            message,
            sequence_number=self._next_number(message.sequence_number >> PARTITION_SHIFT),
            state=BrokeredState.ACTIVE,
            enqueued_time=now,
            expires_at=None if life is None else now + life,
        )
        self.put(active, now)

    # ------------------------------------------------------------------------------- how messages go

    def _apply(
        self,
        message: BrokeredMessage,
        event: MessageEvent,
        now: int,
        *,
        why: DeadLetterReason | None = None,
    ) -> None:
        """Move a message, which is not available, to where the table says."""
        to, counts = TRANSITIONS[event]
        self._unlock(message)
        if event == "expire":
            why = _EXPIRED
            to = to if self.owner.options.dead_letter_on_expiration else "gone"
        if to == "deferred" and message.state is not BrokeredState.DEFERRED:
            message.state = BrokeredState.DEFERRED
            self.deferred_count += 1
        # In a sub-queue, which has no maximum, no delivery counts.
        if counts and self.owner is self:
            message.delivery_count += 1
            limit = self.owner.options.max_delivery_count
            if message.delivery_count >= limit:
                text = f"Message could not be consumed after {limit} delivery attempts."
                to, why = "dead_lettered", DeadLetterReason("MaxDeliveryCountExceeded", text)
        if counts and to != "dead_lettered":
            self.context.changes.update(self.box, message)
        self._move(message, to, now, why)

    def _move(self, message: BrokeredMessage, to: Place, now: int, why: DeadLetterReason | None) -> None:
        if to == "active":
            if message.state is not BrokeredState.DEFERRED:
                self._offer(message, now, self.context.order_after_release(self.path))
        elif to == "gone":
            self._remove(message)
        elif to == "dead_lettered":
            message.payload = self.log.payload(message)
            self._remove(message)
            self.owner.put_dead(message, why or DeadLetterReason(None, None), now)

    def _offer(self, message: BrokeredMessage, now: int, order: str = "place") -> None:
        if message.has_expired(now):
            self._apply(message, "expire", now)
        else:
            self._ready.make_ready(message, order)
            if message.expires_at is not None:
                self.log.expect(message)
                self.context.wake(self, message.expires_at)

    def start_forwarding(self, now: int) -> None:
        if self.sessions is None:
            taken = [*iter(self.log.take_ready, None)]
        else:
            taken = [message for message in self.log.walk() if message.is_available]
            for message in taken:
                self._ready.withdraw(message)
        for message in taken:
            self._offer(message, now)

    def _give(self, message: BrokeredMessage, now: int, session: MessageSession | None, *, delete: bool) -> None:
        if delete:
            message.payload = self.log.payload(message)  # It is about to leave the store.
            self._remove(message)
            return
        token = message.lock_token = uuid4()
        self._locked[token] = message
        if session is not None:
            message.locked_until = session.locked_until
            session.held[token] = message
            return
        message.locked_until = now + self.owner.options.lock_duration
        self.context.wake(self, message.locked_until)

    def _unlock(self, message: BrokeredMessage) -> None:
        if message.lock_token is not None:
            if self.sessions is not None:
                self.sessions[message.session_id or ""].held.pop(message.lock_token, None)
            del self._locked[message.lock_token]
            message.lock_token, message.locked_until = None, 0

    def _remove(self, message: BrokeredMessage) -> None:
        self.log.remove(message)
        self.context.changes.remove(self.box, message.sequence_number)
        self.deferred_count -= message.state is BrokeredState.DEFERRED
        self.scheduled_count -= message.state is BrokeredState.SCHEDULED
        if self.sessions is not None and message.state is not BrokeredState.SCHEDULED:
            self.sessions.count(message, -1)


class SubQueueBox(Box):
    """A dead-letter queue, whose messages may be forwarded, or a transfer dead-letter queue."""

    def _offer(self, message: BrokeredMessage, now: int, order: str = "place") -> None:
        target = self.owner.options.forward_dead_letters_to
        if target is not None and self is self.owner.dead_letter:
            message.payload = self.log.payload(message)
            if self.context.forward(message, target, now, dead_letter_source=self.owner.path) is None:
                self._remove(message)
                return
        super()._offer(message, now, order)


class ReceivingEntity(Box):
    """A queue or a subscription, with its sub-queues and sessions.

    Source: Service Bus documentation, "Message sessions" and "Chaining Service Bus entities with autoforwarding".
    """

    def __init__(self, context: Registry, entity_id: int, path: str, options: ReceivingOptions, now: int) -> None:
        box = entity_id * BOXES_PER_ENTITY
        super().__init__(context, box, path, now=now)
        self.options = options
        self._state_bytes = 0
        self.dead_letter = SubQueueBox(context, box + 1, f"{path}/{SubQueue.DEAD_LETTER.path}", self)
        self.transfer_dead_letter = SubQueueBox(context, box + 2, f"{path}/{SubQueue.TRANSFER_DEAD_LETTER.path}", self)
        self.boxes = self, self.dead_letter, self.transfer_dead_letter
        if options.requires_session:
            self._ready = self.sessions = Sessions()
            context.residency.logs.discard(self.log)

    @property
    def is_partitioned(self) -> bool:
        return isinstance(self.options, QueueOptions) and self.options.enable_partitioning

    @property
    def total_size(self) -> int:
        """Return the size of all messages and session states in bytes, sub-queues included.

        Source: Service Bus documentation, "Message sessions", "Message session state".
        """
        dead, transfer_dead = self.dead_letter.log, self.transfer_dead_letter.log
        return self.log.size_bytes + dead.size_bytes + transfer_dead.size_bytes + self._state_bytes

    @property
    def counts(self) -> Counts:
        active = len(self.log) - self.deferred_count - self.scheduled_count
        return Counts(
            active,
            len(self._locked),
            self.deferred_count,
            self.scheduled_count,
            len(self.dead_letter.log),
            len(self.transfer_dead_letter.log),
        )

    def put(self, message: BrokeredMessage, now: int) -> None:
        if self.sessions is not None and message.state is not BrokeredState.SCHEDULED:
            if message.session_id is None:
                self.put_dead(message, _NO_SESSION_ID, now)
                return
            self.sessions.count(message, 1)
        super().put(message, now)

    def expire(self, now: int) -> None:
        for session in [*self.sessions.held] if self.sessions is not None else ():
            if session.locked_until <= now:
                self._end_session(session, "lock_expired", now)
        super().expire(now)

    def drop_locks(self, now: int) -> None:
        for session in [*self.sessions.held] if self.sessions is not None else ():
            self._end_session(session, "lock_dropped", now)
        for box in self.boxes:
            Box.drop_locks(box, now)

    @property
    def next_deadline(self) -> int | None:
        ends = () if self.sessions is None else (session.locked_until for session in self.sessions.held)
        return earliest(super().next_deadline, *ends)

    def start_forwarding(self, now: int) -> None:
        if self.options.forward_dead_letters_to is not None:
            self.dead_letter.start_forwarding(now)
        if self.options.forward_to is not None:
            super().start_forwarding(now)

    def forward_waiting(self, sequence_number: int, now: int) -> None:
        message = self.log.get(sequence_number)
        if message is not None and message.is_available and self.options.forward_to is not None:
            self._ready.withdraw(message)
            self._forward(message, self.options.forward_to, now)

    # ------------------------------------------------------------------------------------- sessions

    def accept_session(self, session_id: str | None, now: int) -> tuple[MessageSession, UUID] | None:
        sessions = self._sessions()
        if session_id is None and not sessions.free:
            return None
        session = sessions[next(iter(sessions.free)) if session_id is None else session_id]
        if session.holder is not None:
            name = session.session_id[:128]
            text = f"The requested session '{name}' cannot be accepted. It may be locked by another receiver."
            raise RefusedError(Condition.SESSION_CANNOT_BE_LOCKED, text)
        token = session.holder = uuid4()
        session.locked_until = now + self.options.lock_duration
        sessions.free.pop(session.session_id, None)
        sessions.held[session] = None
        self.context.wake(self, session.locked_until)
        return session, token

    def close_session(self, session: MessageSession, token: UUID, now: int) -> None:
        """End a client's lock of a session; its messages are given back, without a failed delivery."""
        if session.holder == token and not self.is_deleted:
            self._end_session(session, "release", now)

    def renew_session(self, session: MessageSession, now: int) -> int:
        until = session.locked_until = now + self.options.lock_duration
        for message in session.held.values():
            message.locked_until = until
        return until

    def held_session(self, session_id: str, now: int) -> MessageSession:
        session = self._sessions().get(session_id)
        if session is None or session.holder is None or session.locked_until <= now:
            raise self.lock_lost()
        return session

    def session_ids(self, updated_since: int | None) -> list[str]:
        """Return the sessions whose state was set since a moment (ms), or all that have messages or a state."""
        return sorted(
            name
            for name, each in self._sessions().items()
            if (each.state is not None and (updated_since is None or each.updated_time >= updated_since))
            or (updated_since is None and each.message_count)
        )

    def set_session_state(self, session: MessageSession, state: bytes | None, now: int) -> None:
        limit = self.context.tier.quotas.max_session_state
        if len(state or b"") > limit:
            text = f"The session state has {len(state or b'')} bytes, the limit is {limit}."
            raise RefusedError(Condition.MESSAGE_SIZE_EXCEEDED, text)
        self.restore_session_state(session, state, now)
        self.context.changes.sessions[self.box, session.session_id] = state, now

    def restore_session_state(self, session: MessageSession, state: bytes | None, updated_time: int) -> None:
        self._state_bytes += len(state or b"") - len(session.state or b"")
        session.state, session.updated_time = state, updated_time

    def _sessions(self) -> Sessions:
        if self.sessions is None:
            raise RefusedError(Condition.NOT_ALLOWED, f"The entity '{self.path}' does not have sessions.")
        return self.sessions

    def _end_session(self, session: MessageSession, event: MessageEvent, now: int) -> None:
        for message in list(session.held.values()):
            self._apply(message, event, now)
        sessions, until, on_lost = self._sessions(), session.locked_until, session.on_lost
        session.holder, session.locked_until, session.on_lost = None, 0, None
        sessions.held.pop(session, None)
        if on_lost is not None:
            on_lost(until)
        if session.ready:
            sessions.free.setdefault(session.session_id, session)
        sessions.forget_empty(session)

    # ----------------------------------------------------------------------------------- forwarding

    def _offer(self, message: BrokeredMessage, now: int, order: str = "place") -> None:
        target = self.options.forward_to
        if target is not None and message.is_available and self.context.may_forward(self, message):
            self._forward(message, target, now)
        else:
            super()._offer(message, now, order)

    def _forward(self, message: BrokeredMessage, target: str, now: int) -> None:
        message.payload = with_time_to_live(message, self.log.payload(message))
        failure = self.context.forward(message, target, now, message.dead_letter_source)
        self._remove(message)
        if failure is not None:
            self.put_dead(message, failure, now, self.transfer_dead_letter)

    def put_dead(
        self, message: BrokeredMessage, why: DeadLetterReason, now: int, to: SubQueueBox | None = None
    ) -> None:
        payload = with_time_to_live(message, message.payload or b"")
        reason = {"DeadLetterReason": why.reason, "DeadLetterErrorDescription": why.description}
        message.payload = payload = with_application_properties(payload, reason)
        message.size = len(payload)
        message.state, message.expires_at, message.session_id = BrokeredState.ACTIVE, None, None
        (to or self.dead_letter).put(message, now)


Receivable = ReceivingEntity | SubQueueBox
