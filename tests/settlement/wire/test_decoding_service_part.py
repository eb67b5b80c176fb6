"""The template before messages, which must never appear in messages that are read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sbnotebook.amqp import AmqpValue, Described, Long, Symbol, Timestamp, UInt, ULong, encode
from sbnotebook.amqp.sections import DATA, DELIVERY_ANNOTATIONS, HEADER, MESSAGE_ANNOTATIONS, section_values
from sbnotebook.errors import AmqpDecodeError
from sbnotebook.model import MessageState
from sbnotebook.settlement.wire import decoding
from sbnotebook.settlement.wire.decoding import ServicePart, lock_of, read_service_part
from sbnotebook.testing.strategies import amqp_values

NUMBER, STATE = Symbol("x-opt-sequence-number"), Symbol("x-opt-message-state")
FIRST, TIME = Symbol("x-opt-enqueue-sequence-number"), Symbol("x-opt-enqueued-time")
TOKEN = Symbol("x-opt-lock-token")
LOCKED, KEY = Symbol("x-opt-locked-until"), Symbol("x-opt-partition-key")


@pytest.fixture(autouse=True)
def learn_from_every_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_LEARN_EVERY", 1)
    monkeypatch.setattr(decoding, "_templates", ())


def section(code: int, value: Any) -> bytes:
    return encode(Described(ULong(code), value))


def start_of_message(
    annotations: dict[Any, AmqpValue],
    ttl: int | None = None,
    count: int = 0,
    delivery: dict[Any, AmqpValue] | None = None,
) -> bytes:
    header = section(HEADER, [None, None, None if ttl is None else UInt(ttl), None, UInt(count)])
    if delivery is not None:
        header += section(DELIVERY_ANNOTATIONS, delivery)
    return header + section(MESSAGE_ANNOTATIONS, annotations) + section(DATA, b"body")


def read_without_template(payload: bytes) -> ServicePart:
    decoding.__dict__["_templates"] = ()
    return read_service_part(payload)


def templates() -> int:
    return len(vars(decoding)["_templates"])


LONGS = st.integers(-(2**63), 2**63 - 1).map(Long)
STAMPS = st.integers(-(2**63), 2**63 - 1).map(Timestamp)
ANNOTATIONS = st.fixed_dictionaries(
    {NUMBER: LONGS, TIME: STAMPS},
    optional={
        FIRST: LONGS,
        LOCKED: STAMPS,
        STATE: st.sampled_from([0, 1, 2]),
        KEY: st.sampled_from(["a", "b"]),
        Symbol("x-mine"): amqp_values(),
    },
)


DELIVERY = st.fixed_dictionaries({}, optional={TOKEN: st.uuids(), Symbol("x-own"): amqp_values()})


@given(
    st.lists(
        st.tuples(
            ANNOTATIONS, st.none() | st.sampled_from([0, 60_000]), st.sampled_from([0, 300]), st.none() | DELIVERY
        )
    )
)
def test_what_is_read_by_a_template_is_what_is_decoded(messages: list[Any]) -> None:
    payloads = [start_of_message(*message) for message in messages]
    read = [read_service_part(payload) for payload in payloads]
    assert repr(read) == repr([read_without_template(payload) for payload in payloads])


FAKE = encode(NUMBER) + encode(Long(2**50))


@given(LONGS, LONGS, st.binary(max_size=4))
@example(Long(5), Long(6), b"")
def test_number_hidden_in_a_value_is_not_taken(one: Long, other: Long, text: bytes) -> None:
    mine = Symbol("x-mine")
    for number in (one, other):
        hidden: list[dict[Any, AmqpValue]] = [{mine: text + FAKE, NUMBER: number}, {NUMBER: number, mine: [FAKE, text]}]
        for items in hidden:
            payload = start_of_message(items)
            assert read_service_part(payload).fields["sequence_number"] == number
            assert read_service_part(payload).fields["sequence_number"] == number


def test_last_of_two_equal_names_counts_with_a_template_too() -> None:
    items = [encode(NUMBER), encode(Long(2**40)), encode(NUMBER), encode(Long(2**41))]
    content = b"".join(items)
    payload = b"\x00\x53\x72\xc1" + bytes((len(content) + 1, 4)) + content + section(DATA, b"")
    for _ in range(3):
        assert read_service_part(payload).fields["sequence_number"] == 2**41


@pytest.mark.parametrize(("given", "read"), [(2**63 - 1, 2**63 - 1), (2**63, 0)])
def test_a_sequence_number_fits_into_63_bits(given: int, read: int) -> None:
    assert read_service_part(start_of_message({NUMBER: ULong(given)})).fields["sequence_number"] == read


@pytest.mark.parametrize(
    ("number", "enqueued", "scheduled", "state"),
    [
        (None, None, None, MessageState.ACTIVE),
        (0, 3_000, 2_000, MessageState.ACTIVE),
        (1, 3_000, 2_000, MessageState.DEFERRED),
        (1, None, None, MessageState.DEFERRED),
        (2, None, None, MessageState.SCHEDULED),
        (2, None, 2_000, MessageState.SCHEDULED),
        (2, 3_000, None, MessageState.SCHEDULED),
        (2, 1_999, 2_000, MessageState.SCHEDULED),
        (2, 2_000, 2_000, MessageState.ACTIVE),
        (2, 2_001, 2_000, MessageState.ACTIVE),
        (3, None, None, MessageState.ACTIVE),
    ],
)
def test_a_message_is_scheduled_until_it_is_enqueued_anew(
    number: int | None, enqueued: int | None, scheduled: int | None, state: MessageState
) -> None:
    annotations: dict[Any, AmqpValue] = {NUMBER: Long(1)}
    if number is not None:
        annotations[STATE] = number
    if enqueued is not None:
        annotations[TIME] = Timestamp(enqueued)
    if scheduled is not None:
        annotations[Symbol("x-opt-scheduled-enqueue-time")] = Timestamp(scheduled)
    assert read_service_part(start_of_message(annotations)).fields["state"] is state


@pytest.mark.parametrize("count", [7, 2**31 - 1, 2**31, 2**32 - 1])
def test_a_delivery_count_fits_into_31_bits(count: int) -> None:
    fields = read_service_part(start_of_message({NUMBER: Long(1)}, count=count)).fields
    assert fields["delivery_count"] == min(count, 2**31 - 1)


def test_repeated_section_is_refused_with_a_template_too() -> None:
    payload = start_of_message({NUMBER: Long(2**40)})
    twice = payload[: read_service_part(payload).end] * 2
    for _ in range(2):
        with pytest.raises(AmqpDecodeError, match="out of order"):
            section_values(twice, read_service_part(payload).end)


def test_the_lock_token_is_no_extra() -> None:
    for number in range(100):
        token: dict[Any, AmqpValue] = {TOKEN: UUID(int=2**127 + number), Symbol("x-own"): 1}
        payload = start_of_message({NUMBER: Long(2**40 + number)}, delivery=token)
        assert read_service_part(payload).extras == {"delivery_annotations": {"x-own": 1}}
        assert read_service_part(payload).fields["sequence_number"] == 2**40 + number
    assert templates() == 1


def test_a_lock_has_nothing_that_a_sender_chose() -> None:
    empty_lists: list[Any] = [[]] * 40_000
    several: list[Any] = ["mine", [[[]]], [empty_lists, empty_lists]]  # the last is more than is read of a message
    for mine in several:
        annotations: dict[Any, AmqpValue] = {Symbol("x-mine"): mine, NUMBER: Long(2**40), LOCKED: Timestamp(1_500)}
        for payload in (start_of_message(annotations), start_of_message(annotations)[:-3]):
            assert lock_of(payload) == (2**40, datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC))
    assert lock_of(b"no message") == (0, None)
