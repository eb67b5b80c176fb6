from __future__ import annotations

import pytest

from sbnotebook.amqp import UByte, decode_exactly
from sbnotebook.emulator.amqp.frames import MECHANISMS, OFFER, OUTCOMES, SaslInit, is_accepted
from sbnotebook.emulator.amqp.performatives import Accepted, encode_composite
from sbnotebook.errors import ProtocolViolationError


def _knows(name: str, password: str) -> bool:
    return (name, password) == ("root", "s:cret")


def test_the_mechanisms_of_azure_are_offered_in_an_array() -> None:
    assert OFFER[:7] == b"\x00\x53\x40\xc0\x32\x01\xe0"
    assert decode_exactly(OFFER[6:]) == ["MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_offered_mechanism_is_accepted(mechanism: str) -> None:
    response = b"\0root\0s:cret" if mechanism == "PLAIN" else b""
    assert is_accepted(encode_composite(SaslInit(mechanism, response)), _knows)
    assert decode_exactly(OUTCOMES[True][3:]) == [UByte(0), b"Welcome!"]


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("SCRAM-SHA-256", None),
        ("PLAIN", None),
        ("PLAIN", b"\0root\0wrong"),
        ("PLAIN", b"\0s:cret\0root"),
        ("PLAIN", b"root\0s:cret"),
        ("PLAIN", b"\0root\0s:cret\0"),
        ("PLAIN", b"\0root\0\xff"),
    ],
)
def test_another_mechanism_or_key_is_refused(mechanism: str, response: bytes | None) -> None:
    assert not is_accepted(encode_composite(SaslInit(mechanism, response)), _knows)
    assert decode_exactly(OUTCOMES[False][3:]) == [UByte(1)]


@pytest.mark.parametrize("body", [encode_composite(Accepted()), encode_composite(SaslInit("ANONYMOUS")) + b"\x40"])
def test_anything_but_an_init_is_a_violation(body: bytes) -> None:
    with pytest.raises(ProtocolViolationError, match="sasl-init"):
        is_accepted(body, _knows)
