"""Composite types: a class is its own wire table.

A composite type of AMQP is a list of fields behind a numeric descriptor. Here it is a frozen
dataclass whose annotations name the wire type of each field, in the order of the specification::

    @composite(0x1D)
    @dataclass(frozen=True, slots=True)
    class Error:
        condition: Annotated[str, Symbol]
        description: Annotated[str | None, str] = None
        info: Annotated[dict[str, AmqpValue], Fields] = field(default_factory=dict)

A field without a default is mandatory. A default stands for null and for what the peer left out.
One pair of functions encodes and decodes all of them.

Source: AMQP 1.0 part 1, types, section 1.4.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar, cast

from sbnotebook.errors import ProtocolViolationError
from sbnotebook.model.amqp import AmqpValue, Array, Described, Symbol, ULong, decode, encode

__all__ = ["Anything", "Fields", "Symbols", "composite", "decode_composite", "encode_composite"]


class Anything:
    """Wire type of a field that takes any AMQP value."""


class Fields:
    """Wire type of a map whose keys are symbols; plain strings will do as keys when it is sent."""


class Symbols:
    """Wire type of a field that takes several symbols: a tuple of strings in Python."""


class _Field(NamedTuple):
    name: str
    mandatory: bool
    read: Callable[[Any], Any]
    write: Callable[[Any], bytes]


_T = TypeVar("_T")
_NULL: Final = b"\x40"
_CODES: Final[dict[type[Any], int]] = {}
_CLASSES: Final[dict[int, type[Any]]] = {}
_FIELDS: Final[dict[type[Any], tuple[_Field, ...]]] = {}


def composite(code: int) -> Callable[[type[_T]], type[_T]]:
    """Class decorator: this dataclass is the composite type with the descriptor ``code``."""

    def register(cls: type[_T]) -> type[_T]:
        hints = typing.get_type_hints(cls, include_extras=True)
        _CODES[cls], _CLASSES[code] = code, cls
        _FIELDS[cls] = tuple(
            _Field(each.name, _is_mandatory(each), *_reader_and_writer(hints[each.name].__metadata__))
            for each in dataclasses.fields(cast("Any", cls))
        )
        return cls

    return register


def _is_mandatory(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _reader_and_writer(kinds: tuple[type, ...]) -> tuple[Callable[[Any], Any], Callable[[Any], bytes]]:
    if kinds[0] in _CODES:
        return _composite_reader(kinds), _write_composite
    special = _SPECIAL.get(kinds[0])
    return special or _primitive(kinds[0])


def _composite_reader(classes: tuple[type, ...]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        found = _from_described(value)
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


_SPECIAL: Final[dict[type, tuple[Callable[[Any], Any], Callable[[Any], bytes]]]] = {
    Anything: (lambda value: value, encode),
    Fields: (_read_fields, _write_fields),
    Symbols: (_read_symbols, lambda value: encode(Array(map(Symbol, value), Symbol)) if value else _NULL),
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
    """Decode the composite that starts at ``offset``.

    Returns:
        The composite and the offset of the first byte after it.

    Raises:
        AmqpDecodeError: the bytes are not AMQP data.
        ProtocolViolationError: they are no known composite, or a field is missing or of a wrong type.
    """
    value, end = decode(data, offset)
    return _from_described(value), end


def _from_described(value: AmqpValue) -> Any:
    if not (isinstance(value, Described) and isinstance(value.descriptor, ULong) and isinstance(value.value, list)):
        raise ProtocolViolationError("A described list was expected.", "amqp:decode-error")
    cls = _CLASSES.get(value.descriptor)
    if cls is None:
        raise ProtocolViolationError(f"There is no composite type 0x{value.descriptor:02x}.", "amqp:decode-error")
    return _build(cls, value.value)


def _build(cls: type[_T], values: list[AmqpValue]) -> _T:
    fields = _FIELDS[cls]
    if len(values) > len(fields):
        raise ProtocolViolationError(
            f"{cls.__name__} has {len(fields)} fields, not {len(values)}.", "amqp:decode-error"
        )
    given: dict[str, Any] = {}
    for field, value in zip(fields, values, strict=False):
        if value is not None:
            try:
                given[field.name] = field.read(value)
            except TypeError:
                text = f"{cls.__name__}.{field.name} cannot be a {type(value).__name__}."
                raise ProtocolViolationError(text, "amqp:decode-error") from None
    for field in fields:
        if field.mandatory and field.name not in given:
            raise ProtocolViolationError(f"{cls.__name__}.{field.name} is missing.", "amqp:invalid-field")
    return cls(**given)
