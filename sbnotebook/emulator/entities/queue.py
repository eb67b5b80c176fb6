"""A queue, and what subscriptions share with it: sub-queues, sessions, forwarding."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from sbnotebook.emulator.entities.admission import Destination
from sbnotebook.emulator.entities.box import Box, earliest
from sbnotebook.emulator.entities.changes import BOXES_PER_ENTITY
from sbnotebook.emulator.entities.message import BrokeredMessage, BrokeredState, DeadLetterReason
from sbnotebook.emulator.entities.options import QueueOptions, SubscriptionOptions
from sbnotebook.emulator.entities.record import EntityRecord
from sbnotebook.emulator.entities.refusals import Condition, RefusedError
from sbnotebook.emulator.entities.rendering import with_dead_letter_reason, with_time_to_live
from sbnotebook.emulator.entities.sessions import MessageSession, Sessions
from sbnotebook.emulator.entities.transitions import MessageEvent, Place, place_of
from sbnotebook.model.address import SubQueue

if TYPE_CHECKING:
    from sbnotebook.emulator.entities.registry import Registry


class Counts(NamedTuple):
    active: int  # that can be received, or are locked
    locked: int  # that are locked, counted with the active ones, too
    deferred: int  # that are set aside
    scheduled: int  # that become active later
    dead_letter: int  # in the dead-letter queue
    transfer_dead_letter: int = 0  # in the transfer dead-letter queue


class SubQueueBox(Box):
    """A dead-letter queue, whose messages may be forwarded, or a transfer dead-letter queue."""

    def _offer(self, message: BrokeredMessage, now: int) -> None:
        target = self.owner.options.forward_dead_letters_to
        if target is not None and self is self.owner.dead_letter:
            message.payload = self.log.payload(message)
            if self.context.forward(message, target, now, dead_letter_source=self.owner.path) is None:
                self._remove(message)
                return
        super()._offer(message, now)


class ReceivingEntity(Box):
    """A queue or a subscription, with its sub-queues and sessions.

    Source: Service Bus documentation, "Message sessions" and "Chaining Service Bus entities with autoforwarding".
    """

    def __init__(
        self, context: Registry, path: str, options: QueueOptions | SubscriptionOptions, record: EntityRecord
    ) -> None:
        box = record.entity_id * BOXES_PER_ENTITY
        super().__init__(context, box, path)
        self.options = options
        self.record = record
        self._state_bytes = 0
        self.dead_letter = SubQueueBox(context, box + 1, f"{path}/{SubQueue.DEAD_LETTER.path}", self)
        self.transfer_dead_letter = SubQueueBox(context, box + 2, f"{path}/{SubQueue.TRANSFER_DEAD_LETTER.path}", self)
        if options.requires_session:
            self.sessions = Sessions()
            context.residency.logs.discard(self.log)

    @property
    def boxes(self) -> tuple[Box, ...]:
        return self, self.dead_letter, self.transfer_dead_letter

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
        active = self.message_count - self.deferred_count - self.scheduled_count
        return Counts(
            active,
            self.locked_count,
            self.deferred_count,
            self.scheduled_count,
            self.dead_letter.message_count,
            self.transfer_dead_letter.message_count,
        )

    def put(self, message: BrokeredMessage, now: int) -> None:
        if self.sessions is not None and message.state is not BrokeredState.SCHEDULED:
            if message.session_id is None:
                text = (
                    "Session enabled entity doesn't allow a message whose session identifier is null. "
                    "Give it a session id."
                )
                self.put_dead(message, DeadLetterReason("Session ID is null.", text), now)
                return
            self.sessions.added(message)
        super().put(message, now)

    def expire(self, now: int) -> None:
        for session in self.sessions.expired(now) if self.sessions is not None else ():
            self._end_session(session, MessageEvent.LOCK_EXPIRED, now)
        super().expire(now)

    def drop_locks(self, now: int) -> None:
        for session in list(self.sessions.held) if self.sessions is not None else ():
            self._end_session(session, MessageEvent.LOCK_DROPPED, now)
        super().drop_locks(now)
        self.dead_letter.drop_locks(now)
        self.transfer_dead_letter.drop_locks(now)

    @property
    def next_deadline(self) -> int | None:
        session_end = None if self.sessions is None else self.sessions.next_end
        return earliest(super().next_deadline, session_end)

    def start_forwarding(self, now: int) -> None:
        """Send on the messages in here, if the entity or its dead-letter queue now forwards."""
        if self.options.forward_dead_letters_to is not None:
            self.dead_letter.start_forwarding(now)
        if self.options.forward_to is not None:
            super().start_forwarding(now)

    def forward_waiting(self, sequence_number: int, now: int) -> None:
        """Forward a message that had to wait, if it is still there."""
        message = self.log.get(sequence_number)
        if message is not None and place_of(message) is Place.ACTIVE and self.options.forward_to is not None:
            self._withdraw(message)
            self._forward(message, self.options.forward_to, now)

    def close(self) -> None:
        super().close()
        self.dead_letter.close()
        self.transfer_dead_letter.close()

    # ------------------------------------------------------------------------------------- sessions

    def accept_session(self, session_id: str | None, now: int) -> tuple[MessageSession, UUID] | None:
        sessions = self._sessions()
        if session_id is None and not sessions.free:
            return None
        session = sessions.find_or_create(next(iter(sessions.free)) if session_id is None else session_id)
        if session.holder is not None:
            name = session.session_id[:128]
            text = f"The requested session '{name}' cannot be accepted. It may be locked by another receiver."
            raise RefusedError(Condition.SESSION_CANNOT_BE_LOCKED, text)
        # Lock it, and wake up when the lock ends.
        until = now + self.options.lock_duration
        token = sessions.lock(session, until)
        self.context.wake(self, until)
        return session, token

    def close_session(self, session: MessageSession, token: UUID, now: int) -> None:
        """End a client's lock of a session; its messages are given back, without a failed delivery."""
        if session.holder == token and not self.is_deleted:
            self._end_session(session, MessageEvent.RELEASE, now)

    def renew_session(self, session: MessageSession, now: int) -> int:
        until = now + self.options.lock_duration
        self._sessions().renew(session, until)
        return until

    def held_session(self, session_id: str, now: int) -> MessageSession:
        """Return the session of this id, which a client must hold."""
        session = self._sessions().get(session_id)
        if session is None or not session.is_held(now):
            raise self.lock_lost()
        return session

    def set_session_state(self, session: MessageSession, state: bytes | None, now: int) -> None:
        """Set the state of a session; None removes it."""
        limit = self.context.tier.quotas.max_session_state
        if len(state or b"") > limit:
            text = f"The session state has {len(state or b'')} bytes, the limit is {limit}."
            raise RefusedError(Condition.MESSAGE_SIZE_EXCEEDED, text)
        self.restore_session_state(session, state, now)
        self.context.changes.sessions[self.box, session.session_id] = state, now

    def restore_session_state(self, session: MessageSession, state: bytes | None, updated_time: int) -> None:
        """Set the state of a session as the store has it, with the time (ms) when it was set."""
        self._state_bytes += len(state or b"") - len(session.state or b"")
        session.state, session.updated_time = state, updated_time

    def _sessions(self) -> Sessions:
        if self.sessions is None:
            text = f"The entity '{self.path}' does not have sessions."
            raise RefusedError(Condition.NOT_ALLOWED, text)
        return self.sessions

    def _end_session(self, session: MessageSession, event: MessageEvent, now: int) -> None:
        for message in list(session.held.values()):
            self._apply(message, event, now)
        self._sessions().unlock(session)

    # ----------------------------------------------------------------------------------- forwarding

    def _offer(self, message: BrokeredMessage, now: int) -> None:
        target = self.options.forward_to
        if target is not None and place_of(message) is Place.ACTIVE and self.context.may_forward(self, message):
            self._forward(message, target, now)
        else:
            super()._offer(message, now)

    def _forward(self, message: BrokeredMessage, target: str, now: int) -> None:
        message.payload = with_time_to_live(message, self.log.payload(message))
        failure = self.context.forward(message, target, now, message.dead_letter_source)
        self._remove(message)
        if failure is not None:
            self._put_transfer_dead(message, failure, now)

    def _put_transfer_dead(self, message: BrokeredMessage, why: DeadLetterReason, now: int) -> None:
        payload = with_dead_letter_reason(message.payload or b"", *why)
        message.payload, message.size, message.expires_at = payload, len(payload), None
        self.transfer_dead_letter.put(message, now)

    def put_dead(self, message: BrokeredMessage, why: DeadLetterReason, now: int) -> None:
        payload = with_dead_letter_reason(with_time_to_live(message, message.payload or b""), *why)
        message.payload, message.size = payload, len(payload)
        message.state, message.expires_at, message.session_id = BrokeredState.ACTIVE, None, None
        self.dead_letter.put(message, now)


class Queue(ReceivingEntity, Destination):
    """A queue with its sub-queues.

    A message keeps its sequence number and its enqueued time when it is dead-lettered. A scheduled
    one gets a new number when it becomes active.

    Source: Service Bus documentation, "Message sequencing and timestamps".
    """

    options: QueueOptions  # pyright: ignore[reportIncompatibleVariableOverride]

    def transfer_failed(self, message: BrokeredMessage, why: DeadLetterReason, now: int) -> None:
        self._put_transfer_dead(message, why, now)


Receivable = ReceivingEntity | SubQueueBox
"""What a client receives from."""
