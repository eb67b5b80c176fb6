from __future__ import annotations

from typing import Annotated, Any

import pytest

from sbnotebook.amqp import Array, Described, Symbol, UInt, ULong, encode
from sbnotebook.emulator.amqp.performatives import (
    Accepted,
    Anything,
    Error,
    Fields,
    TransactionalState,
    composite,
    decode_composite,
    encode_composite,
)
from sbnotebook.errors import AmqpDecodeError, ProtocolViolationError


@composite(0xF0, kw_only=True)
class Sample:
    early: Annotated[str | None, str] = None
    number: Annotated[int, UInt]
    flag: Annotated[bool, bool] = True
    names: Annotated[Any, Anything] = None
    properties: Annotated[dict[str, Any] | None, Fields] = None
    error: Annotated[Error | None, Error] = None
    anything: Annotated[Any, Anything] = None


def _encoded(*fields: Any, code: int = 0xF0) -> bytes:
    return encode(Described(ULong(code), list(fields)))


def test_a_written_composite_is_read_back() -> None:
    sample = Sample(
        early="e", number=7, flag=False, names=["a", "b"], properties={"k": 1}, error=Error("x"), anything=[1]
    )
    data = encode_composite(sample)
    assert decode_composite(b"?" + data + b"!", 1) == (sample, 1 + len(data))


def test_fields_are_written_as_their_wire_types() -> None:
    data = encode_composite(Sample(number=7, names=Array([Symbol("a")]), properties={"k": "v"}))
    assert data == _encoded(None, UInt(7), True, Array([Symbol("a")]), {Symbol("k"): "v"})


def test_defaults_stand_for_what_was_left_out_and_for_null() -> None:
    expected = Sample(number=7, flag=True)
    assert decode_composite(_encoded(None, UInt(7)))[0] == expected
    assert decode_composite(_encoded(None, UInt(7), None, None, None, None, None))[0] == expected


def test_a_composite_without_fields_is_an_empty_list() -> None:
    assert encode_composite(Accepted()) == bytes.fromhex("00532445")


def test_a_long_composite_is_written_in_the_wide_form() -> None:
    sample = Sample(number=7, early="e" * 300)
    data = encode_composite(sample)
    assert data[3] == 0xD0
    assert decode_composite(data) == (sample, len(data))


def test_a_name_may_stand_for_the_number_of_a_composite() -> None:
    data = encode(Described(Symbol("amqp:sample:list"), [None, UInt(7)]))
    assert decode_composite(data) == (Sample(number=7), len(data))


def test_names_of_two_words_have_a_hyphen() -> None:
    data = encode(Described(Symbol("amqp:transactional-state:list"), [b"txn"]))
    assert decode_composite(data)[0] == TransactionalState(b"txn")


def test_fields_that_are_not_declared_are_only_decoded() -> None:
    data = _encoded(None, UInt(7), *[None] * 5, "one", ["more"])
    assert decode_composite(data) == (Sample(number=7), len(data))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (_encoded(), "Sample.number is missing"),
        (_encoded("e"), "Sample.number is missing"),
        (_encoded("e", None), "Sample.number is missing"),
        (_encoded("e", ULong(7)), "Sample.number cannot be a ULong"),
        (_encoded(5, UInt(7)), "Sample.early cannot be a"),
        (_encoded(None, UInt(7), 1), "Sample.flag cannot be a"),
        (_encoded(None, UInt(7), None, None, []), "Sample.properties cannot be a"),
        (_encoded(None, UInt(7), None, None, None, Described(ULong(0x24), [])), "Sample.error cannot be a"),
        (_encoded(None, UInt(7), None, None, None, "text"), "described list"),
        (_encoded(code=0xEF), "no composite type 0xef"),
        (encode(Described(Symbol("amqp:shut:list"), [])), "no composite type 'amqp:shut:list'"),
        (encode(Described("amqp:sample:list", [None, UInt(7)])), "no composite type 'amqp:sample:list'"),
        (encode(Described([1], [])), r"no composite type \[1\]"),
        (encode(Described(ULong(0xF0), {})), "described list"),
        (encode([1]), "described list"),
    ],
)
def test_a_composite_that_breaks_its_table_is_a_violation(data: bytes, why: str) -> None:
    with pytest.raises(ProtocolViolationError, match=why) as caught:
        decode_composite(data)
    assert caught.value.condition in ("amqp:decode-error", "amqp:invalid-field")


def test_bytes_that_are_not_amqp_are_a_decode_error() -> None:
    with pytest.raises(AmqpDecodeError):
        decode_composite(b"\x00\x53")
