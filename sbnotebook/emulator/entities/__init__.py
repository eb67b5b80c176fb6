"""The entities of a namespace and what they do with messages.

No sockets, no frames, no clock: the moment is passed in, as milliseconds since 1970-01-01 UTC.
"""

from sbnotebook.emulator.entities.changes import Changes
from sbnotebook.emulator.entities.message import (
    BrokeredMessage,
    BrokeredState,
    DeadLetterReason,
    SentMessage,
    read_sent,
)
from sbnotebook.emulator.entities.options import (
    AuthorizationRule,
    Claim,
    EntityStatus,
    QueueOptions,
    SubscriptionOptions,
    TopicOptions,
)
from sbnotebook.emulator.entities.queue import Counts, Queue, Receivable, ReceivingEntity
from sbnotebook.emulator.entities.quotas import Tier
from sbnotebook.emulator.entities.refusals import Condition, RefusedError
from sbnotebook.emulator.entities.registry import AnyEntity, Registry
from sbnotebook.emulator.entities.sessions import MessageSession
from sbnotebook.emulator.entities.snapshot import restore
from sbnotebook.emulator.entities.topic import Subscription, Topic
from sbnotebook.emulator.entities.transaction import SPANS_ENTITIES, Transaction, root_of

__all__ = [
    "SPANS_ENTITIES",
    "AnyEntity",
    "AuthorizationRule",
    "BrokeredMessage",
    "BrokeredState",
    "Changes",
    "Claim",
    "Condition",
    "Counts",
    "DeadLetterReason",
    "EntityStatus",
    "MessageSession",
    "Queue",
    "QueueOptions",
    "Receivable",
    "ReceivingEntity",
    "RefusedError",
    "Registry",
    "SentMessage",
    "Subscription",
    "SubscriptionOptions",
    "Tier",
    "Topic",
    "TopicOptions",
    "Transaction",
    "read_sent",
    "restore",
    "root_of",
]
