"""A queue: messages are sent to it, now or for later, and received from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sbnotebook.emulator.entities.entity import EntityRecord, ReceivingEntity
from sbnotebook.emulator.entities.intake import Intake
from sbnotebook.emulator.entities.message import BrokeredMessage, MessageState, SentMessage
from sbnotebook.emulator.entities.options import QueueOptions
from sbnotebook.emulator.entities.receivable import earliest
from sbnotebook.emulator.entities.schedule import Schedule

if TYPE_CHECKING:
    from sbnotebook.emulator.entities.registry import Registry

__all__ = ["Queue"]


class Queue(ReceivingEntity):
    """A queue with its sub-queues.

    A message keeps its sequence number and its enqueued time when it is dead-lettered. A scheduled
    one gets a new number when it becomes active.

    Args:
        registry: the namespace.
        name: the queue's name.
        options: how it treats its messages.
        record: what is known of it beside.

    Source: Service Bus documentation, "Message sequencing and timestamps".
    """

    options: QueueOptions

    def __init__(self, registry: Registry, name: str, options: QueueOptions, record: EntityRecord) -> None:
        super().__init__(registry, name, options, record)
        self.intake = Intake(registry, self)
        self.schedule = Schedule(self._log)

    @property
    def scheduled_count(self) -> int:
        """Messages that become active later."""
        return len(self.schedule)

    def send(self, sent: SentMessage, now: int) -> int:
        """Keep a message that ``intake`` has checked; the sequence number that it got."""
        return self.intake.take(sent, now)

    def take_in(self, message: BrokeredMessage, now: int) -> None:
        """Keep a message that is active, or scheduled."""
        self.put(message, now)
        if message.state is MessageState.SCHEDULED:
            self.schedule.add(message)
            self._registry.wake(self, message.scheduled_time or 0)

    def cancel_scheduled(self, sequence_numbers: Sequence[int]) -> bool:
        """Remove scheduled messages; False, and nothing is done, if one of them is not scheduled."""
        return self.schedule.cancel(sequence_numbers, self._remove)

    def expire(self, now: int) -> None:
        """Do all that is due, also activate the messages whose time has come."""
        for message in self.schedule.due(now):
            message.payload = self._log.payload(message)
            self._remove(message)
            self.schedule.removed()
            self.put(self.intake.activated(message, now), now)
        super().expire(now)

    @property
    def next_deadline(self) -> int | None:
        """When ``expire`` has something to do next (ms); None if never."""
        return earliest(super().next_deadline, self.schedule.next_time)
