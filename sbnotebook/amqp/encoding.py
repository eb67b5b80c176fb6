"""AMQP values to bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final
from uuid import UUID

from sbnotebook.amqp.types import (
    AmqpValue,
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
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
    plain,
    type_name,
)

_UINT32: Final = struct.Struct(">I")
_PAIR32: Final = struct.Struct(">II")


def encode(value: AmqpValue) -> bytes:
    """Encode one value, in the shortest form of its type.

    Example:
        >>> encode(ULong(7)).hex(), encode("a").hex()
        ('5307', 'a10161')
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


def _decimal(code: int, size: int) -> Callable[[bytes], bytes]:
    def write(value: bytes) -> bytes:
        if len(value) != size:
            raise OverflowError(f"An AMQP {type_name(value)} has {size} bytes, not {len(value)}.")
        return bytes((code,)) + value

    return write


def _unsigned(zero: int, small: int, wide: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    short: list[bytes] = [bytes((zero,)), *(bytes((small, value)) for value in range(1, 256))]

    def write(value: int) -> bytes:
        return short[value] if 0 <= value < 256 else wide(value)

    return write


def _signed(small: int, wide: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    short: list[bytes] = [bytes((small, value & 0xFF)) for value in (*range(128), *range(-128, 0))]

    def write(value: int) -> bytes:
        return short[value] if -128 <= value < 128 else wide(value)

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
        inner = Array(item.value for item in value)
        return b"\x00" + encode(value[0].descriptor) + _array_content(inner)
    element = _ARRAY_ELEMENTS.get(value.element_type)
    if element is None:
        raise TypeError(f"An AMQP array cannot hold {value.element_type.__name__}.")
    code, width, write = element
    return bytes((code,)) + b"".join(write(item)[width:] for item in value)


_wide = {name: _pack(code, layout) for name, code, layout in (
    ("uint", 0x70, "I"), ("ulong", 0x80, "Q"), ("int", 0x71, "i"), ("long", 0x81, "q"),
)}  # fmt: skip

_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): lambda _: b"\x40",
    bool: lambda value: b"\x41" if value else b"\x42",
    UByte: _pack(0x50, "B"),
    Byte: _pack(0x51, "b"),
    UShort: _pack(0x60, "H"),
    Short: _pack(0x61, "h"),
    UInt: _unsigned(0x43, 0x52, _wide["uint"]),
    ULong: _unsigned(0x44, 0x53, _wide["ulong"]),
    Int: _signed(0x54, _wide["int"]),
    Long: _signed(0x55, _wide["long"]),
    Float: _pack(0x72, "f"),
    float: _pack(0x82, "d"),
    Char: lambda value: _pack(0x73, "I")(ord(value)),
    Timestamp: _pack(0x83, "q"),
    UUID: lambda value: b"\x98" + value.bytes,
    Decimal32: _decimal(0x74, 4),
    Decimal64: _decimal(0x84, 8),
    Decimal128: _decimal(0x94, 16),
    bytes: _variable(0xA0, 0xB0, bytes),
    str: _variable(0xA1, 0xB1, str.encode),
    Symbol: _variable(0xA3, 0xB3, str.encode),
    list: _encode_list,
    dict: _encode_map,
    Array: _encode_array,
    Described: lambda value: b"\x00" + encode(value.descriptor) + encode(value.value),
}


def _wide_bytes(convert: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    def write(value: Any) -> bytes:
        raw = convert(value)
        return _UINT32.pack(len(raw)) + raw

    return write


# All elements of an array share one constructor, so each type is written in its widest form:
# constructor byte, bytes to cut off an encoded element, encoder.
_ARRAY_ELEMENTS: Final[dict[type, tuple[int, int, Callable[[Any], bytes]]]] = {
    type(None): (0x40, 1, _ENCODERS[type(None)]),
    bool: (0x56, 1, _pack(0x56, "?")),
    UInt: (0x70, 1, _wide["uint"]),
    ULong: (0x80, 1, _wide["ulong"]),
    Int: (0x71, 1, _wide["int"]),
    int: (0x81, 1, _wide["long"]),
    Long: (0x81, 1, _wide["long"]),
    bytes: (0xB0, 0, _wide_bytes(bytes)),
    str: (0xB1, 0, _wide_bytes(str.encode)),
    Symbol: (0xB3, 0, _wide_bytes(str.encode)),
    Array: (0xF0, 1, partial(_encode_array, small=0)),
    list: (0xD0, 1, partial(_encode_list, small=0)),
    dict: (0xD1, 1, partial(_encode_map, small=0)),
} | {
    kind: (_ENCODERS[kind](sample)[0], 1, _ENCODERS[kind])
    for kind, sample in (
        (UByte, UByte(0)), (Byte, Byte(0)), (UShort, UShort(0)), (Short, Short(0)), (Float, Float(0)), (float, 0.0),
        (Char, Char("a")), (Timestamp, Timestamp(0)), (UUID, UUID(int=0)), (Decimal32, Decimal32(4)),
        (Decimal64, Decimal64(8)), (Decimal128, Decimal128(16)),
    )
}  # fmt: skip
