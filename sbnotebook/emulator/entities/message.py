"""A message as the broker keeps it, and the check of one that comes in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from sbnotebook.errors import AmqpDecodeError
from sbnotebook.model.amqp import AmqpValue, Timestamp, skip
from sbnotebook.model.sections import (
    APPLICATION_PROPERTIES,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    section_value,
    split,
)

__all__ = [
    "MAX_MESSAGE_SIZE",
    "SCHEDULED_TIME",
    "BrokeredMessage",
    "MessageState",
    "SentMessage",
    "map_items",
    "read_sent",
]

MAX_MESSAGE_SIZE: Final = 1_048_576
"""Bytes of one message or one batch: that of a Premium namespace without large messages.

Source: Service Bus documentation, "Service Bus quotas".
"""
SCHEDULED_TIME: Final = "x-opt-scheduled-enqueue-time"
"""Message annotation: when a sent message becomes active."""

_SMALL_MAP, _LARGE_MAP = 0xC1, 0xD1
_LISTS: Final = frozenset((0x45, 0xC0, 0xD0))
_MAPS: Final = frozenset((_SMALL_MAP, _LARGE_MAP))


class MessageState(IntEnum):
    """What a message waits for; the numbers are those of the annotation ``x-opt-message-state``."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


@dataclass(slots=True, eq=False)
class BrokeredMessage:
    """One message in a box.

    Attributes:
        sequence_number: its number in the entity; only the activation of a scheduled message changes it.
        enqueued_sequence_number: the number that it got first.
        enqueued_time: ms; when it came in, or became active.
        payload: the encoded message as it was received; None while only the store has it.
        size: bytes of the payload.
        state: what it waits for.
        scheduled_time: ms; when a scheduled message becomes active.
        delivery_count: deliveries that have failed.
        expires_at: ms; from when on it is not given out; None for never.
        session_id: the session that it belongs to, in an entity that has sessions.
        dead_letter_source: the entity that it was dead-lettered in, once it was forwarded from there.
        hops: how often it was forwarded.
        lock_token: who has it locked; None if nobody has.
        locked_until: ms; when the lock ends, 0 without a lock.
    """

    sequence_number: int
    enqueued_sequence_number: int
    enqueued_time: int
    payload: bytes | None
    size: int = -1
    state: MessageState = MessageState.ACTIVE
    scheduled_time: int | None = None
    delivery_count: int = 0
    expires_at: int | None = None
    session_id: str | None = None
    dead_letter_source: str | None = None
    hops: int = 0
    lock_token: UUID | None = None
    locked_until: int = 0

    def __post_init__(self) -> None:
        if self.size < 0:
            self.size = len(self.payload or b"")


class SentMessage(NamedTuple):
    """A message that was checked and can be kept: its bytes, and when to activate it (ms), if not at once."""

    payload: bytes
    scheduled_time: int | None


def read_sent(payload: bytes) -> SentMessage:
    """Check the parts of a message that the broker itself reads.

    Properties and body stay unread: what a sender puts there is for the receiver to understand.
    Delivery annotations are left out, they are meant for this one hop (AMQP 1.0 part 3, section 3.2.2).

    Args:
        payload: one encoded message.

    Raises:
        AmqpDecodeError: the bytes are not a message.
    """
    scheduled_time: int | None = None
    sections = split(payload)
    _expect(bool(sections), "it is empty")
    for section in sections:
        if section.code in (HEADER, PROPERTIES):
            _expect(payload[section.value_start] in _LISTS, "header and properties must be lists")
            if section.code == HEADER:
                section_value(payload, section)
        elif section.code == MESSAGE_ANNOTATIONS:
            scheduled_time = _scheduled_time(section_value(payload, section))
        elif section.code == APPLICATION_PROPERTIES:
            map_items(payload, section.value_start)
    kept = [section for section in sections if section.code != DELIVERY_ANNOTATIONS]
    if len(kept) < len(sections):
        payload = b"".join(payload[section.start : section.end] for section in kept)
    return SentMessage(payload, scheduled_time)


def map_items(payload: bytes, start: int) -> list[tuple[bytes, bytes]]:
    """Cut an encoded map into its items, each an encoded key and an encoded value.

    Args:
        payload: bytes that hold the map.
        start: offset of the map's constructor byte.

    Raises:
        AmqpDecodeError: no whole map stands there.
    """
    end = skip(payload, start)
    _expect(payload[start] in _MAPS, "application properties must be a map")
    head = 9 if payload[start] == _LARGE_MAP else 3
    offset = start + head
    items: list[tuple[bytes, bytes]] = []
    while offset < end:
        key_end = skip(payload, offset)
        value_end = skip(payload, key_end)
        items.append((payload[offset:key_end], payload[key_end:value_end]))
        offset = value_end
    count = int.from_bytes(payload[start + head // 2 + 1 : start + head])
    _expect(offset == end and count == 2 * len(items), "a map does not have the size that it claims")
    return items


def _scheduled_time(annotations: AmqpValue) -> int | None:
    if not isinstance(annotations, dict):
        raise AmqpDecodeError("The message cannot be read: annotations must be a map.")
    value = annotations.get(SCHEDULED_TIME)
    if value is None or isinstance(value, Timestamp):
        return value
    raise AmqpDecodeError(f"The message cannot be read: {SCHEDULED_TIME} must be a timestamp.")


def _expect(condition: bool, rule: str) -> None:
    if not condition:
        raise AmqpDecodeError(f"The message cannot be read: {rule}.")
