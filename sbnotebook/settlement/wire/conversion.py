"""Messages from their AMQP bytes, with every value's type.

The SDK's own classes lose types: what it received as ``long``, ``timestamp`` or ``string`` comes out as ``int``,
``int`` and ``bytes``, and cannot be sent again as what it was. So the bytes are read here, and written in
:mod:`sbnotebook.settlement.wire.encoding`. What a message has no field for is kept in its ``extras``.

Sources: AMQP 1.0 part 3, section 3.2 (message format); Service Bus documentation, "AMQP 1.0 in Azure Service Bus
protocol guide" (message annotations).
"""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from sbnotebook.amqp import AmqpValue, Timestamp, ULong
from sbnotebook.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    PROPERTIES,
    SECTIONS,
    VALUE,
    Section,
    section_value,
    section_values,
)
from sbnotebook.errors import AmqpDecodeError
from sbnotebook.model import BodyType, EntityAddress, LockedMessage, PeekedMessage
from sbnotebook.model.amqp_layout import (
    LAST_MOMENT,
    MAPS,
    MAX_TTL,
    MILLISECOND,
    PROPERTY_FIELDS,
    as_bytes,
    as_list,
    as_map,
    as_text,
    senders_own,
    usual,
)
from sbnotebook.model.message import DATA_SECTIONS, PROPERTY_EXTRAS, PROPERTY_NAMES, UNREADABLE
from sbnotebook.settlement.wire.service_part import expiry, read_service_part, what_can_be_read

_UNUSUAL_TEXTS: Final = frozenset({*PROPERTY_EXTRAS, "content_type", "content_encoding"})
_LONGEST: Final = MAX_TTL * MILLISECOND
_NOTHING: Final[MappingProxyType[str, AmqpValue]] = MappingProxyType({})
_REASON: Final = 200
"""Characters of the sentence that says why a message cannot be read."""


def peeked_from_payload(payload: bytes, entity: EntityAddress, sections: Collection[int] = SECTIONS) -> PeekedMessage:
    """Return a peeked message from its AMQP bytes. Other bytes return a message with the reason in ``unreadable``.

    Args:
        payload: the message as Service Bus sent it.
        entity: that holds it.
        sections: of the message that are read.
    """
    fields = _read(payload, entity, sections)
    del fields["locked_until"]
    return PeekedMessage(**fields)


def locked_from_payload(
    payload: bytes, entity: EntityAddress, lock_token: UUID, sections: Collection[int] = SECTIONS
) -> LockedMessage:
    return LockedMessage(lock_token=lock_token, **_read(payload, entity, sections))


def _read(payload: bytes, entity: EntityAddress, sections: Collection[int] = SECTIONS) -> dict[str, Any]:
    try:
        fields = _fields(payload, sections)
    except AmqpDecodeError as error:
        fields = what_can_be_read(payload)
        fields |= {"body": payload, "extras": {UNREADABLE: str(error)[:_REASON]}}
    fields["entity"] = entity
    return fields


def _fields(payload: bytes, sections: Collection[int]) -> dict[str, Any]:
    fields, extras, end = read_service_part(payload)
    values, parts = section_values(payload, end, sections) if sections else ({}, [])
    _read_properties(as_list(values.get(PROPERTIES)), fields, extras)
    if DATA in sections:
        _read_body(payload, parts, fields, extras)
    if fields["time_to_live"] == _LONGEST:
        _read_long_life(fields, extras)
    _read_application_properties(as_map(values.get(APPLICATION_PROPERTIES)), fields, extras)
    for name, code in MAPS.items():
        if code in values and (own := senders_own(as_map(values[code]))):
            extras[name] = own
    fields["extras"] = MappingProxyType(extras) if extras else _NOTHING
    return fields


def _read_body(payload: bytes, parts: list[Section], fields: dict[str, Any], extras: dict[str, AmqpValue]) -> None:
    if len(parts) == 1 and parts[0].code == DATA:
        fields["body"] = as_bytes(section_value(payload, parts[0]))
        return
    codes = {part.code for part in parts}
    if len(codes) > 1:
        raise AmqpDecodeError("The body consists of sections of different kinds.")
    if codes and DATA not in codes:
        fields["body"] = b"".join(payload[part.value_start : part.end] for part in parts)
        fields["body_type"] = BodyType.VALUE if VALUE in codes else BodyType.SEQUENCE
        return
    bodies = [as_bytes(section_value(payload, part)) for part in parts]
    fields["body"] = b"".join(bodies)
    extras[DATA_SECTIONS] = [ULong(len(body)) for body in bodies]


def _read_properties(properties: list[Any], fields: dict[str, Any], extras: dict[str, AmqpValue]) -> None:
    for name, value in zip(PROPERTY_FIELDS, properties, strict=False):
        if value is None:
            continue
        if type(value) is str and name not in _UNUSUAL_TEXTS:
            fields[name] = value
        elif name in PROPERTY_EXTRAS:
            extras[name] = value
        else:
            fields[name] = text = str(as_text(value))
            if type(value) is not type(usual(name, text)):
                extras[name] = value


def _read_long_life(fields: dict[str, Any], extras: dict[str, AmqpValue]) -> None:
    """Take a time to live that does not fit into the header from the properties, as the emulator and .NET do.

    Without it in the properties there is none: for such messages, in entities that keep messages forever, Azure hands
    out the most that the header holds (azure-sdk-for-net issue 38875). Sent again like that, they would expire.
    """
    start, end = extras.get("creation_time"), extras.get("absolute_expiry_time")
    if isinstance(start, Timestamp) and isinstance(end, Timestamp) and end - start > MAX_TTL:
        fields["time_to_live"] = min(end - start, LAST_MOMENT) * MILLISECOND
        fields["expires_at"] = expiry(fields["enqueued_time"], fields["time_to_live"])
    else:
        fields["time_to_live"] = fields["expires_at"] = None


def _read_application_properties(named: dict[Any, Any], fields: dict[str, Any], extras: dict[str, AmqpValue]) -> None:
    strange = {str(as_text(name)): name for name in named if type(name) is not str}
    if strange:
        extras[PROPERTY_NAMES] = strange
        named = {str(as_text(name)): value for name, value in named.items()}
    fields["application_properties"] = MappingProxyType(named)
