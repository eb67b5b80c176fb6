"""A box of messages, from which clients receive: a queue, a subscription, or one of their sub-queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, cast
from uuid import UUID

from sbnotebook.amqp import AmqpValue
from sbnotebook.emulator.entities.locks import Locks
from sbnotebook.emulator.entities.message import BrokeredMessage, BrokeredState, DeadLetterReason
from sbnotebook.emulator.entities.message_log import MessageLog, ShelfSummary
from sbnotebook.emulator.entities.partitions import tour
from sbnotebook.emulator.entities.refusals import Condition, RefusedError
from sbnotebook.emulator.entities.rendering import (
    render,
    with_application_properties,
)
from sbnotebook.emulator.entities.schedule import Schedule
from sbnotebook.emulator.entities.sessions import MessageSession, Sessions
from sbnotebook.emulator.entities.transitions import TRANSITIONS, MessageEvent, Place, place_of

if TYPE_CHECKING:
    from sbnotebook.emulator.entities.queue import ReceivingEntity
    from sbnotebook.emulator.entities.registry import Registry

_LOCK_LOST: Final = "The lock supplied is invalid: it has expired, or the message is no longer in the queue."
_SESSION_LOST: Final = "The session lock has expired on the MessageSession. Accept a new MessageSession."
_EXPIRED: Final = DeadLetterReason("TTLExpiredException", "The message expired and was dead lettered.")


class Settlement(NamedTuple):
    """A receiver's decision about a message that it has locked."""

    event: MessageEvent  # COMPLETE, RELEASE, ABANDON, DEFER or DEAD_LETTER
    properties: Mapping[str, AmqpValue] = MappingProxyType({})
    why: DeadLetterReason | None = None  # the reason for which it is dead-lettered


COMPLETE: Final = Settlement(MessageEvent.COMPLETE)
RELEASE: Final = Settlement(MessageEvent.RELEASE)
ABANDON: Final = Settlement(MessageEvent.ABANDON)
DEFER: Final = Settlement(MessageEvent.DEFER)


class Box:
    """Messages that can be received, settled and peeked at, as the table ``TRANSITIONS`` says.

    Locks belong to their tokens and not to a link: they outlive the connection that got them.

    Sources: Service Bus documentation, "Message transfers, locks, and settlement", "Message deferral",
    "Overview of dead-letter queues".
    """

    def __init__(self, context: Registry, box: int, path: str, owner: ReceivingEntity | None = None) -> None:
        self.path = path
        self.box = box
        self.context = context
        self.owner = owner or cast("ReceivingEntity", self)  # a topic gives nothing out, and needs no owner
        self.deferred_count = 0
        self.alarm: int | None = None
        self.is_deleted = False
        self.sessions: Sessions | None = None
        self.log = MessageLog(box, context.residency)
        self.schedule = Schedule(self.log)
        self._locks = Locks()

    @property
    def message_count(self) -> int:
        return len(self.log)

    @property
    def is_sub_queue(self) -> bool:
        return self.owner is not self

    @property
    def boxes(self) -> tuple[Box, ...]:
        """Return the boxes of an entity: itself and its sub-queues."""
        return (self,)

    @property
    def scheduled_count(self) -> int:
        return len(self.schedule)

    @property
    def total_size(self) -> int:
        return self.log.size_bytes

    @property
    def has_available(self) -> bool:
        """Tell whether ``receive`` would find a message; never in an entity with sessions."""
        return self.sessions is None and self.log.ready_count > 0

    @property
    def locked_count(self) -> int:
        return len(self._locks)

    def rendered(self, message: BrokeredMessage, **options: bool) -> bytes:
        """Return the encoded message as a client gets it; the options are those of ``render``."""
        return render(message, self.log.payload(message), **options)

    def receive(self, now: int, session: MessageSession | None = None) -> BrokeredMessage | None:
        """Lock the available message with the smallest sequence number; None if there is none."""
        self.owner.record.accessed_time = now
        message = self.log.take_ready() if session is None else session.take_ready()
        if message is not None:
            self._apply(message, MessageEvent.RECEIVE, now, session=session)
        return message

    def receive_and_delete(self, now: int, session: MessageSession | None = None) -> BrokeredMessage | None:
        """Remove and return the available message with the smallest sequence number; None if there is none."""
        self.owner.record.accessed_time = now
        message = self.log.take_ready() if session is None else session.take_ready()
        if message is not None:
            message.payload = self.log.payload(message)  # It is about to leave the store.
            self._apply(message, MessageEvent.RECEIVE_AND_DELETE, now)
        return message

    def receive_deferred(
        self, sequence_numbers: Sequence[int], now: int, *, delete: bool = False, session: MessageSession | None = None
    ) -> list[BrokeredMessage] | None:
        """Lock, or remove, deferred messages; None, without any effect, if one of them is not available."""
        self.owner.record.accessed_time = now
        numbers = dict.fromkeys(sequence_numbers)
        found = [message for number in numbers if self._is_deferred(message := self.log.get(number), session)]
        messages = [message for message in found if message is not None]
        # An expired deferred message stays until a receiver asks for it: now it goes.
        expired = [message for message in messages if message.expires_at is not None and message.expires_at <= now]
        for message in expired:
            self._apply(message, MessageEvent.EXPIRE, now)
        if expired or len(messages) < len(numbers):
            return None
        # All of them are available: lock them, or remove them.
        for message in messages:
            message.payload = self.log.payload(message)
            self._apply(
                message, MessageEvent.RECEIVE_AND_DELETE if delete else MessageEvent.RECEIVE, now, session=session
            )
        return messages

    def peek(self, sequence_number: int, count: int, session_id: str | None = None) -> Iterator[BrokeredMessage]:
        is_partitioned = self.owner.is_partitioned
        messages = tour(self.log, sequence_number) if is_partitioned else self.log.walk(sequence_number)
        if session_id is not None:
            messages = (message for message in messages if message.session_id == session_id)
        return islice(messages, count)

    def holds(self, token: UUID, now: int) -> bool:
        return self._find_held(token, now) is not None

    def number_of(self, token: UUID, now: int) -> int | None:
        message = self._find_held(token, now)
        return None if message is None else message.sequence_number

    def lock_lost(self) -> RefusedError:
        if self.sessions is not None:
            return RefusedError(Condition.SESSION_LOCK_LOST, _SESSION_LOST)
        return RefusedError(Condition.MESSAGE_LOCK_LOST, _LOCK_LOST)

    def check_settlement(self, token: UUID, settlement: Settlement, now: int) -> None:
        message = self._held(token, settlement, now)
        if settlement.properties:
            with_application_properties(self.log.payload(message), settlement.properties)

    def settle(self, token: UUID, settlement: Settlement, now: int) -> None:
        """Settle a locked message. To defer it counts as a delivery, so that it cannot be deferred for ever."""
        message = self._held(token, settlement, now)
        if settlement.properties:
            payload = with_application_properties(self.log.payload(message), settlement.properties)
            self.log.replace_payload(message, payload)
            self.context.changes.update(self.box, message, has_new_payload=True)
        self._apply(message, settlement.event, now, why=settlement.why)

    def renew(self, token: UUID, now: int) -> int:
        message = self._find_held(token, now) if self.sessions is None else None
        if message is None:
            raise self.lock_lost()
        self._locks.renew(message, now + self.owner.options.lock_duration)
        return message.locked_until

    def delete(self, count: int, before: int, now: int, session: MessageSession | None = None) -> int:
        """Remove messages that can be received, the oldest first."""
        self.owner.record.accessed_time = now
        found = self.log.walk()
        if not self.owner.is_partitioned:
            # Their order is that of their times, so the rest of a large entity need not be looked through.
            found = takewhile(lambda message: message.enqueued_time < before, found)
        ready = (message for message in found if place_of(message) is Place.ACTIVE)
        if session is not None:
            ready = (message for message in ready if message.session_id == session.session_id)
        messages = list(islice((message for message in ready if message.enqueued_time < before), count))
        for message in messages:
            self._withdraw(message)
            self._apply(message, MessageEvent.RECEIVE_AND_DELETE, now)
        return len(messages)

    def expire(self, now: int) -> None:
        """Give back the messages whose locks have ended, and remove those whose time has passed.

        The delivery counts as failed, except in a dead-letter queue.
        """
        for message in self._locks.expired(now):
            self._apply(message, MessageEvent.LOCK_EXPIRED, now)
        for message in self.log.due(now):
            self._withdraw(message)
            self._apply(message, MessageEvent.EXPIRE, now)

    def drop_locks(self, now: int) -> None:
        for message in self._locks.all():
            self._apply(message, MessageEvent.LOCK_DROPPED, now)

    @property
    def next_deadline(self) -> int | None:
        return earliest(self._locks.next_end, self.log.next_expiry)

    def put(self, message: BrokeredMessage, now: int) -> None:
        """Put in a new message that is not locked; its number decides its place."""
        self.log.add(message)
        self.context.changes.add(self.box, message)
        if message.state is BrokeredState.ACTIVE:
            self._offer(message, now)
        elif message.state is BrokeredState.SCHEDULED:
            self.schedule.add(message)
            self.context.wake(self, message.scheduled_time or 0)

    def restore(self, shelves: list[ShelfSummary], deferred: int, scheduled: list[tuple[int, int]]) -> None:
        """Restore the messages from summaries; they stay in the store."""
        self.log.restore(shelves)
        self.deferred_count = deferred
        self.schedule.restore(scheduled)

    def close(self) -> None:
        self.is_deleted = True
        self.log.close()

    # ------------------------------------------------------------------------------- how messages go

    def _held(self, token: UUID, settlement: Settlement, now: int) -> BrokeredMessage:
        if settlement.event is MessageEvent.DEAD_LETTER and self.is_sub_queue:
            text = "A message of a dead-letter queue cannot be dead-lettered."
            raise RefusedError(Condition.NOT_ALLOWED, text)
        message = self._find_held(token, now)
        if message is None:
            raise self.lock_lost()
        return message

    def _apply(
        self,
        message: BrokeredMessage,
        event: MessageEvent,
        now: int,
        *,
        why: DeadLetterReason | None = None,
        session: MessageSession | None = None,
    ) -> None:
        """Move a message, which is not available, to where the table says."""
        to, _, _, counts = TRANSITIONS[place_of(message), event]
        self._unlock(message)
        if event is MessageEvent.EXPIRE:
            why = _EXPIRED
            to = to if self.owner.options.dead_letter_on_expiration else Place.GONE
        if to is Place.DEFERRED and message.state is not BrokeredState.DEFERRED:
            message.state = BrokeredState.DEFERRED
            self.deferred_count += 1
        # In a sub-queue, which has no maximum, no delivery counts.
        if counts and not self.is_sub_queue:
            message.delivery_count += 1
            limit = self.owner.options.max_delivery_count
            if message.delivery_count >= limit:
                text = f"Message could not be consumed after {limit} delivery attempts."
                to, why = Place.DEAD_LETTERED, DeadLetterReason("MaxDeliveryCountExceeded", text)
        if counts and to is not Place.DEAD_LETTERED:
            self.context.changes.update(self.box, message)
        self._move(message, to, now, why, session)

    def _move(
        self,
        message: BrokeredMessage,
        to: Place,
        now: int,
        why: DeadLetterReason | None,
        session: MessageSession | None,
    ) -> None:
        match to:
            case Place.LOCKED | Place.DEFERRED_LOCKED:
                self._lock(message, now, session)
            case Place.ACTIVE:
                self._offer(message, now)
                put_back = self.log.put_back if self.sessions is None else self.sessions.put_back
                put_back(message, self.context.order_after_release(self.path))
            case Place.DEAD_LETTERED:
                self._dead_letter(message, why or DeadLetterReason(None, None), now)
            case Place.GONE:
                self._remove(message)
            case _:
                pass

    def _offer(self, message: BrokeredMessage, now: int) -> None:
        """Make a message available, unless it has expired meanwhile."""
        if message.expires_at is not None and message.expires_at <= now:
            self._apply(message, MessageEvent.EXPIRE, now)
            return
        if self.sessions is None:
            self.log.make_ready(message)
        else:
            self.sessions.make_ready(message)
            self.log.expect_expiry(message)
        if message.expires_at is not None:
            self.context.wake(self, message.expires_at)

    def start_forwarding(self, now: int) -> None:
        """Send on the available messages, because the box now forwards them."""
        if self.sessions is None:
            taken = [*iter(self.log.take_ready, None)]
        else:
            taken = [message for message in self.log.walk() if place_of(message) is Place.ACTIVE]
            for message in taken:
                self._withdraw(message)
        for message in taken:
            self._offer(message, now)

    def _withdraw(self, message: BrokeredMessage) -> None:
        if self.sessions is None:
            self.log.withdraw(message)
        else:
            self.sessions.withdraw(message)

    def _lock(self, message: BrokeredMessage, now: int, session: MessageSession | None) -> None:
        if session is not None:
            session.held[self._locks.take(message, session.locked_until)] = message
            return
        until = now + self.owner.options.lock_duration
        self._locks.take(message, until)
        self.context.wake(self, until)

    def _unlock(self, message: BrokeredMessage) -> None:
        if message.lock_token is not None:
            if self.sessions is not None:
                self.sessions.drop(message)
            self._locks.drop(message)

    def _find_held(self, token: UUID, now: int) -> BrokeredMessage | None:
        return None if self.is_deleted else self._locks.held(token, now)

    def _dead_letter(self, message: BrokeredMessage, why: DeadLetterReason, now: int) -> None:
        message.payload = self.log.payload(message)
        self._remove(message)
        self.owner.put_dead(message, why, now)

    def _remove(self, message: BrokeredMessage) -> None:
        self.log.remove(message)
        self.context.changes.remove(self.box, message.sequence_number)
        if message.state is BrokeredState.DEFERRED:
            self.deferred_count -= 1
        if self.sessions is not None and message.state is not BrokeredState.SCHEDULED:
            self.sessions.removed(message)

    def _is_deferred(self, message: BrokeredMessage | None, session: MessageSession | None) -> bool:
        if message is None or place_of(message) is not Place.DEFERRED:
            return False
        return session is None or message.session_id == session.session_id


def earliest(*moments: int | None) -> int | None:
    """Return the first of these moments (ms); None if there is none."""
    return min((moment for moment in moments if moment is not None), default=None)
