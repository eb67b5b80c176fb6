from __future__ import annotations

from typing import Any

import pytest

from sbnotebook.amqp import AmqpValue, Int, Long, Short, Symbol, Timestamp, UByte, UInt, ULong, encode
from sbnotebook.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
)
from sbnotebook.emulator.entities.message import (
    BrokeredMessage,
    BrokeredState,
    render,
    with_application_properties,
    with_time_to_live,
)
from tests.emulator.entities.conftest import encoded, values


def message(payload: bytes, **more: Any) -> BrokeredMessage:
    known: dict[str, Any] = {"state": BrokeredState.DEFERRED, "delivery_count": 2, "locked_until": 9_000}
    return BrokeredMessage(7, 3, 1_000, payload, len(payload), **{**known, **more})


def answered(payload: bytes, *, with_lock: bool = False, **more: Any) -> bytes:
    return render(message(payload, **more), payload, with_lock=with_lock)


def test_the_broker_says_what_it_knows_in_the_annotations() -> None:
    annotations = values(answered(encoded()))[MESSAGE_ANNOTATIONS]
    assert annotations == {
        "x-opt-sequence-number": 7,
        "x-opt-enqueue-sequence-number": 3,
        "x-opt-enqueued-time": 1_000,
        "x-opt-message-state": 1,
    }
    assert {type(annotations[f"x-opt-{name}"]) for name in ("sequence-number", "enqueue-sequence-number")} == {Long}
    assert type(annotations["x-opt-enqueued-time"]) is Timestamp
    assert type(annotations["x-opt-message-state"]) is Int
    assert all(isinstance(key, Symbol) for key in annotations)


def test_the_header_keeps_what_the_sender_wrote() -> None:
    sent = encoded(sections={HEADER: [True, UByte(9), UInt(60_000), False, UInt(5)]})
    assert values(answered(sent))[HEADER] == [True, 9, 60_000, False, 2]
    assert values(answered(encoded()))[HEADER] == [None, None, None, None, 2]


def test_the_senders_own_annotations_stay() -> None:
    own: AmqpValue = {Symbol("x-opt-partition-key"): "p", Symbol("mine"): [Short(1)]}
    stale: AmqpValue = {Symbol("x-opt-sequence-number"): Long(99), Symbol("x-opt-locked-until"): Timestamp(1)}
    sent = encoded(sections={MESSAGE_ANNOTATIONS: {**own, **stale}})
    annotations = values(answered(sent))[MESSAGE_ANNOTATIONS]
    assert own.items() <= annotations.items()
    assert annotations["x-opt-sequence-number"] == 7
    assert "x-opt-locked-until" not in annotations


def test_everything_from_the_properties_on_stays_byte_for_byte() -> None:
    tail = encoded(b"b" * 400, {PROPERTIES: ["id"], APPLICATION_PROPERTIES: {"n": ULong(5)}})
    sent = encoded(b"", {HEADER: [True]})[: -len(encoded(b""))] + tail
    assert answered(sent).endswith(tail)


@pytest.mark.parametrize("sections", [{}, {PROPERTIES: ["id"]}, {HEADER: [True]}])
def test_application_properties_are_made_where_there_are_none(sections: dict[int, AmqpValue]) -> None:
    sent = encoded(b"body", sections)
    found = values(with_application_properties(sent, {"DeadLetterReason": "Bad", "Missing": None}))
    assert found == {**values(sent), APPLICATION_PROPERTIES: {"DeadLetterReason": "Bad"}}


def test_an_older_reason_is_replaced() -> None:
    sent = encoded(sections={APPLICATION_PROPERTIES: {"DeadLetterReason": "old", "n": 1}})
    replaced = with_application_properties(sent, {"DeadLetterReason": "new"})
    assert values(replaced)[APPLICATION_PROPERTIES] == {"n": 1, "DeadLetterReason": "new"}
    assert replaced.count(b"DeadLetterReason") == 1


@pytest.mark.parametrize(
    ("header", "expires_at", "kept"),
    [
        ([True, UByte(4), UInt(90_000), None, UInt(3)], 61_000, [True, 4, 60_000, None, 3]),
        ([True], 61_000, [True, None, 60_000]),
        (None, 61_000, [None, None, 60_000]),
        ([None, None, UInt(5_000)], 61_000, [None, None, 5_000]),  # the action of a rule has shortened it
        ([None, None, UInt(90_000)], None, [None, None, 90_000]),
        ([True, UByte(4)], 61_000, [True, 4, 60_000]),
        (None, 2**33, None),  # longer than the header can say
        (None, 1_000 + 2**32 - 1, None),  # the longest that it can say is for ever
        (None, 1_000 + 2**32 - 2, [None, None, 2**32 - 2]),
    ],
)
def test_a_message_that_goes_on_keeps_how_long_it_lived(
    header: AmqpValue, expires_at: int | None, kept: AmqpValue
) -> None:
    sent = encoded(sections={PROPERTIES: ["id"]} if header is None else {HEADER: header, PROPERTIES: ["id"]})
    changed = values(with_time_to_live(message(sent, expires_at=expires_at), sent))
    assert changed == values(sent) | ({} if kept is None else {HEADER: kept})


@pytest.mark.parametrize(("expires_at", "life"), [(61_000, 60_000), (2**33, 2**32 - 1)])
def test_the_header_says_how_long_the_message_lives_here(expires_at: int, life: int) -> None:
    sent = encoded(sections={HEADER: [None, None, UInt(90_000)]})
    assert values(answered(sent, expires_at=expires_at))[HEADER] == [None, None, life, None, 2]
    assert values(answered(encoded(), expires_at=expires_at))[HEADER] == [None, None, life, None, 2]


def test_a_scheduled_message_lives_from_its_time_on() -> None:
    rendered = answered(encoded(), expires_at=9_000, scheduled_time=5_000, state=BrokeredState.SCHEDULED)
    assert values(rendered)[HEADER] == [None, None, 4_000, None, 2]


def test_application_properties_are_set_and_the_others_stay() -> None:
    sent = encoded(sections={APPLICATION_PROPERTIES: {"a": 1, "b": Short(2)}})
    found = values(with_application_properties(sent, {"a": "new", Symbol("c"): None, "d": True}))
    assert found[APPLICATION_PROPERTIES] == {"b": 2, "a": "new", "d": True}
    assert found[DATA] == b"body"


def test_a_time_to_live_that_holds_stays_byte_for_byte() -> None:
    sent = encoded(sections={HEADER: [None, None, UInt(60_000)]})
    assert with_time_to_live(message(sent, expires_at=61_000), sent) is sent


@pytest.mark.parametrize("constructor", [b"\xa1\x15", b"\xa3\x15", b"\xb1\0\0\0\x15", b"\xb3\0\0\0\x15"])
def test_the_senders_stale_annotations_go_however_encoded(constructor: bytes) -> None:
    name = b"x-opt-sequence-number"
    items = constructor + name + encode(Long(99)) + constructor[:-1] + b"\x01m" + encode(True)
    sent = b"\x00\x53\x72\xc1" + bytes((len(items) + 1, 4)) + items + encoded()
    rendered = answered(sent)
    assert rendered.count(name) == 1
    annotations = values(rendered)[MESSAGE_ANNOTATIONS]
    assert (annotations["m"], annotations["x-opt-sequence-number"]) == (True, 7)


def test_a_clock_may_stand_before_1970() -> None:
    sent = encoded()
    annotations = values(render(BrokeredMessage(7, 7, -1, sent, len(sent)), sent))[MESSAGE_ANNOTATIONS]
    assert annotations["x-opt-enqueued-time"] == Timestamp(-1)
