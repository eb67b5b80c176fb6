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

type_names: Final[dict[type, str]] = {
    type(None): "null",
    bool: "boolean",
    UByte: "ubyte",
    UShort: "ushort",
    UInt: "uint",
    ULong: "ulong",
    Byte: "byte",
    Short: "short",
    Int: "int",
    Long: "long",
    Float: "float",
    float: "double",
    Decimal32: "decimal32",
    Decimal64: "decimal64",
    Decimal128: "decimal128",
    Char: "char",
    Timestamp: "timestamp",
    UUID: "uuid",
    bytes: "binary",
    str: "string",
    Symbol: "symbol",
    list: "list",
    dict: "map",
    Array: "array",
    Described: "described",
}
"""AMQP type name by Python class, for every class that decoding returns."""


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
