"""Read durations, addresses, times, states and expressions as users write them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import partial
from numbers import Integral
from typing import Final, overload

from sbnotebook.analysis import query
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, MessageState
from sbnotebook.settlement.actions.selection import Filter

__all__ = ["address", "duration", "message_filter", "message_state", "start_time", "whole_number"]

_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_PART: Final = re.compile(r"(?<!\d)(\d++(?:\.\d++)?)\s*+(ms|s|m|h|d)")
_LONGEST: Final = 60


@overload
def duration(text: str | float | timedelta) -> timedelta: ...
@overload
def duration(text: None) -> None: ...
def duration(text: str | float | timedelta | None) -> timedelta | None:
    """Read a duration from a text such as ``90s``, ``5m`` or ``1h30m``; a number is seconds, and None stays None.

    Raises:
        ConfigurationError: the text is not a duration.

    Example:
        >>> duration("1h30m")
        datetime.timedelta(seconds=5400)
    """
    if text is None or isinstance(text, timedelta):
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


def start_time(since: str | datetime | timedelta | None) -> datetime | timedelta | None:
    """Read a time, or a duration that counts back from now, such as ``2d``.

    Raises:
        ConfigurationError: the text is not a duration.
    """
    return duration(since) if isinstance(since, str) else since


def address(entity: str | EntityAddress | None) -> EntityAddress | None:
    """Read an entity's address, such as ``orders/$dlq``; None stays None.

    Raises:
        InvalidEntityAddressError: the text is not an address.
    """
    return None if entity is None else EntityAddress.parse(entity)


def message_state(state: str | None) -> MessageState | None:
    """Read ``active``, ``deferred`` or ``scheduled``; None stays None.

    Raises:
        ConfigurationError: the text is not a state.
    """
    if state is None:
        return None
    try:
        return MessageState(state)
    except ValueError:
        raise ConfigurationError(f"{state[:40]!r} is not a state: use {', '.join(MessageState)}.") from None


def whole_number(value: int, name: str, *, least: int = 0) -> int:
    """Check a number that a user gives.

    Args:
        value: the number.
        name: what it is, for the error.
        least: the lowest allowed number.

    Raises:
        ConfigurationError: it is something else, or too low.
    """
    if not isinstance(value, Integral) or value < least:
        hint = "; an expression is given as where=…" if isinstance(value, str) and not value.isdigit() else ""
        raise ConfigurationError(f"{name} is a whole number from {least}, not {str(value)[:40]!r}{hint}.")
    return int(value)


def message_filter(where: str | None) -> Filter | None:
    """Make a filter of a SQL expression over the message columns; None stays None.

    Raises:
        ConfigurationError: the expression is wrong.
    """
    query.where([], where)  # checks the expression before any message is peeked
    return partial(query.where, expression=where) if where is not None else None
