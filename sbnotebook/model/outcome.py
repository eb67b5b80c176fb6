"""How one message ended: the outcome that the service confirmed, and the fate of a clone that was sent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any, Final

from sbnotebook.model.address import EntityAddress

# Texts stay objects, which may hold half a character of a broken sender.
_TYPES: Final = {
    "entity": "object",
    "sequence_number": "Int64",
    "message_id": "object",
    "verb": "object",
    "status": "object",
    "condition": "object",
    "description": "object",
    "tracking_id": "object",
    "retryable": "boolean",
}


class OutcomeStatus(StrEnum):
    """The end of one message."""

    SETTLED = "settled"
    """The service confirmed it."""
    LOCK_LOST = "lock lost"
    """The lock had ended before the decision arrived: nothing was done, the message is delivered again."""
    ALREADY_SETTLED = "already settled"
    """The message had been settled before through this batch."""
    NOT_FOUND = "not found"
    """The entity does not hold this message any more."""
    UNCONFIRMED = "unconfirmed"
    """It was asked for and no answer came: it may or may not have happened."""
    FAILED = "failed"
    """The service refused it: nothing was done."""
    SKIPPED = "skipped"
    """It was not attempted."""


@dataclass(frozen=True, slots=True, repr=False)
class Outcome:
    """The result of a decision, or of a send, for one message.

    Args:
        status: how it ended.
        verb: the attempted action: complete, abandon, dead-letter, defer, release, resubmit, send, schedule.
        entity: that held the message, or to which it was sent.
        sequence_number: the message's number; None for a send, whose answer does not carry one; of a
            scheduled message it is what cancels it.
        message_id: the message's identifier, where it has one.
        condition: the AMQP error condition or the SDK's error type, where there was an error.
        description: the service's words, cut at 500 characters.
        tracking_id: what Azure's support asks for, where the service gave one.
        retryable: whether trying again can help; None when that is not known.
    """

    status: OutcomeStatus
    verb: str
    entity: EntityAddress
    sequence_number: int | None = None
    message_id: str | None = None
    condition: str | None = None
    description: str | None = None
    tracking_id: str | None = None
    retryable: bool | None = None

    @property
    def ok(self) -> bool:
        """Tell whether the service confirmed the action."""
        return self.status is OutcomeStatus.SETTLED

    def to_pandas(self) -> Any:
        """Return a pandas frame with one row, and the fields as columns."""
        return frame_of_outcomes((self,))

    def __repr__(self) -> str:
        which = f"message {self.sequence_number}" if self.sequence_number is not None else f"{self.message_id!r}"
        said = ": ".join(filter(None, (self.condition, self.description and repr(self.description))))
        return f"<Outcome {self.verb} {which} of {self.entity}: {self.status}{f' ({said})' if said else ''}>"


def counted(count: int | None) -> str:
    """Return a number of messages in words, also one that is unknown."""
    return "messages" if count is None else f"{count:,} message{'' if count == 1 else 's'}"


def frame_of_outcomes(outcomes: Iterable[Outcome]) -> Any:
    # By name: the model needs the standard library only, and this function alone needs pandas.
    pd: Any = import_module("pandas")
    rows = [[getattr(outcome, name) for name in _TYPES] for outcome in outcomes]
    frame = pd.DataFrame(rows, columns=list(_TYPES), dtype=object)
    for name in ("entity", "status"):
        frame[name] = frame[name].map(str)
    return frame.astype(_TYPES)


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
