"""The one list of message columns, and messages as rows of it.

A row holds plain Python values; :mod:`sbnotebook.client.frames` makes Arrow and pandas of them. Together the
columns are lossless: a message that became a row and a message again is the same, AMQP types included.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Final
from uuid import UUID

from sbnotebook.errors import ConfigurationError
from sbnotebook.model.address import EntityAddress
from sbnotebook.model.amqp import AmqpValue, Float, Timestamp, decode_exactly, encode, type_name
from sbnotebook.model.amqp.types import type_names
from sbnotebook.model.body import BodyType
from sbnotebook.model.message import Message, MessageState, PeekedMessage

__all__ = ["COLUMNS", "Column", "ColumnType", "columns_of", "message_from_row", "peeked_from_row"]


class ColumnType(Enum):
    """What a column holds; each surface has one type of its own for each of these."""

    STRING = "string"
    INT = "int"
    LONG = "long"
    TIMESTAMP = "timestamp"
    BINARY = "binary"
    STRING_MAP = "map of strings"


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, what it holds, and how it is read from a message."""

    name: str
    type: ColumnType
    read: Callable[[Any], Any]


def _attribute(name: str) -> Callable[[Any], Any]:
    return lambda message: getattr(message, name, None)


def _text(name: str) -> Callable[[Any], Any]:
    def read(message: Any) -> str | None:
        value = getattr(message, name, None)
        return None if value is None else str(value)

    return read


def _ttl(message: Message) -> int | None:
    ttl = message.time_to_live
    return None if ttl is None else ttl // timedelta(milliseconds=1)


def _properties(message: Message) -> dict[str, str | None]:
    return {name: _to_text(value) for name, value in message.application_properties.items()}


def _property_types(message: Message) -> dict[str, str]:
    named = ((name, type_name(value)) for name, value in message.application_properties.items())
    return {name: kind for name, kind in named if kind != "string"}


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
    Column("body_text", ColumnType.STRING, _attribute("body_text")),
    Column("application_properties", ColumnType.STRING_MAP, _properties),
    Column("application_property_types", ColumnType.STRING_MAP, _property_types),
)

_SENT_TEXTS: Final = (
    "message_id", "session_id", "partition_key", "correlation_id", "subject", "content_type", "content_encoding",
    "to", "reply_to", "reply_to_session_id",
)  # fmt: skip


def columns_of(messages: Iterable[Message]) -> dict[str, list[Any]]:
    """The messages as columns: a list of values by column name, all of the same length."""
    held = list(messages)
    return {column.name: [column.read(message) for message in held] for column in COLUMNS}


def message_from_row(row: Mapping[str, Any]) -> Message:
    """The message that a sender would write, from a row with some or all of the columns.

    Args:
        row: values by column name. The body is ``body``, or ``body_text`` where there is no ``body``; columns
            that only the service can set are ignored, and so are columns of other names.

    Raises:
        ConfigurationError: a value does not fit its column.
    """
    return Message(**_sent_fields(row))


def peeked_from_row(row: Mapping[str, Any]) -> PeekedMessage:
    """The message that was peeked, from a row with at least ``entity`` and ``sequence_number``.

    Raises:
        ConfigurationError: one of the two is missing, or a value does not fit its column.
    """
    if _value(row, "entity") is None or _value(row, "sequence_number") is None:
        raise ConfigurationError("A row of a peeked message needs the columns entity and sequence_number.")
    own = _value(row, "enqueued_sequence_number")
    return PeekedMessage(
        entity=EntityAddress.parse(row["entity"]),
        sequence_number=int(row["sequence_number"]),
        enqueued_sequence_number=None if own is None else int(own),
        enqueued_time=_time(row, "enqueued_time"),
        expires_at=_time(row, "expires_at"),
        delivery_count=int(_value(row, "delivery_count") or 0),
        state=MessageState(_value(row, "state") or MessageState.ACTIVE),
        dead_letter_source=_value(row, "dead_letter_source"),
        **_sent_fields(row),
    )


def _sent_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name in _SENT_TEXTS:
        value = _value(row, name)
        fields[name] = None if value is None else str(value)
    ttl = _value(row, "time_to_live_ms")
    fields["time_to_live"] = None if ttl is None else timedelta(milliseconds=int(ttl))
    fields["scheduled_enqueue_time"] = _time(row, "scheduled_enqueue_time")
    fields["body"], fields["body_type"] = _body(row)
    fields["application_properties"] = _properties_from(row)
    return fields


def _body(row: Mapping[str, Any]) -> tuple[bytes, BodyType]:
    kind = _value(row, "body_type") or BodyType.DATA
    try:
        body_type = BodyType(kind)
    except ValueError:
        raise ConfigurationError(f"body_type is data, value or sequence, not {str(kind)[:40]!r}.") from None
    body = _value(row, "body")
    if body is None:
        body = _value(row, "body_text") or b""
    if isinstance(body, str):
        body = body.encode()
    if not isinstance(body, (bytes, bytearray)):
        raise ConfigurationError(f"The column body holds bytes or text, not {type(body).__name__}.")
    return bytes(body), body_type


def _properties_from(row: Mapping[str, Any]) -> dict[str, AmqpValue]:
    # Arrow gives maps as lists of pairs, Spark and pandas as dicts.
    values: dict[str, Any] = dict(_value(row, "application_properties") or ())
    kinds: dict[str, str] = dict(_value(row, "application_property_types") or ())
    return {name: _from_text(value, kinds.get(name)) for name, value in values.items()}


def _value(row: Mapping[str, Any], name: str) -> Any:
    value = row.get(name)
    # pandas writes NaN and NaT for what is missing; neither equals itself.
    return None if isinstance(value, (float, datetime)) and value != value else value  # noqa: PLR0124


def _time(row: Mapping[str, Any], name: str) -> datetime | None:
    value = _value(row, name)
    if value is None or str(value) == "NaT":
        return None
    if not isinstance(value, datetime):
        raise ConfigurationError(f"The column {name} holds timestamps, not {type(value).__name__}.")
    return value if value.tzinfo else value.replace(tzinfo=UTC)


# ------------------------------------------------------- property values as text and back

_CLASSES: Final = {name: kind for kind, name in type_names.items()}
_NESTED: Final = frozenset({"list", "map", "array", "described"})
_RAW: Final = frozenset({"binary", "decimal32", "decimal64", "decimal128"})


def _to_text(value: AmqpValue) -> str | None:
    kind = type_name(value)
    if kind == "null":
        return None
    if kind in _NESTED:
        return base64.b64encode(encode(value)).decode()
    if kind in _RAW:
        return base64.b64encode(bytes(value)).decode()  # pyright: ignore[reportArgumentType, reportCallIssue]
    if kind == "boolean":
        return "true" if value else "false"
    if kind == "timestamp":
        return _timestamp_text(value)
    if kind in ("float", "double"):
        return float.__repr__(float(value))  # pyright: ignore[reportArgumentType]
    return int.__repr__(value) if isinstance(value, int) else str(value)


def _timestamp_text(value: Any) -> str:
    stamp = Timestamp.from_datetime(value) if isinstance(value, datetime) else Timestamp(value)
    try:
        return stamp.to_datetime().isoformat(timespec="milliseconds")
    except OverflowError:
        return int.__repr__(stamp)


def _from_text(text: Any, kind: str | None) -> AmqpValue:
    if kind is None:
        return text
    try:
        return _parse(str(text), kind)
    except (ValueError, KeyError, OverflowError):
        raise ConfigurationError(f"{str(text)[:60]!r} is not a property value of the AMQP type {kind!r}.") from None


def _parse(text: str, kind: str) -> AmqpValue:
    if kind == "null":
        return None
    if kind in _NESTED:
        return decode_exactly(base64.b64decode(text, validate=True))
    if kind in _RAW:
        return _CLASSES[kind](base64.b64decode(text, validate=True))
    if kind == "boolean":
        return {"true": True, "false": False}[text]
    if kind == "timestamp":
        return _parse_timestamp(text)
    return {"uuid": UUID, "float": Float}.get(kind, _CLASSES[kind])(text)


def _parse_timestamp(text: str) -> AmqpValue:
    try:
        return Timestamp.from_datetime(datetime.fromisoformat(text))
    except ValueError:
        return Timestamp(int(text))
