"""The settlement library: peek, lock, settle, send and resubmit, asynchronously.

The only part of sbnotebook that imports ``azure``. All messages are settled and sent here, for magics, widgets, Python
and Spark.
"""

from sbnotebook.settlement.connecting.connection import Connection
from sbnotebook.settlement.entity import AsyncEntity
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.memory.archive import Archive
from sbnotebook.settlement.memory.journal import Journal
from sbnotebook.settlement.namespace import AsyncNamespace
from sbnotebook.settlement.plan import Limits, Plan, Preview, edit_json
from sbnotebook.settlement.processing.policy import Policy, PolicyRow, RejectMessage, SkipMessage, StopProcessing, Then
from sbnotebook.settlement.processing.process import Processing
from sbnotebook.settlement.watch import Watch, reporting

__all__ = [
    "Archive",
    "AsyncEntity",
    "AsyncNamespace",
    "Connection",
    "Journal",
    "Limits",
    "LockedBatch",
    "Plan",
    "Policy",
    "PolicyRow",
    "Preview",
    "Processing",
    "RejectMessage",
    "SkipMessage",
    "StopProcessing",
    "Then",
    "Watch",
    "edit_json",
    "reporting",
]
