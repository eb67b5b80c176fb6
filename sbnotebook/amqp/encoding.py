"""AMQP values to bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final
from uuid import UUID

from sbnotebook.amqp.types import (
    TYPES,
    AmqpValue,
    Array,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Long,
    Symbol,
    plain,
    type_name,
)

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


def _decimal(code: int, size: int) -> Callable[[bytes], bytes]:
    def write(value: bytes) -> bytes:
        if len(value) != size:
            raise OverflowError(f"An AMQP {type_name(value)} has {size} bytes, not {len(value)}.")
        return bytes((code,)) + value

    return write


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
        inner = Array(item.value for item in value)
        return b"\x00" + encode(value[0].descriptor) + _array_content(inner)
    kind = Long if value.element_type is int else value.element_type
    if kind not in TYPES:
        raise TypeError(f"An AMQP array cannot hold {kind.__name__}.")
    width, write = _ARRAY_ELEMENTS[kind]
    return bytes((max(TYPES[kind][1]),)) + b"".join(write(item)[width:] for item in value)


def _wide_bytes(convert: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    def write(value: Any) -> bytes:
        raw = convert(value)
        return _UINT32.pack(len(raw)) + raw

    return write


_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): lambda _: b"\x40",
    bool: lambda value: b"\x41" if value else b"\x42",
    Char: lambda value: _pack(0x73, "I")(ord(value)),
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
# All elements of an array share one constructor, so each type is written in its widest form:
# bytes to cut off an encoded element, and the encoder.
_ARRAY_ELEMENTS: Final[dict[type, tuple[int, Callable[[Any], bytes]]]] = {
    bool: (1, _pack(0x56, "?")),
    bytes: (0, _wide_bytes(bytes)),
    str: (0, _wide_bytes(str.encode)),
    Symbol: (0, _wide_bytes(str.encode)),
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
