"""Operands of expressions: AMQP's values, compared and combined as C# does.

Integers stay integers, and a division rounds towards zero. An integer and a floating point number give a floating point
number. Adding any value to a text gives a text. The difference of two moments is a time span. None is both an unknown
property and a null: every result with it is unknown.

Source: Service Bus documentation, "Subscription rule SQL filter syntax", "Operator binding semantics".
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sbnotebook.amqp import (
    AmqpValue,
    Byte,
    Char,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    type_name,
)

Operand = AmqpValue | timedelta

MOST_TEXT_CHARACTERS: Final = 32_768
"""Of what an expression puts together; a property of Service Bus holds 32 kB."""

_TIMESPAN: Final = Symbol("com.microsoft:timespan")
_DATETIME_OFFSET: Final = Symbol("com.microsoft:datetime-offset")
_URI: Final = Symbol("com.microsoft:uri")
_TICKS_PER_MICROSECOND: Final = 10
_TICKS_PER_MILLISECOND: Final = 10_000
_TICKS_BEFORE_1970: Final = 621_355_968_000_000_000

_RANGES: Final[dict[type[int], tuple[int, int]]] = {
    Byte: (-(2**7), 2**7), UByte: (0, 2**8), Short: (-(2**15), 2**15), UShort: (0, 2**16),
    Int: (-(2**31), 2**31), UInt: (0, 2**32), Long: (-(2**63), 2**63), ULong: (0, 2**64),
}  # fmt: skip
_UNSIGNED: Final = frozenset((UByte, UShort, UInt, ULong))

_NUMBER, _TEXT, _TIME, _SPAN = "number", "text", "time", "span"
_ORDERED: Final = frozenset((_NUMBER, _TEXT, _TIME, _SPAN))
_KINDS: Final[dict[type, str]] = {
    **dict.fromkeys((*_RANGES, int, float, Float), _NUMBER),
    **dict.fromkeys((str, Symbol, Char), _TEXT),
    Timestamp: _TIME,
    timedelta: _SPAN,
    bool: "boolean",
    UUID: "uuid",
    bytes: "binary",
}


class FilterError(Exception):
    """A filter or an action cannot be carried out on this message."""


def to_operand(value: AmqpValue) -> Operand:
    """Return the value of a property as expressions see it: .NET's own types on AMQP are unwrapped.

    Source: AMQP 1.0 in Service Bus, protocol guide, "Messages": .NET types as described types.
    """
    if isinstance(value, datetime):
        return Timestamp.from_datetime(value)
    if not isinstance(value, Described):
        return value
    if value.descriptor == _URI and isinstance(value.value, str):
        return value.value
    if not isinstance(value.value, int):
        return value
    if value.descriptor == _TIMESPAN:
        return timedelta(microseconds=value.value // _TICKS_PER_MICROSECOND)
    if value.descriptor == _DATETIME_OFFSET:
        return Timestamp((value.value - _TICKS_BEFORE_1970) // _TICKS_PER_MILLISECOND)
    return value


def amqp_value(value: Operand) -> AmqpValue:
    if isinstance(value, timedelta):
        return Described(_TIMESPAN, Long(value // timedelta(microseconds=1) * _TICKS_PER_MICROSECOND))
    return value


def compare(test: Callable[[Any, Any], bool], left: Operand, right: Operand) -> bool | None:
    kind = _KINDS.get(type(left))
    if kind is None or kind != _KINDS.get(type(right)):
        return None
    if kind not in _ORDERED and test is not operator.eq and test is not operator.ne:
        return None
    return test(left, right)


def combine(symbol: str, left: Operand, right: Operand) -> Operand:
    """Calculate with two values."""
    if left is None or right is None:
        return None
    kinds = (_KINDS.get(type(left)), _KINDS.get(type(right)))
    if kinds == (_NUMBER, _NUMBER):
        return _calculated(symbol, left, right)
    if symbol == "+" and _TEXT in kinds:
        return _joined(text_of(left), text_of(right))
    try:
        moment = _shifted(symbol, left, right)
    except OverflowError:
        raise FilterError("A moment or a time span is too large.") from None
    if moment is not None:
        return moment
    raise FilterError(f"The operator {symbol} cannot be applied to {_type_of(left)} and {_type_of(right)}.")


def negate(value: Operand) -> Operand:
    """Return the value with a minus before it; None if it is missing."""
    if isinstance(value, timedelta):
        return -value
    if isinstance(value, float):
        return type(value)(-value)
    return combine("-", Int(0), value)


def text_of(value: Operand) -> str:
    """Return the value as text, as C# writes it."""
    if isinstance(value, str):
        return value
    if isinstance(value, Timestamp):
        try:
            return value.to_datetime().isoformat()
        except OverflowError:
            raise FilterError("A moment is too large.") from None
    if isinstance(value, float):
        return repr(float(value)).removesuffix(".0")
    if isinstance(value, bool | int | UUID | timedelta):
        return str(value)
    raise FilterError(f"A value of the type {_type_of(value)} cannot be made a text.")


def convert(value: Operand, existing: Operand) -> Operand:
    """Convert a number to the type that its property has so far, if nothing is lost.

    Source: Service Bus documentation, "Subscription rule SQL action syntax", "Considerations".
    """
    if _KINDS.get(type(value)) != _NUMBER or _KINDS.get(type(existing)) != _NUMBER:
        return value
    kind: Any = type(existing)
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(existing, float):
        return _single(float(value)) if kind is Float else float(value)  # pyright: ignore[reportArgumentType]
    low, high = _RANGES.get(kind, _RANGES[Long])
    return kind(value) if whole and low <= value < high else value  # pyright: ignore[reportOperatorIssue]


def _calculated(symbol: str, left: Any, right: Any) -> Operand:
    if isinstance(left, float) or isinstance(right, float):
        double = float in (type(left), type(right))
        number = _floating(symbol, float(left), float(right))
        return number if double else _single(number)
    number = _whole(symbol, left, right)
    kind = _integer_type({type(left), type(right)})
    low, high = _RANGES[kind]
    if not low <= number < high:
        raise FilterError(f"The result of {symbol} is too large for its type, {type_name(kind(0))}.")
    return kind(number)


def _integer_type(kinds: set[type[int]]) -> type[int]:
    if ULong in kinds:
        return ULong if kinds <= _UNSIGNED else Long
    if Long in kinds or int in kinds:
        return Long
    if UInt in kinds:
        return UInt if kinds <= _UNSIGNED else Long
    return Int


def _whole(symbol: str, left: int, right: int) -> int:
    left, right = int(left), int(right)
    if symbol in _EXACT:
        return _EXACT[symbol](left, right)
    if right == 0:
        raise FilterError("An integer is divided by zero.")
    quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return quotient if symbol == "/" else left - quotient * right


def _floating(symbol: str, left: float, right: float) -> float:
    if symbol in _EXACT:
        return _EXACT[symbol](left, right)
    if symbol == "/" and right:
        return left / right
    if symbol == "%" and right and not math.isinf(left):
        return math.fmod(left, right)
    if symbol == "%" or left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


_EXACT: Final[dict[str, Callable[[Any, Any], Any]]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def _single(number: float) -> Float:
    try:
        return Float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return Float(math.copysign(math.inf, number))


def _joined(left: str, right: str) -> str:
    if len(left) + len(right) > MOST_TEXT_CHARACTERS:
        raise FilterError(f"A text that an expression puts together has at most {MOST_TEXT_CHARACTERS} characters.")
    return left + right


def _shifted(symbol: str, left: Operand, right: Operand) -> Operand:
    if symbol not in "+-":
        return None
    sign = 1 if symbol == "+" else -1
    if isinstance(left, timedelta) and isinstance(right, timedelta):
        return left + sign * right
    if isinstance(left, Timestamp) and isinstance(right, timedelta):
        return _moment(left + sign * (right // timedelta(milliseconds=1)))
    if isinstance(left, Timestamp) and isinstance(right, Timestamp) and symbol == "-":
        return timedelta(milliseconds=int(left) - int(right))
    return None


def _moment(milliseconds: int) -> Timestamp:
    low, high = _RANGES[Long]
    if not low <= milliseconds < high:
        raise OverflowError
    return Timestamp(milliseconds)


def _type_of(value: Operand) -> str:
    return "timespan" if isinstance(value, timedelta) else type_name(value)
