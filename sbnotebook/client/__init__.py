"""The synchronous interface over the settlement library, with pandas, Arrow and SQL expressions."""

from sbnotebook.client.batch import LockedBatch, LockedSession
from sbnotebook.client.entity import Entity
from sbnotebook.client.messages import Messages, read_messages
from sbnotebook.client.namespace import Namespace, NamespaceCopy, connect, read_copy
from sbnotebook.client.plan import Plan, Running, SendPlan
from sbnotebook.client.processing import Processing

__all__ = [
    "Entity",
    "LockedBatch",
    "LockedSession",
    "Messages",
    "Namespace",
    "NamespaceCopy",
    "Plan",
    "Processing",
    "Running",
    "SendPlan",
    "connect",
    "read_copy",
    "read_messages",
]
