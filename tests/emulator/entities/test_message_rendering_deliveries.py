from __future__ import annotations

from uuid import UUID

import pytest

from sbnotebook.amqp import AmqpValue, Described, Long, Symbol, ULong, encode
from sbnotebook.amqp.sections import (
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    split,
)
from sbnotebook.emulator.entities.message import BrokeredMessage, BrokeredState, read_sent, render
from sbnotebook.errors import AmqpDecodeError
from tests.emulator.entities.conftest import values

TOKEN = UUID(int=5)


def encoded(*sections: tuple[int, AmqpValue]) -> bytes:
    return b"".join(encode(Described(ULong(code), value)) for code, value in (*sections, (DATA, b"body")))


def message(payload: bytes, *, number: int = 7, token: UUID | None = TOKEN) -> BrokeredMessage:
    return BrokeredMessage(number, 7, 1_000, payload, len(payload), BrokeredState.ACTIVE, lock_token=token)


def test_a_delivery_has_its_lock_token_and_no_state() -> None:
    payload = encoded()
    delivered = values(render(message(payload), payload, is_delivery=True))
    assert delivered[DELIVERY_ANNOTATIONS] == {"x-opt-lock-token": TOKEN}
    assert delivered[MESSAGE_ANNOTATIONS] == {"x-opt-sequence-number": 7, "x-opt-enqueued-time": 1_000}


def test_a_deleted_message_has_no_lock_token() -> None:
    payload = encoded()
    assert values(render(message(payload, token=None), payload, is_delivery=True))[DELIVERY_ANNOTATIONS] == {}


@pytest.mark.parametrize("number", [5, 9])
def test_a_moved_message_has_the_number_that_it_got_first(number: int) -> None:
    payload = encoded()
    annotations = values(render(message(payload, number=number), payload, is_delivery=True))[MESSAGE_ANNOTATIONS]
    assert annotations["x-opt-enqueue-sequence-number"] == 7


def test_delivery_annotations_of_the_sender_reach_the_receiver() -> None:
    mine: AmqpValue = {Symbol("mine"): Long(3), Symbol("x-opt-lock-token"): UUID(int=1)}
    last = encoded((HEADER, [True]), (PROPERTIES, ["id"])) + encode(Described(ULong(DELIVERY_ANNOTATIONS), mine))
    payload = read_sent(last).payload
    delivered = render(message(payload), payload, is_delivery=True)
    assert [section.code for section in split(delivered)] == [
        HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, DATA,
    ]  # fmt: skip
    assert values(delivered)[DELIVERY_ANNOTATIONS] == {"mine": 3, "x-opt-lock-token": TOKEN}
    assert values(render(message(payload), payload))[DELIVERY_ANNOTATIONS] == {"mine": 3}


def test_delivery_annotations_that_are_no_map_are_refused() -> None:
    with pytest.raises(AmqpDecodeError):
        read_sent(encoded((DELIVERY_ANNOTATIONS, "text")))


def test_a_once_scheduled_message_arrives_as_scheduled() -> None:
    payload = encoded()
    once = BrokeredMessage(9, 7, 2_000, payload, len(payload), scheduled_time=1_500, expires_at=2_500)
    delivered = values(render(once, payload, is_delivery=True))
    assert delivered[MESSAGE_ANNOTATIONS] == {
        "x-opt-sequence-number": 9,
        "x-opt-enqueue-sequence-number": 7,
        "x-opt-enqueued-time": 2_000,
        "x-opt-message-state": 2,
    }
    # It lives from the moment on at which it became active.
    assert delivered[HEADER] == [None, None, 500, None, 0]
    peeked = values(render(once, payload))[MESSAGE_ANNOTATIONS]
    assert peeked["x-opt-message-state"] == 0
    # No source says that a peek tells it like this.
    kept = values(render(once, payload, keeps_scheduled=True))[MESSAGE_ANNOTATIONS]
    assert kept["x-opt-message-state"] == 2
    once.state = BrokeredState.DEFERRED
    deferred = values(render(once, payload, keeps_scheduled=True))[MESSAGE_ANNOTATIONS]
    assert deferred["x-opt-message-state"] == 1


@pytest.mark.parametrize(("code", "value", "times"), [(DATA, b"body", 2), (SEQUENCE, ["body"], 2), (VALUE, "body", 1)])
def test_an_omitted_body_leaves_its_size(code: int, value: AmqpValue, times: int) -> None:
    footer = encode(Described(ULong(FOOTER), {Symbol("sum"): Long(1)}))
    body = encode(Described(ULong(code), value)) * times
    head = encode(Described(ULong(HEADER), [True])) + encode(Described(ULong(PROPERTIES), ["id"]))
    payload = head + body + footer
    rendered = render(message(payload), payload, without_body=True)
    assert [section.code for section in split(rendered)] == [
        HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, FOOTER,
    ]  # fmt: skip
    assert values(rendered)[DELIVERY_ANNOTATIONS] == {"omitted-message-body-size": len(body)}
    assert values(render(message(payload), payload))[DELIVERY_ANNOTATIONS] == {}
