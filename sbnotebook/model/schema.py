"""The one list of message columns, and messages as rows of it.

A row holds plain Python values; :mod:`sbnotebook.analysis.frames` makes Arrow and pandas of them. Together the
columns are lossless: a message that became a row and a message again is the same, AMQP types included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from itertools import repeat
from types import MappingProxyType
from typing import Any, Final, TypeVar

from sbnotebook.amqp import AmqpValue
from sbnotebook.errors import ConfigurationError
from sbnotebook.model.address import EntityAddress
from sbnotebook.model.body import BodyType, body_text
from sbnotebook.model.budget import UNPACKED_BYTES_OF_TABLE, Allowance
from sbnotebook.model.message import Message, MessageState, PeekedMessage, extras_from_bytes, extras_to_bytes
from sbnotebook.model.property_text import from_text, property_type, to_text

_E = TypeVar("_E", bound=StrEnum)
_SHOWN: Final = 60


class ColumnType(Enum):
    """The type of a column; each surface has one type of its own for each of these."""

    STRING = "string"
    INT = "int"
    LONG = "long"
    TIMESTAMP = "timestamp"
    BINARY = "binary"
    STRING_MAP = "map of strings"


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: ColumnType
    read: Callable[[Any], Any]


def _attribute(name: str) -> Callable[[Any], Any]:
    return lambda message: getattr(message, name, None)


def _text(name: str) -> Callable[[Any], Any]:
    return lambda message: None if (value := getattr(message, name, None)) is None else str(value)


def _ttl(message: Message) -> int | None:
    return None if message.time_to_live is None else message.time_to_live // timedelta(milliseconds=1)


def _properties(message: Message) -> dict[str, str | None]:
    return {name: to_text(value) for name, value in message.application_properties.items()}


def _property_types(message: Message) -> dict[str, str]:
    kinds = {name: property_type(value) for name, value in message.application_properties.items()}
    return {name: kind for name, kind in kinds.items() if kind != "string"}


_BODY_TEXT: Final = "body_text"
COLUMNS: Final = (
    Column("entity", ColumnType.STRING, _text("entity")),
    Column("sequence_number", ColumnType.LONG, _attribute("sequence_number")),
    Column("enqueued_sequence_number", ColumnType.LONG, _attribute("enqueued_sequence_number")),
    Column("message_id", ColumnType.STRING, _attribute("message_id")),
    Column("session_id", ColumnType.STRING, _attribute("session_id")),
    Column("partition_key", ColumnType.STRING, _attribute("partition_key")),
    Column("correlation_id", ColumnType.STRING, _attribute("correlation_id")),
    Column("subject", ColumnType.STRING, _attribute("subject")),
    Column("content_type", ColumnType.STRING, _attribute("content_type")),
    Column("content_encoding", ColumnType.STRING, _attribute("content_encoding")),
    Column("to", ColumnType.STRING, _attribute("to")),
    Column("reply_to", ColumnType.STRING, _attribute("reply_to")),
    Column("reply_to_session_id", ColumnType.STRING, _attribute("reply_to_session_id")),
    Column("enqueued_time", ColumnType.TIMESTAMP, _attribute("enqueued_time")),
    Column("scheduled_enqueue_time", ColumnType.TIMESTAMP, _attribute("scheduled_enqueue_time")),
    Column("expires_at", ColumnType.TIMESTAMP, _attribute("expires_at")),
    Column("time_to_live_ms", ColumnType.LONG, _ttl),
    Column("locked_until", ColumnType.TIMESTAMP, _attribute("locked_until")),
    Column("delivery_count", ColumnType.INT, _attribute("delivery_count")),
    Column("state", ColumnType.STRING, _text("state")),
    Column("dead_letter_reason", ColumnType.STRING, _attribute("dead_letter_reason")),
    Column("dead_letter_error_description", ColumnType.STRING, _attribute("dead_letter_error_description")),
    Column("dead_letter_source", ColumnType.STRING, _attribute("dead_letter_source")),
    Column("resubmit_count", ColumnType.INT, _attribute("resubmit_count")),
    Column("body", ColumnType.BINARY, _attribute("body")),
    Column("body_type", ColumnType.STRING, _text("body_type")),
    Column(_BODY_TEXT, ColumnType.STRING, _attribute("body_text")),
    Column("application_properties", ColumnType.STRING_MAP, _properties),
    Column("application_property_types", ColumnType.STRING_MAP, _property_types),
    Column("extras", ColumnType.BINARY, lambda message: extras_to_bytes(message.extras)),
)

_SENT_TEXTS: Final = (
    "message_id", "session_id", "partition_key", "correlation_id", "subject", "content_type", "content_encoding",
    "to", "reply_to", "reply_to_session_id",
)  # fmt: skip
_SENT_FIELDS: Final = (
    "body", "body_type", "application_properties", "time_to_live", "scheduled_enqueue_time", "extras", *_SENT_TEXTS,
)  # fmt: skip
_BODY_COLUMNS: Final = ("body", "body_text", "body_type")
PROPERTY_COLUMNS: Final = ("application_properties", "application_property_types")
SENT_COLUMNS: Final = frozenset(
    {*_SENT_TEXTS, *_BODY_COLUMNS, *PROPERTY_COLUMNS, "time_to_live_ms", "scheduled_enqueue_time", "extras"}
)
"""The columns that a sender writes; the others are set by the service."""
_PEEKED_COLUMNS: Final = (
    "entity", "sequence_number", "enqueued_sequence_number", "enqueued_time", "expires_at", "delivery_count", "state",
    "dead_letter_source",
)  # fmt: skip
PEEKED_COLUMNS: Final = SENT_COLUMNS | {*_PEEKED_COLUMNS}
"""The columns from which a peeked message is built."""
_NOTHING: Final[Mapping[str, AmqpValue]] = MappingProxyType({})


def columns_of(messages: Iterable[Message], unpacking: Allowance | None = None) -> dict[str, list[Any]]:
    """Return the messages as columns: a list of values by column name, all of the same length."""
    held = list(messages)
    allowance = unpacking or Allowance(UNPACKED_BYTES_OF_TABLE)
    return {column.name: values_of(column, held, allowance) for column in COLUMNS}


def values_of(column: Column, messages: Sequence[Message], unpacking: Allowance) -> list[Any]:
    if column.name != _BODY_TEXT:
        return [column.read(message) for message in messages]
    return [body_text(message.body, message.marks, unpacking) for message in messages]


def message_from_row(row: Mapping[str, Any]) -> Message:
    """Build the message that a sender would write, from a row with some or all of the columns."""
    return messages_from_columns({name: [value] for name, value in row.items()}, 1)[0]


def messages_from_columns(columns: Mapping[str, Sequence[Any]], count: int) -> list[Message]:
    return [Message(**dict(zip(_SENT_FIELDS, values, strict=True))) for values in _sent(columns, count)]


def peeked_from_columns(columns: Mapping[str, Sequence[Any]], count: int) -> list[PeekedMessage]:
    """Build the message that was peeked from each row, with what the service set."""
    entities = {text: EntityAddress.parse(text) for text in {*columns["entity"]}}
    states = {text: _choice(text, "state", MessageState.ACTIVE) for text in {*columns.get("state", ())}}
    own = (columns.get(name) or repeat(None, count) for name in _PEEKED_COLUMNS)
    rows = zip(_sent(columns, count), zip(*own, strict=True), strict=False)
    return [
        PeekedMessage(
            entity=entities[entity],
            sequence_number=number,
            enqueued_sequence_number=enqueued_number,
            enqueued_time=enqueued,
            expires_at=expires,
            delivery_count=deliveries or 0,
            state=states.get(state, MessageState.ACTIVE),
            dead_letter_source=source,
            **dict(zip(_SENT_FIELDS, values, strict=True)),
        )
        for values, (entity, number, enqueued_number, enqueued, expires, deliveries, state, source) in rows
    ]


def _sent(columns: Mapping[str, Sequence[Any]], count: int) -> Iterator[tuple[Any, ...]]:
    """Yield what a sender writes, row by row, in the order of ``_SENT_FIELDS``."""
    texts = (map(_text_or_none, columns[name]) if name in columns else repeat(None) for name in _SENT_TEXTS)
    bodies, types = _bodies(columns, count)
    return zip(
        bodies,
        types,
        _property_maps(columns, count),
        _each(columns, "time_to_live_ms", _life, None),
        _each(columns, "scheduled_enqueue_time", _time, None),
        _each(columns, "extras", _extras_from, _NOTHING),
        *texts,
        strict=False,
    )


def _each(
    columns: Mapping[str, Sequence[Any]], name: str, read: Callable[[Any, str], Any], nothing: Any
) -> Iterator[Any]:
    values = columns.get(name)
    if values is None:
        return repeat(nothing)
    return (nothing if value is None or _is_missing(value) else read(value, name) for value in values)


def _bodies(columns: Mapping[str, Sequence[Any]], count: int) -> tuple[Iterable[Any], Iterable[BodyType]]:
    given = {name: columns[name] for name in _BODY_COLUMNS if name in columns}
    bodies, types = given.get("body", ()), given.get("body_type", ())
    if bodies and set(map(type, bodies)) == {bytes} and all(kind in (None, BodyType.DATA.value) for kind in types):
        return bodies, repeat(BodyType.DATA)
    found = [_body({name: values[row] for name, values in given.items()}) for row in range(count)]
    return [body for body, _ in found], [kind for _, kind in found]


def _property_maps(columns: Mapping[str, Sequence[Any]], count: int) -> Iterator[Mapping[str, AmqpValue]]:
    given = (columns.get(name) or repeat(None, count) for name in PROPERTY_COLUMNS)
    for value, kind in zip(*given, strict=True):
        texts = _map(value, PROPERTY_COLUMNS[0])
        types = {} if kind is None else _map(kind, PROPERTY_COLUMNS[1])
        values = {name: from_text(text, types.get(name)) for name, text in texts.items()} if types else texts
        yield MappingProxyType(values)


def _life(value: Any, name: str) -> timedelta:
    try:
        return timedelta(milliseconds=int(value))
    except (TypeError, ValueError, OverflowError):
        raise _misfit(name, "whole milliseconds of less than a billion days", value) from None


def _body(row: Mapping[str, Any]) -> tuple[Any, BodyType]:
    """Return the body, as bytes or as a text that its message writes as bytes, and its type."""
    body_type = _choice(row.get("body_type"), "body_type", BodyType.DATA)
    name = "body_text" if _is_missing(row.get("body")) else "body"
    body = row.get(name)
    if _is_missing(body):
        return b"", body_type
    if not isinstance(body, (bytes, bytearray, str)):
        raise _misfit(name, "bytes or text", body)
    return body, body_type


def _extras_from(value: Any, name: str) -> dict[str, AmqpValue]:
    if not isinstance(value, (bytes, bytearray)):
        raise _misfit(name, "bytes", value)
    return extras_from_bytes(value)


# ------------------------------------------------------------ one value of a row


def _is_missing(value: Any) -> bool:
    # pandas has several values for a missing one.
    is_nothing = value is None or type(value).__name__ in ("NaTType", "NAType")
    return is_nothing or (isinstance(value, float) and math.isnan(value))


def _text_or_none(value: Any) -> str | None:
    if value is None or type(value) is str:  # nearly always
        return value
    return None if _is_missing(value) else str(value)


def _time(value: Any, name: str) -> datetime:
    if not isinstance(value, datetime):
        raise _misfit(name, "timestamps", value)
    # Made anew, because pandas has a class of its own for moments.
    return datetime.combine(value.date(), value.time(), value.tzinfo or UTC)


def _choice(value: Any, name: str, default: _E) -> _E:
    try:
        return default if _is_missing(value) else type(default)(value)
    except ValueError:
        raise _misfit(name, " or ".join(type(default)), value) from None


def _map(value: Any, name: str) -> dict[str, Any]:
    # Arrow gives maps as lists of pairs, Spark and pandas as dicts.
    try:
        return {} if _is_missing(value) else dict(value)
    except (TypeError, ValueError):
        raise _misfit(name, "maps", value) from None


def _misfit(name: str, holds: str, value: Any) -> ConfigurationError:
    return ConfigurationError(f"The column {name} holds {holds}, not {str(value)[:_SHOWN]!r}.")
