from __future__ import annotations

import pytest

from sbnotebook.emulator.amqp.composites import decode_composite, encode_composite
from sbnotebook.emulator.amqp.performatives import Accepted
from sbnotebook.emulator.amqp.sasl import MECHANISMS, SaslInit, SaslMechanisms, SaslOutcome, answer_init, offer
from sbnotebook.errors import ProtocolViolationError


def test_anonymous_is_offered_in_an_array() -> None:
    data = offer()
    assert data[5:7] == b"\x01\xe0"
    assert decode_composite(data)[0] == SaslMechanisms(MECHANISMS)
    assert "ANONYMOUS" in MECHANISMS
    assert "PLAIN" not in MECHANISMS


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_offered_mechanism_is_accepted(mechanism: str) -> None:
    answer, accepted = answer_init(encode_composite(SaslInit(mechanism, b"", "localhost")))
    assert accepted
    assert decode_composite(answer)[0] == SaslOutcome(0)


def test_another_mechanism_is_refused() -> None:
    answer, accepted = answer_init(encode_composite(SaslInit("SCRAM-SHA-256")))
    assert not accepted
    assert decode_composite(answer)[0] == SaslOutcome(1)


@pytest.mark.parametrize("body", [encode_composite(Accepted()), encode_composite(SaslInit("ANONYMOUS")) + b"\x40"])
def test_anything_but_an_init_is_a_violation(body: bytes) -> None:
    with pytest.raises(ProtocolViolationError, match="sasl-init"):
        answer_init(body)
