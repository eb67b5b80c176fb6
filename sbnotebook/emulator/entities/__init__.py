"""The entities of a namespace and what they do with messages.

No sockets, no frames, no clock: the moment is passed in, as milliseconds since 1970-01-01 UTC.
"""

from sbnotebook.emulator.entities.changes import (
    Change,
    MessageAdded,
    MessageDeadLettered,
    MessageRemoved,
    MessageUpdated,
    QueueCreated,
    QueueDeleted,
    QueueUpdated,
)
from sbnotebook.emulator.entities.message import MAX_MESSAGE_SIZE, BrokeredMessage, MessageState, SentMessage, read_sent
from sbnotebook.emulator.entities.options import QueueOptions
from sbnotebook.emulator.entities.queue import Counts, Queue
from sbnotebook.emulator.entities.receivable import Receivable
from sbnotebook.emulator.entities.registry import Registry
from sbnotebook.emulator.entities.rendering import render

__all__ = [
    "MAX_MESSAGE_SIZE",
    "BrokeredMessage",
    "Change",
    "Counts",
    "MessageAdded",
    "MessageDeadLettered",
    "MessageRemoved",
    "MessageState",
    "MessageUpdated",
    "Queue",
    "QueueCreated",
    "QueueDeleted",
    "QueueOptions",
    "QueueUpdated",
    "Receivable",
    "Registry",
    "SentMessage",
    "read_sent",
    "render",
]
