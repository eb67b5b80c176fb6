"""Composite types: a class is its own wire table.

A composite type of AMQP is a list of fields behind a descriptor: a number, or a name such as
``amqp:transactional-state:list``, which Proton writes in some places. Here it is a frozen dataclass whose annotations
name the wire type of each field, in the order of the specification::

    @composite(0x1D)
    @dataclass(frozen=True, slots=True)
    class Error:
        condition: Annotated[str, Symbol]
        description: Annotated[str | None, str] = None
        info: Annotated[dict[str, AmqpValue], Fields] = field(default_factory=dict)

A field without a default is mandatory. A default stands for null and for what the peer left out.
One pair of functions encodes and decodes all of them.

Source: AMQP 1.0 part 1, types, sections 1.2 and 1.4. Microsoft's AMQP library for .NET takes numbers and names
(Azure/azure-amqp, AmqpCodec.cs).
"""

from __future__ import annotations

import dataclasses
import re
import struct
import typing
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast

from sbnotebook.amqp import AmqpValue, Array, Described, Symbol, UInt, ULong, decode, encode
from sbnotebook.errors import AmqpDecodeError, ProtocolViolationError

Anything: Final = "anything"
"""The wire type of a field that takes any AMQP value."""
Fields: Final = "fields"
"""The wire type of a map whose keys are symbols; plain strings will do as keys when it is sent."""
Symbols: Final = "symbols"
"""The wire type of a field that takes several symbols: a tuple of strings in Python."""


class _Field(NamedTuple):
    name: str
    mandatory: bool
    read: Callable[[Any], Any]
    write: Callable[[Any], bytes]
    constants: Mapping[int, Any]
    decode: Callable[[bytes, int], tuple[Any, int]]


_Shape = tuple[
    type[Any],
    tuple[tuple[str, Mapping[int, Any], Callable[[bytes, int], tuple[Any, int]]], ...],
    frozenset[str],
    struct.Struct,
]
"""A composite whose first four bytes are its descriptor and a list: its class, its fields, the names of those that are
mandatory, and the short or long sizes."""
_T = TypeVar("_T")
_NULL: Final = b"\x40"
_UINT32: Final = struct.Struct(">I")
_SHORT_SIZES, _LONG_SIZES = struct.Struct(">BB"), struct.Struct(">II")
_NO_CONSTANT: Final = object()
_MAX_NAME: Final = 80
_MAX_ITEMS: Final = 8192
"""Items of a performative, whose largest ones hold all properties of a message: 64 KiB in Azure. Others wait
while they are read."""
_WORD_IN_NAME: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
# Values that are nothing but their constructor byte, by the wire type of the field
_CONSTANTS: Final[dict[type, dict[int, Any]]] = {UInt: {0x43: 0}, bool: {0x41: True, 0x42: False}}
_CODES: Final[dict[type[Any], int]] = {}
_CLASSES: Final[dict[int | str, type[Any]]] = {}  # By number and by name
_FIELDS: Final[dict[type[Any], tuple[_Field, ...]]] = {}
_SHAPES: Final[dict[bytes, _Shape]] = {}
_WITHOUT_FIELDS: Final[dict[bytes, Any]] = {}  # Composites that are always the same, by their bytes


def composite(code: int) -> Callable[[type[_T]], type[_T]]:
    """Return a class decorator: its dataclass is the composite type with the descriptor ``code``."""

    def register(cls: type[_T]) -> type[_T]:
        hints = typing.get_type_hints(cls, include_extras=True)
        _CODES[cls], _CLASSES[code] = code, cls
        words = _WORD_IN_NAME.sub("-", cls.__name__).lower()
        _CLASSES[f"amqp:{words}:list"] = cls
        _FIELDS[cls] = fields = tuple(
            _field(each, hints[each.name].__metadata__) for each in dataclasses.fields(cast("Any", cls))
        )
        # Both forms of its list, short and long, for quick decoding.
        mandatory = frozenset(each.name for each in fields if each.mandatory)
        quick = tuple((each.name, each.constants, each.decode) for each in fields)
        for constructor, sizes in ((0xC0, _SHORT_SIZES), (0xD0, _LONG_SIZES)):
            _SHAPES[bytes((0x00, 0x53, code, constructor))] = cls, quick, mandatory, sizes
        # A composite without fields is always the same bytes.
        if not fields:
            _WITHOUT_FIELDS[bytes((0x00, 0x53, code, 0x45))] = cls()
        return cls

    return register


def _field(field: dataclasses.Field[Any], kinds: tuple[Any, ...]) -> _Field:
    read, write = _reader_and_writer(kinds)
    constants = {_NULL[0]: None} | _CONSTANTS.get(kinds[0], {})
    decoder = _QUICK_DECODERS.get(kinds[0], _decode_composite_field if kinds[0] in _CODES else _decode_field)
    return _Field(field.name, _is_mandatory(field), read, write, constants, partial(decoder, read))


def _is_mandatory(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _reader_and_writer(kinds: tuple[Any, ...]) -> tuple[Callable[[Any], Any], Callable[[Any], bytes]]:
    if kinds[0] in _CODES:
        return _composite_reader(kinds), _write_composite
    special = _SPECIAL.get(kinds[0])
    return special or _primitive(kinds[0])


def _composite_reader(classes: tuple[type, ...]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        found = value if type(value) in _CODES else _from_described(value)
        if not isinstance(found, classes):
            raise TypeError
        return found

    return read


def _write_composite(value: Any) -> bytes:
    return _NULL if value is None else encode_composite(value)


def _primitive(kind: Callable[[Any], AmqpValue]) -> tuple[Callable[[Any], Any], Callable[[Any], bytes]]:
    accepted = str if kind is Symbol else kind

    def read(value: Any) -> Any:
        if not isinstance(value, cast("type", accepted)):
            raise TypeError
        return value

    return read, lambda value: _NULL if value is None else encode(kind(value))


def _read_fields(value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise TypeError
    return cast("dict[Any, Any]", value)


def _write_fields(value: dict[str, AmqpValue] | None) -> bytes:
    return _NULL if value is None else encode({Symbol(key): item for key, item in value.items()})


def _read_symbols(value: Any) -> tuple[str, ...]:
    symbols: tuple[Any, ...] = tuple(value) if isinstance(value, Array) else (value,)
    if not all(isinstance(each, str) for each in symbols):
        raise TypeError
    return symbols


_SPECIAL: Final[dict[object, tuple[Callable[[Any], Any], Callable[[Any], bytes]]]] = {
    Anything: (lambda value: value, encode),
    Fields: (_read_fields, _write_fields),
    Symbols: (_read_symbols, lambda value: encode(Array(map(Symbol, value), Symbol)) if value else _NULL),
}


def _decode_field(read: Callable[[Any], Any], data: bytes, at: int) -> tuple[Any, int]:
    value, end = decode(data, at, items=_MAX_ITEMS)
    return read(value), end


def _decode_composite_field(read: Callable[[Any], Any], data: bytes, at: int) -> tuple[Any, int]:
    known = _WITHOUT_FIELDS.get(data[at : at + 4])
    return _decode_field(read, data, at) if known is None else (read(known), at + 4)


def _decode_uint(read: Callable[[Any], Any], data: bytes, at: int) -> tuple[Any, int]:
    code = data[at]
    if code == 0x52:
        return data[at + 1], at + 2
    if code == 0x70:
        return _UINT32.unpack_from(data, at + 1)[0], at + 5
    return _decode_field(read, data, at)


def _decode_boolean(read: Callable[[Any], Any], data: bytes, at: int) -> tuple[Any, int]:
    if data[at] == 0x56 and data[at + 1] < 2:
        return data[at + 1] == 1, at + 2
    return _decode_field(read, data, at)


def _decode_binary(read: Callable[[Any], Any], data: bytes, at: int) -> tuple[Any, int]:
    if data[at] != 0xA0:
        return _decode_field(read, data, at)
    end = at + 2 + data[at + 1]
    return data[at + 2 : end], end


_QUICK_DECODERS: Final[dict[type, Callable[[Callable[[Any], Any], bytes, int], tuple[Any, int]]]] = {
    UInt: _decode_uint,
    bool: _decode_boolean,
    bytes: _decode_binary,
}


def encode_composite(value: Any) -> bytes:
    """Encode a composite with its descriptor; nulls at its end are left out.

    Defaults are written, because some peers take an omitted one for null.
    """
    cls = cast("type[Any]", type(value))
    parts = [field.write(getattr(value, field.name)) for field in _FIELDS[cls]]
    while parts and parts[-1] == _NULL:
        parts.pop()
    content = b"".join(parts)
    head = bytes((0x00, 0x53, _CODES[cls]))
    if not parts:
        return head + b"\x45"
    if len(content) < 255:
        return head + bytes((0xC0, len(content) + 1, len(parts))) + content
    return head + b"\xd0" + (len(content) + 4).to_bytes(4, "big") + len(parts).to_bytes(4, "big") + content


def decode_composite(data: bytes, offset: int = 0) -> tuple[Any, int]:
    """Decode the composite that starts at ``offset``."""
    quick = _decode_quickly(data, offset)
    if quick is not None:
        return quick
    value, end = decode(data, offset, items=_MAX_ITEMS)
    return _from_described(value), end


def _decode_quickly(data: bytes, offset: int) -> tuple[Any, int] | None:
    """Decode a composite in its usual form; return None for any other form, and if anything is wrong with it.

    Every message that is sent, received or settled brings one. This takes a quarter of the time of decoding the
    bytes as a value and checking it afterwards.
    """
    shape = _SHAPES.get(data[offset : offset + 4])
    if shape is None:
        return None
    cls, fields, mandatory, sizes = shape
    given: dict[str, Any] = {}
    try:
        # The size covers the count and the fields that follow.
        size, count = sizes.unpack_from(data, offset + 4)
        at = offset + 4 + sizes.size
        end = at + size - sizes.size // 2
        for name, constants, decode_field in fields[:count]:
            value = constants.get(data[at], _NO_CONSTANT)
            if value is _NO_CONSTANT:
                value, at = decode_field(data, at)
            else:
                at += 1
            if value is not None:
                given[name] = value
    except (AmqpDecodeError, ProtocolViolationError, IndexError, TypeError, struct.error):
        return None
    # Leave anything unusual to the slow path, which reports the fault.
    is_whole = at == end <= len(data) and count <= len(fields)
    return (cls(**given), end) if is_whole and mandatory <= given.keys() else None


def _from_described(value: AmqpValue) -> Any:
    if not (isinstance(value, Described) and isinstance(value.value, list)):
        raise ProtocolViolationError("A described list was expected.", "amqp:decode-error")
    descriptor = value.descriptor
    cls = _CLASSES.get(descriptor) if isinstance(descriptor, ULong | Symbol) else None
    if cls is None:
        name = f"0x{descriptor:02x}" if isinstance(descriptor, ULong) else repr(descriptor)[:_MAX_NAME]
        raise ProtocolViolationError(f"There is no composite type {name}.", "amqp:decode-error")
    return _build(cls, value.value)


def _build(cls: type[_T], values: list[AmqpValue]) -> _T:
    fields = _FIELDS[cls]
    if len(values) > len(fields):
        raise ProtocolViolationError(
            f"{cls.__name__} has {len(fields)} fields, not {len(values)}.", "amqp:decode-error"
        )
    # Null stands for the default.
    given: dict[str, Any] = {}
    for field, value in zip(fields, values, strict=False):
        if value is not None:
            try:
                given[field.name] = field.read(value)
            except TypeError:
                text = f"{cls.__name__}.{field.name} cannot be a {type(value).__name__}."
                raise ProtocolViolationError(text, "amqp:decode-error") from None
    # Every other field has a default, or is missing.
    for field in fields:
        if field.mandatory and field.name not in given:
            raise ProtocolViolationError(f"{cls.__name__}.{field.name} is missing.", "amqp:invalid-field")
    return cls(**given)
