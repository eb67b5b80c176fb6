"""Terms that all actions share: defaults, refused decisions, and outcomes that the service did not give."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, cast

from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    Decision,
    Defer,
    EntityAddress,
    Outcome,
    OutcomeStatus,
    ReceivedMessage,
    SubQueue,
)

ANOTHER: Final = "Not attempted: another message has its number now, because the entity was made anew. Peek again."

Progress = Callable[[int], None]
"""Called with the number of messages that were finished since the last call."""


def check_decision(decision: Decision, entity: EntityAddress, *, deferred: bool = False) -> None:
    """Refuse a decision that the service would refuse for every message.

    Args:
        decision: the action on the messages.
        entity: that holds them.
        deferred: whether they are deferred messages, which can be neither deferred nor released.

    Raises:
        DecisionError: says what to do instead.
    """
    if deferred and not isinstance(decision, Complete | DeadLetter | Abandon):
        raise DecisionError(
            f"To {decision.verb} deferred messages is not possible: complete, dead-letter, abandon or resubmit them."
        )
    if not isinstance(cast("object", decision), Decision):
        raise DecisionError("A decision is one of sbnotebook's own, such as Complete() or DeadLetter(reason).")
    if isinstance(decision, DeadLetter) and entity.sub_queue is SubQueue.DEAD_LETTER:
        raise DecisionError(
            f"{entity} is a dead-letter queue already: complete, resubmit or defer its messages instead."
        )
    wakes_here = isinstance(decision, Defer) and decision.wake_after is not None and decision.wake_to is None
    if wakes_here and entity != entity.sends_to:
        raise DecisionError(
            f"A wake-up message cannot be sent to {entity} itself, and in {entity.sends_to} others would get it: "
            "name a queue for it, wake_to=…"
        )


def moment_of(given: datetime | timedelta | None) -> datetime | None:
    """Return a time, or that of a duration back from now."""
    if isinstance(given, timedelta):
        return datetime.now(UTC) - given
    return given.astimezone() if given is not None else None


def check_wait(seconds: float) -> None:
    """Refuse a wait in which no message can come: the answer of Service Bus takes its time."""
    if not 0 < seconds < float("inf"):
        raise ConfigurationError(f"max_wait is above 0 seconds, such as 5; {seconds} is not.")


def outcome_for(
    message: ReceivedMessage, decision: Decision, status: OutcomeStatus, description: str | None = None
) -> Outcome:
    """Return the outcome of one message without an error of the service."""
    return Outcome(
        status=status,
        verb=decision.verb,
        entity=message.entity,
        sequence_number=message.sequence_number,
        message_id=message.message_id,
        description=description,
    )


def is_same(message: ReceivedMessage, chosen: ReceivedMessage) -> bool:
    """Tell whether a message with the number of a chosen message is that message.

    An entity that was made anew gives the same numbers to others, at other times. Where a time is not known, such as
    where only a number was given, the number decides.
    """
    times = message.enqueued_time, chosen.enqueued_time
    return None in times or times[0] == times[1]
