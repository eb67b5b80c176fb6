"""Composite types: a dataclass whose annotations name the wire type of each field, in the order of the specification.

A composite type of AMQP is a list of fields behind a descriptor: a number, or a name such as
``amqp:transactional-state:list``, which Proton writes in some places. A field without a default is mandatory. A default
stands for null and for what the peer left out.

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
from typing import Any, Final, TypeVar, cast

from sbnotebook.amqp import AmqpValue, Array, Symbol, UInt, ULong, decode, encode
from sbnotebook.errors import AmqpDecodeError, ProtocolViolationError

Anything: Final = "anything"
"""The wire type of a field that takes any AMQP value."""
Fields: Final = "fields"
"""The wire type of a map whose keys are symbols; plain strings will do as keys when it is sent."""
Symbols: Final = "symbols"
"""The wire type of a field that takes several symbols: a tuple of strings in Python."""


_Read = Callable[[bytes, int], tuple[Any, int]]
"""Reads a value at an offset; a TypeError names the type of a value that the field cannot have."""
_Field = tuple[str, _Read, Mapping[int, Any]]
"""A field that is read: its name, its reader, and the values that are nothing but their constructor byte."""
_Shape = tuple[type[Any], tuple[_Field, ...], frozenset[str]]
"""A composite: its class, its fields, and the names of those that are mandatory."""
_T = TypeVar("_T")
_NULL: Final = b"\x40"
_UINT32: Final = struct.Struct(">I")
# Size and count of a list, by its constructor
_LIST_SIZES: Final = {0xC0: struct.Struct(">BB"), 0xD0: struct.Struct(">II")}
_EMPTY_LIST: Final = 0x45
_NO_CONSTANT: Final = object()
_MAX_NAME: Final = 80
_MAX_ITEMS: Final = 8192
"""Items of a field of a performative, whose largest ones hold all properties of a message: 64 KiB in Azure. Others
wait while they are read."""
_WORD_IN_NAME: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
# Values that are nothing but their constructor byte, by the wire type of the field
_CONSTANTS: Final[dict[type, dict[int, Any]]] = {UInt: {0x43: 0}, bool: {0x41: True, 0x42: False}}
_CODES: Final[dict[type[Any], int]] = {}
_WRITERS: Final[dict[type[Any], tuple[tuple[str, Callable[[Any], bytes]], ...]]] = {}
_WITHOUT_FIELDS: Final[dict[bytes, Any]] = {}  # Composites that are always the same, by their bytes
_SHAPES: Final[dict[bytes | int | str, _Shape]] = {}  # By the usual first three bytes, by number, and by name


@typing.dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def composite(code: int, *, frozen: bool = True, kw_only: bool = False) -> Callable[[type[_T]], type[_T]]:
    """Return a class decorator that makes a dataclass, the composite type with the descriptor ``code``."""

    def register(declaration: type[_T]) -> type[_T]:
        cls = dataclasses.dataclass(frozen=frozen, slots=True, kw_only=kw_only)(declaration)
        hints = typing.get_type_hints(cls, include_extras=True)
        declared = dataclasses.fields(cast("Any", cls))
        kinds = {each.name: hints[each.name].__metadata__ for each in declared}
        fields = tuple((name, *_reader(kinds[name])) for name in kinds)
        mandatory = (each.name for each in declared if each.default is each.default_factory is dataclasses.MISSING)
        shape = cls, fields, frozenset(mandatory)
        words = _WORD_IN_NAME.sub("-", cls.__name__).lower()
        _CODES[cls] = code
        _WRITERS[cls] = tuple((name, _writer(kinds[name][0])) for name in kinds)
        _SHAPES.update(dict.fromkeys((bytes((0x00, 0x53, code)), code, f"amqp:{words}:list"), shape))
        if not fields:
            _WITHOUT_FIELDS[bytes((0x00, 0x53, code, _EMPTY_LIST))] = cls()
        return cls

    return register


def _reader(kinds: tuple[Any, ...]) -> tuple[_Read, Mapping[int, Any]]:
    kind = kinds[0]
    if kind in _CODES:
        return partial(_read_composite, frozenset(kinds)), {_NULL[0]: None}
    check, _ = _SPECIAL.get(kind) or _primitive(kind)
    return partial(_QUICK_READERS.get(kind, _read_value), check), {_NULL[0]: None} | _CONSTANTS.get(kind, {})


def _read_composite(classes: frozenset[type], data: bytes, at: int) -> tuple[Any, int]:
    known = _WITHOUT_FIELDS.get(data[at : at + 4])
    return (known, at + 4) if type(known) in classes else decode_composite(data, at, classes)


def _writer(kind: Any) -> Callable[[Any], bytes]:
    return _write_composite if kind in _CODES else (_SPECIAL.get(kind) or _primitive(kind))[1]


def _write_composite(value: Any) -> bytes:
    return _NULL if value is None else encode_composite(value)


_Check = Callable[[Any], Any]


def _primitive(kind: Callable[[Any], AmqpValue]) -> tuple[_Check, Callable[[Any], bytes]]:
    accepted = str if kind is Symbol else kind

    def check(value: Any) -> Any:
        return _expect(isinstance(value, cast("type", accepted)), value)

    return check, lambda value: _NULL if value is None else encode(kind(value))


def _expect(fits: bool, value: Any) -> Any:
    if not fits:
        raise TypeError(type(value).__name__)
    return value


def _check_symbols(value: Any) -> tuple[str, ...]:
    symbols: tuple[Any, ...] = tuple(value) if isinstance(value, Array) else (value,)
    _expect(all(isinstance(each, str) for each in symbols), value)
    return symbols


def _write_fields(value: dict[str, AmqpValue] | None) -> bytes:
    return _NULL if value is None else encode({Symbol(key): item for key, item in value.items()})


_SPECIAL: Final[dict[object, tuple[_Check, Callable[[Any], bytes]]]] = {
    Anything: (lambda value: value, encode),
    Fields: (lambda value: _expect(isinstance(value, dict), value), _write_fields),
    Symbols: (_check_symbols, lambda value: encode(Array(map(Symbol, value), Symbol)) if value else _NULL),
}


def _read_value(check: _Check, data: bytes, at: int) -> tuple[Any, int]:
    value, end = decode(data, at, items=_MAX_ITEMS)
    return check(value), end


# The wire types of the fields that come with every message, in their usual forms


def _read_uint(check: _Check, data: bytes, at: int) -> tuple[Any, int]:
    code = data[at]
    if code == 0x52:
        return data[at + 1], at + 2
    if code == 0x70:
        return _UINT32.unpack_from(data, at + 1)[0], at + 5
    return _read_value(check, data, at)


def _read_boolean(check: _Check, data: bytes, at: int) -> tuple[Any, int]:
    if data[at] == 0x56 and data[at + 1] < 2:
        return data[at + 1] == 1, at + 2
    return _read_value(check, data, at)


def _read_binary(check: _Check, data: bytes, at: int) -> tuple[Any, int]:
    if data[at] != 0xA0:
        return _read_value(check, data, at)
    end = at + 2 + data[at + 1]
    return data[at + 2 : end], end


_QUICK_READERS: Final[dict[object, Callable[[_Check, bytes, int], tuple[Any, int]]]] = {
    UInt: _read_uint,
    bool: _read_boolean,
    bytes: _read_binary,
}


def encode_composite(value: Any) -> bytes:
    """Encode a composite with its descriptor; nulls at its end are left out.

    Defaults are written, because some peers take an omitted one for null.
    """
    cls = cast("type[Any]", type(value))
    parts = [write(getattr(value, name)) for name, write in _WRITERS[cls]]
    while parts and parts[-1] == _NULL:
        parts.pop()
    content = b"".join(parts)
    head = bytes((0x00, 0x53, _CODES[cls]))
    if not parts:
        return head + b"\x45"
    if len(content) < 255:
        return head + bytes((0xC0, len(content) + 1, len(parts))) + content
    return head + b"\xd0" + (len(content) + 4).to_bytes(4, "big") + len(parts).to_bytes(4, "big") + content


def decode_composite(data: bytes, offset: int = 0, classes: frozenset[type] | None = None) -> tuple[Any, int]:
    """Decode the composite that starts at ``offset``, field by field; raise TypeError if it is none of the classes.

    Every message that is sent, received or settled brings one, so its bytes are not decoded as a value first.
    """
    try:
        shape, at = _SHAPES.get(data[offset : offset + 3]), offset + 3
        if shape is None:
            shape, at = _described(data, offset)
        cls, fields, mandatory = shape
        if classes is not None and cls not in classes:  # before its fields, which could hold such a composite again
            raise TypeError(cls.__name__)
        given, end = ({}, at + 1) if data[at] == _EMPTY_LIST else _read_list(data, at, cls, fields)
    except (IndexError, struct.error):
        raise AmqpDecodeError(f"The composite at byte {offset} is cut short.") from None
    if mandatory and not mandatory.issubset(given):
        missing = next(name for name, *_ in fields if name in mandatory - given.keys())
        raise ProtocolViolationError(f"{cls.__name__}.{missing} is missing.", "amqp:invalid-field")
    return cls(**given), end


def _read_list(data: bytes, at: int, cls: type, fields: tuple[_Field, ...]) -> tuple[dict[str, Any], int]:
    sizes = _LIST_SIZES.get(data[at])
    if sizes is None:
        raise _misfit("A described list was expected.")
    # The size covers the count and the fields that follow.
    size, count = sizes.unpack_from(data, at + 1)
    at += 1 + sizes.size
    end = at - sizes.size // 2 + size
    given: dict[str, Any] = {}
    for name, read, constants in fields[:count]:
        value = constants.get(data[at], _NO_CONSTANT)
        if value is _NO_CONSTANT:
            try:
                value, at = read(data, at)
            except TypeError as error:
                raise _misfit(f"{cls.__name__}.{name} cannot be a {error}.") from None
        else:
            at += 1
        if value is not None:  # null stands for the default
            given[name] = value
    if count > len(fields):
        raise _misfit(f"{cls.__name__} has {len(fields)} fields, not {count}.")
    if not at == end <= len(data):
        raise AmqpDecodeError(f"The size of a {cls.__name__} does not fit its fields.")
    return given, end


def _misfit(sentence: str) -> ProtocolViolationError:
    return ProtocolViolationError(sentence, "amqp:decode-error")


def _described(data: bytes, offset: int) -> tuple[_Shape, int]:
    """Return the composite of a descriptor in another form than the usual one, and the offset behind it."""
    if data[offset] != 0x00:
        raise _misfit("A described list was expected.")
    descriptor, at = decode(data, offset + 1)
    shape = _SHAPES.get(descriptor) if isinstance(descriptor, ULong | Symbol) else None
    if shape is None:
        name = f"0x{descriptor:02x}" if isinstance(descriptor, ULong) else repr(descriptor)[:_MAX_NAME]
        raise _misfit(f"There is no composite type {name}.")
    return shape, at
