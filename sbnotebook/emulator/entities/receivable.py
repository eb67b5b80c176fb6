"""What messages are received from: a queue, or its dead-letter queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING
from uuid import UUID

from sbnotebook.emulator.entities.changes import (
    Change,
    MessageDeadLettered,
    MessageRemoved,
    MessageUpdated,
)
from sbnotebook.emulator.entities.locks import Locks
from sbnotebook.emulator.entities.message import BrokeredMessage, MessageState
from sbnotebook.emulator.entities.message_log import MessageLog
from sbnotebook.emulator.entities.rendering import with_dead_letter_reason

if TYPE_CHECKING:
    from sbnotebook.emulator.entities.queue import Queue

__all__ = ["Receivable"]


class Receivable:
    """Messages that can be received, settled and peeked at.

    Locks belong to their tokens and not to a link: they outlive the connection that got them, and
    can be settled from another one. Whatever comes back (abandoned, released, expired) stands in its
    old place again. Methods that take a lock token return False, or None, when the lock is lost.

    Args:
        owner: the queue that this is, or whose dead-letter queue this is.
        path: the entity path.
        changes: gets a record of each change that has to be kept.
        dead_letter: where messages go that cannot be delivered; None for a dead-letter queue itself.

    Sources: Service Bus documentation, "Message transfers, locks, and settlement", "Message deferral",
    "Overview of dead-letter queues".
    """

    def __init__(self, owner: Queue, path: str, changes: list[Change], dead_letter: Receivable | None) -> None:
        self.path = path
        self.dead_letter = dead_letter
        self.deferred_count = 0
        self._owner = owner
        self._changes = changes
        self._log = MessageLog()
        self._available: list[int] = []  # a heap of sequence numbers
        self._locks = Locks()

    def __len__(self) -> int:
        return len(self._log)

    @property
    def has_available(self) -> bool:
        """Whether ``receive`` would find a message."""
        return bool(self._available)

    @property
    def locked_count(self) -> int:
        """Messages under a lock."""
        return len(self._locks)

    @property
    def size_bytes(self) -> int:
        """Bytes of all messages."""
        return self._log.size_bytes

    def receive(self, now: int) -> BrokeredMessage | None:
        """Lock the available message with the smallest sequence number; None if there is none."""
        if not self._available:
            return None
        message = self._message(heappop(self._available))
        self._locks.take(message, now + self._owner.options.lock_duration)
        return message

    def receive_and_delete(self) -> BrokeredMessage | None:
        """Take out the available message with the smallest sequence number; None if there is none."""
        if not self._available:
            return None
        message = self._message(heappop(self._available))
        self._remove(message)
        return message

    def receive_deferred(
        self, sequence_numbers: Sequence[int], now: int, *, delete: bool = False
    ) -> list[BrokeredMessage] | None:
        """Lock, or take out, deferred messages; None, and nothing is done, if one of them cannot be had."""
        messages = [self._log.get(number) for number in dict.fromkeys(sequence_numbers)]
        found = [message for message in messages if message is not None and _is_free_and_deferred(message)]
        if len(found) < len(messages):
            return None
        for message in found:
            if delete:
                self._remove(message)
            else:
                self._locks.take(message, now + self._owner.options.lock_duration)
        return found

    def peek(self, sequence_number: int, count: int) -> Iterator[BrokeredMessage]:
        """At most ``count`` messages from a sequence number on, whatever their state, also locked ones."""
        return islice(self._log.walk(sequence_number), count)

    def holds(self, token: UUID, now: int) -> bool:
        """Whether a lock is still held."""
        return self._locks.held(token, now) is not None

    def renew(self, token: UUID, now: int) -> int | None:
        """Let a lock last for another lock duration from now; returns until when (ms)."""
        message = self._locks.held(token, now)
        if message is None:
            return None
        self._locks.renew(message, now + self._owner.options.lock_duration)
        return message.locked_until

    def complete(self, token: UUID, now: int) -> bool:
        """Remove a locked message: its work is done."""
        message = self._unlock(token, now)
        if message is not None:
            self._remove(message)
        return message is not None

    def release(self, token: UUID, now: int) -> bool:
        """Give a locked message back as if it had not been delivered."""
        message = self._unlock(token, now)
        if message is not None:
            self._give_back(message)
        return message is not None

    def abandon(self, token: UUID, now: int) -> bool:
        """Give a locked message back; the delivery counts as failed. A deferred one stays deferred."""
        message = self._unlock(token, now)
        if message is not None:
            self._count_delivery(message)
        return message is not None

    def defer(self, token: UUID, now: int) -> bool:
        """Set a locked message aside: only ``receive_deferred`` finds it.

        It counts as a delivery: a message that is deferred again and again is dead-lettered in the end.
        """
        message = self._unlock(token, now)
        if message is not None:
            self._set_state(message, MessageState.DEFERRED)
            self._count_delivery(message)
        return message is not None

    def dead_letter_message(self, token: UUID, now: int, reason: str | None, description: str | None) -> bool:
        """Move a locked message to the dead-letter queue; not for messages that are there already."""
        message = self._unlock(token, now)
        if message is not None:
            self._dead_letter(message, reason, description)
        return message is not None

    def expire(self, now: int) -> None:
        """Give back the messages whose locks have ended.

        The delivery counts as failed, except in a dead-letter queue.
        """
        for message in self._locks.drop_expired(now):
            if self.dead_letter is None:
                self._give_back(message)
            else:
                self._count_delivery(message)

    def drop_locks(self) -> None:
        """Every lock is lost, without a failed delivery."""
        for message in self._locks.drop_all():
            self._give_back(message)

    @property
    def next_deadline(self) -> int | None:
        """When ``expire`` has something to do next (ms); None if never."""
        return self._locks.next_end

    def put(self, message: BrokeredMessage) -> None:
        """Take in a message that is not locked, in the place that its number gives."""
        self._log.add(message)
        if message.state is MessageState.ACTIVE:
            heappush(self._available, message.sequence_number)
        elif message.state is MessageState.DEFERRED:
            self.deferred_count += 1

    def _message(self, sequence_number: int) -> BrokeredMessage:
        message = self._log.get(sequence_number)
        if message is None:
            raise AssertionError(f"{self.path} lost the message {sequence_number}.")
        return message

    def _unlock(self, token: UUID, now: int) -> BrokeredMessage | None:
        message = self._locks.held(token, now)
        if message is not None:
            self._locks.drop(message)
        return message

    def _give_back(self, message: BrokeredMessage) -> None:
        if message.state is MessageState.ACTIVE:
            heappush(self._available, message.sequence_number)

    def _count_delivery(self, message: BrokeredMessage) -> None:
        message.delivery_count += 1
        limit = self._owner.options.max_delivery_count
        if self.dead_letter is not None and message.delivery_count >= limit:
            text = f"Message could not be consumed after {limit} delivery attempts."
            self._dead_letter(message, "MaxDeliveryCountExceeded", text)
        else:
            self._changes.append(MessageUpdated(self._owner.path, message))
            self._give_back(message)

    def _dead_letter(self, message: BrokeredMessage, reason: str | None, description: str | None) -> None:
        if self.dead_letter is None:
            raise AssertionError(f"{self.path} has no dead-letter queue.")
        self._take_out(message)
        message.state = MessageState.ACTIVE
        message.payload = with_dead_letter_reason(message.payload, reason, description)
        self.dead_letter.put(message)
        self._changes.append(MessageDeadLettered(self._owner.path, message))

    def _remove(self, message: BrokeredMessage) -> None:
        self._take_out(message)
        self._changes.append(MessageRemoved(self._owner.path, message.sequence_number))

    def _take_out(self, message: BrokeredMessage) -> None:
        self._log.remove(message)
        if message.state is MessageState.DEFERRED:
            self.deferred_count -= 1

    def _set_state(self, message: BrokeredMessage, state: MessageState) -> None:
        self.deferred_count += (state is MessageState.DEFERRED) - (message.state is MessageState.DEFERRED)
        message.state = state


def _is_free_and_deferred(message: BrokeredMessage) -> bool:
    return message.state is MessageState.DEFERRED and message.lock_token is None
