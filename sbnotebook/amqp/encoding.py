"""The types of AMQP values, and the values to bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
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
    bool: ("boolean", {0x41: "", 0x42: "", 0x56: "B"}),
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
    Char: ("char", {0x73: "4s"}),
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
    for given, base in ((float, float), (str, str), ((bytes, bytearray), bytes), (list, list), (dict, dict)):
        if isinstance(value, given):
            return cast("AmqpValue", base(cast("Any", value)))
    raise TypeError(f"AMQP has no type for {type(value).__name__}.")


_UINT32: Final = struct.Struct(">I")
_PAIR32: Final = struct.Struct(">II")


def encode(value: AmqpValue) -> bytes:
    """Encode one value, in the shortest form of its type.

    Example:
        >>> encode(Long(7)).hex(), encode("a").hex()
        ('5507', 'a10161')
    """
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        value = plain(value)
        encoder = _ENCODERS[type(value)]
    try:
        return encoder(value)
    except struct.error:
        raise OverflowError(f"{value!r} does not fit into the AMQP type {type_name(value)}.") from None


def list_of_encoded(items: Sequence[bytes]) -> bytes:
    """Encode a list whose items are encoded already.

    Example:
        >>> list_of_encoded([encode("a"), encode(None)]) == encode(["a", None])
        True
    """
    return _compound(0xC0, 0xD0, len(items), b"".join(items)) if items else b"\x45"


def _pack(code: int, layout: str) -> Callable[[Any], bytes]:
    pack = struct.Struct(">B" + layout).pack
    return lambda value: pack(code, value)


def _decimal(code: int, size: int, value: bytes) -> bytes:
    if len(value) != size:
        raise OverflowError(f"An AMQP {type_name(value)} has {size} bytes, not {len(value)}.")
    return bytes((code,)) + value


def _whole(codes: dict[int, str], wide: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Return the encoder of whole numbers, of which the small ones take a byte and, if they have no sign, 0 none."""
    *zero, small = list(codes)[:-1]
    least = 0 if zero else -128
    short = [bytes((small, value & 0xFF)) for value in (*range(least + 256), *range(least, 0))]  # Below 0 from the end.
    if zero:
        short[0] = bytes(zero)

    def write(value: int) -> bytes:
        return short[value] if least <= value < least + 256 else wide(value)

    return write


def _variable(small: int, wide: int, convert: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    heads = [bytes((small, size)) for size in range(256)]

    def write(value: Any) -> bytes:
        raw = convert(value)
        size = len(raw)
        return heads[size] + raw if size < 256 else bytes((wide,)) + _UINT32.pack(size) + raw

    return write


def _compound(small: int, wide: int, count: int, content: bytes) -> bytes:
    """Return a compound value, in the wide form if ``small`` is 0."""
    if small and count < 256 and len(content) < 255:
        return bytes((small, len(content) + 1, count)) + content
    return bytes((wide,)) + _PAIR32.pack(len(content) + 4, count) + content


def _encode_list(value: list[Any], small: int = 0xC0) -> bytes:
    return _compound(small, 0xD0, len(value), b"".join(map(encode, value))) if value or not small else b"\x45"


def _encode_map(value: dict[Any, Any], small: int = 0xC1) -> bytes:
    return _compound(small, 0xD1, 2 * len(value), b"".join(map(encode, chain.from_iterable(value.items()))))


def _encode_array(value: Array, small: int = 0xE0) -> bytes:
    return _compound(small, 0xF0, len(value), _array_content(value))


def _array_content(value: Array) -> bytes:
    """Return the constructor that the elements share, and the elements without theirs."""
    if value.element_type is Described:
        return b"\x00" + encode(value[0].descriptor) + _array_content(Array(item.value for item in value))
    kind = Long if value.element_type is int else value.element_type
    if kind not in TYPES:
        raise TypeError(f"An AMQP array cannot hold {kind.__name__}.")
    width, write = _ARRAY_ELEMENTS[kind]
    return bytes((max(TYPES[kind][1]),)) + b"".join(write(item)[width:] for item in value)


def _wide_bytes(convert: Callable[[Any], bytes], value: Any) -> bytes:
    raw = convert(value)
    return _UINT32.pack(len(raw)) + raw


_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): lambda _: b"\x40",
    bool: lambda value: b"\x41" if value else b"\x42",
    Char: lambda value: _pack(0x73, "I")(ord(value)),
    UUID: lambda value: b"\x98" + value.bytes,
    Decimal32: partial(_decimal, 0x74, 4),
    Decimal64: partial(_decimal, 0x84, 8),
    Decimal128: partial(_decimal, 0x94, 16),
    bytes: _variable(0xA0, 0xB0, bytes),
    str: _variable(0xA1, 0xB1, str.encode),
    Symbol: _variable(0xA3, 0xB3, str.encode),
    list: _encode_list,
    dict: _encode_map,
    Array: _encode_array,
    Described: lambda value: b"\x00" + encode(value.descriptor) + encode(value.value),
}
# All elements of an array share one constructor, so each type is written in its widest form:
# bytes to cut off an encoded element, and the encoder.
_ARRAY_ELEMENTS: Final[dict[type, tuple[int, Callable[[Any], bytes]]]] = {
    bool: (1, _pack(0x56, "?")),
    bytes: (0, partial(_wide_bytes, bytes)),
    str: (0, partial(_wide_bytes, str.encode)),
    Symbol: (0, partial(_wide_bytes, str.encode)),
    Array: (1, partial(_encode_array, small=0)),
    list: (1, partial(_encode_list, small=0)),
    dict: (1, partial(_encode_map, small=0)),
}
for _kind, (_, _codes) in TYPES.items():
    _widest = max(_codes)
    if _kind not in _ENCODERS:
        _write = _pack(_widest, _codes[_widest])
        _ARRAY_ELEMENTS[_kind] = 1, _write
        _ENCODERS[_kind] = _write if len(_codes) == 1 else _whole(_codes, _write)
    _ARRAY_ELEMENTS.setdefault(_kind, (1, _ENCODERS[_kind]))
