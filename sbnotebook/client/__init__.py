"""The verbs for users: asynchronous, and their synchronous twins, with pandas, Arrow and SQL expressions.

Each name is loaded when it is first used: Spark's processes need the targets of this package, and none of its verbs.
"""

# ruff: noqa: F401
# pyright: reportUnusedImport=false

from typing import TYPE_CHECKING

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

if not TYPE_CHECKING:  # a checker refuses names that are not imported above
    __getattr__, __dir__, __all__ = lazy_names(__name__)
