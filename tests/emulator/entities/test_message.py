from __future__ import annotations

import re
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
from sbnotebook.emulator.entities.message import (
    BrokeredMessage,
    read_sent,
    render,
    with_application_properties,
    with_message_id,
)
from sbnotebook.errors import AmqpDecodeError
from tests.emulator.entities.conftest import encoded, sent

SCHEDULED = Symbol("x-opt-scheduled-enqueue-time")
END_OF_TIME = 253_402_300_799_999


def test_a_plain_message_is_kept_as_it_is() -> None:
    payload = encoded(b"hello")
    message = read_sent(payload)
    assert (message.payload, message.header_size, message.scheduled_time, message.time_to_live) == (
        payload,
        0,
        None,
        None,
    )
    assert (message.message_id, message.session_id, message.partition_key) == (None, None, None)
    assert (message.property_size, message.excess) == (0, None)


def test_read_sent_reads_the_fields_of_the_broker() -> None:
    message = sent("x", message_id="id", session_id="s", scheduled_time=1234, time_to_live=5, partition_key="p")
    assert (message.message_id, message.session_id, message.partition_key) == ("id", "s", "p")
    assert (message.scheduled_time, message.time_to_live) == (1234, 5)
    assert message.payload[message.header_size :] == encoded(b"x")


@pytest.mark.parametrize("properties", [None, [], [None], [None, b"user", "to"], [None, b"u" * 300], [None] * 300])
def test_a_message_without_an_id_gets_one(properties: list[Any] | None) -> None:
    around = {HEADER: [None, None, UInt(5)], MESSAGE_ANNOTATIONS: {Symbol("a"): "b"}, APPLICATION_PROPERTIES: {"c": 1}}
    message = read_sent(encoded(b"body", {**around} if properties is None else {**around, PROPERTIES: properties}))
    given, other = with_message_id(message), with_message_id(message)
    read: dict[int, Any] = {section.code: section_value(given, section) for section in split(given)}
    new, *rest = read.pop(PROPERTIES)
    assert re.fullmatch("[0-9a-f]{32}", new)
    assert rest == (properties or [])[1:]
    assert read == {**around, DATA: b"body"}
    assert other != given


@pytest.mark.parametrize("message_id", ["", "mine", b"bytes", ULong(0), uuid4()])
def test_an_id_of_the_senders_stays(message_id: AmqpValue) -> None:
    payload = encoded(b"body", {PROPERTIES: [message_id, b"user"]})
    assert with_message_id(read_sent(payload)) == payload


@pytest.mark.parametrize("properties", ["c00107", "c0020040", "d00000000400000007", "d000000000"])
def test_a_list_whose_count_is_wrong_can_be_given_an_id(properties: str) -> None:
    payload = b"\x00\x53\x73" + bytes.fromhex(properties) + b"\x00\x53\x75" + encode(b"body")
    given = with_message_id(read_sent(payload))
    assert read_sent(given).message_id is not None
    assert given.endswith(encode(b"body"))


MOST = UInt(2**32 - 1)


@pytest.mark.parametrize(
    ("header", "times", "life"),
    [
        (MOST, [], MOST),
        (UInt(0), [], 0),
        # A life too long for the header is in the properties, as two times in order.
        (MOST, [Timestamp(2**33 + 7), Timestamp(7)], 2**33),
        (ULong(2**32), [Timestamp(2**33 + 7), Timestamp(7)], 2**32),
        (MOST, [None, Timestamp(5)], MOST),
        (MOST, [Timestamp(5), None], MOST),
        (MOST, [Timestamp(5), Timestamp(5)], MOST),
        (MOST, [Timestamp(5), Timestamp(6)], MOST),
        # It ends with the last moment of .NET.
        (MOST, [Timestamp(2**63 - 1), Timestamp(-(2**63))], END_OF_TIME),
        (ULong(2**64 - 1), [], END_OF_TIME),
        (Long(2**63 - 1), [], END_OF_TIME),
    ],
)
def test_a_message_says_how_long_it_lives(header: AmqpValue, times: list[Any], life: int) -> None:
    sections: dict[int, AmqpValue] = {HEADER: [None, None, header], PROPERTIES: [*[None] * 8, *times]}
    assert read_sent(encoded(sections=sections)).time_to_live == life


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
def test_a_section_of_the_wrong_kind_is_refused(code: int, value: AmqpValue) -> None:
    with pytest.raises(AmqpDecodeError):
        read_sent(encoded(sections={code: value}))


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
    message = read_sent(b"\x00\x53\x73" + encode(["id"]) + behind)
    assert message.payload[message.header_size :] == behind


@pytest.mark.parametrize("count", [0, 1, 10, 11, 13])
def test_fields_that_a_message_leaves_out_are_none(count: int) -> None:
    message = read_sent(encoded(sections={PROPERTIES: [None] * count}))
    assert (message.message_id, message.session_id) == (None, None)


def test_no_property_is_large_where_annotations_are() -> None:
    sections: dict[int, AmqpValue] = {DELIVERY_ANNOTATIONS: {Symbol("a"): "x" * 40_000}, APPLICATION_PROPERTIES: {}}
    message = read_sent(encoded(sections=sections))
    assert (message.property_size, message.excess) == (0, None)


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
    dead = with_application_properties(taken, {"DeadLetterReason": "reason"})
    assert read_sent(render(BrokeredMessage(1, 1, 0, dead, len(dead)), dead, with_lock=True))


def test_an_empty_message_is_refused() -> None:
    with pytest.raises(AmqpDecodeError, match="it is empty"):
        read_sent(b"")


def test_the_last_moment_of_dotnet_is_a_time() -> None:
    payload = encoded(sections={MESSAGE_ANNOTATIONS: {SCHEDULED: Timestamp(END_OF_TIME)}})
    assert read_sent(payload).scheduled_time == END_OF_TIME
    for header in ([], [True], [True, None], [True, None, None, False]):
        assert read_sent(encoded(sections={HEADER: header})).time_to_live is None
