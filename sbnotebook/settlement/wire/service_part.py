"""The part that the service writes in front of a message: the header and the annotations.

In most messages of an entity it differs only in a few numbers, and in the lock token. So it is decoded once and kept as
a template: the bytes around the numbers, and their meaning. For a message with the same bytes only the numbers are
read, in one step; any other is decoded. Peeking takes a third less time with templates.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import count, takewhile
from struct import Struct, calcsize
from struct import error as struct_error
from typing import Any, Final, NamedTuple

from sbnotebook.amqp import AmqpValue, Timestamp, encode, skip
from sbnotebook.amqp.sections import (
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    map_start,
    readable_items,
    readable_start,
    section_value,
    split,
)
from sbnotebook.errors import AmqpDecodeError
from sbnotebook.model import MessageState
from sbnotebook.model.amqp_layout import (
    DEAD_LETTER_SOURCE,
    DELIVERY_COUNT,
    ENQUEUED_SEQUENCE_NUMBER,
    ENQUEUED_TIME,
    HEADER_FIELDS,
    LOCK_TOKEN,
    LOCKED_UNTIL,
    MAPS,
    MAX_TTL,
    MILLISECOND,
    PARTITION_KEY,
    SCHEDULED_TIME,
    SEQUENCE_NUMBER,
    STATE,
    TTL,
    as_list,
    as_map,
    as_text,
    as_time,
    senders_own,
)
from sbnotebook.model.message import HEADER_EXTRAS

_STATES: Final = {0: MessageState.ACTIVE, 1: MessageState.DEFERRED, 2: MessageState.SCHEDULED}
_MAX_COUNT, _MAX_LONG = 2**31 - 1, 2**63 - 1
_MOST_TEMPLATES: Final = 8
_LEARN_EVERY: Final = 8
"""Messages per new template: where each message starts differently, templates only cost time."""


class _Varying(NamedTuple):
    """A value that differs from message to message."""

    name: str
    layout: str
    make: Callable[[int], Any] | None


@lru_cache(maxsize=1_024)  # messages that came together have the same times
def _moment(stamp: int) -> datetime | None:
    """Return a time in milliseconds as a datetime, at most the calendar's first or last."""
    return as_time(Timestamp(stamp))


_LONG, _TIMESTAMP, _UUID = b"\x81", b"\x83", b"\x98"
_VARYING: Final[dict[int, dict[bytes, _Varying]]] = {
    MESSAGE_ANNOTATIONS: {
        encode(SEQUENCE_NUMBER) + _LONG: _Varying("sequence_number", "q", int),
        encode(ENQUEUED_SEQUENCE_NUMBER) + _LONG: _Varying("enqueued_sequence_number", "q", int),
        encode(ENQUEUED_TIME) + _TIMESTAMP: _Varying("enqueued_time", "q", _moment),
        encode(LOCKED_UNTIL) + _TIMESTAMP: _Varying("locked_until", "q", _moment),
    },
    DELIVERY_ANNOTATIONS: {encode(LOCK_TOKEN) + _UUID: _Varying("lock_token", "16s", None)},
}
"""Annotations that differ from message to message, by their section and the bytes in front of their value."""


class ServicePart(NamedTuple):
    fields: dict[str, Any]
    extras: dict[str, AmqpValue]
    end: int


class _Template(NamedTuple):
    layout: Struct
    constants: tuple[bytes, ...]
    varying: tuple[_Varying, ...]
    part: ServicePart


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
    return _fields(header, annotations)


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
    fields = _fields(header, as_map(found.get(MESSAGE_ANNOTATIONS)))
    return ServicePart(fields, extras, sections[-1].end if sections else 0)


def _learn(payload: bytes, part: ServicePart) -> None:
    global _templates  # noqa: PLW0603 (replaced as a whole: several threads may read it)
    places: dict[str, tuple[int, _Varying]] = {}
    for section in readable_start(payload[: part.end]):
        known = _VARYING.get(section.code)
        if known is not None:
            at = map_start(payload, section)
            while at < section.end:
                value_start = skip(payload, at)
                varying = known.get(payload[at : value_start + 1])
                if varying is not None:
                    places[varying.name] = value_start + 1, varying
                at = skip(payload, value_start)
    if "sequence_number" not in places:
        return
    in_order = sorted(places.values(), key=lambda place: place[0])
    layout, end = ">", 0
    for at, varying in in_order:
        layout += f"{at - end}s{varying.layout}"
        end = at + calcsize(f">{varying.layout}")
    template = Struct(f"{layout}{part.end - end}s")
    constants = template.unpack_from(payload)[0::2]
    varyings = tuple(varying for _, varying in in_order)
    learnt = _Template(template, constants, varyings, ServicePart(part.fields.copy(), part.extras.copy(), part.end))
    _templates = (learnt, *_templates)[:_MOST_TEMPLATES]


def _fields(header: list[Any], annotations: dict[Any, Any]) -> dict[str, Any]:
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
