"""The verbs for users: asynchronous, and their synchronous twins, with pandas, Arrow and SQL expressions."""

from sbnotebook.client.async_batch import AsyncLockedBatch, AsyncLockedSession
from sbnotebook.client.async_deferred import AsyncDeferredMessages
from sbnotebook.client.async_entity import AsyncEntity
from sbnotebook.client.async_namespace import AsyncNamespace
from sbnotebook.client.async_namespace_copy import AsyncNamespaceCopy
from sbnotebook.client.async_plan import AsyncPlan, AsyncRunning, AsyncSendPlan
from sbnotebook.client.async_processing import AsyncProcessing
from sbnotebook.client.batch import LockedBatch, LockedSession
from sbnotebook.client.deferred import DeferredMessages
from sbnotebook.client.entity import Entity
from sbnotebook.client.messages import Messages, read_messages
from sbnotebook.client.namespace import Namespace, NamespaceCopy, connect, read_copy
from sbnotebook.client.plan import Plan, Running, SendPlan
from sbnotebook.client.processing import Processing

__all__ = [
    "AsyncDeferredMessages",
    "AsyncEntity",
    "AsyncLockedBatch",
    "AsyncLockedSession",
    "AsyncNamespace",
    "AsyncNamespaceCopy",
    "AsyncPlan",
    "AsyncProcessing",
    "AsyncRunning",
    "AsyncSendPlan",
    "DeferredMessages",
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
