"""A message: checked as it comes in, kept, and rendered with a new header and new annotations as it goes out.

Properties, application properties and body stay byte for byte what the sender wrote.

Source: AMQP 1.0 part 3, section 3.2; Service Bus documentation, "AMQP 1.0 protocol guide", "Message
annotations".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from operator import attrgetter
from secrets import token_hex
from struct import Struct
from typing import Any, Final, Literal, NamedTuple, cast
from uuid import UUID

from sbnotebook.amqp import AmqpValue, Long, Symbol, Timestamp, UInt, encode
from sbnotebook.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    HEADER,
    LISTS,
    MAPS,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    VALUE,
    Section,
    elements,
    find_section,
    key_text,
    map_of,
    section_head,
    section_value,
    split,
    with_list_item,
    with_map_items,
)
from sbnotebook.emulator.entities.options import MAX_HEADER_SIZE, MAX_PROPERTY_SIZE
from sbnotebook.errors import AmqpDecodeError

SCHEDULED_TIME: Final = "x-opt-scheduled-enqueue-time"

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
    size: int  # bytes of the payload
    state: BrokeredState = BrokeredState.ACTIVE
    scheduled_time: int | None = None  # when it becomes active, or became active; None if it was never scheduled
    delivery_count: int = 0  # deliveries that have failed
    expires_at: int | None = None  # from when on it is not given out; None for never
    session_id: str | None = None  # in an entity that has sessions
    dead_letter_source: str | None = None  # where it was dead-lettered, once it was forwarded from there
    hops: int = 0  # how often it was forwarded
    lock_token: UUID | None = None
    locked_until: int = 0  # 0 without a lock

    @property
    def is_available(self) -> bool:
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
        return self._text(_MESSAGE_ID)

    @property
    def session_id(self) -> str | None:
        return self._text(_GROUP_ID)

    def _text(self, place: int) -> str | None:
        value = self._property(place)
        return None if value is None else str(value)

    def _property(self, place: int) -> AmqpValue:
        # Decoded only where an entity asks for it, which most do not.
        return None if self.properties is None else _field(self.payload, self.properties, place)

    def read_long_life(self) -> None:
        """Read a time to live that does not fit into the header from the two times in the properties."""
        end, start = self._property(_ABSOLUTE_EXPIRY), self._property(_CREATION_TIME)
        if isinstance(end, int) and isinstance(start, int) and end > start:
            self.time_to_live = min(end - start, _MAX_TIME)


def _field(payload: bytes, section: Section, place: int) -> AmqpValue:
    values = cast("list[AmqpValue]", section_value(payload, section))
    return values[place] if place < len(values) else None


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
    if section.code in (DELIVERY_ANNOTATIONS, APPLICATION_PROPERTIES):
        values = elements(payload, section.value_start, MAPS)[1::2]
        if section.code == APPLICATION_PROPERTIES and section.end - section.start > MAX_PROPERTY_SIZE:
            message.property_size = max(map(len, values)) - _LARGE_VALUE_HEAD
    elif section.code == MESSAGE_ANNOTATIONS:
        annotations: Any = section_value(payload, section)
        _expect(isinstance(annotations, dict), "annotations must be a map")
        when, key = annotations.get(SCHEDULED_TIME), annotations.get(_PARTITION_KEY)
        _expect(when is None or isinstance(when, Timestamp), f"{SCHEDULED_TIME} must be a timestamp")
        _expect(when is None or when <= _MAX_TIME, f"{SCHEDULED_TIME} is too late")
        message.scheduled_time = when
        message.partition_key = None if key is None else str(key)
    else:
        if payload[section.value_start] not in LISTS:
            _expect(False, "header and properties must be lists")
        if section.code == PROPERTIES:
            message.properties = section
        else:
            life: Any = _field(payload, section, _TIME_TO_LIVE)
            _expect(life is None or (isinstance(life, int) and life >= 0), "the time to live must be milliseconds")
            message.time_to_live = None if life is None else min(life, _MAX_TIME)


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


Place = Literal["active", "deferred", "dead_lettered", "gone"]
MessageEvent = Literal[
    "complete", "abandon", "defer", "dead_letter", "release", "lock_expired", "lock_dropped", "expire"
]
TRANSITIONS: Final[dict[MessageEvent, tuple[Place, bool]]] = {
    "complete": ("gone", False),
    "abandon": ("active", True),
    "defer": ("deferred", True),
    "dead_letter": ("dead_lettered", False),
    "release": ("active", False),
    "lock_expired": ("active", True),
    "lock_dropped": ("active", False),
    "expire": ("dead_lettered", False),  # gone where expired messages are dropped
}
"""The next place of a locked or expired message, and whether the delivery counts as failed, by event.

A message that was deferred stays so, and does not become active. In a dead-letter queue no delivery counts. The page
"Outcomes" has a table of all that can happen to a message.

Sources: Service Bus documentation, "Message transfers, locks, and settlement", "Message deferral", "Overview of
dead-letter queues", "Message expiration"; for deliveries in a dead-letter queue, azure-sdk-for-net 53437.
"""


def _expect(condition: bool, rule: str) -> None:
    if not condition:
        raise AmqpDecodeError(f"The message cannot be read: {rule}.")


_HEADER, _DELIVERY_ANNOTATIONS, _ANNOTATIONS = map(section_head, (HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS))
_DELIVERY_COUNT: Final = 4  # its place among the fields of the header

# The same for every message but for the numbers: each name with the constructor byte of its value
_OWN: Final = {
    f"x-opt-{name}": encode(Symbol(f"x-opt-{name}")) + constructor
    for name, constructor in (
        ("sequence-number", b"\x81"), ("enqueue-sequence-number", b"\x81"), ("enqueued-time", b"\x83"),
        ("message-state", b"\x71"), ("locked-until", b"\x83"), ("lock-token", b"\x98"), ("deadletter-source", b""),
    )
}  # fmt: skip
_SEQUENCE_NUMBER, _FIRST_NUMBER, _ENQUEUED_TIME, _STATE, _LOCKED_UNTIL, _LOCK_TOKEN, _DEAD_LETTER_SOURCE = _OWN.values()
_OMITTED_SIZE: Final = encode(Symbol("omitted-message-body-size"))
# Five fields, of which the first four are null; the bytes of the delivery count follow
_EMPTY_HEADER: Final = b"\x00\x53\x70\xc0\x0a\x05\x40\x40\x40\x40\x70"
_BROKERS_OWN: Final = frozenset(map(str.encode, _OWN))
"""Only the broker sets these; a sender that passes on a message may send them along."""


def render(
    message: BrokeredMessage,
    payload: bytes,
    *,
    is_delivery: bool = False,
    with_lock: bool = False,
    without_body: bool = False,
    keeps_scheduled: bool = False,
) -> bytes:
    """Return the encoded message as a client gets it.

    Sources: the live tests of azure-servicebus, test_message.py, which count the annotations and bytes of a delivery.
    From @azure/service-bus for JavaScript: serviceBusClient.spec.ts for the omitted body and the delivery annotations
    of every peeked message. For the state, sendAndSchedule.spec.ts (azure-sdk-for-js 19357).
    """
    header: list[Any] = []
    delivery: list[bytes] = []
    items: list[bytes] = []
    rest = len(payload)
    # Take the header and both annotations apart; the rest stays as it is.
    for section in split(payload, up_to=PROPERTIES):
        if section.code == HEADER:
            header = cast("list[Any]", section_value(payload, section))
        elif section.code == DELIVERY_ANNOTATIONS:
            delivery = _senders_own(payload, section)
        elif section.code == MESSAGE_ANNOTATIONS:
            items = _senders_own(payload, section)
        else:
            rest = section.start
    content = payload[rest:]
    # Add what only the broker sets.
    if without_body:
        kept = (part for part in split(content) if not DATA <= part.code <= VALUE)
        content = b"".join(content[part.start : part.end] for part in kept)
        delivery.append(_OMITTED_SIZE + encode(Long(len(payload) - rest - len(content))))
    if is_delivery and message.lock_token is not None:
        delivery.append(_LOCK_TOKEN + message.lock_token.bytes)
    keeps_scheduled = is_delivery or keeps_scheduled
    items += _brokers_own(message, is_delivery=is_delivery, with_lock=with_lock, keeps_scheduled=keeps_scheduled)
    return b"".join(
        (_header(message, header), _DELIVERY_ANNOTATIONS, map_of(delivery), _ANNOTATIONS, map_of(items), content)
    )


def _brokers_own(message: BrokeredMessage, *, is_delivery: bool, with_lock: bool, keeps_scheduled: bool) -> list[bytes]:
    number = message.sequence_number
    items = [
        _SEQUENCE_NUMBER + number.to_bytes(8),
        _ENQUEUED_TIME + message.enqueued_time.to_bytes(8, signed=True),
    ]
    if not is_delivery or message.enqueued_sequence_number != number:
        items.append(_FIRST_NUMBER + message.enqueued_sequence_number.to_bytes(8))
    state = message.state
    if keeps_scheduled and message.scheduled_time is not None and state is BrokeredState.ACTIVE:
        state = BrokeredState.SCHEDULED
    if not is_delivery or state is BrokeredState.SCHEDULED:
        items.append(_STATE + state.to_bytes(4))
    if message.dead_letter_source is not None:
        items.append(_DEAD_LETTER_SOURCE + encode(message.dead_letter_source))
    if with_lock:
        items.append(_LOCKED_UNTIL + message.locked_until.to_bytes(8))
    return items


def _header(message: BrokeredMessage, sent: list[Any]) -> bytes:
    if not sent and message.expires_at is None:
        return _EMPTY_HEADER + message.delivery_count.to_bytes(4)
    fields: list[AmqpValue] = [
        *sent[:_DELIVERY_COUNT],
        *[None] * (_DELIVERY_COUNT - len(sent)),
        UInt(message.delivery_count),
    ]
    if message.expires_at is not None:
        since = (message.state is BrokeredState.SCHEDULED and message.scheduled_time) or message.enqueued_time
        fields[_TIME_TO_LIVE] = UInt(min(message.expires_at - since, _MAX_UINT))
    return _HEADER + encode(fields)


def with_time_to_live(message: BrokeredMessage, payload: bytes) -> bytes:
    """Return the encoded message with the time to live that its entity gave it, if the sender asked for more or none.

    Sources: Service Bus documentation, "Message expiration"; a forwarded message keeps it (azure-sdk-for-net 6748).
    """
    if message.expires_at is None:
        return payload
    life = message.expires_at - message.enqueued_time
    header = find_section(payload, HEADER)
    asked = None if header is None else _field(payload, header, _TIME_TO_LIVE)
    if life >= _MAX_UINT or (asked is not None and cast("int", asked) <= life):
        return payload
    return with_list_item(payload, HEADER, _TIME_TO_LIVE, encode(UInt(life)))


def with_application_properties(payload: bytes, properties: Mapping[str, AmqpValue]) -> bytes:
    """Return the encoded message with these application properties set, or removed if they are None."""
    encoded = {str(name): None if value is None else encode(value) for name, value in properties.items()}
    return with_map_items(payload, APPLICATION_PROPERTIES, encoded)


def _senders_own(payload: bytes, section: Section) -> list[bytes]:
    """Return the sender's annotations, encoded as they came, without those that only the broker sets."""
    found = elements(payload, section.value_start, MAPS)
    pairs = zip(found[0::2], found[1::2], strict=True)
    return [key + value for key, value in pairs if key_text(key) not in _BROKERS_OWN]
