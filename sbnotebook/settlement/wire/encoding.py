"""Messages as the AMQP bytes that a sender transfers; :mod:`sbnotebook.settlement.wire.conversion` reads them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise
from typing import Any

from sbnotebook.errors import AmqpDecodeError, ConfigurationError
from sbnotebook.model import BodyType, Message
from sbnotebook.model.amqp import AmqpValue, Symbol, Timestamp, UInt, skip
from sbnotebook.model.message import DATA_SECTIONS, EXTRAS, PROPERTY_EXTRAS, PROPERTY_NAMES
from sbnotebook.model.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    encode_section,
    section_head,
)
from sbnotebook.settlement.wire.layout import (
    DELIVERY_COUNT,
    HEADER_FIELDS,
    LAST_MOMENT,
    MAPS,
    MAX_TTL,
    MILLISECOND,
    PARTITION_KEY,
    PROPERTY_FIELDS,
    SCHEDULED_TIME,
    SERVICES_OWN,
    TTL,
    as_text,
    as_time,
    usual,
)

__all__ = ["payload_of"]


def payload_of(message: Message) -> bytes:
    """The AMQP bytes of a message as a sender writes it.

    What only the service can set is left out, so that a peeked message can be sent as it is. So is an absolute expiry
    that is over, or that does not fit the time to live any more: the service would go by it
    (azure-sdk-for-python issue 17970).

    Raises:
        AmqpDecodeError: the bytes of a value or sequence body are not one, or the message is one that was unreadable.
        ConfigurationError: there is no such extra, or it is of the wrong type.
        TypeError: a property value that AMQP has no type for.
        OverflowError: a number that its AMQP type cannot hold.
    """
    if not message.extras and _is_plain(message):
        return _plain_payload(message)
    if message.extras:
        _check_extras(message)
    parts = [_header(message), _annotations(message, "delivery_annotations"), _message_annotations(message)]
    properties = _properties(message)
    if properties:
        parts.append(encode_section(PROPERTIES, properties))
    if message.application_properties:
        parts.append(encode_section(APPLICATION_PROPERTIES, _application_properties(message)))
    parts.append(_body_section(message))
    parts.append(_annotations(message, "footer"))
    return b"".join(parts) or encode_section(DATA, b"")


def _is_plain(message: Message) -> bool:
    return (
        message.time_to_live is None
        and message.partition_key is None
        and message.scheduled_enqueue_time is None
        and message.body_type is BodyType.DATA
    )


def _plain_payload(message: Message) -> bytes:
    """The same for a message without extras that has no other sections than properties and data, as most are.

    It takes a third of the time, which is the largest part of what a message costs on its way.
    """
    kind, encoding = message.content_type, message.content_encoding
    properties = _without_nulls_at_end(
        [  # in the order of PROPERTY_FIELDS
            message.message_id,
            None,
            message.to,
            message.subject,
            message.reply_to,
            message.correlation_id,
            None if kind is None else usual("content_type", kind),
            None if encoding is None else usual("content_encoding", encoding),
            None,
            None,
            message.session_id,
            None,
            message.reply_to_session_id,
        ]
    )
    named = message.application_properties
    return b"".join(
        (
            encode_section(PROPERTIES, properties) if properties else b"",
            encode_section(APPLICATION_PROPERTIES, dict(named)) if named else b"",
            encode_section(DATA, message.body),
        )
    )


def _check_extras(message: Message) -> None:
    extras = message.extras
    if message.unreadable is not None:
        raise AmqpDecodeError(f"The message could not be read, so it cannot be sent: {message.unreadable}")
    strange = extras.keys() - EXTRAS
    if strange:
        name = str(min(strange, key=str))[:60]
        raise ConfigurationError(f"There is no extra {name!r} of a message: {', '.join(sorted(EXTRAS))}.")
    for name in (*MAPS, PROPERTY_NAMES, DATA_SECTIONS):
        kind = list if name == DATA_SECTIONS else dict
        if not isinstance(extras.get(name), kind | None):
            raise ConfigurationError(f"The extra {name} of a message is a {kind.__name__}.")


def _header(message: Message) -> bytes:
    ttl = message.time_to_live
    values: list[AmqpValue] = [message.extras.get(name) for name in HEADER_FIELDS]
    values[TTL] = None if ttl is None else UInt(min(ttl // MILLISECOND, MAX_TTL))
    values[DELIVERY_COUNT] = None
    values = _without_nulls_at_end(values)
    return encode_section(HEADER, values) if values else b""


def _message_annotations(message: Message) -> bytes:
    values: dict[AmqpValue, AmqpValue] = {}
    own: Any = message.extras.get("message_annotations") or {}
    key, when = own.get(PARTITION_KEY), own.get(SCHEDULED_TIME)
    if message.partition_key is not None:
        values[PARTITION_KEY] = key if as_text(key) == message.partition_key else message.partition_key
    if when is not None and as_time(when) == message.scheduled_enqueue_time:
        values[SCHEDULED_TIME] = when
    elif message.scheduled_enqueue_time is not None:
        values[SCHEDULED_TIME] = Timestamp.from_datetime(message.scheduled_enqueue_time)
    return _annotations(message, "message_annotations", values)


def _annotations(message: Message, name: str, values: dict[AmqpValue, AmqpValue] | None = None) -> bytes:
    """A section that is a map, with what has a field of its own first."""
    values = values or {}
    own: Any = message.extras.get(name) or {}
    for key, value in own.items():
        if key not in SERVICES_OWN and key not in (PARTITION_KEY, SCHEDULED_TIME):
            # Keys of annotations are symbols or numbers (section 3.2.10), whatever a user wrote.
            values[Symbol(key) if type(key) is str else key] = value
    return encode_section(MAPS[name], values) if values else b""


def _properties(message: Message) -> list[AmqpValue]:
    extras = message.extras
    values = [extras.get(name) if name in PROPERTY_EXTRAS else _property(message, name) for name in PROPERTY_FIELDS]
    if message.time_to_live is not None or extras:
        expiry, creation = PROPERTY_FIELDS.index("absolute_expiry_time"), PROPERTY_FIELDS.index("creation_time")
        values[creation], values[expiry] = _life(message.time_to_live, values[creation], values[expiry])
    return _without_nulls_at_end(values)


def _property(message: Message, name: str) -> AmqpValue:
    text: str | None = getattr(message, name)
    if text is None:
        return None
    typed = message.extras.get(name)
    return typed if typed is not None and as_text(typed) == text else usual(name, text)


def _life(ttl: timedelta | None, creation: AmqpValue, expiry: AmqpValue) -> tuple[AmqpValue, AmqpValue]:
    """When the message was made and when it expires, as they are sent."""
    now = Timestamp.from_datetime(datetime.now(UTC))
    milliseconds = None if ttl is None else ttl // MILLISECOND
    if isinstance(expiry, Timestamp) and expiry <= now:
        expiry = None
    if milliseconds is not None and milliseconds > MAX_TTL:
        # It does not fit into the header: these two say it (azure-sdk-for-python issue 33674).
        start = creation if isinstance(creation, Timestamp) and creation + milliseconds > now else now
        return start, Timestamp(min(start + milliseconds, LAST_MOMENT))
    if milliseconds is not None and isinstance(creation, Timestamp) and isinstance(expiry, Timestamp):
        expiry = expiry if expiry - creation == milliseconds else None
    return creation, expiry


def _without_nulls_at_end(values: list[AmqpValue]) -> list[AmqpValue]:
    while values and values[-1] is None:
        values.pop()
    return values


def _application_properties(message: Message) -> dict[Any, AmqpValue]:
    names: Any = message.extras.get(PROPERTY_NAMES)
    if not names:
        return dict(message.application_properties)
    return {names.get(name, name): value for name, value in message.application_properties.items()}


def _body_section(message: Message) -> bytes:
    if message.body_type is BodyType.DATA:
        return b"".join(encode_section(DATA, part) for part in _data(message))
    if message.body_type is BodyType.VALUE:
        if skip(message.body) != len(message.body):
            raise AmqpDecodeError("The body is more than one AMQP value.")
        return section_head(VALUE) + message.body
    sequences: Any = message.body_value or [[]]
    return b"".join(encode_section(SEQUENCE, sequence) for sequence in sequences)


def _data(message: Message) -> list[bytes]:
    """The body, cut as it came, if that still fits it."""
    body = message.body
    written: Any = message.extras.get(DATA_SECTIONS)
    sizes = [size for size in written or () if isinstance(size, int) and size >= 0]
    if written is None or len(sizes) != len(written) or sum(sizes) != len(body):
        return [body]
    ends = [*accumulate(sizes, initial=0)]
    return [body[start:end] for start, end in pairwise(ends)]
