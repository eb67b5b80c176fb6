"""The verbs for users: asynchronous, and their synchronous twins, with pandas, Arrow and SQL expressions.

Each name is loaded when it is first used: Spark's processes need the targets of this package, and none of its verbs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
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

_HOMES: Final = {
    "AsyncDeferredMessages": "async_deferred",
    "AsyncEntity": "async_entity",
    "AsyncLockedBatch": "async_batch",
    "AsyncLockedSession": "async_batch",
    "AsyncNamespace": "async_namespace",
    "AsyncNamespaceCopy": "async_namespace_copy",
    "AsyncPlan": "async_plan",
    "AsyncProcessing": "async_processing",
    "AsyncRunning": "async_plan",
    "AsyncSendPlan": "async_plan",
    "DeferredMessages": "deferred",
    "Entity": "entity",
    "LockedBatch": "batch",
    "LockedSession": "batch",
    "Messages": "messages",
    "Namespace": "namespace",
    "NamespaceCopy": "namespace",
    "Plan": "plan",
    "Processing": "processing",
    "Running": "plan",
    "SendPlan": "plan",
    "connect": "namespace",
    "read_copy": "namespace",
    "read_messages": "messages",
}


def __getattr__(name: str) -> Any:
    """Import a name from the module that it lives in (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'sbnotebook.client' has no attribute {name!r}")
    value = getattr(import_module(f"sbnotebook.client.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
