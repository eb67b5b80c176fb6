"""A message as the broker keeps it, and the checks of one that comes in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from operator import attrgetter
from secrets import token_hex
from struct import Struct
from typing import Final, NamedTuple, cast
from uuid import UUID

from sbnotebook.amqp import AmqpValue, Timestamp, encode
from sbnotebook.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    LISTS,
    MAPS,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    Section,
    elements,
    section_value,
    split,
)
from sbnotebook.emulator.entities.quotas import MAX_HEADER_SIZE, MAX_PROPERTY_SIZE
from sbnotebook.errors import AmqpDecodeError

SCHEDULED_TIME: Final = "x-opt-scheduled-enqueue-time"
"""Message annotation: when a sent message becomes active."""

_PARTITION_KEY: Final = "x-opt-partition-key"
# Places among the fields (AMQP 1.0 part 3, sections 3.2.1 and 3.2.4).
_TIME_TO_LIVE: Final = 2
_MESSAGE_ID, _ABSOLUTE_EXPIRY, _CREATION_TIME, _GROUP_ID = 0, 8, 9, 10
_MAX_UINT: Final = 2**32 - 1
# The last moment that .NET knows (ms); nothing is scheduled for later, and nothing lives longer
_MAX_TIME: Final = 253_402_300_799_999
_NULL: Final = 0x40
_LARGE_VALUE_HEAD: Final = 5  # Bytes in front of a text or of bytes that are longer than 255: the type and the length
_PROPERTIES_HEAD: Final = Struct("!4sII")
_CHECKED_MAPS: Final = frozenset((DELIVERY_ANNOTATIONS, APPLICATION_PROPERTIES))


class BrokeredState(IntEnum):
    """The state of a message; the numbers are those of the annotation ``x-opt-message-state``."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


class DeadLetterReason(NamedTuple):
    """Why a message is dead-lettered: the values of two application properties; None leaves one out."""

    reason: str | None
    description: str | None


@dataclass(slots=True, eq=False)
class BrokeredMessage:
    """One message in a box; times are in ms."""

    sequence_number: int  # only the activation of a scheduled message changes it
    enqueued_sequence_number: int  # the number that it got first
    enqueued_time: int  # when it came in, or became active
    payload: bytes | None  # as it was received; None while only the store has it
    size: int = -1  # bytes of the payload
    state: BrokeredState = BrokeredState.ACTIVE
    scheduled_time: int | None = None  # when it becomes active, or became active; None if it was never scheduled
    delivery_count: int = 0  # deliveries that have failed
    expires_at: int | None = None  # from when on it is not given out; None for never
    session_id: str | None = None  # in an entity that has sessions
    dead_letter_source: str | None = None  # where it was dead-lettered, once it was forwarded from there
    hops: int = 0  # how often it was forwarded
    lock_token: UUID | None = None
    locked_until: int = 0  # 0 without a lock

    def __post_init__(self) -> None:
        if self.size < 0:
            self.size = len(self.payload or b"")

    @property
    def is_available(self) -> bool:
        """Tell whether it is active and not locked."""
        return self.state is BrokeredState.ACTIVE and self.lock_token is None

    @property
    def due_time(self) -> int | None:
        """Return when it becomes active, or expires, by itself (ms): scheduled, or active without a lock."""
        if self.state is BrokeredState.SCHEDULED:
            return self.scheduled_time
        return self.expires_at if self.is_available else None

    def has_expired(self, now: int) -> bool:
        return self.expires_at is not None and self.expires_at <= now


@dataclass(slots=True, eq=False)
class SentMessage:
    payload: bytes
    header_size: int = 0  # bytes of all sections in front of the body
    property_size: int = 0  # bytes of the largest application property; 0 if all of them are small
    scheduled_time: int | None = None  # ms; when the message becomes active; None for at once
    time_to_live: int | None = None  # ms; None for the limit of the entity
    partition_key: str | None = None  # messages with the same key go to one partition
    properties: Section | None = None  # the place of the section of this name; None if the message has none
    properties_start: int = 0  # offset at which that section would begin

    @property
    def excess(self) -> str | None:
        """Return a sentence on properties that are too large for a message; None if they are not.

        Source: Service Bus documentation, "Service Bus quotas". It does not say how AMQP clients see the limit of one.
        """
        if self.header_size > MAX_HEADER_SIZE:
            return f"The properties of the message have {self.header_size} bytes, the limit is {MAX_HEADER_SIZE}."
        if self.property_size > MAX_PROPERTY_SIZE:
            return f"A property of the message has {self.property_size} bytes, the limit is {MAX_PROPERTY_SIZE}."
        return None

    @property
    def message_id(self) -> str | None:
        value = self._property(_MESSAGE_ID)
        return None if value is None else str(value)

    @property
    def session_id(self) -> str | None:
        value = self._property(_GROUP_ID)
        return None if value is None else str(value)

    def _property(self, place: int) -> AmqpValue:
        # Decoded only where an entity asks for it, which most do not.
        if self.properties is None:
            return None
        values = cast("list[AmqpValue]", section_value(self.payload, self.properties))
        return values[place] if place < len(values) else None

    def read_header(self, header: AmqpValue) -> None:
        values = cast("list[AmqpValue]", header)
        life = values[_TIME_TO_LIVE] if len(values) > _TIME_TO_LIVE else None
        _expect(life is None or (isinstance(life, int) and life >= 0), "the time to live must be milliseconds")
        self.time_to_live = None if life is None else min(cast("int", life), _MAX_TIME)

    def read_long_life(self) -> None:
        """Read a time to live that does not fit into the header from the two times in the properties."""
        end, start = self._property(_ABSOLUTE_EXPIRY), self._property(_CREATION_TIME)
        if isinstance(end, int) and isinstance(start, int) and end > start:
            self.time_to_live = min(end - start, _MAX_TIME)

    def read_annotations(self, annotations: AmqpValue) -> None:
        _expect(isinstance(annotations, dict), "annotations must be a map")
        values = cast("dict[str, AmqpValue]", annotations)
        when, key = values.get(SCHEDULED_TIME), values.get(_PARTITION_KEY)
        _expect(when is None or isinstance(when, Timestamp), f"{SCHEDULED_TIME} must be a timestamp")
        _expect(when is None or cast("int", when) <= _MAX_TIME, f"{SCHEDULED_TIME} is too late")
        self.scheduled_time = cast("int | None", when)
        self.partition_key = None if key is None else str(key)


def read_sent(payload: bytes) -> SentMessage:
    """Check the parts of a message that the broker itself reads.

    Properties and body stay unread: they are between sender and receiver.
    Sections may come in any order, as in Azure, and are put in their places: azure-servicebus for Python writes the
    delivery annotations last, rhea for JavaScript the footer before the body. Delivery annotations stay: in Service
    Bus they reach the receiver.
    """
    sections = split(payload, in_order=False)
    # Put the sections in their places, and read the message again.
    for before, section in pairwise(sections):
        if section.code < before.code:
            ordered = sorted(sections, key=attrgetter("code"))
            return read_sent(b"".join(payload[part.start : part.end] for part in ordered))
    if not sections:
        _expect(False, "it is empty")
    # Read the sections in front of the body.
    message = SentMessage(payload, len(payload))
    for section in sections:
        if section.code >= DATA:
            message.header_size = section.start
            break
        _read_section(message, section)
        if section.code < PROPERTIES:
            message.properties_start = section.end
    if message.time_to_live == _MAX_UINT:
        message.read_long_life()
    return message


def _read_section(message: SentMessage, section: Section) -> None:
    payload = message.payload
    if section.code in _CHECKED_MAPS:
        values = elements(payload, section.value_start, MAPS)[1::2]
        if section.code == APPLICATION_PROPERTIES and section.end - section.start > MAX_PROPERTY_SIZE:
            message.property_size = max(map(len, values)) - _LARGE_VALUE_HEAD
    elif section.code == MESSAGE_ANNOTATIONS:
        message.read_annotations(section_value(payload, section))
    else:
        if payload[section.value_start] not in LISTS:
            _expect(False, "header and properties must be lists")
        if section.code == PROPERTIES:
            message.properties = section
        else:
            message.read_header(section_value(payload, section))


def with_message_id(message: SentMessage) -> bytes:
    """Return the encoded message, with a new id if its sender gave it none; all else stays byte for byte.

    Source: what Service Bus does. @azure/service-bus for JavaScript cannot settle a message without an id.
    """
    payload, section = message.payload, message.properties
    start = end = message.properties_start
    count, fields = 1, b""
    if section is not None:
        # Keep the other fields of the properties as they are encoded.
        start, end = section.start, section.end
        head = LISTS[payload[section.value_start]]
        first = section.value_start + head
        if first < end:
            if payload[first] != _NULL:
                return payload
            count = int.from_bytes(payload[section.value_start + head // 2 + 1 : first]) or 1
            fields = payload[first + 1 : end]
    content = encode(token_hex(16)) + fields
    properties = _PROPERTIES_HEAD.pack(b"\x00\x53\x73\xd0", len(content) + 4, count)
    return b"".join((payload[:start], properties, content, payload[end:]))


def _expect(condition: bool, rule: str) -> None:
    if not condition:
        raise AmqpDecodeError(f"The message cannot be read: {rule}.")
