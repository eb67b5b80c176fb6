"""AMQP values as JSON, and edited JSON as AMQP values of the same types.

A body may be an AMQP value: a map of a JMS client, a list, a number. Its text is JSON. JSON has fewer types, so an edit
gives each value the AMQP type that the value at its place had; a new value gets the type of JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast
from uuid import UUID

from sbnotebook.amqp import (
    AmqpValue,
    Array,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Symbol,
    Timestamp,
    encode,
    type_name,
)
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model.json_text import JsonNumber, places_before, read_json, write_json
from sbnotebook.model.property_text import from_text, json_ready, property_type

_DECIMALS: Final = (Decimal32, Decimal64, Decimal128)
_SHOWN: Final = 60


def json_of(value: AmqpValue) -> str:
    return write_json(_ready(value))


def _ready(value: Any) -> Any:
    return json_ready(value, lambda data: _text_of(data) or data.hex())


def _text_of(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def value_of(text: str, before: AmqpValue) -> AmqpValue:
    try:
        value = _retyped(before, read_json(text))
        encode(value)
    except (ConfigurationError, TypeError, ValueError, OverflowError) as error:
        raise DecisionError(f"The body is an AMQP value: {error}") from None
    except RecursionError:
        raise DecisionError("The AMQP value of the body is nested too deep to be edited.") from None
    return value


def _retyped(before: Any, after: Any) -> Any:
    """Return a value of JSON in the type of the value at the same place."""
    if write_json(_ready(before)) == write_json(after):
        return before
    if isinstance(before, Described) and not property_type(before).startswith("com.microsoft:"):
        return Described(before.descriptor, _retyped(before.value, after))
    if isinstance(before, dict) and isinstance(after, dict):
        return _map(cast("dict[Any, Any]", before), cast("dict[str, Any]", after))
    if isinstance(before, list) and isinstance(after, list):
        return _list(cast("list[Any]", before), cast("list[Any]", after))
    return _converted(before, after)


def _map(before: dict[Any, Any], after: dict[str, Any]) -> dict[Any, Any]:
    keys = {str(key): key for key in before}
    if len(keys) < len(before):
        raise DecisionError("Two keys of an AMQP map in the body look alike, so it cannot be edited as JSON.")
    is_of_symbols = bool(before) and all(type(key) is Symbol for key in before)
    new: Callable[[str], Any] = Symbol if is_of_symbols else str
    return {
        keys.get(name, new(name)): _retyped(before[keys[name]], value) if name in keys else _natural(value)
        for name, value in after.items()
    }


def _list(before: list[Any], after: list[Any]) -> list[Any]:
    places = places_before(_ready(before), after)
    # A new element has the type of the last one.
    items = [_retyped(before[place] if before else None, value) for place, value in zip(places, after, strict=True)]
    if not isinstance(before, Array):
        return items
    kind = before.element_type
    if any(type(item) is not kind for item in items):
        raise DecisionError(f"it holds an array, whose elements are of the type {type_name(before[0])}.")
    return Array(items, kind)


def _converted(before: Any, after: Any) -> Any:
    if isinstance(after, str) and isinstance(before, str):
        return type(before)(after)
    if isinstance(after, str) and type(before) is bytes:
        return after.encode() if _text_of(before) is not None else bytes.fromhex(after)
    is_text = isinstance(before, (UUID, Timestamp, Described, *_DECIMALS))
    is_number = isinstance(before, (int, float, *_DECIMALS)) and not isinstance(before, (bool, Timestamp))
    has_number = isinstance(after, (int, float)) and not isinstance(after, bool)
    if (isinstance(after, str) and is_text) or (is_number and has_number):
        return from_text(after if isinstance(after, str) else write_json(after), property_type(before))
    return _natural(after)


def _natural(value: Any) -> Any:
    """Return a new value in the AMQP type that JSON's type has."""
    if isinstance(value, Mapping):
        return {name: _natural(each) for name, each in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list):
        return [_natural(each) for each in cast("list[Any]", value)]
    return float(value) if isinstance(value, JsonNumber) else value
