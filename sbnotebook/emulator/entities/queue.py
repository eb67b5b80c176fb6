"""A queue: messages are sent to it, now or for later, and received from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from sbnotebook.emulator.entities.changes import Change, MessageAdded
from sbnotebook.emulator.entities.message import BrokeredMessage, MessageState, SentMessage
from sbnotebook.emulator.entities.options import QueueOptions
from sbnotebook.emulator.entities.receivable import Receivable
from sbnotebook.model.address import SubQueue

__all__ = ["Counts", "Queue"]

_SPARE: Final = 64
"""Cancelled messages that the schedule may hold however few there are besides."""


class Counts(NamedTuple):
    """How many messages a queue holds.

    Attributes:
        active: that can be received, or are locked.
        locked: that are locked, counted with the active ones, too.
        deferred: that are set aside.
        scheduled: that become active later.
        dead_letter: in the dead-letter queue.
    """

    active: int
    locked: int
    deferred: int
    scheduled: int
    dead_letter: int


class Queue(Receivable):
    """A queue with its dead-letter queue.

    A message keeps its sequence number and its enqueued time when it is dead-lettered. A scheduled
    one gets a new number when it becomes active.

    Args:
        name: the queue's name.
        options: how it treats its messages.
        changes: gets a record of each change that has to be kept.
        last_sequence_number: the highest number that was ever given out.
        created_time: ms.

    Source: Service Bus documentation, "Message sequencing and timestamps".
    """

    dead_letter: Receivable  # a queue always has one

    def __init__(
        self,
        name: str,
        options: QueueOptions,
        changes: list[Change],
        *,
        last_sequence_number: int = 0,
        created_time: int = 0,
    ) -> None:
        dead_letter = Receivable(self, f"{name}/{SubQueue.DEAD_LETTER.path}", changes, None)
        super().__init__(self, name, changes, dead_letter)
        self.options = options
        self.created_time = created_time
        self._last_sequence_number = last_sequence_number
        self._schedule: list[tuple[int, int]] = []  # a heap of (time, sequence number), with some that are cancelled
        self._scheduled_count = 0

    @property
    def counts(self) -> Counts:
        """How many messages there are now."""
        active = len(self) - self.deferred_count - self._scheduled_count
        return Counts(active, self.locked_count, self.deferred_count, self._scheduled_count, len(self.dead_letter))

    def send(self, sent: SentMessage, now: int) -> BrokeredMessage:
        """Keep a message; with a scheduled time in the future it becomes active only then."""
        is_scheduled = sent.scheduled_time is not None and sent.scheduled_time > now
        number = self._next_sequence_number()
        message = BrokeredMessage(
            sequence_number=number,
            enqueued_sequence_number=number,
            enqueued_time=now,
            payload=sent.payload,
            state=MessageState.SCHEDULED if is_scheduled else MessageState.ACTIVE,
            scheduled_time=sent.scheduled_time if is_scheduled else None,
        )
        self.put(message)
        self._changes.append(MessageAdded(self.path, message))
        return message

    def cancel_scheduled(self, sequence_numbers: Sequence[int]) -> bool:
        """Remove scheduled messages; False, and nothing is done, if one of them is not scheduled."""
        messages = [self._log.get(number) for number in dict.fromkeys(sequence_numbers)]
        found = [message for message in messages if message is not None and message.state is MessageState.SCHEDULED]
        if len(found) < len(messages):
            return False
        for message in found:
            self._remove(message)
        self._forget_cancelled()
        return True

    def put(self, message: BrokeredMessage) -> None:
        """Take in a message that is not locked, in the place that its number gives."""
        super().put(message)
        if message.state is MessageState.SCHEDULED:
            heappush(self._schedule, (message.scheduled_time or 0, message.sequence_number))
            self._scheduled_count += 1

    def expire(self, now: int) -> None:
        """Activate what is due, and give back what is locked for too long, also in the dead-letter queue."""
        while self._schedule and self._schedule[0][0] <= now:
            message = self._log.get(heappop(self._schedule)[1])
            if message is not None:
                self._activate(message, now)
        super().expire(now)
        self.dead_letter.expire(now)

    def drop_locks(self) -> None:
        """Every lock is lost, without a failed delivery, also in the dead-letter queue."""
        super().drop_locks()
        self.dead_letter.drop_locks()

    @property
    def next_deadline(self) -> int | None:
        """When ``expire`` has something to do next (ms); None if never."""
        scheduled = self._schedule[0][0] if self._schedule else None
        deadlines = (scheduled, super().next_deadline, self.dead_letter.next_deadline)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _forget_cancelled(self) -> None:
        # Seldom enough that cancelling a message costs no more for many scheduled ones than for few.
        if len(self._schedule) > 2 * self._scheduled_count + _SPARE:
            self._schedule = [entry for entry in self._schedule if self._log.get(entry[1]) is not None]
            heapify(self._schedule)

    def _next_sequence_number(self) -> int:
        self._last_sequence_number += 1
        return self._last_sequence_number

    def _activate(self, message: BrokeredMessage, now: int) -> None:
        self._remove(message)
        # A new object: the records of earlier changes still hold the old one.
        active = replace(
            message,
            sequence_number=self._next_sequence_number(),
            state=MessageState.ACTIVE,
            scheduled_time=None,
            enqueued_time=now,
        )
        self.put(active)
        self._changes.append(MessageAdded(self.path, active))

    def _take_out(self, message: BrokeredMessage) -> None:
        super()._take_out(message)
        if message.state is MessageState.SCHEDULED:
            self._scheduled_count -= 1
