"""Messages from the AMQP bytes that travel, with every value's type.

The SDK's own classes lose types: what it received as ``long``, ``timestamp`` or ``string`` comes out as ``int``,
``int`` and ``bytes``, and cannot be sent again as what it was. So the bytes are read here, and written in
:mod:`sbnotebook.settlement.encoding`. What a message has no field for is kept in its ``extras``.

Sources: AMQP 1.0 part 3, section 3.2 (message format); Service Bus documentation, "AMQP 1.0 in Azure Service Bus
protocol guide" (message annotations).
"""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta
from types import MappingProxyType, NoneType
from typing import Any, Final, NoReturn
from uuid import UUID

from sbnotebook.errors import AmqpDecodeError
from sbnotebook.model import BodyType, EntityAddress, LockedMessage, MessageState, PeekedMessage
from sbnotebook.model.amqp import AmqpValue, Timestamp, ULong, type_name
from sbnotebook.model.extras import DATA_SECTIONS, HEADER_EXTRAS, PROPERTY_EXTRAS, PROPERTY_NAMES, UNREADABLE
from sbnotebook.model.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    VALUE,
    Section,
    readable_items,
    readable_start,
    section_value,
    section_values,
)
from sbnotebook.settlement.encoding import payload_of
from sbnotebook.settlement.layout import (
    DEAD_LETTER_SOURCE,
    DELIVERY_COUNT,
    ENQUEUED_SEQUENCE_NUMBER,
    ENQUEUED_TIME,
    FIRST_MOMENT,
    HEADER_FIELDS,
    LAST_MOMENT,
    LOCKED_UNTIL,
    MAPS,
    MAX_TTL,
    MILLISECOND,
    PARTITION_KEY,
    PROPERTY_FIELDS,
    SCHEDULED_TIME,
    SEQUENCE_NUMBER,
    SERVICES_OWN,
    STATE,
    TTL,
    as_text,
    as_time,
    usual,
)

__all__ = ["locked_from_payload", "payload_of", "peeked_from_payload"]

_STATES: Final = {0: MessageState.ACTIVE, 1: MessageState.DEFERRED, 2: MessageState.SCHEDULED}
_MAX_COUNT: Final = 2**31 - 1
_REASON: Final = 200
"""Characters of the sentence that says why a message cannot be read."""


def peeked_from_payload(payload: bytes, entity: EntityAddress) -> PeekedMessage:
    """A peeked message from its AMQP bytes; bytes that are no message become one that says so in ``unreadable``.

    Args:
        payload: the encoded message, with the annotations that the service added.
        entity: where it was peeked.
    """
    fields, _ = _read_or_say_why(payload, entity)
    return PeekedMessage(**fields)


def locked_from_payload(payload: bytes, entity: EntityAddress, lock_token: UUID) -> LockedMessage:
    """A locked message from its AMQP bytes and the token of its lock: see :func:`peeked_from_payload`."""
    fields, annotations = _read_or_say_why(payload, entity)
    return LockedMessage(lock_token=lock_token, locked_until=as_time(annotations.get(LOCKED_UNTIL)), **fields)


def _read_or_say_why(payload: bytes, entity: EntityAddress) -> tuple[dict[str, Any], dict[Any, Any]]:
    try:
        return _read(payload, entity)
    except AmqpDecodeError as error:
        return _unreadable(payload, entity, str(error))


def _read(payload: bytes, entity: EntityAddress) -> tuple[dict[str, Any], dict[Any, Any]]:
    values, parts = section_values(payload)
    annotations = _as_map(values.get(MESSAGE_ANNOTATIONS))
    header, properties = _as_list(values.get(HEADER)), _as_list(values.get(PROPERTIES))
    extras: dict[str, AmqpValue] = {}
    fields = _broker_fields(header, annotations)
    fields["entity"] = entity
    fields["extras"] = extras
    _read_properties(properties, fields, extras)
    _read_body(payload, parts, fields, extras)
    named_header = zip(HEADER_FIELDS, header, strict=False)
    extras.update((name, value) for name, value in named_header if value is not None and name in HEADER_EXTRAS)
    if "absolute_expiry_time" in extras:
        _read_long_life(fields, extras)
    _read_application_properties(_as_map(values.get(APPLICATION_PROPERTIES)), fields, extras)
    for name, code in MAPS.items():
        if code in values and (own := _senders_own(_as_map(values[code]))):
            extras[name] = own
    return fields, annotations


def _as_map(value: Any) -> dict[Any, Any]:
    """A section that is a map, an empty one where there is none."""
    if value is None:
        return {}
    return value if type(value) is dict else _refuse(value)  # pyright: ignore[reportUnknownVariableType]


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else _refuse(value)  # pyright: ignore[reportUnknownVariableType]


def _as_bytes(value: Any) -> bytes:
    if value is None:
        return b""
    return value if isinstance(value, bytes) else _refuse(value)


def _refuse(value: Any) -> NoReturn:
    raise AmqpDecodeError(f"A message section holds a {type_name(value)} where it cannot.")


def _read_body(payload: bytes, parts: list[Section], fields: dict[str, Any], extras: dict[str, AmqpValue]) -> None:
    codes = {part.code for part in parts}
    if len(codes) > 1:
        raise AmqpDecodeError("The body consists of sections of different kinds.")
    if codes and DATA not in codes:
        fields["body"] = b"".join(payload[part.value_start : part.end] for part in parts)
        fields["body_type"] = BodyType.VALUE if VALUE in codes else BodyType.SEQUENCE
        return
    bodies = [_as_bytes(section_value(payload, part)) for part in parts]
    if len(bodies) == 1:
        fields["body"] = bodies[0]
    else:
        fields["body"] = b"".join(bodies)
        extras[DATA_SECTIONS] = [ULong(len(body)) for body in bodies]


def _read_properties(properties: list[Any], fields: dict[str, Any], extras: dict[str, AmqpValue]) -> None:
    for name, value in zip(PROPERTY_FIELDS, properties, strict=False):
        if value is None:
            continue
        if name in PROPERTY_EXTRAS:
            extras[name] = value
            continue
        fields[name] = text = str(as_text(value))
        if type(value) is not type(usual(name, text)):
            extras[name] = value


def _read_long_life(fields: dict[str, Any], extras: dict[str, AmqpValue]) -> None:
    """Take a time to live that does not fit into the header out of the properties, as the emulator and .NET do."""
    start, end = extras.get("creation_time"), extras.get("absolute_expiry_time")
    at_most = fields["time_to_live"] == MAX_TTL * MILLISECOND
    if at_most and isinstance(start, Timestamp) and isinstance(end, Timestamp) and end - start > MAX_TTL:
        fields["time_to_live"] = min(end - start, LAST_MOMENT) * MILLISECOND
        fields["expires_at"] = _expiry(fields["enqueued_time"], fields["time_to_live"])


def _read_application_properties(named: dict[Any, Any], fields: dict[str, Any], extras: dict[str, AmqpValue]) -> None:
    strange = {str(as_text(name)): name for name in named if type(name) is not str}
    if strange:
        extras[PROPERTY_NAMES] = strange
        named = {str(as_text(name)): value for name, value in named.items()}
    fields["application_properties"] = MappingProxyType(named)


def _senders_own(annotations: dict[Any, Any]) -> dict[Any, Any]:
    """Annotations without the service's, and without those that a field says the same of."""
    own = {key: annotations[key] for key in annotations if key not in SERVICES_OWN}
    if not own:
        return own
    if type(own.get(PARTITION_KEY)) in (str, NoneType):
        own.pop(PARTITION_KEY, None)
    when = own.get(SCHEDULED_TIME)
    if when is None or (isinstance(when, Timestamp) and FIRST_MOMENT <= when <= LAST_MOMENT):
        own.pop(SCHEDULED_TIME, None)
    return own


def _unreadable(payload: bytes, entity: EntityAddress, reason: str) -> tuple[dict[str, Any], dict[Any, Any]]:
    """A message whose body is its own bytes, with what the service says of it, as far as that can be read."""
    header: list[Any] = []
    annotations: dict[Any, Any] = {}
    for part in readable_start(payload):
        if part.code == MESSAGE_ANNOTATIONS:
            annotations = readable_items(payload, part)
        elif part.code == HEADER:
            with contextlib.suppress(AmqpDecodeError):
                header = _as_list(section_value(payload, part))
    fields = _broker_fields(header, annotations)
    fields |= {"entity": entity, "body": payload, "extras": {UNREADABLE: reason[:_REASON]}}
    return fields, annotations


def _broker_fields(header: list[Any], annotations: dict[Any, Any]) -> dict[str, Any]:
    get = annotations.get
    count = len(header)
    milliseconds = _whole(header[TTL]) if count > TTL else None
    ttl = None if milliseconds is None else min(milliseconds, MAX_TTL) * MILLISECOND
    enqueued = as_time(get(ENQUEUED_TIME))
    return {
        "sequence_number": _whole(get(SEQUENCE_NUMBER)) or 0,
        "enqueued_sequence_number": _whole(get(ENQUEUED_SEQUENCE_NUMBER)),
        "enqueued_time": enqueued,
        "expires_at": _expiry(enqueued, ttl),
        "time_to_live": ttl,
        "delivery_count": min(_whole(header[DELIVERY_COUNT]) or 0, _MAX_COUNT) if count > DELIVERY_COUNT else 0,
        "state": _STATES.get(_whole(get(STATE)) or 0, MessageState.ACTIVE),
        "scheduled_enqueue_time": as_time(get(SCHEDULED_TIME)),
        "partition_key": as_text(get(PARTITION_KEY)),
        "dead_letter_source": as_text(get(DEAD_LETTER_SOURCE)),
    }


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int) else None


def _expiry(enqueued: datetime | None, ttl: timedelta | None) -> datetime | None:
    if enqueued is None or ttl is None:
        return None
    try:
        return enqueued + ttl
    except OverflowError:  # the service's "never" is longer than the calendar
        return None
