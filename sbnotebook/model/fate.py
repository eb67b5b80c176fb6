"""The fate of a message that was sent: waiting, consumed, or back in a dead-letter queue."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sbnotebook.model.address import EntityAddress

__all__ = ["Fate", "FateStatus"]


class FateStatus(StrEnum):
    """The kinds of fates."""

    WAITING = "waiting"
    """It is where it was sent to: active, locked by a consumer, scheduled or deferred."""
    CAME_BACK = "came back"
    """It was dead-lettered again."""
    CONSUMED = "consumed"
    """It has left its destination, and only a consumer can have removed it."""
    UNKNOWN = "unknown"
    """It is not to be found, and more than a consumer can be the reason."""


@dataclass(frozen=True, slots=True)
class Fate:
    """The fate of one clone.

    Args:
        status: the fate.
        clone_id: the message id of the clone.
        entity: where the clone is now; None where it is not to be found.
        sequence_number: its number there.
        reason: why it was dead-lettered again, as the consumer or Service Bus wrote it.
        description: the consumer's description of that reason; for an unknown fate, the reason in a sentence.
    """

    status: FateStatus
    clone_id: str
    entity: EntityAddress | None = None
    sequence_number: int | None = None
    reason: str | None = None
    description: str | None = None
