"""What a message carries beside its fields: read, kept, and sent again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings

from sbnotebook.amqp import AmqpValue, Described, Long, Symbol, Timestamp, UByte, UInt, ULong, encode
from sbnotebook.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    section_value,
    split,
)
from sbnotebook.analysis.frames import messages_from, to_arrow, to_pandas
from sbnotebook.errors import AmqpDecodeError, ConfigurationError
from sbnotebook.model import EntityAddress, Message, PeekedMessage, Resubmit
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.wire.decoding import locked_from_payload, peeked_from_payload
from sbnotebook.settlement.wire.encoding import payload_of
from sbnotebook.testing.strategies import messages, peeked_messages
from tests.comparison import differences
from tests.filled_queues import filled_queue

ORDERS = EntityAddress("orders")
LONG = timedelta(days=49)
LATER = Timestamp(4_102_444_800_000)
TYPED: dict[str, AmqpValue] = {
    "message_id": UUID(int=7),
    "to": Symbol("there"),
    "subject": b"\xff",
    "correlation_id": ULong(5),
    "content_type": "text/plain",
    "session_id": Symbol("s"),
}
PLACES = {"message_id": 0, "to": 2, "subject": 3, "correlation_id": 5, "content_type": 6, "session_id": 10}


def section(code: int, value: Any) -> bytes:
    return encode(Described(ULong(code), value))


def properties_of(message: Message) -> list[Any]:
    payload = payload_of(message)
    found = [section_value(payload, part) for part in split(payload) if part.code == PROPERTIES]
    values: Any = found[0] if found else []
    return values + [None] * (13 - len(values))


def message_with_typed_fields() -> PeekedMessage:
    values: list[AmqpValue] = [None] * 13
    for name, value in TYPED.items():
        values[PLACES[name]] = value
    return peeked_from_payload(section(PROPERTIES, values) + section(DATA, b""), ORDERS)


@given(peeked_messages())
def test_a_message_with_extras_comes_back_from_its_bytes(message: PeekedMessage) -> None:
    found = peeked_from_payload(payload_of(message), ORDERS)
    assert differences(found, message) == {}
    assert payload_of(found) == payload_of(message)


def test_fields_of_other_types_keep_them() -> None:
    found = message_with_typed_fields()
    assert (found.message_id, found.correlation_id, found.subject) == (str(UUID(int=7)), "5", "\ufffd")
    assert found.extras == TYPED
    sent = properties_of(found)
    for name, value in TYPED.items():
        assert (sent[PLACES[name]], type(sent[PLACES[name]])) == (value, type(value))


@pytest.mark.parametrize("name", TYPED)
def test_a_field_that_is_changed_wins_over_its_extra(name: str) -> None:
    found = message_with_typed_fields()
    assert properties_of(found.with_changes(**{name: "new"}))[PLACES[name]] == "new"
    assert properties_of(found.with_changes(**{name: None}))[PLACES[name]] is None


def test_annotations_of_the_service_are_not_sent() -> None:
    annotations = {
        Symbol("x-opt-sequence-number"): Long(5),
        Symbol("x-opt-partition-id"): Long(5),
        Symbol("x-opt-lock-token"): UUID(int=1),
        Symbol("x-mine"): "a",
        ULong(7): "b",
    }
    found = peeked_from_payload(section(MESSAGE_ANNOTATIONS, annotations) + section(DATA, b""), ORDERS)
    assert found.extras == {"message_annotations": {"x-mine": "a", 7: "b"}}
    claimed = found.with_changes(extras={"message_annotations": annotations})
    assert (
        payload_of(claimed)
        == payload_of(found)
        == section(MESSAGE_ANNOTATIONS, {Symbol("x-mine"): "a", ULong(7): "b"}) + section(DATA, b"")
    )


def test_annotation_names_of_a_user_become_symbols() -> None:
    sent = payload_of(Message(extras={"footer": {"crc": 5}}))
    assert sent == section(DATA, b"") + section(FOOTER, {Symbol("crc"): 5})


@pytest.mark.parametrize("when", [Timestamp(2**62), Timestamp(-(2**62)), "soon"], ids=str)
def test_scheduled_time_beyond_the_calendar_is_sent_unchanged(when: AmqpValue) -> None:
    name = Symbol("x-opt-scheduled-enqueue-time")
    payload = section(MESSAGE_ANNOTATIONS, {name: when}) + section(DATA, b"")
    found = peeked_from_payload(payload, ORDERS)
    assert payload_of(found) == payload
    at = datetime(2030, 1, 1, tzinfo=UTC)
    assert payload_of(found.with_changes(scheduled_enqueue_time=at)) == section(
        MESSAGE_ANNOTATIONS, {name: Timestamp.from_datetime(at)}
    ) + section(DATA, b"")


def test_a_partition_key_of_another_type_is_sent_as_it_was() -> None:
    payload = section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-partition-key"): Symbol("k")}) + section(DATA, b"")
    found = peeked_from_payload(payload, ORDERS)
    assert found.partition_key == "k"
    assert payload_of(found) == payload


def test_names_of_properties_that_are_no_strings_are_kept() -> None:
    payload = section(APPLICATION_PROPERTIES, {Symbol("a"): 1, ULong(4): 2, "b": 3}) + section(DATA, b"")
    found = peeked_from_payload(payload, ORDERS)
    assert dict(found.application_properties) == {"a": 1, "4": 2, "b": 3}
    assert payload_of(found) == payload


@pytest.mark.parametrize(
    "payload",
    [
        section(DATA, b"one ") + section(DATA, b"") + section(DATA, b"two"),
        section(PROPERTIES, ["id"]),
        section(HEADER, [False, UByte(9), None, True]) + section(DATA, b""),
        section(SEQUENCE, [1]) + section(SEQUENCE, []) + section(FOOTER, {Symbol("a"): []}),
    ],
    ids=["data in three parts", "no body", "a header", "sequences with a footer"],
)
def test_sections_come_back_as_they_were(payload: bytes) -> None:
    assert payload_of(peeked_from_payload(payload, ORDERS)) == payload


def test_a_body_that_is_changed_is_one_section() -> None:
    found = peeked_from_payload(section(DATA, b"one ") + section(DATA, b"two"), ORDERS)
    assert payload_of(found.with_changes(body=b"x")) == section(DATA, b"x")


# ------------------------------------------------------------------ how long a message lives


@pytest.mark.parametrize("days", [49, 60, 3_000, 3_650_000])
def test_a_time_to_live_of_any_length_comes_back(days: int) -> None:
    found = peeked_from_payload(payload_of(Message(time_to_live=timedelta(days=days))), ORDERS)
    assert found.time_to_live is not None
    # At the end of the calendar nothing can live longer.
    assert found.time_to_live == timedelta(days=days) or days > 3_000
    assert found.time_to_live > timedelta(days=48)


def expiring(creation: AmqpValue, expiry: AmqpValue, ttl: timedelta | None) -> list[AmqpValue]:
    sent = properties_of(Message(time_to_live=ttl, extras={"creation_time": creation, "absolute_expiry_time": expiry}))
    return [sent[9], sent[8]]


def test_expiry_that_contradicts_the_time_to_live_is_left_out() -> None:
    minute = timedelta(minutes=1)
    over = Timestamp(1_000)
    fitting = Timestamp(LATER + 60_000)
    assert expiring(LATER, fitting, minute) == [LATER, fitting]
    assert expiring(LATER, fitting, None) == [LATER, fitting]
    assert expiring(None, LATER, minute) == [None, LATER]
    assert expiring(LATER, fitting, 2 * minute) == [LATER, None]
    assert expiring(LATER, fitting, minute / 2) == [LATER, None]
    rest = timedelta(milliseconds=LATER % 70_000)
    assert expiring(Timestamp(70_000), LATER, rest) == [70_000, None], "seventy years, and not the rest"
    assert expiring(Timestamp(0), over, timedelta(seconds=1)) == [0, None]
    assert expiring(None, over, None) == [None, None]
    # A value of another type is ignored, and sent unchanged.
    assert expiring("x", "y", minute) == ["x", "y"]


def test_a_long_life_that_is_over_begins_again() -> None:
    start, end = expiring(Timestamp(0), Timestamp(86_400_000 * 60), timedelta(days=60))
    assert isinstance(start, Timestamp)
    assert isinstance(end, Timestamp)
    assert end - start == 86_400_000 * 60
    assert abs(start.to_datetime() - datetime.now(UTC)) < timedelta(hours=1)


def test_a_long_life_goes_on_from_its_creation() -> None:
    yesterday = Timestamp.from_datetime(datetime.now(UTC) - timedelta(days=1))
    assert expiring(yesterday, None, timedelta(days=60)) == [yesterday, yesterday + 86_400_000 * 60]


@pytest.mark.parametrize(("milliseconds", "is_beside"), [(60_000, False), (2**32 - 1, False), (2**32, True)])
def test_only_a_life_that_is_too_long_is_written_beside(milliseconds: int, is_beside: bool) -> None:
    sent = properties_of(Message(time_to_live=timedelta(milliseconds=milliseconds)))
    assert [value is not None for value in sent[8:10]] == [is_beside] * 2


# ------------------------------------------------------------------ unreadable messages


HOSTILE_KEY = b"\x45"  # an empty list, which no mapping can have as a key


def annotated_by_the_service(*items: bytes, more: bytes = b"") -> bytes:
    known = encode(Symbol("x-opt-sequence-number")) + encode(Long(2**40))
    content = b"".join((*items, known))
    head = b"\x00\x53\x72\xd1" + (len(content) + 4).to_bytes(4) + (2 * len(items) + 2).to_bytes(4)
    return section(HEADER, [None, None, UInt(60_000), None, UInt(3)]) + head + content + more


@pytest.mark.parametrize(
    "payload",
    [
        annotated_by_the_service(HOSTILE_KEY + b"\x40", more=section(DATA, b"body")),
        annotated_by_the_service(more=b"\x00\x53\x75\xa0\xff"),
        annotated_by_the_service(more=b"no section at all"),
        annotated_by_the_service(more=section(PROPERTIES, 5) + section(DATA, b"body")),
        annotated_by_the_service(more=section(DATA, b"one") + section(VALUE, 1)),
        annotated_by_the_service(more=section(SEQUENCE, [1]) + section(VALUE, 1)),
        annotated_by_the_service(more=section(PROPERTIES, [b"\xa1\x01\xff"])[:-4] + b"\xa1\x01\xff"),
    ],
    ids=[
        "a list as a key",
        "cut short",
        "no section",
        "a number for properties",
        "two bodies",
        "two others",
        "no UTF-8",
    ],
)
def test_what_cannot_be_read_says_so_and_is_numbered(payload: bytes) -> None:
    found = peeked_from_payload(payload, ORDERS)
    assert found.unreadable
    assert (found.sequence_number, found.delivery_count, found.body) == (2**40, 3, payload)
    assert found.time_to_live == timedelta(minutes=1)
    locked = locked_from_payload(payload, ORDERS, UUID(int=1))
    assert (locked.unreadable, locked.sequence_number) == (found.unreadable, 2**40)
    for sent in (found, *messages_from(to_arrow([found]))):
        with pytest.raises(AmqpDecodeError, match="cannot be sent"):
            payload_of(sent)


def test_an_unreadable_message_keeps_its_header_before_a_null() -> None:
    header = section(HEADER, [None, None, UInt(60_000), None, UInt(3)])
    annotations = section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-sequence-number"): Long(2**40)})
    found = peeked_from_payload(header + section(DELIVERY_ANNOTATIONS, None) + annotations + b"no section", ORDERS)
    assert (found.sequence_number, found.delivery_count) == (2**40, 3)


@pytest.mark.parametrize("extras", [{"colour": 1}, {"footer": 5}, {"data_sections": {}}], ids=str)
def test_an_extra_that_cannot_be_is_refused(extras: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="extra"):
        payload_of(Message(extras=extras))


@pytest.mark.parametrize("sizes", [[4, -1], [1, 1], [2, "1"], []], ids=str)
def test_a_body_is_one_section_where_the_written_sizes_do_not_fit(sizes: list[Any]) -> None:
    assert payload_of(Message(body=b"abc", extras={"data_sections": sizes})) == payload_of(Message(body=b"abc"))


# ------------------------------------------------------------------ over the wire


@pytest.fixture(scope="module")
def examples() -> list[Message]:
    """Examples of the property below, which share an emulator."""
    found: list[Message] = [message_with_typed_fields()]

    @settings(max_examples=60, database=None)
    @given(messages().map(fit_for_a_queue))
    def collect(message: Message) -> None:
        found.append(message)

    collect()
    return found


@pytest.mark.anyio
async def test_peek_frame_and_send_give_back_the_very_same_message(
    examples: list[Message], namespace: AsyncNamespace
) -> None:
    await namespace.create_queue("there")
    await namespace.create_queue("back")
    there, back = namespace.entity("there"), namespace.entity("back")
    report = await there.send(examples, max_in_flight=1)
    assert report.ok, report.failures[:1]
    peeked = await there.peek()
    assert [differences(one, other) for one, other in zip(peeked, examples, strict=True)] == [{}] * len(examples)
    for frame in (to_arrow(peeked), to_pandas(peeked)):
        (await back.send(messages_from(frame), max_in_flight=1)).raise_for_failures()
    again = await back.peek()
    assert [differences(one, other) for one, other in zip(again, examples * 2, strict=True)] == [{}] * len(again)


@pytest.mark.anyio
async def test_clone_differs_only_in_what_a_resubmit_changes(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "cloned", 0)
    extras: dict[str, AmqpValue] = {
        "durable": True,
        "user_id": b"me",
        "group_sequence": UInt(4),
        "creation_time": LATER,
        "message_annotations": {Symbol("x-mine"): [Long(1)]},
        "footer": {Symbol("crc"): ULong(1)},
        "correlation_id": UUID(int=3),
    }
    original = Message(message_id="a", correlation_id=str(UUID(int=3)), extras=extras)
    (await queue.send([original])).raise_for_failures()
    (await queue.plan_resubmit(await queue.peek(), Resubmit()).apply()).raise_for_failures()
    [clone] = await queue.peek()
    changed = differences(clone, original)
    assert sorted(changed) == ["message_id", "property OriginalMessageId", "property ResubmitCount"]


def fit_for_a_queue(message: Message) -> Message:
    """Without what the service refuses, sets itself, or acts on."""
    return message.with_changes(
        message_id=message.message_id or "id",
        session_id=None,
        partition_key=None,
        scheduled_enqueue_time=None,
        # Long enough for this test, and not so long that a creation and an expiry are written beside it.
        time_to_live=None if message.time_to_live is None else min(message.time_to_live + timedelta(hours=1), LONG),
    )
