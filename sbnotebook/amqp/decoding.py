"""Bytes to AMQP values, with limits on their depth and size."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final
from uuid import UUID

from sbnotebook.amqp.encoding import TYPES, AmqpValue, Array, Char, Described, Symbol, UInt, ULong
from sbnotebook.errors import AmqpDecodeError

LEVELS: Final = 64
"""Levels that AMQP values and JSON may be nested, as in Microsoft's clients (``_MAX_NESTING_DEPTH`` of
azure-servicebus for Python, and the default of System.Text.Json)."""
ITEMS: Final = 65_536
"""Items of all lists, maps and arrays of one AMQP value together. Microsoft's clients allow as many in each
(``MAX_AMQPVALUE_ITEM_COUNT`` of azure-uamqp-c)."""
UNUSUAL_KEYS: Final = 1_000
"""Keys of an AMQP map that are neither texts nor bytes, such as numbers and ids. Of several maps, the squares count."""


_MOST_SYMBOLS, _LONGEST_SYMBOL = 1000, 64  # The cache of symbols: their largest number, and their largest size in bytes
# Elements of no width (an array of nulls) that one array may claim, so that a few bytes cannot ask for gigabytes
_MAX_EMPTY_ELEMENTS: Final = 64

Room = list[int]
"""The rest of the budget of a value: levels, items, and the squares of the numbers of unusual keys."""
_LEVELS, _ITEMS, _KEYS = 0, 1, 2
_TOO_DEEP: Final = f"AMQP values are nested deeper than {LEVELS}."
_FEW_KEYS: Final = 16  # Maps of so few keys are not looked at: a value has no room for enough of them


def decode(data: bytes | memoryview, offset: int = 0, *, items: int = ITEMS) -> tuple[AmqpValue, int]:
    """Decode the one value that starts at ``offset``.

    Example:
        >>> decode(bytes([0x54, 0x07]))
        (7, 2)
    """
    return _decode_within(data if isinstance(data, bytes) else bytes(data), offset, _new_room(items))


def decode_all(data: bytes) -> list[AmqpValue]:
    """Decode values that follow each other up to the end; together they may hold as much as one."""
    values: list[AmqpValue] = []
    offset, room = 0, _new_room()
    while offset < len(data):
        value, offset = _decode_within(data, offset, room)
        values.append(value)
    return values


def _new_room(items: int = ITEMS) -> Room:
    return [LEVELS, items, UNUSUAL_KEYS**2]


def _decode_within(data: bytes, offset: int, room: Room) -> tuple[AmqpValue, int]:
    try:
        return _decode(data, offset, room)
    except AmqpDecodeError:
        raise
    except (IndexError, struct.error, ValueError, OverflowError, TypeError) as error:
        raise AmqpDecodeError(f"Not an AMQP value at byte {offset}: {error}.") from None


def decode_exactly(data: bytes | memoryview) -> AmqpValue:
    """Decode bytes that hold one value and nothing else."""
    value, end = decode(data)
    if end != len(data):
        raise AmqpDecodeError(f"{len(data) - end} bytes follow the AMQP value.")
    return value


def skip(data: bytes, offset: int = 0) -> int:
    """Return the offset of the first byte after the value at ``offset``, without decoding it."""
    try:
        code = data[offset]
        if code == 0x00:
            return skip(data, skip(data, offset + 1))  # a descriptor, and the value that it describes
        # The high digit of the constructor tells the width, or the width of the size.
        fixed, size_width = _WIDTHS[code >> 4]
        end = offset + 1 + fixed
        if size_width == 1:
            end += data[offset + 1]
        elif size_width == 4:
            end += _UINT32.unpack_from(data, offset + 1)[0]
    except KeyError:
        raise AmqpDecodeError(f"There is no AMQP type 0x{data[offset]:02x}.") from None
    except (IndexError, struct.error, RecursionError):
        raise AmqpDecodeError(f"The AMQP value at byte {offset} is cut short.") from None
    if end > len(data):
        raise AmqpDecodeError(f"The AMQP value at byte {offset} is cut short.")
    return end


_WIDTHS: Final = {
    0x4: (0, 0), 0x5: (1, 0), 0x6: (2, 0), 0x7: (4, 0), 0x8: (8, 0), 0x9: (16, 0),
    0xA: (1, 1), 0xC: (1, 1), 0xE: (1, 1), 0xB: (4, 4), 0xD: (4, 4), 0xF: (4, 4),
}  # fmt: skip
"""By the high digit of a constructor: bytes that always follow it, and how many of them tell of more (section 1.2)."""
_UINT32: Final = struct.Struct(">I")
_PAIR32: Final = struct.Struct(">II")

_Decoder = Callable[[bytes, int, Room], tuple[Any, int]]


def _unknown(data: bytes, offset: int, _room: Room) -> tuple[Any, int]:
    raise AmqpDecodeError(f"There is no AMQP type 0x{data[offset - 1]:02x}.")


# By constructor: takes the bytes, the offset behind the constructor, and the room
_DECODERS: Final[list[_Decoder]] = [_unknown] * 256


def _decode(data: bytes, offset: int, room: Room) -> tuple[Any, int]:
    return _DECODERS[data[offset]](data, offset + 1, room)


def _fixed(code: int, layout: str, make: Callable[[Any], Any]) -> None:
    reader = struct.Struct(layout)
    width = reader.size
    unpack = reader.unpack_from

    def read(data: bytes, offset: int, _room: Room) -> tuple[Any, int]:
        return make(unpack(data, offset)[0]), offset + width

    _DECODERS[code] = read


def _constant(value: Any) -> _Decoder:
    return lambda _data, offset, _room: (value, offset)


def _sized(wide: bool, make: Callable[[bytes], Any]) -> _Decoder:
    head = 4 if wide else 1

    def read(data: bytes, offset: int, _room: Room) -> tuple[Any, int]:
        start = offset + head
        end = start + (_UINT32.unpack_from(data, offset)[0] if wide else data[offset])
        if end > len(data):
            raise AmqpDecodeError("An AMQP value is cut short.")
        return make(data[start:end]), end

    return read


def _symbol(raw: bytes) -> Symbol:
    return _short_symbol(raw) if len(raw) < _LONGEST_SYMBOL else Symbol(raw.decode())


@lru_cache(maxsize=_MOST_SYMBOLS)
def _short_symbol(raw: bytes) -> Symbol:
    # The same few names are in every message; a sender of many different names pushes out only the oldest.
    return Symbol(raw.decode())


def _compound_head(data: bytes, offset: int, room: Room, wide: bool) -> tuple[int, int, int]:
    """Return the count of elements, the offset of the first, and the end that the size field gives."""
    if wide:
        size, count = _PAIR32.unpack_from(data, offset)
        start, end = offset + 8, offset + 4 + size
    else:
        size, count = data[offset], data[offset + 1]
        start, end = offset + 2, offset + 1 + size
    if end > len(data) or start > end:
        raise AmqpDecodeError("An AMQP compound value is cut short.")
    room[_LEVELS] -= 1
    room[_ITEMS] -= count
    if room[_LEVELS] < 0:
        raise AmqpDecodeError(_TOO_DEEP)
    if room[_ITEMS] < 0:
        raise AmqpDecodeError("An AMQP value holds more elements than are read.")
    return count, start, end


def _items(data: bytes, start: int, end: int, count: int, room: Room) -> list[Any]:
    if count > end - start:
        raise AmqpDecodeError("An AMQP compound value claims more elements than it has bytes.")
    values: list[Any] = []
    for _ in range(count):
        value, start = _DECODERS[data[start]](data, start + 1, room)
        values.append(value)
    room[_LEVELS] += 1
    if start != end:
        raise AmqpDecodeError("The size of an AMQP compound value does not fit its elements.")
    return values


def _list(wide: bool, data: bytes, offset: int, room: Room) -> tuple[Any, int]:
    count, start, end = _compound_head(data, offset, room, wide)
    return _items(data, start, end, count, room), end


def _map(wide: bool, data: bytes, offset: int, room: Room) -> tuple[Any, int]:
    count, start, end = _compound_head(data, offset, room, wide)
    if count % 2:
        raise AmqpDecodeError("An AMQP map has a key without a value.")
    flat = _items(data, start, end, count, room)
    keys = flat[0::2]
    if len(keys) > _FEW_KEYS:
        # Python salts the hashes of texts and bytes. A sender can choose numbers and ids whose hashes collide, which
        # takes the square of their number in time.
        room[_KEYS] -= sum(not isinstance(key, (str, bytes)) for key in keys) ** 2
        if room[_KEYS] < 0:
            raise AmqpDecodeError(f"An AMQP map has more than {UNUSUAL_KEYS:,} keys that are not texts.")
    try:
        return dict(zip(keys, flat[1::2], strict=True)), end
    except TypeError:
        raise AmqpDecodeError("An AMQP map has a list or a map as a key, which cannot be read.") from None


def _array(wide: bool, data: bytes, offset: int, room: Room) -> tuple[Any, int]:
    count, start, end = _compound_head(data, offset, room, wide)
    if count == 0 and start == end:
        room[_LEVELS] += 1
        return Array(), end  # azure-servicebus leaves out the constructor of an empty array
    # The elements share one constructor, and its descriptor.
    descriptor, is_described = None, data[start] == 0x00
    if is_described:
        descriptor, start = _decode(data, start + 1, room)
    code, start = data[start], start + 1
    decoder = _DECODERS[code]
    if decoder is _unknown or code == 0x00:
        raise AmqpDecodeError(f"There is no AMQP type 0x{code:02x}.")
    if count > max(end - start, _MAX_EMPTY_ELEMENTS):
        raise AmqpDecodeError("An AMQP array claims more elements than it has bytes.")
    values = Array(element_type=Described if is_described and count else _ELEMENT_TYPES.get(code, str))
    for _ in range(count):
        value, start = decoder(data, start, room)
        values.append(Described(descriptor, value) if is_described else value)
    room[_LEVELS] += 1
    if start != end:
        raise AmqpDecodeError("The size of an AMQP array does not fit its elements.")
    return values, end


def _described(data: bytes, offset: int, room: Room) -> tuple[Any, int]:
    room[_LEVELS] -= 1
    if room[_LEVELS] < 0:
        raise AmqpDecodeError(_TOO_DEEP)
    descriptor, offset = _decode(data, offset, room)
    value, offset = _decode(data, offset, room)
    room[_LEVELS] += 1
    return Described(descriptor, value), offset


_MAKERS: Final[dict[type, Callable[[Any], Any]]] = {
    bool: (False, True).__getitem__,
    Char: lambda raw: Char(raw.decode("utf-32-be")),
    UUID: lambda raw: UUID(bytes=raw),
}
for _kind, (_, _codes) in TYPES.items():
    for _code, _layout in _codes.items():
        if 0x50 <= _code < 0xA0:
            _fixed(_code, f">{_layout}", _MAKERS.get(_kind, _kind))
_others: Final[dict[int, _Decoder]] = {
    0x00: _described,
    0x40: _constant(None),
    0x41: _constant(True),
    0x42: _constant(False),
    0x43: _constant(UInt(0)),
    0x44: _constant(ULong(0)),
    0x45: lambda _data, offset, _room: ([], offset),
    0xA0: _sized(False, bytes),
    0xB0: _sized(True, bytes),
    0xA1: _sized(False, bytes.decode),
    0xB1: _sized(True, bytes.decode),
    0xA3: _sized(False, _symbol),
    0xB3: _sized(True, _symbol),
    0xC0: partial(_list, False),
    0xD0: partial(_list, True),
    0xC1: partial(_map, False),
    0xD1: partial(_map, True),
    0xE0: partial(_array, False),
    0xF0: partial(_array, True),
}  # fmt: skip
for _code, _read in _others.items():
    _DECODERS[_code] = _read
_ELEMENT_TYPES: Final = {code: kind for kind, (_, codes) in TYPES.items() for code in codes}
