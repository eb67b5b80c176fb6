"""What the service confirmed, message by message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import overload

from sbnotebook.errors import SettlementFailedError
from sbnotebook.model.address import EntityAddress

__all__ = ["Outcome", "OutcomeStatus", "Report"]


class OutcomeStatus(StrEnum):
    """How one message ended."""

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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is known of one message after a decision, or a send, was carried out.

    Args:
        status: how it ended.
        verb: what was attempted: complete, abandon, dead-letter, defer, release, resubmit, send.
        entity: where the message stood, or was sent to.
        sequence_number: the message's number; None for a send, whose answer does not carry one.
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
        """Whether the service confirmed what was asked."""
        return self.status is OutcomeStatus.SETTLED


class Report(Sequence[Outcome]):
    """The outcomes of one plan, in the order of its messages.

    Example:
        >>> report = Report([])
        >>> len(report), report.ok
        (0, True)
    """

    def __init__(self, outcomes: Iterable[Outcome] = ()) -> None:
        self._outcomes = tuple(outcomes)

    @property
    def ok(self) -> bool:
        """Whether every message was confirmed."""
        return all(outcome.ok for outcome in self._outcomes)

    @property
    def settled(self) -> int:
        """How many messages were confirmed."""
        return sum(outcome.ok for outcome in self._outcomes)

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """The outcomes that are not a success, unknown ones among them."""
        return tuple(outcome for outcome in self._outcomes if not outcome.ok)

    @property
    def counts(self) -> dict[OutcomeStatus, int]:
        """How many messages ended in each way, the statuses that occurred only."""
        found = Counter(outcome.status for outcome in self._outcomes)
        return {status: found[status] for status in OutcomeStatus if found[status]}

    def raise_for_failures(self) -> None:
        """Raise when any message was not confirmed.

        Raises:
            SettlementFailedError: carries the outcomes that are not a success.
        """
        failures = self.failures
        if failures:
            raise SettlementFailedError(f"{len(failures)} of {len(self)} messages: {self}.", failures)

    def __add__(self, other: Report) -> Report:
        return Report((*self._outcomes, *other._outcomes))

    def __len__(self) -> int:
        return len(self._outcomes)

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self._outcomes)

    @overload
    def __getitem__(self, index: int) -> Outcome: ...
    @overload
    def __getitem__(self, index: slice) -> Report: ...
    def __getitem__(self, index: int | slice) -> Outcome | Report:
        return Report(self._outcomes[index]) if isinstance(index, slice) else self._outcomes[index]

    def __str__(self) -> str:
        if not self._outcomes:
            return "no messages"
        verbs = "/".join(dict.fromkeys(outcome.verb for outcome in self._outcomes))
        return f"{verbs}: " + ", ".join(f"{count:,} {status}" for status, count in self.counts.items())

    def __repr__(self) -> str:
        return f"<Report {self}>"
