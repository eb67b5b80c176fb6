from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.amqp import (
    AmqpValue,
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    decode_exactly,
    encode,
    skip,
)


def _integers(kind: type[int], bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    near = st.sampled_from([low, high, 0, 1, 127, 128, 255, 256])
    return st.one_of(st.integers(low, high), near.filter(lambda number: low <= number <= high)).map(kind)


_CHARACTERS = st.characters(exclude_categories=["Cs"])
_LONG_OR_SHORT = st.one_of(st.integers(0, 40), st.sampled_from([254, 255, 256, 300]))

PRIMITIVES: dict[type, st.SearchStrategy[Any]] = {
    type(None): st.none(),
    bool: st.booleans(),
    UByte: _integers(UByte, 8, signed=False),
    UShort: _integers(UShort, 16, signed=False),
    UInt: _integers(UInt, 32, signed=False),
    ULong: _integers(ULong, 64, signed=False),
    Byte: _integers(Byte, 8, signed=True),
    Short: _integers(Short, 16, signed=True),
    Int: _integers(Int, 32, signed=True),
    Long: _integers(Long, 64, signed=True),
    Float: st.floats(width=32, allow_nan=False).map(Float),
    float: st.floats(allow_nan=False),
    Decimal32: st.binary(min_size=4, max_size=4).map(Decimal32),
    Decimal64: st.binary(min_size=8, max_size=8).map(Decimal64),
    Decimal128: st.binary(min_size=16, max_size=16).map(Decimal128),
    Char: _CHARACTERS.map(Char),
    Timestamp: _integers(Timestamp, 64, signed=True),
    UUID: st.uuids(),
    bytes: _LONG_OR_SHORT.flatmap(lambda size: st.binary(min_size=size, max_size=size)),
    str: st.one_of(st.text(_CHARACTERS, max_size=20), _LONG_OR_SHORT.map(lambda size: "é" * size)),
    Symbol: _LONG_OR_SHORT.map(lambda size: Symbol("s" * size)),
}

_ANY_PRIMITIVE = st.one_of(*PRIMITIVES.values())
_ARRAYS = st.one_of(
    *(st.lists(items, min_size=1, max_size=8).map(Array) for items in PRIMITIVES.values()),
)


def _compounds(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, max_size=6)
    # Keys of one type only: Python takes 1, True and 1.0 for the same key.
    maps = st.dictionaries(PRIMITIVES[str], inner, max_size=6)
    described = st.builds(Described, st.one_of(PRIMITIVES[ULong], PRIMITIVES[Symbol]), inner)
    return st.one_of(
        lists,
        maps,
        described,
        st.lists(lists, min_size=1, max_size=4).map(Array),
        st.lists(maps, min_size=1, max_size=4).map(Array),
        st.lists(_ARRAYS, min_size=1, max_size=4).map(Array),
    )


VALUES: st.SearchStrategy[Any] = st.recursive(st.one_of(_ANY_PRIMITIVE, _ARRAYS), _compounds, max_leaves=12)


def _same(left: Any, right: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, Described):
        return _same(left.descriptor, right.descriptor) and _same(left.value, right.value)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(_same, left, right))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(left, dict):
        return _same([*left.items()], [*right.items()])  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(left, tuple):
        return all(map(_same, left, right))  # pyright: ignore[reportUnknownArgumentType]
    return bool(left == right)


@pytest.mark.parametrize("kind", PRIMITIVES, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_type_comes_back_as_it_was(kind: type, data: st.DataObject) -> None:
    value = data.draw(PRIMITIVES[kind])
    found = decode_exactly(encode(value))
    assert type(found) is (Int if type(value) is int else kind)
    assert found == value


@pytest.mark.parametrize("kind", PRIMITIVES, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_an_array_of_every_type_comes_back_as_it_was(kind: type, data: st.DataObject) -> None:
    value = Array(data.draw(st.lists(PRIMITIVES[kind], max_size=10)), kind)
    found = decode_exactly(encode(value))
    assert isinstance(found, Array)
    assert _same(found, value)
    assert found.element_type is kind


@given(VALUES)
def test_nested_values_come_back_as_they_were(value: AmqpValue) -> None:
    data = encode(value)
    assert skip(data) == len(data)
    assert _same(decode_exactly(data), value)


@given(st.lists(st.tuples(PRIMITIVES[ULong], PRIMITIVES[str]), min_size=1, max_size=5))
def test_an_array_of_described_values_can_be_sent_on(items: list[tuple[int, str]]) -> None:
    descriptor = items[0][0]
    value = Array([Described(descriptor, text) for _, text in items])
    found = decode_exactly(encode(value))
    assert _same(found, value)
    assert encode(found) == encode(value)


def test_not_a_number_stays_one() -> None:
    for value in (math.nan, Float(math.nan)):
        found = decode_exactly(encode(value))
        assert isinstance(found, float)
        assert math.isnan(found)


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


def test_an_array_of_plain_numbers_is_one_of_longs() -> None:
    assert encode(Array([1, 2**40])) == encode(Array([Long(1), Long(2**40)]))


def test_an_array_of_an_unknown_type_is_refused() -> None:
    with pytest.raises(TypeError, match="An AMQP array cannot hold object"):
        encode(Array([object()]))


@pytest.mark.parametrize(("value", "size"), [(Decimal32(3), 4), (Decimal64(9), 8), (Decimal128(15), 16)])
def test_a_decimal_of_another_size_is_refused(value: bytes, size: int) -> None:
    with pytest.raises(OverflowError, match=f"has {size} bytes, not {len(value)}"):
        encode(value)
