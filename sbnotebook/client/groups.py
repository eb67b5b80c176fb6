"""Messages grouped by what went wrong with them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sbnotebook.model import ReceivedMessage

__all__ = ["Group", "cause_of", "group_by_cause"]

_MAX_CAUSE: Final = 200
# What differs between two messages with the same cause, most particular first.
_MASKS: Final = (
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"), "<time>"),
    # An apostrophe inside of a word is no quotation mark.
    (re.compile(r"(?<!\w)'.*?'(?!\w)|\"[^\"]*\""), "<value>"),
    (re.compile(r"\b0x[0-9a-f]+\b|\b[0-9a-f]{16,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"(?<![\w<])[-+]?\d[\d.,:]*"), "<n>"),
    (re.compile(r"\b(?=\w*\d)(?=\w*[A-Za-z])\w+\b"), "<id>"),
)


@dataclass(frozen=True, slots=True)
class Group:
    """Messages with the same cause.

    Args:
        reason: the dead-letter reason that they share.
        cause: their descriptions with what differs between them masked.
        count: how many they are.
        first_seen: when the first was enqueued.
        last_seen: when the last was enqueued.
        subjects: the most frequent subjects, with their counts.
        sequence_numbers: which messages they are.
        example: the description of the first.
    """

    reason: str | None
    cause: str
    count: int
    first_seen: datetime | None
    last_seen: datetime | None
    subjects: tuple[tuple[str | None, int], ...]
    sequence_numbers: tuple[int, ...]
    example: str | None


def cause_of(description: str | None) -> str:
    """A description with ids, numbers, times and quoted values masked, so that the same fault reads the same.

    Example:
        >>> cause_of("Flight 1545 of 2013-01-01 has no tail number")
        'Flight <n> of <time> has no tail number'
    """
    text = " ".join((description or "").split())[: _MAX_CAUSE * 4]
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return text[:_MAX_CAUSE]


def group_by_cause(messages: Iterable[ReceivedMessage]) -> list[Group]:
    """Group messages by dead-letter reason and masked description, the largest group first.

    Args:
        messages: of a dead-letter queue; others form groups without a reason.
    """
    found: dict[tuple[str | None, str], list[ReceivedMessage]] = {}
    for message in messages:
        key = (message.dead_letter_reason, cause_of(message.dead_letter_error_description))
        found.setdefault(key, []).append(message)
    groups = [_group(reason, cause, members) for (reason, cause), members in found.items()]
    return sorted(groups, key=lambda group: (-group.count, group.reason or "", group.cause))


def _group(reason: str | None, cause: str, members: list[ReceivedMessage]) -> Group:
    times = [message.enqueued_time for message in members if message.enqueued_time is not None]
    return Group(
        reason=reason,
        cause=cause,
        count=len(members),
        first_seen=min(times, default=None),
        last_seen=max(times, default=None),
        subjects=tuple(Counter(message.subject for message in members).most_common(5)),
        sequence_numbers=tuple(message.sequence_number for message in members),
        example=members[0].dead_letter_error_description,
    )
