"""Values of application properties as text, and back with their AMQP types.

A column of the message table holds text. The text is readable where the type allows it: numbers, times and ids are
written as people write them. Binary values and decimals are base64 of their bytes, and lists, maps, arrays and
described values are base64 of their AMQP encoding.
"""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any, Final

from sbnotebook.errors import ConfigurationError
from sbnotebook.model.amqp import AmqpValue, Timestamp, decode_exactly, encode, type_name
from sbnotebook.model.amqp.types import type_names

__all__ = ["from_text", "to_text"]

_CLASSES: Final = {name: kind for kind, name in type_names.items()}
_NESTED: Final = frozenset({"list", "map", "array", "described"})
_RAW: Final = frozenset({"binary", "decimal32", "decimal64", "decimal128"})
_SHOWN: Final = 60


def to_text(value: AmqpValue) -> str | None:
    """Return a property's value as text; None for null.

    Example:
        >>> to_text(5), to_text(True), to_text(Timestamp(0)), to_text(b"abc")
        ('5', 'true', '1970-01-01T00:00:00.000+00:00', 'YWJj')
    """
    kind = type_name(value)
    if kind == "null":
        return None
    if kind in _NESTED:
        return base64.b64encode(encode(value)).decode()
    if kind in _RAW:
        return base64.b64encode(bytes(value)).decode()  # pyright: ignore[reportArgumentType, reportCallIssue]
    if kind == "boolean":
        return "true" if value else "false"
    if kind == "timestamp":
        return _timestamp_text(value)
    if isinstance(value, float):
        return float.__repr__(value)
    return int.__repr__(value) if isinstance(value, int) else str(value)


def from_text(text: Any, kind: str | None) -> AmqpValue:
    """Return the value of a text that :func:`to_text` made.

    Args:
        text: the text.
        kind: the AMQP name of the value's type, such as ``long``; None leaves the text as it is.

    Raises:
        ConfigurationError: the text is not a value of this type, or there is no such type.

    Example:
        >>> type_name(from_text("5", "ulong"))
        'ulong'
    """
    if kind is None:
        return text
    try:
        value = _parse(str(text), kind)
        encode(value)  # refuses what the type cannot hold
    except (ValueError, KeyError, OverflowError, TypeError):
        shown = str(text)[:_SHOWN]
        raise ConfigurationError(f"{shown!r} is not a property value of the AMQP type {kind[:_SHOWN]!r}.") from None
    return value


def _timestamp_text(value: Any) -> str:
    stamp = Timestamp.from_datetime(value) if isinstance(value, datetime) else Timestamp(value)
    try:
        return stamp.to_datetime().isoformat(timespec="milliseconds")
    except OverflowError:
        return int.__repr__(stamp)


def _parse(text: str, kind: str) -> AmqpValue:
    if kind == "null":
        return None
    if kind in _NESTED:
        return decode_exactly(base64.b64decode(text, validate=True))
    if kind in _RAW:
        return _CLASSES[kind](base64.b64decode(text, validate=True))
    if kind == "boolean":
        return {"true": True, "false": False}[text]
    if kind == "timestamp":
        return _parse_timestamp(text)
    return _CLASSES[kind](text)


def _parse_timestamp(text: str) -> AmqpValue:
    # Digits first: fromisoformat takes 253411010120000 for the year 2534.
    try:
        return Timestamp(int(text))
    except ValueError:
        return Timestamp.from_datetime(datetime.fromisoformat(text))
