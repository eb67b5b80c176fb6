"""Messages as they go out: stored bytes with a new header and new annotations.

Properties, application properties and body stay byte for byte what the sender wrote.

Source: AMQP 1.0 part 3, section 3.2; Service Bus documentation, "AMQP 1.0 protocol guide", "Message
annotations".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from sbnotebook.amqp import AmqpValue, Long, Symbol, UInt, encode
from sbnotebook.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MAPS,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    VALUE,
    Section,
    elements,
    find_section,
    key_text,
    map_of,
    section_value,
    split,
    with_list_item,
    with_map_items,
)
from sbnotebook.emulator.entities.message import BrokeredMessage, BrokeredState, read_sent
from sbnotebook.emulator.entities.refusals import Condition, RefusedError

_HEADER: Final = b"\x00\x53\x70"
_DELIVERY_ANNOTATIONS: Final = b"\x00\x53\x71"
_ANNOTATIONS: Final = b"\x00\x53\x72"
_DELIVERY_COUNT: Final = 4  # its place among the fields of the header
_TIME_TO_LIVE: Final = 2
_MAX_UINT: Final = 2**32 - 1

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
        elif section.code >= PROPERTIES:
            rest = section.start
            break
    content = payload[rest:]
    # Add what only the broker sets.
    if without_body:
        content = _without_body(content)
        delivery.append(_OMITTED_SIZE + encode(Long(len(payload) - rest - len(content))))
    if is_delivery and message.lock_token is not None:
        delivery.append(_LOCK_TOKEN + message.lock_token.bytes)
    keeps_scheduled = is_delivery or keeps_scheduled
    items += _brokers_own(message, is_delivery=is_delivery, with_lock=with_lock, keeps_scheduled=keeps_scheduled)
    return b"".join(
        (_header(message, header), _DELIVERY_ANNOTATIONS, map_of(delivery), _ANNOTATIONS, map_of(items), content)
    )


def _without_body(content: bytes) -> bytes:
    return b"".join(content[part.start : part.end] for part in split(content) if not DATA <= part.code <= VALUE)


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
        waits_until = message.scheduled_time if message.state is BrokeredState.SCHEDULED else None
        since = waits_until or message.enqueued_time
        fields[_TIME_TO_LIVE] = UInt(min(message.expires_at - since, _MAX_UINT))
    return _HEADER + encode(fields)


def with_dead_letter_reason(payload: bytes, reason: str | None, description: str | None) -> bytes:
    """Return the encoded message with the application properties that explain its dead-lettering."""
    return _with_properties(payload, {"DeadLetterReason": reason, "DeadLetterErrorDescription": description})


def with_time_to_live(message: BrokeredMessage, payload: bytes) -> bytes:
    """Return the encoded message with the time to live that its entity gave it, if the sender asked for more or none.

    Sources: Service Bus documentation, "Message expiration"; a forwarded message keeps it (azure-sdk-for-net 6748).
    """
    if message.expires_at is None:
        return payload
    life = message.expires_at - message.enqueued_time
    header = find_section(payload, HEADER)
    fields = [] if header is None else cast("list[Any]", section_value(payload, header))
    asked = fields[_TIME_TO_LIVE] if len(fields) > _TIME_TO_LIVE else None
    if life >= _MAX_UINT or (asked is not None and asked <= life):
        return payload
    return with_list_item(payload, HEADER, _TIME_TO_LIVE, encode(UInt(life)))


def with_application_properties(payload: bytes, properties: Mapping[str, AmqpValue]) -> bytes:
    """Return the encoded message with these application properties set; all others stay."""
    changed = _with_properties(payload, properties)
    excess = read_sent(changed).excess
    if excess is not None:
        raise RefusedError(Condition.MESSAGE_SIZE_EXCEEDED, excess)
    return changed


def _with_properties(payload: bytes, properties: Mapping[str, AmqpValue]) -> bytes:
    """Set application properties; None removes one."""
    encoded = {str(name): None if value is None else encode(value) for name, value in properties.items()}
    return with_map_items(payload, APPLICATION_PROPERTIES, encoded)


def _senders_own(payload: bytes, section: Section) -> list[bytes]:
    """Return the sender's annotations, encoded as they came, without those that only the broker sets."""
    return [key + value for key, value in _pairs(payload, section) if key_text(key) not in _BROKERS_OWN]


def _pairs(payload: bytes, section: Section) -> Iterable[tuple[bytes, bytes]]:
    found = elements(payload, section.value_start, MAPS)
    return zip(found[0::2], found[1::2], strict=True)
