from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sbnotebook.amqp import AmqpValue, Described, Long, Symbol, Timestamp, UInt, ULong, encode, type_name
from sbnotebook.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    split,
)
from sbnotebook.errors import AmqpDecodeError
from sbnotebook.model import BodyType, EntityAddress, Message, MessageState, PeekedMessage
from sbnotebook.model.amqp_layout import FIRST_MOMENT, LAST_MOMENT
from sbnotebook.model.schema import columns_of
from sbnotebook.settlement.wire.decoding import peeked_from_payload
from sbnotebook.settlement.wire.encoding import payload_of
from sbnotebook.testing.strategies import PRIMITIVES, amqp_values, peeked_messages
from tests.comparison import differences

ORDERS = EntityAddress("orders")
ANNOTATIONS = (
    "x-opt-sequence-number",
    "x-opt-enqueue-sequence-number",
    "x-opt-enqueued-time",
    "x-opt-locked-until",
    "x-opt-scheduled-enqueue-time",
    "x-opt-partition-key",
    "x-opt-message-state",
    "x-opt-deadletter-source",
)


def section(code: int, value: Any) -> bytes:
    return encode(Described(ULong(code), value))


def annotated(**annotations: AmqpValue) -> bytes:
    named = {Symbol(f"x-opt-{name.replace('_', '-')}"): value for name, value in annotations.items()}
    return section(MESSAGE_ANNOTATIONS, named) + section(DATA, b"")


@given(peeked_messages())
def test_a_peeked_message_can_be_sent_as_it_is(message: PeekedMessage) -> None:
    found = peeked_from_payload(payload_of(message), ORDERS)
    assert differences(found, message) == {}
    # What only the service sets is not sent.
    assert (found.sequence_number, found.enqueued_time, found.delivery_count) == (0, None, 0)
    assert (found.state, found.dead_letter_source) == (MessageState.ACTIVE, None)


def test_nothing_is_written_of_what_is_not_set() -> None:
    assert payload_of(Message(body=b"a")) == section(DATA, b"a")
    assert [each.code for each in split(payload_of(Message(subject="s", application_properties={"n": 1})))] == [
        PROPERTIES,
        APPLICATION_PROPERTIES,
        DATA,
    ]


def test_a_content_type_is_a_symbol_where_it_can_be() -> None:
    assert encode(Symbol("application/json")) in payload_of(Message(content_type="application/json"))
    assert encode("tëxt") in payload_of(Message(content_type="tëxt"))


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (Message(body=b"", body_type=BodyType.VALUE), AmqpDecodeError),
        (Message(body=b"\xff", body_type=BodyType.VALUE), AmqpDecodeError),
        (Message(body=encode(1) + encode(2), body_type=BodyType.VALUE), AmqpDecodeError),
        (Message(body=encode("text"), body_type=BodyType.SEQUENCE), AmqpDecodeError),
        (Message(body=encode([1])[:-1], body_type=BodyType.SEQUENCE), AmqpDecodeError),
        (Message(application_properties={"n": ULong(-1)}), OverflowError),
        (Message(time_to_live=timedelta(seconds=-1)), OverflowError),
        (Message(application_properties={"n": object()}), TypeError),  # pyright: ignore[reportArgumentType]
    ],
    ids=range(8),
)
def test_what_cannot_be_sent_is_refused(message: Message, error: type[Exception]) -> None:
    with pytest.raises(error):
        payload_of(message)


@pytest.mark.parametrize("when", [FIRST_MOMENT, LAST_MOMENT])
def test_a_scheduled_time_within_the_calendar_is_no_extra(when: Timestamp) -> None:
    found = peeked_from_payload(annotated(scheduled_enqueue_time=when), ORDERS)
    assert (found.scheduled_enqueue_time, found.extras) == (when.to_datetime(), {})


def test_moments_beyond_the_calendar_are_its_ends() -> None:
    late = peeked_from_payload(annotated(enqueued_time=Timestamp(2**63 - 1)), ORDERS).enqueued_time
    early = peeked_from_payload(annotated(enqueued_time=Timestamp(-(2**63))), ORDERS).enqueued_time
    assert late == datetime.max.replace(tzinfo=UTC)
    assert early == datetime.min.replace(tzinfo=UTC)


def test_longest_time_to_live_of_a_header_is_none() -> None:
    """So Azure hands out messages without one; sent again with it, they would end."""
    for longest, read in ((2**32 - 1, None), (2**32 - 2, timedelta(milliseconds=2**32 - 2))):
        payload = section(HEADER, [None, None, UInt(longest)]) + annotated(enqueued_time=Timestamp(0))
        found = peeked_from_payload(payload, ORDERS)
        assert found.time_to_live == read
        assert (found.expires_at is None) == (read is None)


@pytest.mark.parametrize(
    ("creation", "expiry", "milliseconds"),
    [
        (Timestamp(0), Timestamp(2**32), 2**32),
        (Timestamp(1_000), Timestamp(2**33), 2**33 - 1_000),
        (Timestamp(0), Timestamp(2**32 - 1), None),
        (Timestamp(1_000), Timestamp(2_000), None),
        (Timestamp(2**33), Timestamp(0), None),
        (Timestamp(0), None, None),
        (None, Timestamp(2**33), None),
        ("x", Timestamp(2**33), None),
        (Timestamp(0), Long(2**33), None),
    ],
)
def test_a_life_that_is_too_long_for_the_header_is_read_beside_it(
    creation: AmqpValue, expiry: AmqpValue, milliseconds: int | None
) -> None:
    payload = section(HEADER, [None, None, UInt(2**32 - 1)]) + section(PROPERTIES, [None] * 8 + [expiry, creation])
    life = None if milliseconds is None else timedelta(milliseconds=milliseconds)
    assert peeked_from_payload(payload, ORDERS).time_to_live == life


def test_a_message_that_outlives_the_calendar_never_expires() -> None:
    payload = section(HEADER, [None, None, UInt(2**32 - 2)]) + annotated(enqueued_time=Timestamp(253_402_300_000_000))
    found = peeked_from_payload(payload, ORDERS)
    assert (found.expires_at, found.time_to_live) == (None, timedelta(milliseconds=2**32 - 2))


# ------------------------------------------------------------------ hostile payloads

ANYTHING = st.lists(amqp_values(), max_size=14)


@given(
    header=ANYTHING,
    properties=ANYTHING,
    annotations=st.dictionaries(st.sampled_from(ANNOTATIONS).map(Symbol), amqp_values()),
    named=st.dictionaries(st.one_of(PRIMITIVES["string"], PRIMITIVES["ulong"], PRIMITIVES["null"]), amqp_values()),
)
@example(header=[None, None, ULong(2**64 - 1), None, ULong(2**64 - 1)], properties=[], annotations={}, named={})
def test_values_of_unexpected_types_hide_no_message(
    header: list[Any], properties: list[Any], annotations: dict[Any, Any], named: dict[Any, Any]
) -> None:
    parts = {
        HEADER: header,
        MESSAGE_ANNOTATIONS: annotations,
        PROPERTIES: properties,
        APPLICATION_PROPERTIES: named,
        DATA: b"body",
    }
    found = peeked_from_payload(b"".join(section(code, value) for code, value in parts.items()), ORDERS)
    assert found.body == b"body"
    assert {type_name(value) for value in found.application_properties.values()} <= {*map(type_name, named.values())}
    assert columns_of([found])["body_text"] == ["body"]


@pytest.mark.parametrize("code", [HEADER, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES, DATA, FOOTER])
@pytest.mark.parametrize("value", ["text", 5, Described(ULong(1), [])], ids=["text", "number", "described"])
def test_a_section_of_another_type_is_no_message(code: int, value: AmqpValue) -> None:
    found = peeked_from_payload(section(code, value), ORDERS)
    assert "where it cannot" in str(found.unreadable)
    assert found.body == section(code, value)


def test_a_section_of_null_is_as_if_it_were_not_there() -> None:
    payload = b"".join(section(code, None) for code in (HEADER, MESSAGE_ANNOTATIONS, PROPERTIES, DATA))
    found = peeked_from_payload(payload, ORDERS)
    assert found == PeekedMessage(entity=ORDERS, sequence_number=0)
    assert peeked_from_payload(payload_of(found), ORDERS) == found


def test_what_is_not_read_is_missing() -> None:
    written = Message(body=b'{"n": 1}', message_id="id", application_properties={"a": Long(1)})
    payload = annotated(sequence_number=Long(7)).removesuffix(section(DATA, b"")) + payload_of(written)
    service = peeked_from_payload(payload, ORDERS, ())
    assert (service.sequence_number, service.message_id, service.body) == (7, None, b"")
    properties = peeked_from_payload(payload, ORDERS, {PROPERTIES})
    assert (properties.message_id, properties.body, dict(properties.application_properties)) == ("id", b"", {})
    body = peeked_from_payload(payload, ORDERS, {DATA})
    assert (body.message_id, body.body) == (None, b'{"n": 1}')


@pytest.mark.parametrize("code", [SEQUENCE, VALUE])
def test_a_damaged_body_is_shown_as_bytes(code: int) -> None:
    # A list that says it has one element more than it has: its size is right, so it can be skipped.
    payload = bytes((0x00, 0x53, code)) + b"\xc0\x02\x02\x40"
    found = peeked_from_payload(payload, ORDERS)
    assert (found.body, found.body_text) == (b"\xc0\x02\x02\x40", None)


WHOLE = payload_of(
    Message(
        body=b'{"n": 1}',
        message_id="id",
        session_id="session",
        time_to_live=timedelta(seconds=1),
        scheduled_enqueue_time=datetime(2024, 1, 1, tzinfo=UTC),
        application_properties={"a": Long(1), "b": [1, "x"], "c": b"\xff"},
    )
)


@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_mutated_message_is_read_or_refused(changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(WHOLE)
    for at, byte in changes:
        damaged[at] = byte
    found = peeked_from_payload(bytes(damaged), ORDERS)
    assert columns_of([found])["body"] == [found.body]
    assert found.unreadable is None or found.body == bytes(damaged)


@given(st.integers(0, len(WHOLE)))
def test_a_message_that_is_cut_short_says_so(length: int) -> None:
    ends = {each.end for each in split(WHOLE)} | {0}
    found = peeked_from_payload(WHOLE[:length], ORDERS)
    assert (found.unreadable is None) == (length in ends)
    if found.unreadable:
        assert found.body == WHOLE[:length]
        with pytest.raises(AmqpDecodeError, match="cannot be sent"):
            payload_of(found)
