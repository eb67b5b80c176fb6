"""Messages from their AMQP bytes, with every value's type.

The SDK's own classes lose types: what it received as ``long``, ``timestamp`` or ``string`` comes out as ``int``,
``int`` and ``bytes``, and cannot be sent again as what it was. So the bytes are read here, and written in
:mod:`sbnotebook.settlement.wire.encoding`. What a message has no field for is kept in its ``extras``.

Sources: AMQP 1.0 part 3, section 3.2 (message format); Service Bus documentation, "AMQP 1.0 in Azure Service Bus
protocol guide" (message annotations).

The service writes a part in front of a message: the header and the annotations. In most messages of an entity it
differs only in a few numbers, and in the lock token. So it is decoded once and kept as a template: the bytes around the
numbers, and their meaning. For a message with the same bytes only the numbers are read, in one step; any other is
decoded. Peeking takes a third less time with templates.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import count, takewhile
from struct import Struct, calcsize
from struct import error as struct_error
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from sbnotebook.amqp import AmqpValue, Timestamp, ULong, encode, skip
from sbnotebook.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SECTIONS,
    VALUE,
    Section,
    map_start,
    readable_items,
    readable_start,
    section_value,
    section_values,
    split,
)
from sbnotebook.errors import AmqpDecodeError
from sbnotebook.model import BodyType, EntityAddress, LockedMessage, MessageState, PeekedMessage
from sbnotebook.model.amqp_layout import (
    DEAD_LETTER_SOURCE,
    DELIVERY_COUNT,
    ENQUEUED_SEQUENCE_NUMBER,
    ENQUEUED_TIME,
    HEADER_FIELDS,
    LAST_MOMENT,
    LOCK_TOKEN,
    LOCKED_UNTIL,
    MAPS,
    MAX_TTL,
    MILLISECOND,
    PARTITION_KEY,
    PROPERTY_FIELDS,
    SCHEDULED_TIME,
    SEQUENCE_NUMBER,
    STATE,
    TTL,
    as_bytes,
    as_list,
    as_map,
    as_text,
    as_time,
    senders_own,
    usual,
)
from sbnotebook.model.message import DATA_SECTIONS, HEADER_EXTRAS, PROPERTY_EXTRAS, PROPERTY_NAMES, UNREADABLE

_STATES: Final = {0: MessageState.ACTIVE, 1: MessageState.DEFERRED, 2: MessageState.SCHEDULED}
_MAX_COUNT, _MAX_LONG = 2**31 - 1, 2**63 - 1
_MOST_TEMPLATES: Final = 8
_LEARN_EVERY: Final = 8
"""Messages per new template: where each message starts differently, templates only cost time."""


_Varying: TypeAlias = tuple[str, str, Callable[[int], Any] | None]
"""A value that differs from message to message: its name, its layout, and the type to make of it."""


@lru_cache(maxsize=1_024)  # messages that came together have the same times
def _moment(stamp: int) -> datetime | None:
    """Return a time in milliseconds as a datetime, at most the calendar's first or last."""
    return as_time(Timestamp(stamp))


_LONG, _TIMESTAMP, _UUID = b"\x81", b"\x83", b"\x98"
_VARYING: Final[dict[int, dict[bytes, _Varying]]] = {
    MESSAGE_ANNOTATIONS: {
        encode(SEQUENCE_NUMBER) + _LONG: ("sequence_number", "q", int),
        encode(ENQUEUED_SEQUENCE_NUMBER) + _LONG: ("enqueued_sequence_number", "q", int),
        encode(ENQUEUED_TIME) + _TIMESTAMP: ("enqueued_time", "q", _moment),
        encode(LOCKED_UNTIL) + _TIMESTAMP: ("locked_until", "q", _moment),
    },
    DELIVERY_ANNOTATIONS: {encode(LOCK_TOKEN) + _UUID: ("lock_token", "16s", None)},
}
"""Annotations that differ from message to message, by their section and the bytes in front of their value."""


class ServicePart(NamedTuple):
    fields: dict[str, Any]
    extras: dict[str, AmqpValue]
    end: int


_Template: TypeAlias = tuple[Struct, tuple[bytes, ...], tuple[_Varying, ...], ServicePart]
"""The layout of a part, the bytes around its varying values, these, and the part that was decoded."""
_templates: tuple[_Template, ...] = ()
_misses: Final = count()


def read_service_part(payload: bytes) -> ServicePart:
    """Read the sections in front of the properties.

    Args:
        payload: the message as Service Bus sent it.
    """
    for layout, constants, varying, part in _templates:
        try:
            found = layout.unpack_from(payload)
        except struct_error:
            continue
        if found[0::2] == constants:
            fields = part.fields.copy()
            for (name, _, make), value in zip(varying, found[1::2], strict=True):
                if make is not None:
                    fields[name] = make(value)
            if fields["time_to_live"] is not None:
                fields["expires_at"] = expiry(fields["enqueued_time"], fields["time_to_live"])
            return ServicePart(fields, part.extras.copy(), part.end)
    part = _decode(payload)
    # The state of a message that was scheduled depends on times, so it is read anew for each.
    if part.fields["scheduled_enqueue_time"] is None and next(_misses) % _LEARN_EVERY == 0:
        _learn(payload, part)
    return part


def what_can_be_read(payload: bytes) -> dict[str, Any]:
    """Return the fields that the service set, of bytes that are not a message."""
    header: list[Any] = []
    annotations: dict[Any, Any] = {}
    for section in readable_start(payload):
        if section.code == MESSAGE_ANNOTATIONS:
            annotations = readable_items(payload, section)
        elif section.code == HEADER:
            with contextlib.suppress(AmqpDecodeError):
                header = as_list(section_value(payload, section))
    return _fields_of_part(header, annotations)


def lock_of(payload: bytes) -> tuple[int, datetime | None]:
    """Return the sequence number of a message and the end of its lock, which no sender can choose."""
    try:
        fields = read_service_part(payload).fields
    except AmqpDecodeError:
        fields = what_can_be_read(payload)
    return fields["sequence_number"], fields["locked_until"]


def expiry(enqueued: datetime | None, ttl: timedelta | None) -> datetime | None:
    if enqueued is None or ttl is None:
        return None
    try:
        return enqueued + ttl
    except OverflowError:  # the service's "never" is longer than the calendar
        return None


def _decode(payload: bytes) -> ServicePart:
    sections = [*takewhile(lambda section: section.code < PROPERTIES, split(payload))]
    found = {section.code: section_value(payload, section) for section in sections}
    header = as_list(found.get(HEADER))
    named = zip(HEADER_FIELDS, header, strict=False)
    extras = {name: value for name, value in named if value is not None and name in HEADER_EXTRAS}
    for name, code in MAPS.items():
        own = senders_own(as_map(found.get(code)))
        if own:
            extras[name] = own
    fields = _fields_of_part(header, as_map(found.get(MESSAGE_ANNOTATIONS)))
    return ServicePart(fields, extras, sections[-1].end if sections else 0)


def _varying_places(start: bytes) -> dict[str, tuple[int, _Varying]]:
    places: dict[str, tuple[int, _Varying]] = {}
    for section in readable_start(start):
        known = _VARYING.get(section.code)
        if known is not None:
            at = map_start(start, section)
            while at < section.end:
                value_start = skip(start, at)
                varying = known.get(start[at : value_start + 1])
                if varying is not None:
                    places[varying[0]] = value_start + 1, varying
                at = skip(start, value_start)
    return places


def _learn(payload: bytes, part: ServicePart) -> None:
    global _templates  # noqa: PLW0603 (replaced as a whole: several threads may read it)
    places = _varying_places(payload[: part.end])
    if "sequence_number" not in places:
        return
    in_order = sorted(places.values(), key=lambda place: place[0])
    layout, end = ">", 0
    for at, (_, kind, _) in in_order:
        layout += f"{at - end}s{kind}"
        end = at + calcsize(f">{kind}")
    template = Struct(f"{layout}{part.end - end}s")
    constants = template.unpack_from(payload)[0::2]
    varyings = tuple(varying for _, varying in in_order)
    learnt = ServicePart(part.fields.copy(), part.extras.copy(), part.end)
    _templates = ((template, constants, varyings, learnt), *_templates)[:_MOST_TEMPLATES]


def _fields_of_part(header: list[Any], annotations: dict[Any, Any]) -> dict[str, Any]:
    get = annotations.get
    padded = header + [None] * (DELIVERY_COUNT + 1 - len(header))
    milliseconds = _whole(padded[TTL])
    ttl = None if milliseconds is None else min(milliseconds, MAX_TTL) * MILLISECOND
    enqueued, scheduled = as_time(get(ENQUEUED_TIME)), as_time(get(SCHEDULED_TIME))
    return {
        "sequence_number": _whole(get(SEQUENCE_NUMBER)) or 0,
        "enqueued_sequence_number": _whole(get(ENQUEUED_SEQUENCE_NUMBER)),
        "enqueued_time": enqueued,
        "expires_at": expiry(enqueued, ttl),
        "time_to_live": ttl,
        "delivery_count": min(_whole(padded[DELIVERY_COUNT]) or 0, _MAX_COUNT),
        "state": _state(_whole(get(STATE)), enqueued, scheduled),
        "scheduled_enqueue_time": scheduled,
        "partition_key": as_text(get(PARTITION_KEY)),
        "dead_letter_source": as_text(get(DEAD_LETTER_SOURCE)),
        "locked_until": as_time(get(LOCKED_UNTIL)),
    }


def _state(number: int | None, enqueued: datetime | None, scheduled: datetime | None) -> MessageState:
    """Return the state of a message.

    Service Bus may say of a message that was scheduled that it is so still (azure-sdk-for-js 19357). It is active once
    it was enqueued anew: at its scheduled time or later, while until then it shows the time when it was sent.
    """
    state = _STATES.get(number or 0, MessageState.ACTIVE)
    if state is MessageState.SCHEDULED and enqueued is not None and scheduled is not None and enqueued >= scheduled:
        return MessageState.ACTIVE
    return state


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int) and value <= _MAX_LONG else None


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
