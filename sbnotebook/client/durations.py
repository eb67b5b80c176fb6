"""Durations as users write them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from sbnotebook.errors import ConfigurationError

__all__ = ["duration"]

_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_LONGEST: Final = 60


def duration(text: str | float | timedelta) -> timedelta:
    """A duration from a text such as ``90s``, ``5m`` or ``1h30m``; a number is seconds.

    Raises:
        ConfigurationError: the text is not a duration.

    Example:
        >>> duration("1h30m")
        datetime.timedelta(seconds=5400)
    """
    if isinstance(text, timedelta):
        return text
    try:
        return timedelta(seconds=text) if isinstance(text, (int, float)) else _parse(text.lower())
    except (ValueError, OverflowError):
        raise ConfigurationError(f"{str(text)[:40]!r} is not a duration: write 90s, 5m, 1h30m or 2d.") from None


def _parse(text: str) -> timedelta:
    parts = _PART.findall(text) if len(text) <= _LONGEST else []
    if not parts or _PART.sub("", text).strip():
        raise ValueError(text)
    return sum((timedelta(**{_UNITS[unit]: float(number)}) for number, unit in parts), timedelta())
