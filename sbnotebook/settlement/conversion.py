"""Messages as the AMQP bytes that travel, and back, with every value's type.

The SDK's own classes lose types: what it received as ``long``, ``timestamp`` or ``string`` comes out as ``int``,
``int`` and ``bytes``, and cannot be sent again as what it was. So the bytes are read and written here.

Sources: AMQP 1.0 part 3, section 3.2 (message format); Service Bus documentation, "AMQP 1.0 in Azure Service Bus
protocol guide" (message annotations).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar, get_origin
from uuid import UUID

from sbnotebook.errors import AmqpDecodeError
from sbnotebook.model import BodyType, EntityAddress, LockedMessage, Message, MessageState, PeekedMessage
from sbnotebook.model.amqp import AmqpValue, Symbol, Timestamp, UInt, encode, skip, type_name
from sbnotebook.model.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    section_value,
    split,
)

__all__ = ["locked_from_payload", "payload_of", "peeked_from_payload"]

_SEQUENCE_NUMBER: Final = Symbol("x-opt-sequence-number")
_ENQUEUED_SEQUENCE_NUMBER: Final = Symbol("x-opt-enqueue-sequence-number")
_ENQUEUED_TIME: Final = Symbol("x-opt-enqueued-time")
_LOCKED_UNTIL: Final = Symbol("x-opt-locked-until")
_SCHEDULED_TIME: Final = Symbol("x-opt-scheduled-enqueue-time")
_PARTITION_KEY: Final = Symbol("x-opt-partition-key")
_STATE: Final = Symbol("x-opt-message-state")
_DEAD_LETTER_SOURCE: Final = Symbol("x-opt-deadletter-source")

_STATES: Final = {0: MessageState.ACTIVE, 1: MessageState.DEFERRED, 2: MessageState.SCHEDULED}
_MILLISECOND: Final = timedelta(milliseconds=1)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_MAX_TTL: Final = 2**32 - 1
_MAX_COUNT: Final = 2**31 - 1

# Positions in the list of the properties section (AMQP 1.0 section 3.2.4).
_MESSAGE_ID, _TO, _SUBJECT, _REPLY_TO, _CORRELATION_ID = 0, 2, 3, 4, 5
_CONTENT_TYPE, _CONTENT_ENCODING, _GROUP_ID, _REPLY_TO_GROUP_ID = 6, 7, 10, 12
_PROPERTY_COUNT: Final = 13
# Positions in the list of the header (section 3.2.1).
_TTL, _DELIVERY_COUNT = 2, 4

_T = TypeVar("_T")


def peeked_from_payload(payload: bytes, entity: EntityAddress) -> PeekedMessage:
    """A peeked message from its AMQP bytes.

    Args:
        payload: the encoded message, with the annotations that the service added.
        entity: where it was peeked.

    Raises:
        AmqpDecodeError: the bytes are not a message.
    """
    fields, _ = _read(payload, entity)
    return PeekedMessage(**fields)


def locked_from_payload(payload: bytes, entity: EntityAddress, lock_token: UUID) -> LockedMessage:
    """A locked message from its AMQP bytes and the token of its lock.

    Raises:
        AmqpDecodeError: the bytes are not a message.
    """
    fields, annotations = _read(payload, entity)
    return LockedMessage(lock_token=lock_token, locked_until=_time(annotations.get(_LOCKED_UNTIL)), **fields)


def payload_of(message: Message) -> bytes:
    """The AMQP bytes of a message as a sender writes it.

    What only the service can set is left out, so that a peeked message can be sent as it is.

    Raises:
        AmqpDecodeError: the bytes of a value or sequence body are not one.
        TypeError: a property value that AMQP has no type for.
        OverflowError: a number that its AMQP type cannot hold.
    """
    parts: list[bytes] = []
    if message.time_to_live is not None:
        ttl = min(message.time_to_live // _MILLISECOND, _MAX_TTL)
        parts.append(_section(HEADER, [None, None, UInt(ttl)]))
    annotations: dict[AmqpValue, AmqpValue] = {}
    if message.partition_key is not None:
        annotations[_PARTITION_KEY] = message.partition_key
    if message.scheduled_enqueue_time is not None:
        annotations[_SCHEDULED_TIME] = Timestamp.from_datetime(message.scheduled_enqueue_time)
    if annotations:
        parts.append(_section(MESSAGE_ANNOTATIONS, annotations))
    properties = _properties(message)
    if properties:
        parts.append(_section(PROPERTIES, properties))
    if message.application_properties:
        parts.append(_section(APPLICATION_PROPERTIES, dict(message.application_properties)))
    parts.append(_body_section(message))
    return b"".join(parts)


def _properties(message: Message) -> list[AmqpValue]:
    values: list[AmqpValue] = [None] * _PROPERTY_COUNT
    values[_MESSAGE_ID] = message.message_id
    values[_TO] = message.to
    values[_SUBJECT] = message.subject
    values[_REPLY_TO] = message.reply_to
    values[_CORRELATION_ID] = message.correlation_id
    values[_CONTENT_TYPE] = _symbol(message.content_type)
    values[_CONTENT_ENCODING] = _symbol(message.content_encoding)
    values[_GROUP_ID] = message.session_id
    values[_REPLY_TO_GROUP_ID] = message.reply_to_session_id
    while values and values[-1] is None:
        values.pop()
    return values


def _symbol(text: str | None) -> str | None:
    # The specification has a symbol here; a text that is not ASCII can only be carried as a string.
    return Symbol(text) if text is not None and text.isascii() else text


def _body_section(message: Message) -> bytes:
    if message.body_type is BodyType.DATA:
        return _section(DATA, message.body)
    if message.body_type is BodyType.VALUE:
        if skip(message.body) != len(message.body):
            raise AmqpDecodeError("The body is more than one AMQP value.")
        return _descriptor(VALUE) + message.body
    sequences: Any = message.body_value or [[]]
    return b"".join(_section(SEQUENCE, sequence) for sequence in sequences)


def _descriptor(code: int) -> bytes:
    return bytes((0x00, 0x53, code))


def _section(code: int, value: AmqpValue) -> bytes:
    return _descriptor(code) + encode(value)


# ------------------------------------------------------------------ reading


def _read(payload: bytes, entity: EntityAddress) -> tuple[dict[str, Any], dict[Any, Any]]:
    found: dict[int, Any] = {}
    bodies: list[bytes] = []
    body_type = BodyType.DATA
    for section in split(payload):
        if section.code in (SEQUENCE, VALUE):
            body_type = BodyType.VALUE if section.code == VALUE else BodyType.SEQUENCE
            bodies.append(payload[section.value_start : section.end])
            continue
        value = section_value(payload, section)
        if section.code == DATA:
            bodies.append(_as(bytes, value))
        else:
            found[section.code] = value
    annotations = _as(dict[Any, Any], found.get(MESSAGE_ANNOTATIONS))
    properties = _as(dict[Any, Any], found.get(APPLICATION_PROPERTIES))
    fields = _property_fields(_as(list[Any], found.get(PROPERTIES)))
    fields |= _broker_fields(_as(list[Any], found.get(HEADER)), annotations)
    fields["application_properties"] = {str(_text(name)): value for name, value in properties.items()}
    return fields | {"entity": entity, "body": b"".join(bodies), "body_type": body_type}, annotations


def _as(kind: type[_T], value: Any) -> _T:
    """The section's value, an empty one where there is none."""
    if value is None:
        return kind()
    if not isinstance(value, get_origin(kind) or kind):
        raise AmqpDecodeError(f"A message section holds a {type_name(value)} where it cannot.")
    return value


def _property_fields(properties: list[Any]) -> dict[str, Any]:
    padded = properties + [None] * (_PROPERTY_COUNT - len(properties))
    return {
        "message_id": _text(padded[_MESSAGE_ID]),
        "to": _text(padded[_TO]),
        "subject": _text(padded[_SUBJECT]),
        "reply_to": _text(padded[_REPLY_TO]),
        "correlation_id": _text(padded[_CORRELATION_ID]),
        "content_type": _text(padded[_CONTENT_TYPE]),
        "content_encoding": _text(padded[_CONTENT_ENCODING]),
        "session_id": _text(padded[_GROUP_ID]),
        "reply_to_session_id": _text(padded[_REPLY_TO_GROUP_ID]),
    }


def _broker_fields(header: list[Any], annotations: dict[Any, Any]) -> dict[str, Any]:
    padded = header + [None] * (_DELIVERY_COUNT + 1 - len(header))
    milliseconds = _whole(padded[_TTL])
    ttl = None if milliseconds is None else min(milliseconds, _MAX_TTL) * _MILLISECOND
    enqueued = _time(annotations.get(_ENQUEUED_TIME))
    return {
        "sequence_number": _whole(annotations.get(_SEQUENCE_NUMBER)) or 0,
        "enqueued_sequence_number": _whole(annotations.get(_ENQUEUED_SEQUENCE_NUMBER)),
        "enqueued_time": enqueued,
        "expires_at": _expiry(enqueued, ttl),
        "time_to_live": ttl,
        "delivery_count": min(_whole(padded[_DELIVERY_COUNT]) or 0, _MAX_COUNT),
        "state": _STATES.get(_whole(annotations.get(_STATE)) or 0, MessageState.ACTIVE),
        "scheduled_enqueue_time": _time(annotations.get(_SCHEDULED_TIME)),
        "partition_key": _text(annotations.get(_PARTITION_KEY)),
        "dead_letter_source": _text(annotations.get(_DEAD_LETTER_SOURCE)),
    }


# Where a value of an unexpected type stands, the field is as if it were not there: one odd message must not hide the
# others from who looks into a queue.


def _text(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value) if not isinstance(value, str) else "".join(value)


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int) else None


def _time(stamp: Any) -> datetime | None:
    if not isinstance(stamp, Timestamp):
        return None
    try:
        return stamp.to_datetime()
    except OverflowError:
        return _LAST if stamp > 0 else _FIRST


def _expiry(enqueued: datetime | None, ttl: timedelta | None) -> datetime | None:
    if enqueued is None or ttl is None:
        return None
    try:
        return enqueued + ttl
    except OverflowError:  # the service's "never" is longer than the calendar
        return None
