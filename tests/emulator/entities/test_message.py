from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.amqp import AmqpValue, Int, Long, Symbol, Timestamp, UInt, ULong, encode
from sbnotebook.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    section_value,
    split,
)
from sbnotebook.emulator.entities import BrokeredMessage, SentMessage, read_sent
from sbnotebook.emulator.entities.message import with_message_id
from sbnotebook.emulator.entities.rendering import render, with_dead_letter_reason
from sbnotebook.errors import AmqpDecodeError
from tests.emulator.entities.conftest import encoded

Encode = Callable[..., bytes]
SCHEDULED = Symbol("x-opt-scheduled-enqueue-time")
END_OF_TIME = 253_402_300_799_999


def test_a_plain_message_is_kept_as_it_is(encode_message: Encode) -> None:
    payload = encode_message(b"hello")
    sent = read_sent(payload)
    assert (sent.payload, sent.header_size, sent.scheduled_time, sent.time_to_live) == (payload, 0, None, None)
    assert (sent.message_id, sent.session_id, sent.partition_key) == (None, None, None)
    assert (sent.property_size, sent.excess) == (0, None)


def test_read_sent_reads_the_fields_of_the_broker(sent: Callable[..., SentMessage]) -> None:
    message = sent("x", message_id="id", session_id="s", scheduled_time=1234, time_to_live=5, partition_key="p")
    assert (message.message_id, message.session_id, message.partition_key) == ("id", "s", "p")
    assert (message.scheduled_time, message.time_to_live) == (1234, 5)
    assert message.payload[message.header_size :] == encoded(b"x")


@pytest.mark.parametrize("properties", [None, [], [None], [None, b"user", "to"], [None, b"u" * 300], [None] * 300])
def test_a_message_without_an_id_gets_one(encode_message: Encode, properties: list[Any] | None) -> None:
    around = {HEADER: [None, None, UInt(5)], MESSAGE_ANNOTATIONS: {Symbol("a"): "b"}, APPLICATION_PROPERTIES: {"c": 1}}
    message = read_sent(
        encode_message(b"body", {**around} if properties is None else {**around, PROPERTIES: properties})
    )
    given, other = with_message_id(message), with_message_id(message)
    read: dict[int, Any] = {section.code: section_value(given, section) for section in split(given)}
    new, *rest = read.pop(PROPERTIES)
    assert re.fullmatch("[0-9a-f]{32}", new)
    assert rest == (properties or [])[1:]
    assert read == {**around, DATA: b"body"}
    assert other != given


@pytest.mark.parametrize("message_id", ["", "mine", b"bytes", ULong(0), uuid4()])
def test_an_id_of_the_senders_stays(encode_message: Encode, message_id: AmqpValue) -> None:
    payload = encode_message(b"body", {PROPERTIES: [message_id, b"user"]})
    assert with_message_id(read_sent(payload)) == payload


def test_an_id_is_all_that_a_small_message_has(encode_message: Encode) -> None:
    given = with_message_id(read_sent(encode_message(b"body")))
    assert read_sent(given).message_id is not None
    assert given.endswith(encoded(b"body"))


@pytest.mark.parametrize("properties", ["c00107", "c0020040", "d00000000400000007", "d000000000"])
def test_a_list_whose_count_is_wrong_can_be_given_an_id(properties: str) -> None:
    payload = b"\x00\x53\x73" + bytes.fromhex(properties) + b"\x00\x53\x75" + encode(b"body")
    given = with_message_id(read_sent(payload))
    assert read_sent(given).message_id is not None
    assert given.endswith(encode(b"body"))


def test_a_long_life_stands_in_the_properties(encode_message: Encode) -> None:
    most = UInt(2**32 - 1)
    properties: list[Any] = [None] * 8 + [Timestamp(2**33 + 7), Timestamp(7)]
    both = encode_message(sections={HEADER: [None, None, most], PROPERTIES: properties})
    assert read_sent(both).time_to_live == 2**33
    assert read_sent(encode_message(sections={HEADER: [None, None, most]})).time_to_live == most
    longer = encode_message(sections={HEADER: [None, None, ULong(2**32)], PROPERTIES: properties})
    assert read_sent(longer).time_to_live == 2**32


@pytest.mark.parametrize("life", [ULong(2**64 - 1), Long(2**63 - 1)])
def test_time_to_live_is_capped_at_the_last_moment_of_dotnet(encode_message: Encode, life: AmqpValue) -> None:
    assert read_sent(encode_message(sections={HEADER: [None, None, life]})).time_to_live == END_OF_TIME


def test_two_times_that_lie_far_apart_are_no_longer_life(encode_message: Encode) -> None:
    properties: list[Any] = [None] * 8 + [Timestamp(2**63 - 1), Timestamp(-(2**63))]
    payload = encode_message(sections={HEADER: [None, None, UInt(2**32 - 1)], PROPERTIES: properties})
    assert read_sent(payload).time_to_live == END_OF_TIME


@pytest.mark.parametrize(
    ("code", "value"),
    [
        (HEADER, {}),
        (PROPERTIES, "text"),
        (MESSAGE_ANNOTATIONS, []),
        (MESSAGE_ANNOTATIONS, {SCHEDULED: "tomorrow"}),
        (MESSAGE_ANNOTATIONS, {SCHEDULED: Timestamp(END_OF_TIME + 1)}),
        (HEADER, [None, None, "long"]),
        (HEADER, [None, None, Int(-1)]),
        (APPLICATION_PROPERTIES, [1]),
    ],
)
def test_a_section_of_the_wrong_kind_is_refused(encode_message: Encode, code: int, value: AmqpValue) -> None:
    with pytest.raises(AmqpDecodeError):
        read_sent(encode_message(sections={code: value}))


@given(st.permutations(range(6)))
def test_sections_in_any_order_are_put_in_their_places(order: list[int]) -> None:
    sections = [
        b"\x00\x53\x70" + encode([True, None, UInt(5)]),
        b"\x00\x53\x71" + encode({Symbol("d"): 1}),
        b"\x00\x53\x72" + encode({SCHEDULED: Timestamp(5)}),
        b"\x00\x53\x73" + encode(["id"]),
        b"\x00\x53\x77" + encode("body"),
        b"\x00\x53\x78" + encode({Symbol("f"): 1}),
    ]
    message = read_sent(b"".join(sections[at] for at in order))
    assert message.payload == b"".join(sections)
    assert (message.message_id, message.time_to_live, message.scheduled_time) == ("id", 5, 5)


def test_a_body_of_several_parts_and_its_footer_stay() -> None:
    body = b"".join(b"\x00\x53\x75" + encode(part) for part in (b"first", b"second"))
    behind = body + b"\x00\x53\x78" + encode({})
    sent = read_sent(b"\x00\x53\x73" + encode(["id"]) + behind)
    assert sent.payload[sent.header_size :] == behind


@pytest.mark.parametrize("count", [0, 1, 10, 11, 13])
def test_fields_that_a_message_leaves_out_are_none(encode_message: Encode, count: int) -> None:
    sent = read_sent(encode_message(sections={PROPERTIES: [None] * count}))
    assert (sent.message_id, sent.session_id) == (None, None)


def test_no_property_is_large_where_annotations_are(encode_message: Encode) -> None:
    sections: dict[int, AmqpValue] = {DELIVERY_ANNOTATIONS: {Symbol("a"): "x" * 40_000}, APPLICATION_PROPERTIES: {}}
    sent = read_sent(encode_message(sections=sections))
    assert (sent.property_size, sent.excess) == (0, None)


def test_a_section_that_comes_twice_is_refused() -> None:
    properties, footer = b"\x00\x53\x73\x45", b"\x00\x53\x78" + encode({})
    for payload in (properties * 2, footer + properties + footer, properties + footer + properties):
        with pytest.raises(AmqpDecodeError, match="comes twice"):
            read_sent(payload)


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
        taken = read_sent(payload).payload
    except AmqpDecodeError:
        return
    dead = with_dead_letter_reason(taken, "reason", "description")
    assert read_sent(render(BrokeredMessage(1, 1, 0, dead), dead, with_lock=True))


@pytest.mark.parametrize(("payload", "size", "known"), [(b"abc", -1, 3), (b"abc", 0, 0), (None, 9, 9), (None, -1, 0)])
def test_a_message_knows_the_size_of_its_payload(payload: bytes | None, size: int, known: int) -> None:
    assert BrokeredMessage(1, 1, 0, payload, size).size == known


def test_an_empty_message_is_refused() -> None:
    with pytest.raises(AmqpDecodeError, match="it is empty"):
        read_sent(b"")


def test_the_last_moment_of_dotnet_is_a_time(encode_message: Encode) -> None:
    payload = encode_message(sections={MESSAGE_ANNOTATIONS: {SCHEDULED: Timestamp(END_OF_TIME)}})
    assert read_sent(payload).scheduled_time == END_OF_TIME
    assert read_sent(encode_message(sections={HEADER: [None, None, UInt(0)]})).time_to_live == 0
    for header in ([], [True], [True, None], [True, None, None, False]):
        assert read_sent(encode_message(sections={HEADER: header})).time_to_live is None


@pytest.mark.parametrize(
    "times", [[None, Timestamp(5)], [Timestamp(5), None], [Timestamp(5), Timestamp(5)], [Timestamp(5), Timestamp(6)]]
)
def test_a_long_life_needs_two_times_in_order(encode_message: Encode, times: list[Any]) -> None:
    most = UInt(2**32 - 1)
    payload = encode_message(sections={HEADER: [None, None, most], PROPERTIES: [*[None] * 8, *times]})
    assert read_sent(payload).time_to_live == most
