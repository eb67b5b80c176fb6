"""Pure values: addresses, messages, decisions, outcomes and the message columns.

Standard library only. Everything here is immutable and free of I/O.
"""

from sbnotebook.model.address import EntityAddress, SubQueue
from sbnotebook.model.body import BodyType
from sbnotebook.model.decision import (
    Abandon,
    CancelScheduled,
    Complete,
    DeadLetter,
    Decision,
    Defer,
    Purge,
    Release,
    Resubmit,
    Send,
    Undo,
)
from sbnotebook.model.message import LockedMessage, Message, MessageState, PeekedMessage, ReceivedMessage
from sbnotebook.model.report import Fate, FateStatus, Outcome, OutcomeStatus, Report, RunSpeed, Tally

__all__ = [
    "Abandon",
    "BodyType",
    "CancelScheduled",
    "Complete",
    "DeadLetter",
    "Decision",
    "Defer",
    "EntityAddress",
    "Fate",
    "FateStatus",
    "LockedMessage",
    "Message",
    "MessageState",
    "Outcome",
    "OutcomeStatus",
    "PeekedMessage",
    "Purge",
    "ReceivedMessage",
    "Release",
    "Report",
    "Resubmit",
    "RunSpeed",
    "Send",
    "SubQueue",
    "Tally",
    "Undo",
]
