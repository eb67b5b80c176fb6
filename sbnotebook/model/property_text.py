"""AMQP values as text, and back with their types: application properties, and bodies as JSON.

A column of the message table holds text, and a second one the type of each value. The text is readable where the type
allows it: numbers, decimals, times, durations, addresses and ids are written as people write them. Binary values are
base64 of their bytes. All other values are base64 of their encoding: lists, maps and arrays, which application
properties must not hold (AMQP 1.0 part 3, section 3.2.5), and described values and decimals that no client of Azure
writes.

A body may be any AMQP value: a map of a JMS client, a list, a number. Its text is JSON. JSON has fewer types, so an
edit gives each value the AMQP type that the value at its place had; a new value gets the type of JSON.

.NET writes ``DateTimeOffset``, ``TimeSpan`` and ``Uri`` as described values. Source: Service Bus documentation, "Use
Service Bus from .NET with AMQP 1.0", mapping of types.

A decimal128 is IEEE 754-2008 with a binary significand. The clients of Azure for .NET put the upper half of its
exponent two bits too low, and read both forms. ``DecimalEncoding`` of Azure/azure-amqp shifts by 9 bits where the
standard says 7. Their exponents are those of values from 1e-4608, so a decimal128 with such an exponent and a
significand of 96 bits is one of .NET.

Source: AMQP 1.0 part 1, sections 1.6.15 to 1.6.17; IEEE 754-2008, section 3.5.2.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, cast
from uuid import UUID

from sbnotebook.amqp import (
    AmqpValue,
    Array,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Long,
    Symbol,
    Timestamp,
    decode_exactly,
    encode,
    type_name,
)
from sbnotebook.amqp.encoding import type_names
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model.json_text import JsonNumber, places_before, read_json, write_json

_BIAS: Final = 6176
_SIGNIFICAND_BITS: Final = 113
_MOST: Final = 10**34
_MOST_SCALE: Final = 28  # Digits behind the point of a decimal of .NET
# The exponent 0 as .NET writes it; it is lower by one for each digit behind the point
_NET_EXPONENT: Final = (_BIAS >> 9 << 7) | (_BIAS & 0x7F)


def decimal_text(data: bytes, *, is_of_net: bool = False) -> str | None:
    """Return a decimal128 as text; None where the text would not lead back to the same bytes."""
    bits = int.from_bytes(data)
    exponent = (bits >> _SIGNIFICAND_BITS & 0x3FFF) - (_NET_EXPONENT if is_of_net else _BIAS)
    value = Decimal(f"{'-' if bits >> 127 else ''}{bits & ((1 << _SIGNIFICAND_BITS) - 1)}E{exponent}")
    try:
        return str(value) if decimal_bytes(value, is_of_net=is_of_net) == data else None
    except OverflowError:
        return None


def decimal_bytes(value: Decimal, *, is_of_net: bool = False) -> bytes:
    sign, digits, exponent = value.as_tuple()
    significand = int("".join(map(str, digits)) or "0")
    if isinstance(exponent, str) or significand >= _MOST or not 0 <= exponent + _BIAS < 3 << 12:
        raise OverflowError("The number does not fit into a decimal128.")
    if is_of_net and (not -_MOST_SCALE <= exponent <= 0 or significand >> 96):
        raise OverflowError("The number is not a decimal of .NET.")
    biased = exponent + (_NET_EXPONENT if is_of_net else _BIAS)
    return (sign << 127 | biased << _SIGNIFICAND_BITS | significand).to_bytes(16)


_CLASSES: Final = {name: kind for kind, name in type_names.items()}
_NESTED: Final = frozenset({"list", "map", "array", "described"})
_DECIMALS: Final = (Decimal32, Decimal64, Decimal128)
# How a value is written that has no other text
_HOW: Final = {
    **dict.fromkeys((*_NESTED, "binary"), ", which is written as base64"),
    "decimal32": ": give its 4 bytes as base64, or a number as a decimal128",
    "decimal64": ": give its 8 bytes as base64, or a number as a decimal128",
}
# A decimal128 with the exponent where .NET writes it
_OF_NET: Final = "decimal128 (.NET)"
_MOMENT, _DURATION, _ADDRESS = (Symbol(f"com.microsoft:{name}") for name in ("datetime-offset", "timespan", "uri"))
_YEAR_1: Final = datetime(1, 1, 1, tzinfo=UTC)
_TICKS: Final = 10_000_000  # In a second
_TICKS_OF_DAY: Final = 24 * 60 * 60 * _TICKS
_LAST_TICK: Final = 3_155_378_975_999_999_999  # The end of the year 9999
_SEVENTH_DIGIT: Final = re.compile(r"\.\d{6}(\d)")  # of a second: Python reads six
_DURATION_TEXT: Final = re.compile(r"(-)?(?:(\d+)\.)?(\d\d?):(\d\d):(\d\d)(?:\.(\d{1,7}))?")
_SHOWN: Final = 60


def to_text(value: AmqpValue) -> str | None:
    return text_and_type(value)[0]


def property_type(value: AmqpValue) -> str:
    """Return the name of a value's type, from which :func:`from_text` makes the same value of its text."""
    return text_and_type(value)[1]


def text_and_type(value: AmqpValue) -> tuple[str | None, str]:
    if type(value) is str:
        return value, "string"
    kind = type_name(value)
    if kind == "null":
        return None, kind
    if kind in _NESTED:
        if isinstance(value, Described) and (text := _text_of_net(value.descriptor, value.value)) is not None:
            return text, str(value.descriptor)
        return _base64(encode(value)), kind
    if kind == "decimal128":
        for is_of_net in (True, False):
            text = decimal_text(cast("Decimal128", value), is_of_net=is_of_net)
            if text is not None:
                return text, _OF_NET if is_of_net else kind
    return _simple(value, kind), kind


def _simple(value: Any, kind: str) -> str:
    if isinstance(value, bytes) or kind == "binary":
        return _base64(value)
    if kind == "boolean":
        return "true" if value else "false"
    if kind == "timestamp":
        stamp = Timestamp.from_datetime(value) if isinstance(value, datetime) else Timestamp(value)
        try:
            return stamp.to_datetime().isoformat(timespec="milliseconds")
        except OverflowError:
            return int.__repr__(stamp)
    if isinstance(value, float):
        return float.__repr__(value)
    return int.__repr__(value) if isinstance(value, int) else str(value)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


# ------------------------------------------------------------ the described values of .NET


def _text_of_net(descriptor: AmqpValue, value: AmqpValue) -> str | None:
    if type(descriptor) is not Symbol:
        return None
    if descriptor == _MOMENT and type(value) is Long and 0 <= value <= _LAST_TICK:
        seconds, rest = divmod(value, _TICKS)
        return f"{(_YEAR_1 + timedelta(seconds=seconds)).isoformat()[:19]}.{rest:07}+00:00"
    if descriptor == _DURATION and type(value) is Long:
        return _duration_text(value)
    return value if descriptor == _ADDRESS and type(value) is str else None


def _moment_ticks(text: str) -> int:
    moment, seventh = datetime.fromisoformat(text), _SEVENTH_DIGIT.search(text)
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _YEAR_1
    return since // timedelta(microseconds=1) * 10 + int(seventh[1] if seventh else 0)


def _duration_text(ticks: int) -> str:
    days, rest = divmod(abs(ticks), _TICKS_OF_DAY)
    seconds, fraction = divmod(rest, _TICKS)
    sign, day = "-" if ticks < 0 else "", f"{days}." if days else ""
    return f"{sign}{day}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:07}"


def _duration_ticks(text: str) -> int:
    match = _DURATION_TEXT.fullmatch(text)
    if match is None:
        raise ValueError(text)
    sign, days, hours, minutes, seconds, fraction = match.groups()
    whole = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    ticks = int(days or 0) * _TICKS_OF_DAY + whole * _TICKS + int((fraction or "").ljust(7, "0"))
    return -ticks if sign else ticks


# ------------------------------------------------------------ back


def from_text(text: Any, kind: str | None) -> AmqpValue:
    if kind is None:
        return text
    try:
        value = (_PARSERS.get(kind) or _CLASSES[kind])(str(text))
        encode(value)  # refuses what the type cannot hold
    except (ValueError, KeyError, OverflowError, TypeError, ArithmeticError):
        said = f"{str(text)[:_SHOWN]!r} is not a property value of the AMQP type {kind[:_SHOWN]!r}"
        raise ConfigurationError(f"{said}{_HOW.get(kind, '')}.") from None
    return value


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _parse_timestamp(text: str) -> AmqpValue:
    # Digits first: fromisoformat takes 253411010120000 for the year 2534.
    try:
        return Timestamp(int(text))
    except ValueError:
        return Timestamp.from_datetime(datetime.fromisoformat(text))


_PARSERS: Final[dict[str, Callable[[str], AmqpValue]]] = {
    "null": lambda _text: None,
    "binary": _bytes,
    "decimal32": lambda text: Decimal32(_bytes(text)),
    "decimal64": lambda text: Decimal64(_bytes(text)),
    "decimal128": lambda text: Decimal128(_bytes(text) if text.endswith("=") else decimal_bytes(Decimal(text))),
    _OF_NET: lambda text: Decimal128(decimal_bytes(Decimal(text), is_of_net=True)),
    "boolean": {"true": True, "false": False}.__getitem__,
    "timestamp": _parse_timestamp,
    **dict.fromkeys(_NESTED, lambda text: decode_exactly(_bytes(text))),
    str(_MOMENT): lambda text: Described(_MOMENT, Long(_moment_ticks(text))),
    str(_DURATION): lambda text: Described(_DURATION, Long(_duration_ticks(text))),
    str(_ADDRESS): lambda text: Described(_ADDRESS, text),
}


# ------------------------------------------------------------ bodies as JSON


def json_of(value: AmqpValue) -> str:
    return write_json(_ready(value))


def _ready(value: Any) -> Any:
    if type(value) is bytes:
        return _text_of(value) or value.hex()
    if isinstance(value, Described):
        text, kind = text_and_type(value)
        return _ready(value.value) if kind == "described" else text
    if isinstance(value, list):
        return [*map(_ready, cast("list[Any]", value))]
    if isinstance(value, dict):
        return {str(key): _ready(item) for key, item in cast("dict[Any, Any]", value).items()}
    is_finite = isinstance(value, (int, float)) and not isinstance(value, Timestamp) and value - value == 0
    if value is None or is_finite:
        return value
    text, kind = text_and_type(value)
    is_decimal = kind.startswith("decimal") and str(text)[-1].isdigit()  # not base64
    return JsonNumber(str(text)) if is_decimal else text


def _text_of(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def value_of(text: str, before: AmqpValue) -> AmqpValue:
    try:
        value = _retyped(before, read_json(text))
        encode(value)
    except (ConfigurationError, TypeError, ValueError, OverflowError) as error:
        raise DecisionError(f"The body is an AMQP value: {error}") from None
    except RecursionError:
        raise DecisionError("The AMQP value of the body is nested too deep to be edited.") from None
    return value


def _retyped(before: Any, after: Any) -> Any:
    """Return a value of JSON in the type of the value at the same place."""
    if write_json(_ready(before)) == write_json(after):
        return before
    if isinstance(before, Described) and property_type(before) == "described":
        return Described(before.descriptor, _retyped(before.value, after))
    if isinstance(before, dict) and isinstance(after, dict):
        return _map(cast("dict[Any, Any]", before), cast("dict[str, Any]", after))
    if isinstance(before, list) and isinstance(after, list):
        return _list(cast("list[Any]", before), cast("list[Any]", after))
    return _converted(before, after)


def _map(before: dict[Any, Any], after: dict[str, Any]) -> dict[Any, Any]:
    keys = {str(key): key for key in before}
    if len(keys) < len(before):
        raise DecisionError("Two keys of an AMQP map in the body look alike, so it cannot be edited as JSON.")
    is_of_symbols = bool(before) and all(type(key) is Symbol for key in before)
    new: Callable[[str], Any] = Symbol if is_of_symbols else str
    return {
        keys.get(name, new(name)): _retyped(before[keys[name]], value) if name in keys else value
        for name, value in after.items()
    }


def _list(before: list[Any], after: list[Any]) -> list[Any]:
    places = places_before(_ready(before), after)
    # A new element has the type of the last one.
    items = [_retyped(before[place] if before else None, value) for place, value in zip(places, after, strict=True)]
    if not isinstance(before, Array):
        return items
    of = before.element_type
    if any(type(item) is not of for item in items):
        raise DecisionError(f"it holds an array, whose elements are of the type {type_names[of]}.")
    return Array(items, of)


def _converted(before: Any, after: Any) -> Any:
    if isinstance(after, str) and isinstance(before, str):
        return type(before)(after)
    if isinstance(after, str) and type(before) is bytes:
        return after.encode() if _text_of(before) is not None else bytes.fromhex(after)
    is_text = isinstance(before, (UUID, Timestamp, Described, *_DECIMALS))
    is_number = isinstance(before, (int, float, *_DECIMALS)) and not isinstance(before, (bool, Timestamp))
    has_number = isinstance(after, (int, float)) and not isinstance(after, bool)
    if (isinstance(after, str) and is_text) or (is_number and has_number):
        return from_text(after if isinstance(after, str) else write_json(after), property_type(before))
    return float(after) if isinstance(after, JsonNumber) else after  # as an array compares types
