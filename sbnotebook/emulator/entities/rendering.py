"""Messages as they go out: stored bytes with a new header and new annotations.

Properties, application properties and body stay byte for byte what the sender wrote.

Source: AMQP 1.0 part 3, section 3.2; Service Bus documentation, "AMQP 1.0 protocol guide", "Message
annotations".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from sbnotebook.emulator.entities.message import BrokeredMessage, map_items
from sbnotebook.model.amqp import AmqpValue, Int, Long, Symbol, Timestamp, UInt, encode
from sbnotebook.model.sections import (
    APPLICATION_PROPERTIES,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    Section,
    section_value,
    split,
)

__all__ = ["render", "with_application_properties", "with_dead_letter_reason"]

_HEADER: Final = b"\x00\x53\x70"
_ANNOTATIONS: Final = b"\x00\x53\x72"
_APPLICATION_PROPERTIES: Final = b"\x00\x53\x74"
_DELIVERY_COUNT: Final = 4  # its place among the fields of the header
_TIME_TO_LIVE: Final = 2
_MAX_UINT: Final = 2**32 - 1
_REASON: Final = encode("DeadLetterReason")
_DESCRIPTION: Final = encode("DeadLetterErrorDescription")

_SEQUENCE_NUMBER: Final = Symbol("x-opt-sequence-number")
_ENQUEUED_SEQUENCE_NUMBER: Final = Symbol("x-opt-enqueue-sequence-number")
_ENQUEUED_TIME: Final = Symbol("x-opt-enqueued-time")
_STATE: Final = Symbol("x-opt-message-state")
_LOCKED_UNTIL: Final = Symbol("x-opt-locked-until")
_DEAD_LETTER_SOURCE: Final = Symbol("x-opt-deadletter-source")
_BROKERS_OWN: Final = frozenset(
    (
        _SEQUENCE_NUMBER,
        _ENQUEUED_SEQUENCE_NUMBER,
        _ENQUEUED_TIME,
        _STATE,
        _LOCKED_UNTIL,
        _DEAD_LETTER_SOURCE,
        "x-opt-lock-token",
    )
)
"""A sender that passes on what it received may send these along; only the broker sets them."""


def render(message: BrokeredMessage, payload: bytes, *, with_lock: bool = False) -> bytes:
    """The encoded message as a client gets it.

    Args:
        message: what the broker knows of it.
        payload: its bytes as they were received.
        with_lock: say until when it is locked; for the client that holds the lock.
    """
    header: list[Any] = []
    annotations: dict[Any, Any] = {}
    rest = len(payload)
    for section in split(payload):
        if section.code == HEADER:
            header = cast("list[Any]", section_value(payload, section))
        elif section.code == MESSAGE_ANNOTATIONS:
            annotations = _senders_own(payload, section)
        elif section.code >= PROPERTIES:
            rest = section.start
            break
    annotations[_SEQUENCE_NUMBER] = Long(message.sequence_number)
    annotations[_ENQUEUED_SEQUENCE_NUMBER] = Long(message.enqueued_sequence_number)
    annotations[_ENQUEUED_TIME] = Timestamp(message.enqueued_time)
    annotations[_STATE] = Int(message.state)
    if message.dead_letter_source is not None:
        annotations[_DEAD_LETTER_SOURCE] = message.dead_letter_source
    if with_lock:
        annotations[_LOCKED_UNTIL] = Timestamp(message.locked_until)
    header = [*header[:_DELIVERY_COUNT], *[None] * (_DELIVERY_COUNT - len(header)), UInt(message.delivery_count)]
    if message.expires_at is not None:
        since = message.scheduled_time or message.enqueued_time
        header[_TIME_TO_LIVE] = UInt(min(message.expires_at - since, _MAX_UINT))
    return b"".join((_HEADER, encode(header), _ANNOTATIONS, encode(annotations), payload[rest:]))


def with_dead_letter_reason(payload: bytes, reason: str | None, description: str | None) -> bytes:
    """The encoded message with the application properties that say why it was dead-lettered.

    Args:
        payload: one encoded message.
        reason: for ``DeadLetterReason``; None leaves it out.
        description: for ``DeadLetterErrorDescription``; None leaves it out.
    """
    return _with_items(payload, {_REASON: reason, _DESCRIPTION: description})


def with_application_properties(payload: bytes, properties: Mapping[str, AmqpValue]) -> bytes:
    """The encoded message with these application properties set, all others as they are."""
    return _with_items(payload, {encode(str(name)): value for name, value in properties.items()})


def _with_items(payload: bytes, new: Mapping[bytes, AmqpValue]) -> bytes:
    """The encoded message with application properties by their encoded names; None removes one."""
    sections = split(payload)
    known = next((section for section in sections if section.code == APPLICATION_PROPERTIES), None)
    if known is not None:
        start, end = known.start, known.end
        items = [item for item in map_items(payload, known.value_start) if item[0] not in new]
    else:
        start = next((section.start for section in sections if section.code > APPLICATION_PROPERTIES), len(payload))
        end, items = start, []
    items += [(key, encode(value)) for key, value in new.items() if value is not None]
    return payload[:start] + _APPLICATION_PROPERTIES + _encoded_map(items) + payload[end:]


def _senders_own(payload: bytes, section: Section) -> dict[Any, Any]:
    value = cast("dict[Any, Any]", section_value(payload, section))
    return {key: item for key, item in value.items() if key not in _BROKERS_OWN}


def _encoded_map(items: list[tuple[bytes, bytes]]) -> bytes:
    content = b"".join(key + value for key, value in items)
    return b"\xd1" + (len(content) + 4).to_bytes(4) + (2 * len(items)).to_bytes(4) + content
