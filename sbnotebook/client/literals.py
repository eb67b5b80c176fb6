"""Values and messages as Python literals, for plans as code.

Texts of messages are hostile input: each is a quoted literal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from datetime import datetime, timedelta
from math import isfinite
from typing import Any, Final, cast
from uuid import UUID

from sbnotebook.errors import DecisionError
from sbnotebook.model import BodyType, EntityAddress, Message
from sbnotebook.model.amqp import (
    Byte,
    Char,
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
    type_name,
)

__all__ = ["imports_of", "literal", "message_literal"]

_PLAIN: Final = {int: int, float: float, str: str, bytes: bytes, bool: bool, type(None): None}
_TYPED: Final = {
    **dict.fromkeys((UByte, UShort, UInt, ULong, Byte, Short, Int, Long, Timestamp), int),
    **dict.fromkeys((Char, Symbol), str),
    Float: float,
}
"""Classes of AMQP types, with the plain type of their values."""
_IMPORTS: Final = {
    "datetime.fromisoformat(": "from datetime import datetime",
    "timedelta(": "from datetime import timedelta",
    "UUID(": "from uuid import UUID",
    "amqp.": "from sbnotebook.model import amqp",
    "BodyType(": "from sbnotebook.model import BodyType",
}


def imports_of(code: str) -> list[str]:
    """Return the lines that import what the literals in some code need, besides sbnotebook itself.

    Args:
        code: with literals of this module.
    """
    return [line for name, line in _IMPORTS.items() if name in code]


def literal(value: Any) -> str:
    """Return a value as a literal.

    Args:
        value: of a decision or of a message.

    Raises:
        DecisionError: it has a type without a literal.

    Example:
        >>> literal(timedelta(minutes=5)), literal(UInt(3)), literal({"a": [1, None]})
        ('timedelta(seconds=300.0)', 'amqp.UInt(3)', "{'a': [1, None]}")
    """
    kind = cast("type[object]", type(value))
    if kind is float and not isfinite(value):
        return f"float({str(value)!r})"
    if kind in _PLAIN:
        return repr(value)
    if kind in _TYPED:
        return f"amqp.{kind.__name__}({literal(_TYPED[kind](value))})"
    if isinstance(value, BodyType):
        return f"BodyType({str(value)!r})"
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        return f"{{{', '.join(f'{literal(name)}: {literal(each)}' for name, each in pairs)}}}"
    if kind is list:
        return f"[{', '.join(map(literal, value))}]"
    return _other(value)


def _other(value: object) -> str:
    match value:
        case timedelta():
            return f"timedelta(seconds={value.total_seconds()!r})"
        case datetime():
            return f"datetime.fromisoformat({value.isoformat()!r})"
        case UUID():
            return f"UUID({str(value)!r})"
        case EntityAddress():
            return f"sbnotebook.EntityAddress.parse({str(value)!r})"
        case _:
            name = type_name(value)  # pyright: ignore[reportArgumentType]
            raise DecisionError(f"A message has a value of the AMQP type {name}, which has no code.")


def message_literal(message: Message) -> str:
    """Return a message as a call that makes the same message to send.

    Args:
        message: any message; the place and the state of a received one are left out.

    Raises:
        DecisionError: a value of it has a type without a literal.

    Example:
        >>> message_literal(Message(body="hello", subject="greeting"))
        "sbnotebook.Message(body='hello', subject='greeting')"
    """
    said: list[str] = []
    for each in fields(Message):
        value = getattr(message, each.name)
        default: Any = each.default if each.default is not MISSING else {}
        if value != default:
            said.append(f"{each.name}={_body(message) if each.name == 'body' else literal(value)}")
    return f"sbnotebook.Message({', '.join(said)})"


def _body(message: Message) -> str:
    """Return the body as a text, where it is one, and as bytes elsewhere."""
    try:
        return repr(message.body.decode()) if message.body_type is BodyType.DATA else repr(message.body)
    except UnicodeDecodeError:
        return repr(message.body)
