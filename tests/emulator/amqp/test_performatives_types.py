from __future__ import annotations

import pytest

from sbnotebook.amqp import AmqpValue, Described, Int, Symbol, ULong, encode
from sbnotebook.emulator.amqp.composites import decode_composite, encode_composite
from sbnotebook.emulator.amqp.performatives import (
    Accepted,
    Error,
    Modified,
    Outcome,
    Received,
    Rejected,
    Released,
    Source,
    Target,
)


@pytest.mark.parametrize(
    ("outcome", "encoded"),
    [
        (Accepted(), "00532445"),
        (Released(), "00532645"),
        (Rejected(), "00532545"),
        (Modified(delivery_failed=True), "005327c003024142"),
        (Modified(delivery_failed=True, undeliverable_here=True), "005327c003024141"),
    ],
)
def test_an_outcome_on_the_wire(outcome: Outcome, encoded: str) -> None:
    assert encode_composite(outcome).hex() == encoded
    assert decode_composite(bytes.fromhex(encoded))[0] == outcome


def test_an_abandon_may_leave_out_what_is_false() -> None:
    assert decode_composite(bytes.fromhex("005327c0020141"))[0] == Modified(delivery_failed=True)
    assert decode_composite(bytes.fromhex("00532745"))[0] == Modified()


def test_an_abandon_may_change_properties_of_the_message() -> None:
    annotations: AmqpValue = {Symbol("retry-after"): Int(5), Symbol("by"): "worker"}
    data = encode(Described(ULong(0x27), [True, None, annotations]))
    outcome = decode_composite(data)[0]
    assert outcome == Modified(delivery_failed=True, message_annotations={"retry-after": 5, "by": "worker"})
    assert encode(outcome.message_annotations) == encode(annotations)  # with their types


def test_an_error_is_always_sent_with_its_three_fields() -> None:
    # azure-servicebus looks for the third one without asking whether it is there.
    data = encode_composite(Rejected(Error("amqp:not-found")))
    assert data.hex() == "005325c01b0100531dc01503" + "a30e" + b"amqp:not-found".hex() + "40c10100"


def test_an_error_without_description_and_info_is_read() -> None:
    assert decode_composite(bytes.fromhex("00531dc00401a30161"))[0] == Error("a", None, {})


def test_received_is_a_state_and_no_outcome() -> None:
    data = encode_composite(Received(1, 20))
    assert decode_composite(data)[0] == Received(1, 20)
    assert not isinstance(Received(1, 20), Outcome)


@pytest.mark.parametrize("terminus", [Source(), Target()])
def test_an_empty_terminus_is_no_empty_list(terminus: object) -> None:
    # azure-servicebus takes an empty list for a refusal.
    assert encode_composite(terminus)[3] != 0x45
