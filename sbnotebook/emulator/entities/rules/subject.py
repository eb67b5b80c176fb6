"""The message as rules see it: properties by name, read from its bytes and written back into them.

Sections are decoded when a rule reads them. Everything that no action sets stays byte for byte.

Source: Service Bus documentation, "Messages, payloads, and serialization"; AMQP 1.0 part 3, section 3.2.

Operands are AMQP's values, compared and combined as C# does. Integers stay integers, and a division rounds towards
zero. An integer and a floating point number give a floating point number. Adding any value to a text gives a text. The
difference of two moments is a time span. None is both an unknown property and a null: every result with it is unknown.

Source: Service Bus documentation, "Subscription rule SQL filter syntax", "Operator binding semantics".
"""

from __future__ import annotations

import math
import operator
from array import array
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
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
    encode,
    type_name,
)
from sbnotebook.amqp.sections import (
    APPLICATION_PROPERTIES,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    find_section,
    section_value,
    with_list_item,
    with_map_items,
)
from sbnotebook.errors import AmqpDecodeError

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
    match value:
        case datetime():
            return Timestamp.from_datetime(value)
        case Described(kind, str(address)) if kind == _URI:
            return address
        case Described(kind, int(ticks)) if kind == _TIMESPAN:
            return timedelta(microseconds=ticks // _TICKS_PER_MICROSECOND)
        case Described(kind, int(ticks)) if kind == _DATETIME_OFFSET:
            return Timestamp((ticks - _TICKS_BEFORE_1970) // _TICKS_PER_MILLISECOND)
        case _:
            return value


def compare(test: Callable[[Any, Any], bool], left: Operand, right: Operand) -> bool | None:
    kind = _KINDS.get(type(left))
    if kind is None or kind != _KINDS.get(type(right)):
        return None
    if kind not in _ORDERED and test is not operator.eq and test is not operator.ne:
        return None
    return test(left, right)


def combine(symbol: str, left: Operand, right: Operand) -> Operand:
    if left is None or right is None:
        return None
    kinds = (_KINDS.get(type(left)), _KINDS.get(type(right)))
    if kinds == (_NUMBER, _NUMBER):
        return _calculated(symbol, left, right)
    if symbol == "+" and _TEXT in kinds:
        text = text_of(left) + text_of(right)
        if len(text) > MOST_TEXT_CHARACTERS:
            raise FilterError(f"An expression puts together texts of at most {MOST_TEXT_CHARACTERS} characters.")
        return text
    try:
        return _shifted(symbol, left, right)
    except OverflowError:
        raise FilterError("A moment or a time span is too large.") from None


def negate(value: Operand) -> Operand:
    if isinstance(value, float):
        return type(value)(-value)  # 0 - 0.0 has no sign
    return -value if isinstance(value, timedelta) else combine("-", Int(0), value)


def text_of(value: Operand) -> str:
    """Return the value as text, as C# writes it."""
    match value:
        case str():
            return value
        case Timestamp():
            try:
                return value.to_datetime().isoformat()
            except OverflowError:
                raise FilterError("A moment is too large.") from None
        case float():
            return repr(float(value)).removesuffix(".0")
        case bool() | int() | UUID() | timedelta():
            return str(value)
        case _:
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
        number = (_EXACT.get(symbol) or partial(_floating, symbol))(float(left), float(right))
        return number if float in (type(left), type(right)) else _single(number)
    number = (_EXACT.get(symbol) or partial(_whole, symbol))(int(left), int(right))
    # The numeric promotions of C#
    kinds: set[type[int]] = {type(left), type(right)}
    kind = next((kind for kind in (ULong, Long, int, UInt) if kind in kinds), Int)
    if kind is not Int and not kinds <= _UNSIGNED:
        kind = Long
    low, high = _RANGES[kind]
    if not low <= number < high:
        raise FilterError(f"The result of {symbol} is too large for its type, {type_name(kind(0))}.")
    return kind(number)


def _whole(symbol: str, left: int, right: int) -> int:
    if right == 0:
        raise FilterError("An integer is divided by zero.")
    quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return quotient if symbol == "/" else left - quotient * right


def _floating(symbol: str, left: float, right: float) -> float:
    if symbol == "%":
        return math.fmod(left, right) if right and not math.isinf(left) else math.nan
    if right:
        return left / right
    return left * math.copysign(math.inf, right)  # not a number if the left one is zero


_EXACT: Final[dict[str, Callable[[Any, Any], Any]]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def _single(number: float) -> Float:
    return Float(array("f", (number,))[0])


def _shifted(symbol: str, left: Operand, right: Operand) -> Operand:
    sign = 1 if symbol == "+" else -1
    match symbol, left, right:
        case "+" | "-", timedelta(), timedelta():
            return left + sign * right
        case "+" | "-", Timestamp(), timedelta():
            moment = left + sign * (right // _MILLISECOND)
            low, high = _RANGES[Long]
            if not low <= moment < high:
                raise OverflowError
            return Timestamp(moment)
        case "-", Timestamp(), Timestamp():
            return timedelta(milliseconds=int(left) - int(right))
        case _:
            raise FilterError(f"The operator {symbol} cannot be applied to {_type_of(left)} and {_type_of(right)}.")


def _type_of(value: Operand) -> str:
    return "timespan" if isinstance(value, timedelta) else type_name(value)


_MILLISECOND: Final = timedelta(milliseconds=1)


_Home = tuple[int, int | str, type]
"""The section, the place in it and the type of a system property."""
_PARTITION, _VIA = Symbol("x-opt-partition-key"), Symbol("x-opt-via-partition-key")
_SCHEDULED: Final = Symbol("x-opt-scheduled-enqueue-time")
_HOMES: Final[dict[str, _Home]] = {
    "messageid": (PROPERTIES, 0, str),
    "to": (PROPERTIES, 2, str),
    "label": (PROPERTIES, 3, str),
    "subject": (PROPERTIES, 3, str),
    "replyto": (PROPERTIES, 4, str),
    "correlationid": (PROPERTIES, 5, str),
    "contenttype": (PROPERTIES, 6, str),
    "sessionid": (PROPERTIES, 10, str),
    "replytosessionid": (PROPERTIES, 12, str),
    "partitionkey": (MESSAGE_ANNOTATIONS, _PARTITION, str),
    "viapartitionkey": (MESSAGE_ANNOTATIONS, _VIA, str),
    "transactionpartitionkey": (MESSAGE_ANNOTATIONS, _VIA, str),
    "scheduledenqueuetimeutc": (MESSAGE_ANNOTATIONS, _SCHEDULED, Timestamp),
    "scheduledenqueuetime": (MESSAGE_ANNOTATIONS, _SCHEDULED, Timestamp),
    "timetolive": (HEADER, 2, timedelta),
}


class RuleSubject:
    __slots__ = ("_decoded", "_folded", "enqueued_time", "payload", "sequence_number")

    def __init__(self, payload: bytes, *, enqueued_time: int | None = None, sequence_number: int | None = None) -> None:
        self.payload = payload  # the encoded message, with all changes
        self.enqueued_time = None if enqueued_time is None else Timestamp(enqueued_time)  # when the topic took it
        self.sequence_number = None if sequence_number is None else Long(sequence_number)  # in the topic
        self._decoded: dict[int, Any] = {}
        self._folded: dict[str, str] | None = None

    def user(self, name: str) -> Operand:
        """Return the value of an application property; None if there is none. The case of the name is ignored."""
        key = self._key(name)
        return None if key is None else to_operand(self._value(APPLICATION_PROPERTIES, dict)[key])

    def system(self, name: str) -> Operand:
        home, read = _HOMES.get(name.lower()), _READ_ONLY.get(name.lower())
        if home is not None:
            return self._read(home)
        if read is None:
            raise FilterError(f"There is no system property {name[:40]!r}.")
        return read(self)

    def exists(self, name: str, *, system: bool) -> bool:
        """Tell whether a message has a property; an application property that is null counts, too."""
        return (self.system(name) if system else self._key(name)) is not None

    def set(self, name: str, value: Operand, *, system: bool) -> None:
        """Set a property; a number keeps the type that the property had if it fits."""
        if system:
            section, place, kind = home = self._writable(name)
            # Read it in any case: a section that cannot be read cannot be written either.
            if self._read(home) is not None or value is not None:
                self._write(section, place, _fitting(name, kind, value))
            return
        key = self._key(name)
        if key is not None:
            value = convert(value, self.user(key))
        if isinstance(value, timedelta):
            value = Described(_TIMESPAN, Long(value // timedelta(microseconds=1) * _TICKS_PER_MICROSECOND))
        try:
            encoded = encode(value)
        except (OverflowError, TypeError, UnicodeError):
            raise FilterError(f"AMQP has nothing for the value of the property {name[:40]!r}.") from None
        self._write(APPLICATION_PROPERTIES, name if key is None else key, encoded)

    def remove(self, name: str, *, system: bool) -> None:
        if system:
            self.set(name, None, system=True)
        elif (key := self._key(name)) is not None:
            self._write(APPLICATION_PROPERTIES, key, None)

    def _writable(self, name: str) -> _Home:
        home = _HOMES.get(name.lower())
        if home is None:
            self.system(name)
            raise FilterError(f"The system property {name[:40]!r} cannot be changed.")
        return home

    def _read(self, home: _Home) -> Operand:
        section, key, kind = home
        if isinstance(key, int):
            fields = self._value(section, list)
            value = fields[key] if key < len(fields) else None
        else:
            value = self._value(section, dict).get(key)
        if kind is timedelta and isinstance(value, UInt):
            return timedelta(milliseconds=value)
        # The identifiers of a message may be numbers or UUIDs on AMQP; to Service Bus they are texts.
        return str(value) if kind is str and isinstance(value, int | UUID) else value

    def _key(self, name: str) -> str | None:
        properties = self._value(APPLICATION_PROPERTIES, dict)
        if name in properties:
            return name
        if self._folded is None:
            self._folded = {key.lower(): key for key in reversed(properties) if isinstance(key, str)}
        return self._folded.get(name.lower())

    def _value(self, code: int, kind: type) -> Any:
        known = self._decoded.get(code)
        if known is not None:
            return known
        value: Any = kind()
        try:
            section = find_section(self.payload, code)
            if section is not None:
                value = section_value(self.payload, section)
        except AmqpDecodeError as error:
            raise FilterError(f"The properties of the message cannot be read: {error}") from None
        if not isinstance(value, kind):
            raise FilterError("The properties of the message cannot be read: a section is of the wrong type.")
        self._decoded[code] = value
        return value

    def _write(self, section: int, key: int | str, value: bytes | None) -> None:
        """Write a value, or take it away; the section was read before, so it is known to be well-formed."""
        if isinstance(key, int):
            self.payload = with_list_item(self.payload, section, key, value)
        else:
            self.payload = with_map_items(self.payload, section, {key: value})
        self._decoded.pop(section, None)
        self._folded = None


def _fitting(name: str, kind: type, value: Operand) -> bytes | None:
    """Return a value in the AMQP type of its system property; None for none."""
    match value:
        case None:
            return None
        case _ if kind is str:
            return encode(text_of(value))
        case Timestamp() if kind is Timestamp:
            return encode(value)
        case timedelta() if kind is timedelta and value >= timedelta():
            return encode(UInt(min(value // _MILLISECOND, 2**32 - 1)))
        case _:
            wanted = "moment" if kind is Timestamp else "time span of zero or more"
            raise FilterError(f"The system property {name[:40]!r} must be a {wanted}.")


_READ_ONLY: Final[dict[str, Callable[[RuleSubject], Operand]]] = {
    **dict.fromkeys(("enqueuedtimeutc", "enqueuedtime"), operator.attrgetter("enqueued_time")),
    **dict.fromkeys(("sequencenumber", "enqueuedsequencenumber"), operator.attrgetter("sequence_number")),
    **dict.fromkeys(
        ("expiresatutc", "expiresat"),
        lambda subject: combine("+", subject.enqueued_time, subject.system("TimeToLive")),
    ),
    "size": lambda subject: Long(len(subject.payload)),
    # A message has been delivered, locked or dead-lettered only after the rules.
    "deliverycount": lambda _subject: Int(0),
    **dict.fromkeys(("deadlettersource", "lockeduntilutc", "locktoken"), lambda _subject: None),
}
