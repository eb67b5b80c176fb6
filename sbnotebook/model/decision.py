"""Decisions: the actions that users want for a message."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Final, Literal

from sbnotebook.errors import DecisionError
from sbnotebook.model.address import EntityAddress

AUTO: Final = "auto"
"""Let sbnotebook choose."""
MAX_TEXT: Final = 4_096
"""UTF-16 code units of the reason, and of the description, of a dead letter."""
_SHORTENED: Final = "sbnotebook shortened this from"
_END: Final = 60
MaxResubmits = int | Literal["auto"] | None
"""A limit of resubmits of one message: see :class:`Resubmit`."""


@dataclass(frozen=True, slots=True)
class Complete:
    """Complete the message: the service removes it."""

    verb: ClassVar[str] = "complete"


@dataclass(frozen=True, slots=True)
class Abandon:
    """Abandon the message: it is delivered again, and its delivery count rises by one.

    Args:
        delay: how long it is held before, with its lock renewed; None for not at all.

    Raises:
        DecisionError: the delay is less than nothing.
    """

    verb: ClassVar[str] = "abandon"
    delay: timedelta | None = None

    def __post_init__(self) -> None:
        if self.delay is not None and self.delay < timedelta(0):
            raise DecisionError("A message cannot be abandoned in the past: delay is nothing or more.")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Move the message to the dead-letter queue.

    Each text has at most 4,096 characters, as in Microsoft's .NET library: with longer ones, the frame that settles the
    message could exceed 64 KiB, with which Service Bus closes the connection. A longer text is cut, and says so at its
    end. Half a character of a broken sender, which AMQP cannot carry, becomes a question mark. Source:
    ``MaxDeadLetterReasonLength`` in ``sdk/servicebus/Azure.Messaging.ServiceBus/src/Constants.cs`` of
    Azure/azure-sdk-for-net, which its ``AmqpReceiver`` applies to both texts.

    Args:
        reason: short and the same for the same cause, because messages are grouped by it.
        description: what happened to this message.

    Raises:
        DecisionError: one of them is not a text.

    Example:
        >>> DeadLetter("Bad", "x" * 5_000).description[-52:]
        'x… (sbnotebook shortened this from 5,000 characters)'
    """

    verb: ClassVar[str] = "dead-letter"
    reason: str | None = None
    description: str | None = None

    def __post_init__(self) -> None:
        for name in ("reason", "description"):
            object.__setattr__(self, name, _fitted(name, getattr(self, name)))

    @property
    def shortened(self) -> str | None:
        """Return which texts were shortened, in a sentence; None for none."""
        texts = {"reason": self.reason, "description": self.description}
        cut = [name for name, text in texts.items() if f"… ({_SHORTENED} " in (text or "")[-_END:]]
        return f"The {' and the '.join(cut)} of the dead letter had to be shortened." if cut else None


@dataclass(frozen=True, slots=True)
class Defer:
    """Defer the message: from then on it can only be received by its sequence number.

    Args:
        wake_after: when a wake-up message that carries the number becomes active, counted from now; None for no such
            message. See :mod:`sbnotebook.settlement.locking.wake_up`.
        wake_to: the queue or topic to which the wake-up message is sent; None for the queue of the message.

    Raises:
        DecisionError: the wake-up cannot be sent then, or there.
    """

    verb: ClassVar[str] = "defer"
    wake_after: timedelta | None = None
    wake_to: EntityAddress | None = None

    def __post_init__(self) -> None:
        if self.wake_after is not None and self.wake_after < timedelta(0):
            raise DecisionError("A wake-up message cannot come in the past: wake_after is nothing or more.")
        if self.wake_to is not None and (self.wake_after is None or self.wake_to != self.wake_to.sends_to):
            raise DecisionError("wake_to is the queue or topic for a wake-up message, and goes with wake_after.")


@dataclass(frozen=True, slots=True)
class Release:
    """Release the message: it is delivered again, and its delivery count stays."""

    verb: ClassVar[str] = "release"


@dataclass(frozen=True, slots=True)
class Resubmit:
    """Send a clone of the message, and complete the original once the clone is confirmed.

    Args:
        to: the destination of the clone; None for the entity of the message, or its topic.
        delay: how long until the clone becomes active, None for at once.
        max_resubmits: a message that was resubmitted this often is dead-lettered, or stays where it is if that is a
            dead-letter queue; None for no limit. ``"auto"`` is 5 for dead letters, so that a loop over a consumer that
            still fails ends, and no limit for others.
        resend_unknown: send again clones that an interrupted resubmit may have sent already.
        atomic: send the clone and complete the original in one transaction: both are done, or neither. ``"forward"``
            also sends to other entities: then the own entity stores the clone, and forwards it later. Experimental:
            untested on Azure.
        to_host: the host of the namespace that ``to`` is in, where that is another one; set by a plan.
    """

    verb: ClassVar[str] = "resubmit"
    to: EntityAddress | None = None
    delay: timedelta | None = None
    max_resubmits: MaxResubmits = AUTO
    resend_unknown: bool = False
    atomic: bool | Literal["forward"] = False
    to_host: str | None = None

    def __post_init__(self) -> None:
        _check_destination(self.to)
        if self.atomic not in (False, True, "forward"):
            raise DecisionError("atomic is True, False or 'forward'.")
        if self.delay is not None and self.delay < timedelta(0):
            raise DecisionError("A resubmit cannot be delayed by less than nothing.")
        limit = self.max_resubmits
        if limit is not None and limit != AUTO and limit < 1:
            raise DecisionError("max_resubmits is 1 or more, None for no limit, or 'auto'.")

    def limit_at(self, source: EntityAddress) -> int | None:
        """Return how often a message of an entity is resubmitted at most; None for no limit.

        Example:
            >>> Resubmit().limit_at(EntityAddress.parse("orders/$dlq")), Resubmit().limit_at(EntityAddress("orders"))
            (5, None)
        """
        if self.max_resubmits != AUTO:
            return self.max_resubmits
        return 5 if source.sub_queue is not None else None


@dataclass(frozen=True, slots=True)
class Purge:
    """Write the message to the archive, and remove it.

    Args:
        before: when given, Service Bus itself removes all messages that were enqueued before then, without an archive.
    """

    verb: ClassVar[str] = "purge"

    before: datetime | None = None


@dataclass(frozen=True, slots=True)
class CancelScheduled:
    """Cancel a scheduled message: write it to the archive, and remove it."""

    verb: ClassVar[str] = "cancel"


@dataclass(frozen=True, slots=True)
class Send:
    """Send a new message.

    Args:
        at: when it becomes active, with a time zone; None for at once.
        delay: how much later than when it is sent instead.

    Raises:
        DecisionError: the time is not clear.
    """

    verb: ClassVar[str] = "send"
    at: datetime | None = None
    delay: timedelta | None = None

    def __post_init__(self) -> None:
        if self.at is not None and self.delay is not None:
            raise DecisionError("Give a time or a delay, not both.")
        if self.at is not None and self.at.tzinfo is None:
            raise DecisionError("The time has no time zone: write datetime(…, tzinfo=UTC), or use delay=.")
        if self.delay is not None and self.delay < timedelta(0):
            raise DecisionError("A message cannot be scheduled for less than no time from now.")

    @property
    def is_for_now(self) -> bool:
        """Tell whether the message becomes active at once."""
        return self.at is None and self.delay is None


@dataclass(frozen=True, slots=True)
class Undo:
    """Send a removed message back from the archive.

    Args:
        to: the destination; None for the entity from which it was removed.
        include_unknown: also messages that may not have been removed, or may have been sent back before.
        include_resubmitted: also originals of resubmits, whose clones exist: this doubles them.
        new_ids: whether messages get new ids; None where the destination would drop them as duplicates.
    """

    verb: ClassVar[str] = "undo"
    to: EntityAddress | None = None
    include_unknown: bool = False
    include_resubmitted: bool = False
    new_ids: bool | None = None

    def __post_init__(self) -> None:
        _check_destination(self.to)


def _fitted(name: str, text: object) -> str | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise DecisionError(f"The {name} of a dead letter is a text, not {type(text).__name__}.")
    whole = text.encode("utf-16-le", errors="replace")  # .NET counts an emoji as two
    if len(whole) <= 2 * MAX_TEXT:
        return whole.decode("utf-16-le")
    end = f"… ({_SHORTENED} {len(text):,} characters)"
    return whole[: 2 * (MAX_TEXT - len(end))].decode("utf-16-le", errors="ignore") + end


def _check_destination(to: EntityAddress | None) -> None:
    if to is not None and (to.sub_queue is not None or to.subscription is not None):
        raise DecisionError(f"A message cannot be sent to {to}: name a queue or a topic.")


Decision = Abandon | CancelScheduled | Complete | DeadLetter | Defer | Purge | Release | Resubmit | Send | Undo
