"""The verbs for users: asynchronous, and their synchronous twins, with pandas, Arrow and SQL expressions.

Each name is loaded when it is first used: Spark's processes need the targets of this package, and none of its verbs.
"""

from typing import TYPE_CHECKING

from sbnotebook.lazy import lazy_names

if TYPE_CHECKING:
    from sbnotebook.client.async_batch import AsyncDeferredMessages, AsyncLockedBatch, AsyncLockedSession
    from sbnotebook.client.async_entity import AsyncEntity
    from sbnotebook.client.async_namespace import AsyncNamespace
    from sbnotebook.client.async_namespace_copy import AsyncNamespaceCopy
    from sbnotebook.client.async_plan import AsyncPlan, AsyncProcessing, AsyncRunning, AsyncSendPlan
    from sbnotebook.client.batch import DeferredMessages, LockedBatch, LockedSession
    from sbnotebook.client.entity import Entity
    from sbnotebook.client.messages import Messages, read_messages
    from sbnotebook.client.namespace import Namespace, NamespaceCopy, connect, read_copy
    from sbnotebook.client.plan import Plan, Processing, Running, SendPlan

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

__getattr__ = lazy_names(
    __name__,
    {
        "async_batch": ("AsyncDeferredMessages", "AsyncLockedBatch", "AsyncLockedSession"),
        "async_entity": ("AsyncEntity",),
        "async_namespace": ("AsyncNamespace",),
        "async_namespace_copy": ("AsyncNamespaceCopy",),
        "async_plan": ("AsyncPlan", "AsyncProcessing", "AsyncRunning", "AsyncSendPlan"),
        "batch": ("DeferredMessages", "LockedBatch", "LockedSession"),
        "entity": ("Entity",),
        "messages": ("Messages", "read_messages"),
        "namespace": ("Namespace", "NamespaceCopy", "connect", "read_copy"),
        "plan": ("Plan", "Processing", "Running", "SendPlan"),
    },
)
