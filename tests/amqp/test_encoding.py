from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.amqp import (
    AmqpValue,
    Array,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Int,
    Long,
    Short,
    Symbol,
    UByte,
    UInt,
    ULong,
    decode_exactly,
    encode,
    skip,
)
from sbnotebook.testing.strategies import PRIMITIVES, amqp_values
from tests.comparison import same_value

ITEMS: dict[str, st.SearchStrategy[Any]] = {
    **PRIMITIVES,
    "list": st.lists(amqp_values(), max_size=3),
    "map": st.dictionaries(PRIMITIVES["string"], amqp_values(), max_size=3),
    "array": st.lists(PRIMITIVES["int"], min_size=1, max_size=3).map(Array),
    "described": PRIMITIVES["string"].map(lambda text: Described(ULong(7), text)),
}
"""What an array can hold."""


@pytest.mark.parametrize("name", PRIMITIVES)
@given(data=st.data())
def test_every_type_comes_back_as_it_was(name: str, data: st.DataObject) -> None:
    value = data.draw(PRIMITIVES[name])
    assert same_value(decode_exactly(encode(value)), value)


@pytest.mark.parametrize("name", ITEMS)
@given(data=st.data())
def test_an_array_of_every_type_comes_back_as_it_was(name: str, data: st.DataObject) -> None:
    value = Array(data.draw(st.lists(ITEMS[name], min_size=1, max_size=10)))
    assert same_value(decode_exactly(encode(value)), value)


@given(amqp_values())
def test_nested_values_come_back_as_they_were(value: AmqpValue) -> None:
    data = encode(value)
    assert skip(data) == len(data)
    assert same_value(decode_exactly(data), value)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (5, "5405"),
        (-129, "71ffffff7f"),
        (2**31, "810000000080000000"),
        (datetime(1970, 1, 1, 0, 0, 1, 500_999, tzinfo=UTC), "8300000000000005dc"),
        (bytearray(b"a"), "a00161"),
        (UInt(0), "43"),
        (UInt(255), "52ff"),
        (UInt(256), "7000000100"),
        (ULong(0), "44"),
        ([], "45"),
        ({}, "c10100"),
        ("a" * 256, "b100000100" + "61" * 256),
    ],
)
def test_the_shortest_form_is_written(value: Any, encoded: str) -> None:
    assert encode(value).hex() == encoded


@pytest.mark.parametrize("value", [UByte(256), UInt(-1), ULong(2**64), Int(2**31), Short(-(2**15) - 1), 2**63])
def test_a_number_that_its_type_cannot_hold_is_refused(value: int) -> None:
    with pytest.raises(OverflowError, match="does not fit"):
        encode(value)


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j])
def test_encode_refuses_values_without_an_amqp_type(value: Any) -> None:
    with pytest.raises(TypeError, match="AMQP has no type"):
        encode(value)


@pytest.mark.parametrize(
    ("value", "head"),
    [
        (Int(127), "547f"), (Int(128), "7100000080"), (Int(-128), "5480"), (Int(-129), "71ffffff7f"),
        (Long(127), "557f"), (Long(128), "810000000000000080"), (Long(-128), "5580"), (ULong(255), "53ff"),
        (ULong(256), "800000000000000100"), (ULong(1), "5301"), (UInt(1), "5201"), (b"a" * 255, "a0ff61"),
        (b"a" * 256, "b00000010061"), ("a" * 255, "a1ff61"), (Symbol("a" * 255), "a3ff61"),
        (Symbol("a" * 256), "b30000010061"), ([None] * 254, "c0fffe40"), ([None] * 255, "d000000103000000ff40"),
        (Array([None] * 255, type(None)), "e002ff40"), (Array([None] * 256, type(None)), "f0000000050000010040"),
        (Array([True, False]), "e00402560100"), (Array([None] * 257, type(None)), "f0000000050000010140"),
        ({"a": "b" * 300}, "d10000013800000002a10161"), (Array(["b" * 300]), "f00000013500000001b1"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 30 else type(value).__name__,
)  # fmt: skip
def test_the_wide_form_begins_where_the_short_one_ends(value: Any, head: str) -> None:
    assert encode(value).hex().startswith(head)
    # An array of more than 64 nulls is not read.
    assert isinstance(value, Array) or same_value(decode_exactly(encode(value)), value)


def test_an_array_of_plain_numbers_is_one_of_longs() -> None:
    assert encode(Array([1, 2**40])) == encode(Array([Long(1), Long(2**40)]))


def test_an_array_of_an_unknown_type_is_refused() -> None:
    with pytest.raises(TypeError, match="An AMQP array cannot hold object"):
        encode(Array([object()]))


@pytest.mark.parametrize(("value", "size"), [(Decimal32(3), 4), (Decimal64(9), 8), (Decimal128(15), 16)])
def test_a_decimal_of_another_size_is_refused(value: bytes, size: int) -> None:
    with pytest.raises(OverflowError, match=f"has {size} bytes, not {len(value)}"):
        encode(value)
