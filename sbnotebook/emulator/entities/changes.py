"""What has changed in the entities and has to be kept; locks are not kept."""

from __future__ import annotations

from dataclasses import dataclass

from sbnotebook.emulator.entities.message import BrokeredMessage
from sbnotebook.emulator.entities.options import QueueOptions

__all__ = [
    "Change",
    "MessageAdded",
    "MessageDeadLettered",
    "MessageRemoved",
    "MessageUpdated",
    "QueueCreated",
    "QueueDeleted",
    "QueueUpdated",
]


@dataclass(frozen=True, slots=True)
class QueueCreated:
    """There is a new queue; ``created_time`` is in ms."""

    queue: str
    options: QueueOptions
    created_time: int


@dataclass(frozen=True, slots=True)
class QueueUpdated:
    """A queue has other options."""

    queue: str
    options: QueueOptions


@dataclass(frozen=True, slots=True)
class QueueDeleted:
    """A queue is gone, with all its messages."""

    queue: str


@dataclass(frozen=True, slots=True)
class MessageAdded:
    """A queue has a new message."""

    queue: str
    message: BrokeredMessage


@dataclass(frozen=True, slots=True)
class MessageUpdated:
    """The state or the delivery count of a message is another one."""

    queue: str
    message: BrokeredMessage


@dataclass(frozen=True, slots=True)
class MessageDeadLettered:
    """A message went to the dead-letter queue; its payload says why."""

    queue: str
    message: BrokeredMessage


@dataclass(frozen=True, slots=True)
class MessageRemoved:
    """A message is gone from a queue or from its dead-letter queue."""

    queue: str
    sequence_number: int


Change = (
    QueueCreated | QueueUpdated | QueueDeleted | MessageAdded | MessageUpdated | MessageDeadLettered | MessageRemoved
)
