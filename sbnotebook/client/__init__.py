"""The verbs for users: asynchronous, and their synchronous twins, with pandas, Arrow and SQL expressions.

Each name is loaded when it is first used: Spark's processes need the targets of this package, and none of its verbs.
"""

# The imports are what a type checker sees of the names in the table below, which is read at run time.
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from typing import TYPE_CHECKING, Final

from sbnotebook.lazy import lazy_names

if TYPE_CHECKING:
    from sbnotebook.client.async_batch import AsyncDeferredMessages, AsyncLockedBatch, AsyncLockedSession
    from sbnotebook.client.async_entity import AsyncEntity
    from sbnotebook.client.async_namespace import AsyncNamespace
    from sbnotebook.client.async_namespace_copy import AsyncNamespaceCopy
    from sbnotebook.client.async_plan import AsyncPlan, AsyncProcessing, AsyncRunning
    from sbnotebook.client.batch import DeferredMessages, LockedBatch, LockedSession
    from sbnotebook.client.entity import Entity
    from sbnotebook.client.messages import Messages, read_messages
    from sbnotebook.client.namespace import Namespace, NamespaceCopy, connect, read_copy
    from sbnotebook.client.plan import Plan, Processing, Running

_NAMES: Final = {
    "async_batch": ("AsyncDeferredMessages", "AsyncLockedBatch", "AsyncLockedSession"),
    "async_entity": ("AsyncEntity",),
    "async_namespace": ("AsyncNamespace",),
    "async_namespace_copy": ("AsyncNamespaceCopy",),
    "async_plan": ("AsyncPlan", "AsyncProcessing", "AsyncRunning"),
    "batch": ("DeferredMessages", "LockedBatch", "LockedSession"),
    "entity": ("Entity",),
    "messages": ("Messages", "read_messages"),
    "namespace": ("Namespace", "NamespaceCopy", "connect", "read_copy"),
    "plan": ("Plan", "Processing", "Running"),
}
__all__ = [name for names in _NAMES.values() for name in names]  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__ = lazy_names(__name__, _NAMES)
