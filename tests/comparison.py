"""Comparison of values and messages, AMQP types included."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from sbnotebook.amqp import AmqpValue, Array, Described, Timestamp, type_name
from sbnotebook.model import Message


def same_value(left: AmqpValue, right: AmqpValue) -> bool:
    """Tell whether two AMQP values are equal and of the same types, all the way down; NaN equals NaN.

    Example:
        >>> from sbnotebook.amqp import Int, Long
        >>> same_value(1, Int(1)), same_value(Int(1), Long(1)), same_value(0.0, -0.0)
        (True, False, False)
    """
    if type_name(left) != type_name(right):
        return False
    if isinstance(left, Described) and isinstance(right, Described):
        return same_value(left.descriptor, right.descriptor) and same_value(left.value, right.value)
    if isinstance(left, Array) and isinstance(right, Array) and left.element_type is not right.element_type:
        return False
    if isinstance(left, list) and isinstance(right, list):
        return _same_items(left, right)
    if isinstance(left, dict) and isinstance(right, dict):
        return _same_items([*left], [*right]) and _same_items([*left.values()], [*right.values()])
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or (left == right and str(left) == str(right))
    return _moment(left) == _moment(right)


def differences(left: Message, right: Message) -> dict[str, tuple[Any, Any]]:
    """Return the fields that a sender writes in which two messages differ, with both values.

    Application properties and extras are compared one by one, with their types. What only the service sets is left
    alone.

    Example:
        >>> differences(Message(subject="UA"), Message(subject="AA"))
        {'subject': ('UA', 'AA')}
    """
    maps = {"property": "application_properties", "extra": "extras"}
    names = [name for name in Message.__dataclass_fields__ if name not in maps.values()]
    pairs = {name: (getattr(left, name), getattr(right, name)) for name in names}
    found = {name: pair for name, pair in pairs.items() if pair[0] != pair[1] or type(pair[0]) is not type(pair[1])}
    for word, attribute in maps.items():
        one, other = getattr(left, attribute), getattr(right, attribute)
        for name in dict.fromkeys((*one, *other)):
            if name not in one or name not in other or not same_value(one[name], other[name]):
                found[f"{word} {name}"] = (one.get(name), other.get(name))
    return found


def _same_items(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(map(same_value, left, right))


def _moment(value: Any) -> Any:
    return Timestamp.from_datetime(value) if isinstance(value, datetime) else value
