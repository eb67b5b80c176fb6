"""What the user wants done with a message."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from sbnotebook.errors import DecisionError
from sbnotebook.model.address import EntityAddress

__all__ = ["Abandon", "Complete", "DeadLetter", "Decision", "Defer", "Release", "Resubmit"]


@dataclass(frozen=True, slots=True)
class Complete:
    """The message is done with: the service removes it."""

    verb: ClassVar[str] = "complete"


@dataclass(frozen=True, slots=True)
class Abandon:
    """The message is given back to be delivered again; this raises its delivery count by one."""

    verb: ClassVar[str] = "abandon"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The message moves to the dead-letter queue.

    Args:
        reason: short and the same for the same cause, because messages are grouped by it.
        description: what happened to this message.
    """

    verb: ClassVar[str] = "dead-letter"
    reason: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Defer:
    """The message is set aside and can be received by its sequence number only."""

    verb: ClassVar[str] = "defer"


@dataclass(frozen=True, slots=True)
class Release:
    """The message is given back without having been delivered: the delivery count stays."""

    verb: ClassVar[str] = "release"


@dataclass(frozen=True, slots=True)
class Resubmit:
    """A clone of the message is sent, and when that is confirmed the original is completed.

    Args:
        to: where the clone is sent; None for the entity that the message stands in, or its topic.
        delay: how long until the clone becomes active, None for at once.
        max_resubmits: a message that was resubmitted this often is left where it is, None for no limit.
        resend_unknown: send again what an earlier resubmit, which was cut off, may have sent already.
    """

    verb: ClassVar[str] = "resubmit"
    to: EntityAddress | None = None
    delay: timedelta | None = None
    max_resubmits: int | None = None
    resend_unknown: bool = False

    def __post_init__(self) -> None:
        if self.to is not None and (self.to.sub_queue is not None or self.to.subscription is not None):
            raise DecisionError(f"A message cannot be sent to {self.to}: name a queue or a topic.")
        if self.delay is not None and self.delay < timedelta(0):
            raise DecisionError("A resubmit cannot be delayed by less than nothing.")
        if self.max_resubmits is not None and self.max_resubmits < 1:
            raise DecisionError("max_resubmits is 1 or more.")


Decision = Complete | Abandon | DeadLetter | Defer | Release | Resubmit
