"""Durations as Service Bus writes them."""

from __future__ import annotations

import re
from typing import Final

from sbnotebook.errors import ConfigurationError

__all__ = ["FOREVER", "format_duration", "parse_duration"]

FOREVER: Final = "P10675199DT2H48M5.4775807S"
"""How Service Bus writes that something never ends: the longest duration that .NET knows."""

_FOREVER_DAYS: Final = 10_675_199
_DURATION: Final = re.compile(
    r"P(?:(\d{1,9})D)?(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,7})?)S)?)?", re.ASCII
)


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


def format_duration(milliseconds: int | None) -> str:
    """Write a duration in ISO 8601; None is for ever.

    Example:
        >>> format_duration(90_000), format_duration(500), format_duration(14 * 86_400_000)
        ('PT1M30S', 'PT0.5S', 'P14D')
    """
    if milliseconds is None:
        return FOREVER
    days, rest = divmod(milliseconds, 86_400_000)
    hours, rest = divmod(rest, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    parts = [f"{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M")) if number]
    if rest or not (days or parts):
        parts.append(f"{rest / 1000:g}S")
    return "P" + (f"{days}D" if days else "") + ("T" + "".join(parts) if parts else "")
