"""The events of a batch's locks: they are renewed, renewing fails or is late, or they are lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class LockEventKind(StrEnum):
    """What happened to locks."""

    RENEWING = "renewing"
    """Locks are renewed as they should be, from the beginning or again."""
    LATE = "late"
    """The program or the machine stood still for so long that locks may have ended; the service is asked."""
    FAILING = "failing"
    """Renewing failed; it is tried again each second as long as the locks last."""
    ENDED = "ended"
    """``renew_for`` is over: locks end one after the other, and are not renewed any more."""
    LOST = "lost"
    """Locks ended before their messages were settled: the messages are delivered again."""


@dataclass(frozen=True, slots=True)
class LockEvent:
    """Something that happened to the locks of a batch.

    Args:
        kind: what happened.
        since: when it happened, or began.
        sequence_numbers: of the messages that it concerns; none where it is all of them.
        description: in a sentence.

    Example:
        >>> from datetime import UTC
        >>> print(LockEvent(LockEventKind.LOST, datetime(2026, 1, 2, tzinfo=UTC), (7,), "The lock ended."))
        2026-01-02 00:00:00 UTC lost: The lock ended. (#7)
    """

    kind: LockEventKind
    since: datetime
    sequence_numbers: tuple[int, ...] = ()
    description: str = ""

    @property
    def is_trouble(self) -> bool:
        """Tell whether locks are lost, or may be soon."""
        return self.kind is not LockEventKind.RENEWING

    def __str__(self) -> str:
        numbers = f" ({number_list(self.sequence_numbers)})" if self.sequence_numbers else ""
        words = f": {self.description}" if self.description else ""
        return f"{self.since:%Y-%m-%d %H:%M:%S} UTC {self.kind}{words}{numbers}"


LockWatcher = Callable[[LockEvent], None]
"""Told of each event, on the event loop of the batch: it must be quick, and must not wait for the batch."""


def number_list(sequence_numbers: Iterable[int], shown: int = 5) -> str:
    """Return sequence numbers as text for people.

    Args:
        sequence_numbers: in the order of the text.
        shown: numbers that are named; the others are counted.

    Example:
        >>> number_list(range(1, 9))
        '#1, #2, #3, #4, #5 and 3 more'
    """
    numbers = tuple(sequence_numbers)
    text = ", ".join(f"#{number}" for number in numbers[:shown])
    return text if len(numbers) <= shown else f"{text} and {len(numbers) - shown:,} more"
