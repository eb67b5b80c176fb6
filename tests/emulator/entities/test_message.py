from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.emulator.entities import BrokeredMessage, read_sent, render
from sbnotebook.emulator.entities.message import map_items
from sbnotebook.emulator.entities.rendering import with_dead_letter_reason
from sbnotebook.errors import AmqpDecodeError
from sbnotebook.model.amqp import AmqpValue, Symbol, Timestamp, UInt, encode
from sbnotebook.model.sections import APPLICATION_PROPERTIES, HEADER, MESSAGE_ANNOTATIONS, PROPERTIES

Encode = Callable[..., bytes]
SCHEDULED = Symbol("x-opt-scheduled-enqueue-time")


def test_a_plain_message_is_kept_as_it_is(encode_message: Encode) -> None:
    payload = encode_message(b"hello")
    assert read_sent(payload) == (payload, None)


def test_the_scheduled_time_is_read(encode_message: Encode) -> None:
    payload = encode_message(sections={MESSAGE_ANNOTATIONS: {SCHEDULED: Timestamp(1234)}})
    assert read_sent(payload).scheduled_time == 1234


def test_delivery_annotations_are_not_kept_wherever_they_stand(encode_message: Encode) -> None:
    payload = encode_message(b"hello", {PROPERTIES: ["id"]})
    annotations = b"\x00\x53\x71" + encode({Symbol("hop"): 1})
    assert read_sent(annotations + payload) == read_sent(payload + annotations) == (payload, None)


@pytest.mark.parametrize(
    ("code", "value"),
    [
        (HEADER, {}),
        (PROPERTIES, "text"),
        (MESSAGE_ANNOTATIONS, []),
        (MESSAGE_ANNOTATIONS, {SCHEDULED: "tomorrow"}),
        (APPLICATION_PROPERTIES, [1]),
    ],
)
def test_a_section_of_the_wrong_kind_is_refused(encode_message: Encode, code: int, value: AmqpValue) -> None:
    with pytest.raises(AmqpDecodeError):
        read_sent(encode_message(sections={code: value}))


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_can_be_delivered(payload: bytes) -> None:
    _deliver_if_taken(payload)


@given(st.data())
def test_damaged_messages_are_refused_or_can_be_delivered(data: st.DataObject) -> None:
    whole = b"".join(
        (
            b"\x00\x53\x70" + encode([True, None, UInt(5)]),
            b"\x00\x53\x72" + encode({SCHEDULED: Timestamp(5), Symbol("x"): [1, "a", {"b": 2.5}]}),
            b"\x00\x53\x73" + encode(["id", b"user"]),
            b"\x00\x53\x74" + encode({"a": 1, "b": "text", "DeadLetterReason": "old"}),
            b"\x00\x53\x75" + encode(b"body"),
        )
    )
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    _deliver_if_taken(bytes(damaged))


def _deliver_if_taken(payload: bytes) -> None:
    try:
        read_sent(payload)
    except AmqpDecodeError:
        return
    dead = BrokeredMessage(1, 1, 0, with_dead_letter_reason(payload, "reason", "description"))
    assert read_sent(render(dead, with_lock=True))


@pytest.mark.parametrize("count", [0, 1, 40, 300])
def test_a_map_is_cut_into_its_items(count: int) -> None:
    value: AmqpValue = {f"key {number}": number for number in range(count)}
    encoded = b"\x40" + encode(value)
    assert map_items(encoded, 1) == [(encode(f"key {number}"), encode(number)) for number in range(count)]
