"""Values of application properties as text, and back with their AMQP types.

A column of the message table holds text, and a second one the type of each value. The text is readable where the type
allows it: numbers, decimals, times, durations, addresses and ids are written as people write them, lists and maps as
JSON. Binary values are base64 of their bytes. Values that have no such text, such as a decimal in an unusual encoding,
are base64 of their encoding.

.NET writes ``DateTimeOffset``, ``TimeSpan`` and ``Uri`` as described values. Source: Service Bus documentation, "Use
Service Bus from .NET with AMQP 1.0", mapping of types.

A decimal is IEEE 754-2008 with a binary significand. The clients of Azure for .NET put the upper half of the exponent
of a decimal128 two bits too low, and read both forms. ``DecimalEncoding`` of Azure/azure-amqp shifts by 9 bits where
the standard says 7. Their exponents are those of values from 1e-4608, so a decimal128 with such an exponent and a
significand of 96 bits is one of .NET.

Source: AMQP 1.0 part 1, sections 1.6.15 to 1.6.17; IEEE 754-2008, section 3.5.2.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, cast

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
    ULong,
    decode_exactly,
    encode,
    type_name,
)
from sbnotebook.amqp.encoding import type_names
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model.json_text import JsonNumber, write_json

# By the number of bytes: bits of the exponent and its bias, and the digits of the significand.
_LAYOUTS: Final = {4: (8, 101, 7), 8: (10, 398, 16), 16: (14, 6176, 34)}
_MOST: Final = {size: 10**digits for size, (_, _, digits) in _LAYOUTS.items()}
_BIAS: Final = 6176
_MOST_SCALE: Final = 28  # Digits behind the point of a decimal of .NET
# The exponent 0 as .NET writes it; it is lower by one for each digit behind the point
_NET_EXPONENT: Final = (_BIAS >> 9 << 7) | (_BIAS & 0x7F)
_NET_BITS: Final = 96


def decimal_text(data: bytes, *, is_of_net: bool = False) -> str | None:
    """Return a decimal as text; None where the text would not lead back to the same bytes."""
    if len(data) not in _LAYOUTS:
        return None
    if data[0] & 0x78 == 0x78:  # noqa: PLR2004
        value = _special(data)
        return str(value) if _special_bytes(value, len(data)) == data else None
    sign, significand, exponent = _parts_of_decimal(data, is_of_net=is_of_net)
    try:
        if _packed(sign, significand, exponent, len(data), is_of_net=is_of_net) != data:
            return None
    except OverflowError:
        return None
    return str(Decimal(f"{'-' if sign else ''}{significand}E{exponent}"))


def _special(data: bytes) -> Decimal:
    name = ("Infinity", "Infinity", "NaN", "sNaN")[data[0] >> 1 & 3]
    return Decimal(f"-{name}" if data[0] & 0x80 else name)


def _special_bytes(value: Decimal, size: int) -> bytes:
    sign, coefficient, exponent = value.as_tuple()
    if any(coefficient):
        raise OverflowError("A number of a NaN is not written.")
    top = {"F": 0x78, "n": 0x7C, "N": 0x7E}[str(exponent)]
    return bytes([sign << 7 | top]).ljust(size, b"\0")


def _parts_of_decimal(data: bytes, *, is_of_net: bool) -> tuple[int, int, int]:
    """Return the sign, the significand and the exponent."""
    exponent_bits, bias, _ = _LAYOUTS[len(data)]
    bits, width = int.from_bytes(data), 8 * len(data)
    rest = width - 1 - exponent_bits
    if data[0] & 0x60 == 0x60:  # noqa: PLR2004 (a significand with a bit more)
        exponent = bits >> (rest - 2) & ((1 << exponent_bits) - 1)
        significand = 1 << rest | bits & ((1 << (rest - 2)) - 1)
    else:
        exponent, significand = bits >> rest & ((1 << exponent_bits) - 1), bits & ((1 << rest) - 1)
    return bits >> (width - 1), significand, exponent - (_NET_EXPONENT if is_of_net else bias)


def decimal_bytes(value: Decimal, size: int, *, is_of_net: bool = False) -> bytes:
    sign, coefficient, exponent = value.as_tuple()
    if isinstance(exponent, str):
        return _special_bytes(value, size)
    significand = int("".join(map(str, coefficient)) or "0")
    return _packed(sign, significand, exponent, size, is_of_net=is_of_net)


def _packed(sign: int, significand: int, exponent: int, size: int, *, is_of_net: bool) -> bytes:
    exponent_bits, bias, digits = _LAYOUTS[size]
    rest, biased = 8 * size - 1 - exponent_bits, exponent + bias
    if significand >= _MOST[size] or not 0 <= biased < 3 << (exponent_bits - 2):
        raise OverflowError(
            f"A number with the exponent {exponent} and {digits} digits does not fit into {size} bytes."
        )
    if is_of_net:
        if not -_MOST_SCALE <= exponent <= 0 or significand >> _NET_BITS:
            raise OverflowError("The number is not a decimal of .NET.")
        biased = _NET_EXPONENT + exponent
    if significand >> rest:
        lower = significand & ((1 << (rest - 2)) - 1)
        return (sign << (8 * size - 1) | 3 << (8 * size - 3) | biased << (rest - 2) | lower).to_bytes(size)
    return (sign << (8 * size - 1) | biased << rest | significand).to_bytes(size)


_CLASSES: Final = {name: kind for kind, name in type_names.items()}
_NESTED: Final = frozenset({"list", "map", "array", "described"})
_DECIMALS: Final[dict[type, str]] = {Decimal32: "decimal32", Decimal64: "decimal64", Decimal128: "decimal128"}
# A decimal128 with the exponent where .NET writes it: see :mod:`sbnotebook.model.property_text`
_OF_NET: Final = "decimal128 (.NET)"
_MOMENT, _DURATION, _ADDRESS = (Symbol(f"com.microsoft:{name}") for name in ("datetime-offset", "timespan", "uri"))
_DESCRIBED_BY_NET: Final = frozenset((_MOMENT, _DURATION, _ADDRESS))
_YEAR_1: Final = datetime(1, 1, 1, tzinfo=UTC)
_TICKS: Final = 10_000_000  # In a second
_TICKS_OF_DAY: Final = 24 * 60 * 60 * _TICKS
_LAST_TICK: Final = 3_155_378_975_999_999_999  # The end of the year 9999
_MOMENT_TEXT: Final = re.compile(r"(.*?)(?:\.(\d{1,7}))?([+-]\d\d:?\d\d|Z)?", re.DOTALL)
_DURATION_TEXT: Final = re.compile(r"(-)?(?:(\d+)\.)?(\d\d?):(\d\d):(\d\d)(?:\.(\d{1,7}))?")
_DESCRIPTOR: Final = re.compile(r"[!-~]+")
_SHOWN: Final = 60
# Values with others inside that are readable in one message: each takes many times as long as a number
_MOST_NESTED: Final = 200


def to_text(value: AmqpValue) -> str | None:
    return text_and_type(value)[0]


def property_type(value: AmqpValue) -> str:
    """Return the name of a value's type, from which :func:`from_text` makes the same value of its text."""
    return text_and_type(value)[1]


def texts_and_types(properties: Mapping[str, AmqpValue]) -> Iterator[tuple[str, str | None, str]]:
    """Yield the name, the text and the type of each property; only a number of those that hold others is readable."""
    nested = 0
    for name, value in properties.items():
        if type(value) is str:
            yield name, value, "string"
        else:
            nested += isinstance(value, (list, dict, Described))
            yield name, *text_and_type(value, readable=nested <= _MOST_NESTED)


def text_and_type(value: AmqpValue, *, readable: bool = True) -> tuple[str | None, str]:
    """Return the text of a value and the name of its type; not ``readable``, of one that holds others its bytes."""
    if type(value) is str:
        return value, "string"
    kind = type_name(value)
    if kind == "null":
        return None, kind
    if kind in _NESTED:
        return (_nested(value) if readable else None) or (_base64(encode(value)), kind)
    if type(value) in _DECIMALS:
        return decimal_and_type(value)
    return _simple(value, kind), kind


def _simple(value: Any, kind: str) -> str:
    if kind == "binary":
        return _base64(value)
    if kind == "boolean":
        return "true" if value else "false"
    if kind == "timestamp":
        return _timestamp_text(value)
    if isinstance(value, float):
        return float.__repr__(value)
    return int.__repr__(value) if isinstance(value, int) else str(value)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def decimal_and_type(value: Any) -> tuple[str, str]:
    kind = _DECIMALS[type(value)]
    for is_of_net in (True, False) if kind == "decimal128" else (False,):
        text = decimal_text(value, is_of_net=is_of_net)
        if text is not None:
            return text, _OF_NET if is_of_net else kind
    return _base64(value), kind


def _timestamp_text(value: Any) -> str:
    stamp = Timestamp.from_datetime(value) if isinstance(value, datetime) else Timestamp(value)
    try:
        return stamp.to_datetime().isoformat(timespec="milliseconds")
    except OverflowError:
        return int.__repr__(stamp)


# ------------------------------------------------------------ values that hold others


_NO_NAME = "the type of a value has no name"


def _nested(value: AmqpValue) -> tuple[str, str] | None:
    """Return the text and the type of a described value, a list or a map; None where they would not say all."""
    if isinstance(value, Described):
        return _described(value.descriptor, value.value)
    try:
        kind = _signature(value)
        text = write_json(json_ready(value, _base64))
        is_whole = encode(_of_json(_literals(text), kind)) == encode(value)
    except (DecisionError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    return (text, kind) if is_whole else None


def _described(descriptor: AmqpValue, value: AmqpValue) -> tuple[str, str] | None:
    if type(descriptor) is Symbol and type(value) is Long:
        if descriptor == _MOMENT and 0 <= value <= _LAST_TICK:
            return _moment_text(value), descriptor
        if descriptor == _DURATION:
            return _duration_text(value), descriptor
    if type(descriptor) is Symbol and descriptor == _ADDRESS and type(value) is str:
        return value, descriptor
    kind = type_name(value)
    if kind in _NESTED or value is None:
        return None
    text, inner = text_and_type(value)
    name = hex(descriptor) if isinstance(descriptor, ULong) else descriptor if type(descriptor) is Symbol else ""
    is_said = _DESCRIPTOR.fullmatch(name) and not (name[:2] == "0x" and name is descriptor)
    return (text or "", f"{name} {inner}") if is_said else None


def _signature(value: Any) -> str:
    if isinstance(value, Array):
        of = {_signature(each) for each in value}
        if len(of) > 1 or not value:
            raise ValueError(_NO_NAME)
        return f"array<{of.pop()}>"
    if isinstance(value, list):
        of = [_signature(each) for each in cast("list[Any]", value)]
        is_of_one = len(of) > 1 and len(set(of)) == 1
        return f"list<{of[0]}*>" if is_of_one else f"list<{','.join(of)}>"
    if isinstance(value, dict):
        members = cast("dict[Any, Any]", value).items()
        if any(type(key) not in (str, Symbol) for key, _ in members):
            raise ValueError(_NO_NAME)
        return f"map<{','.join(f'{type_name(key)}:{_signature(each)}' for key, each in members)}>"
    kind = property_type(value)
    if kind == "described" or "," in kind or ">" in kind or "<" in kind:
        raise ValueError(_NO_NAME)
    return kind


def json_ready(value: Any, of_bytes: Callable[[bytes], str]) -> Any:
    """Return a value for :func:`write_json`; ``of_bytes`` makes texts of binary values."""
    if type(value) is bytes:
        return of_bytes(value)
    if isinstance(value, Described):
        text, kind = text_and_type(value)
        return text if kind in _DESCRIBED_BY_NET else json_ready(value.value, of_bytes)
    if isinstance(value, list):
        return [json_ready(item, of_bytes) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {str(key): json_ready(item, of_bytes) for key, item in cast("dict[Any, Any]", value).items()}
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if type(value) in _DECIMALS:
        text, _ = decimal_and_type(value)
        return JsonNumber(text) if text[-1].isdigit() else text  # not base64, Infinity or NaN
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and not isinstance(value, Timestamp):
        return int(value)
    if isinstance(value, float) and value - value == 0:
        return float(value)
    return to_text(value)


def _of_json(value: Any, kind: str) -> Any:
    name, parts = _parts(kind)
    if name == "array":
        items = [_of_json(each, parts[0]) for each in value]
        return Array(items)
    if name == "list":
        kinds = [parts[0][:-1]] * len(value) if len(parts) == 1 and parts[0].endswith("*") else parts
        return [_of_json(each, own) for each, own in zip(value, kinds, strict=True)]
    if name == "map":
        named = [part.partition(":")[::2] for part in parts]
        return {
            _CLASSES[of](key): _of_json(each, own) for (key, each), (of, own) in zip(value.items(), named, strict=True)
        }
    if value is None and kind != "null":
        raise ValueError(kind)
    return _parse(value if isinstance(value, str) else json.dumps(value), kind)


def _literals(text: str) -> Any:
    """Read JSON, with numbers as they were written."""
    return json.loads(text, parse_int=str, parse_float=str)


def _parts(kind: str) -> tuple[str, list[str]]:
    """Split the type of a list, map or array into its name and the types inside."""
    name, bracket, rest = kind.partition("<")
    if not bracket or not rest.endswith(">") or name not in ("array", "list", "map"):
        return "", []
    parts, depth, start, inside = list[str](), 0, 0, rest[:-1]
    for at, sign in enumerate(inside):
        depth += (sign == "<") - (sign == ">")
        if sign == "," and not depth:
            parts.append(inside[start:at])
            start = at + 1
    return name, [*parts, inside[start:]] if inside else []


# ------------------------------------------------------------ the described values of .NET


def _moment_text(ticks: int) -> str:
    seconds, rest = divmod(ticks, _TICKS)
    return f"{(_YEAR_1 + timedelta(seconds=seconds)).isoformat()[:19]}.{rest:07}+00:00"


def _moment_ticks(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    match = _MOMENT_TEXT.fullmatch(text)
    if match is None:
        raise ValueError(text)
    moment = datetime.fromisoformat(match[1] + (match[3] or ""))
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = aware - _YEAR_1
    return (since.days * 86_400 + since.seconds) * _TICKS + int((match[2] or "").ljust(7, "0"))


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
    """Return the value of a text that :func:`to_text` made."""
    if kind is None:
        return text
    try:
        value = _parse(str(text), kind)
        encode(value)  # refuses what the type cannot hold
    except (ValueError, KeyError, OverflowError, TypeError, ArithmeticError, AttributeError, IndexError):
        shown = str(text)[:_SHOWN]
        raise ConfigurationError(f"{shown!r} is not a property value of the AMQP type {kind[:_SHOWN]!r}.") from None
    except RecursionError:
        raise ConfigurationError("The AMQP type of a property is nested too deep.") from None
    return value


def _parse(text: str, kind: str) -> AmqpValue:
    if kind in _PARSERS:
        return _PARSERS[kind](text)
    if kind in _NESTED:
        return decode_exactly(base64.b64decode(text, validate=True))
    if _parts(kind)[0]:
        return _of_json(_literals(text), kind)
    if " " in kind and kind != _OF_NET:
        name, _, inner = kind.partition(" ")
        return Described(ULong(int(name, 16)) if name[:2] == "0x" else Symbol(name), _parse(text, inner))
    return _CLASSES[kind](text)


def _parse_decimal(text: str, kind: type[bytes], *, is_of_net: bool = False) -> AmqpValue:
    if text.endswith("="):
        return kind(base64.b64decode(text, validate=True))
    size = 4 if kind is Decimal32 else 8 if kind is Decimal64 else 16
    return kind(decimal_bytes(Decimal(text), size, is_of_net=is_of_net))


def _parse_timestamp(text: str) -> AmqpValue:
    # Digits first: fromisoformat takes 253411010120000 for the year 2534.
    try:
        return Timestamp(int(text))
    except ValueError:
        return Timestamp.from_datetime(datetime.fromisoformat(text))


_PARSERS: Final[dict[str, Callable[[str], AmqpValue]]] = {
    "null": lambda _text: None,
    "binary": lambda text: base64.b64decode(text, validate=True),
    "boolean": lambda text: {"true": True, "false": False}[text],
    "timestamp": _parse_timestamp,
    "decimal32": lambda text: _parse_decimal(text, Decimal32),
    "decimal64": lambda text: _parse_decimal(text, Decimal64),
    "decimal128": lambda text: _parse_decimal(text, Decimal128),
    _OF_NET: lambda text: _parse_decimal(text, Decimal128, is_of_net=True),
    str(_MOMENT): lambda text: Described(_MOMENT, Long(_moment_ticks(text))),
    str(_DURATION): lambda text: Described(_DURATION, Long(_duration_ticks(text))),
    str(_ADDRESS): lambda text: Described(_ADDRESS, text),
}
