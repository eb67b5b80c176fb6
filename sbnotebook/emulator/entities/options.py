"""What can be set for a queue, and durations as Service Bus writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sbnotebook.errors import ConfigurationError

__all__ = ["QueueOptions", "format_duration", "parse_duration"]

_DURATION: Final = re.compile(
    r"P(?:(\d{1,9})D)?(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,7})?)S)?)?", re.ASCII
)
_MAX_LOCK_DURATION: Final = 300_000
_MAX_DELIVERY_COUNT: Final = 2000


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """How a queue treats its messages.

    Args:
        lock_duration: ms; how long a peek-lock lasts, at most 5 minutes.
        max_delivery_count: failed deliveries after which a message is dead-lettered, 1 to 2000.

    Raises:
        ConfigurationError: a value is out of its range.

    Source: Service Bus documentation, "Service Bus quotas" and "Message transfers, locks, and settlement".
    """

    lock_duration: int = 60_000
    max_delivery_count: int = 10

    def __post_init__(self) -> None:
        if not 0 < self.lock_duration <= _MAX_LOCK_DURATION:
            raise ConfigurationError("LockDuration must be longer than zero and at most 5 minutes (PT5M).")
        if not 1 <= self.max_delivery_count <= _MAX_DELIVERY_COUNT:
            raise ConfigurationError(f"MaxDeliveryCount must be from 1 to {_MAX_DELIVERY_COUNT}.")


def parse_duration(text: str) -> int:
    """Read an ISO 8601 duration of days, hours, minutes and seconds.

    Returns:
        Milliseconds.

    Raises:
        ConfigurationError: the text is no such duration.

    Example:
        >>> parse_duration("PT1M30S")
        90000
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ConfigurationError(f"{text[:40]!r} is not a duration: write for example PT30S, PT5M or P1DT12H.")
    days, hours, minutes = (int(part or 0) for part in match.groups()[:3])
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + round(float(match[4] or 0) * 1000)


def format_duration(milliseconds: int) -> str:
    """Write a duration in ISO 8601.

    Example:
        >>> format_duration(90_000), format_duration(500)
        ('PT1M30S', 'PT0.5S')
    """
    minutes, rest = divmod(milliseconds, 60_000)
    seconds = f"{rest / 1000:g}S" if rest or not minutes else ""
    return "PT" + (f"{minutes}M" if minutes else "") + seconds
