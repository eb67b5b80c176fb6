"""The Python classes that stand for the primitive types of AMQP 1.0 (part 1, section 1.6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast
from uuid import UUID

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class UByte(int):
    """Unsigned 8-bit integer."""


class UShort(int):
    """Unsigned 16-bit integer."""


class UInt(int):
    """Unsigned 32-bit integer."""


class ULong(int):
    """Unsigned 64-bit integer."""


class Byte(int):
    """Signed 8-bit integer."""


class Short(int):
    """Signed 16-bit integer."""


class Int(int):
    """Signed 32-bit integer."""


class Long(int):
    """Signed 64-bit integer."""


class Float(float):
    """32-bit floating point number."""


class Timestamp(int):
    """Milliseconds since 1970-01-01 UTC, negative before it."""

    @classmethod
    def from_datetime(cls, when: datetime) -> Timestamp:
        """Return the timestamp of a moment; a naive one is taken as UTC, below a millisecond is cut."""
        aware = when if when.tzinfo else when.replace(tzinfo=UTC)
        return cls((aware - _EPOCH) // _MILLISECOND)

    def to_datetime(self) -> datetime:
        """Return the moment in UTC; raise OverflowError outside the years 1 to 9999."""
        return _EPOCH + int(self) * _MILLISECOND


class Char(str):
    """One Unicode character."""

    __slots__ = ()


class Symbol(str):
    """A name from a constrained domain: ASCII, but others write UTF-8, which is read and sent on as it was."""

    __slots__ = ()


class Decimal32(bytes):
    """IEEE 754 decimal, its 4 bytes as on the wire."""


class Decimal64(bytes):
    """IEEE 754 decimal, its 8 bytes as on the wire."""


class Decimal128(bytes):
    """IEEE 754 decimal, its 16 bytes as on the wire."""


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor that says what it means (section 1.1.2)."""

    descriptor: AmqpValue
    value: AmqpValue


class Array(list[Any]):
    """Values of one AMQP type; an empty one still knows its element type."""

    def __init__(self, items: Iterable[Any] = (), element_type: type | None = None) -> None:
        super().__init__(items)
        self.element_type: type = element_type or (type(self[0]) if self else str)


AmqpValue = (
    None | bool | int | float | str | bytes | UUID | datetime | Described | list["AmqpValue"] | dict[Any, "AmqpValue"]
)

TYPES: Final[dict[type, tuple[str, dict[int, str]]]] = {
    type(None): ("null", {0x40: ""}),
    bool: ("boolean", {0x41: "", 0x42: "", 0x56: "?"}),
    UByte: ("ubyte", {0x50: "B"}),
    UShort: ("ushort", {0x60: "H"}),
    UInt: ("uint", {0x43: "", 0x52: "B", 0x70: "I"}),
    ULong: ("ulong", {0x44: "", 0x53: "B", 0x80: "Q"}),
    Byte: ("byte", {0x51: "b"}),
    Short: ("short", {0x61: "h"}),
    Int: ("int", {0x54: "b", 0x71: "i"}),
    Long: ("long", {0x55: "b", 0x81: "q"}),
    Float: ("float", {0x72: "f"}),
    float: ("double", {0x82: "d"}),
    Decimal32: ("decimal32", {0x74: "4s"}),
    Decimal64: ("decimal64", {0x84: "8s"}),
    Decimal128: ("decimal128", {0x94: "16s"}),
    Char: ("char", {0x73: "I"}),
    Timestamp: ("timestamp", {0x83: "q"}),
    UUID: ("uuid", {0x98: "16s"}),
    bytes: ("binary", {0xA0: "B", 0xB0: "I"}),
    str: ("string", {0xA1: "B", 0xB1: "I"}),
    Symbol: ("symbol", {0xA3: "B", 0xB3: "I"}),
    list: ("list", {0x45: "", 0xC0: "BB", 0xD0: "II"}),
    dict: ("map", {0xC1: "BB", 0xD1: "II"}),
    Array: ("array", {0xE0: "BB", 0xF0: "II"}),
    Described: ("described", {0x00: ""}),
}
"""Each class that decoding returns: the AMQP name of its type, and its constructors, the widest last.

Of a constructor, the layout of what follows: the value or, from 0xA0 on, its size and the count of its elements.
"""
type_names: Final = {kind: name for kind, (name, _) in TYPES.items()}


def type_name(value: AmqpValue) -> str:
    """Return the AMQP name of the type that ``encode(value)`` writes, such as ``"long"``.

    Example:
        >>> type_name(5), type_name(2**40), type_name("a"), type_name(ULong(5))
        ('int', 'long', 'string', 'ulong')
    """
    known = type_names.get(type(value))
    return known if known is not None else type_names[type(plain(value))]


def plain(value: AmqpValue) -> AmqpValue:
    """Return the same value in a class that has an encoder of its own."""
    if isinstance(value, int):
        return Int(value) if -(2**31) <= value < 2**31 else Long(value)
    if isinstance(value, datetime):
        return Timestamp.from_datetime(value)
    for base in (float, str, bytes, list, dict):
        if isinstance(value, base):
            return cast("AmqpValue", base(cast("Any", value)))
    if isinstance(value, bytearray):
        return bytes(value)
    raise TypeError(f"AMQP has no type for {type(value).__name__}.")
