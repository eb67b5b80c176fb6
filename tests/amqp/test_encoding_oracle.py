"""Our value codec against the one inside of azure-servicebus, in both directions."""

# ruff: noqa: SLF001
# The SDK's codec is private and untyped; it is only looked at here, and nowhere used.
# pyright: reportPrivateUsage=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from azure.servicebus._pyamqp import _decode as sdk_decode
from azure.servicebus._pyamqp import _encode as sdk_encode
from azure.servicebus._pyamqp.types import TYPE, VALUE, AMQPTypes
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
)


def _read_by_sdk(data: bytes) -> Any:
    buffer = memoryview(data)
    rest, value = sdk_decode._DECODE_BY_CONSTRUCTOR[buffer[0]](buffer[1:])
    assert len(rest) == 0
    return value


def _written_by_sdk(value: Any) -> bytes:
    output = bytearray()
    sdk_encode.encode_value(output, value)
    return bytes(output)


def _unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1)


def _signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
_ASCII = st.text(st.characters(max_codepoint=127), max_size=300)

# AMQP type, values for the SDK, and our own value for each of them.
_TYPES: list[tuple[str, st.SearchStrategy[Any], Callable[[Any], AmqpValue]]] = [
    (AMQPTypes.null, st.none(), lambda _: None),
    (AMQPTypes.boolean, st.booleans(), bool),
    (AMQPTypes.ubyte, _unsigned(8), UByte),
    (AMQPTypes.ushort, _unsigned(16), UShort),
    (AMQPTypes.uint, _unsigned(32), UInt),
    (AMQPTypes.ulong, _unsigned(64), ULong),
    (AMQPTypes.byte, _signed(8), Byte),
    (AMQPTypes.short, _signed(16), Short),
    (AMQPTypes.int, _signed(32), Int),
    (AMQPTypes.long, _signed(64), Long),
    (AMQPTypes.float, st.floats(width=32, allow_nan=False), Float),
    (AMQPTypes.double, st.floats(allow_nan=False), float),
    (AMQPTypes.timestamp, _signed(64), Timestamp),
    (AMQPTypes.uuid, st.uuids(), lambda value: value),
    (AMQPTypes.binary, st.binary(max_size=300), lambda value: value),
    (AMQPTypes.string, _TEXT, lambda value: value),
    (AMQPTypes.symbol, _ASCII, Symbol),
]


@pytest.mark.parametrize(("amqp_type", "values", "ours"), _TYPES, ids=[each[0] for each in _TYPES])
@given(data=st.data())
def test_values_that_the_sdk_writes_are_read_with_their_types(
    amqp_type: str,
    values: st.SearchStrategy[Any],
    ours: Callable[[Any], AmqpValue],
    data: st.DataObject,
) -> None:
    value = data.draw(values)
    found = decode_exactly(_written_by_sdk({TYPE: amqp_type, VALUE: value}))
    assert found == ours(value)
    assert type(found) is type(ours(value))


@pytest.mark.parametrize(("amqp_type", "values", "ours"), _TYPES, ids=[each[0] for each in _TYPES])
@given(data=st.data())
def test_values_that_we_write_are_read_by_the_sdk(
    amqp_type: str,
    values: st.SearchStrategy[Any],
    ours: Callable[[Any], AmqpValue],
    data: st.DataObject,
) -> None:
    value = data.draw(values)
    found = _read_by_sdk(encode(ours(value)))
    # The SDK leaves strings and symbols as bytes.
    assert found == (value.encode() if amqp_type in (AMQPTypes.string, AMQPTypes.symbol) else value)


_PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.floats(allow_nan=False),
    _TEXT,
    st.binary(),
    st.uuids(),
)
_NESTED = st.recursive(
    _PLAIN,
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(_TEXT, inner, max_size=5)),
    max_leaves=10,
)


@given(_NESTED)
def test_lists_and_maps_of_the_sdk_are_read(value: Any) -> None:
    assert decode_exactly(_written_by_sdk(value)) == value


@given(_NESTED)
def test_our_lists_and_maps_are_read_by_the_sdk(value: Any) -> None:
    assert _read_by_sdk(encode(value)) == _with_bytes_for_text(value)


def _with_bytes_for_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list):
        return [_with_bytes_for_text(each) for each in value]
    if isinstance(value, dict):
        return {_with_bytes_for_text(key): _with_bytes_for_text(each) for key, each in value.items()}
    return value


@given(st.lists(st.uuids(), max_size=40))
def test_lock_tokens_of_the_sdk_are_read(tokens: list[uuid.UUID]) -> None:
    written = _written_by_sdk({TYPE: AMQPTypes.array, VALUE: [{TYPE: AMQPTypes.uuid, VALUE: each} for each in tokens]})
    assert decode_exactly(written) == tokens


@given(st.lists(_signed(64), max_size=40))
def test_sequence_numbers_of_the_sdk_are_read(numbers: list[int]) -> None:
    written = _written_by_sdk({TYPE: AMQPTypes.array, VALUE: [{TYPE: AMQPTypes.long, VALUE: each} for each in numbers]})
    found = decode_exactly(written)
    assert found == numbers
    assert isinstance(found, Array)


@given(st.one_of(*(st.lists(_signed(64).map(each), min_size=1, max_size=40) for each in (Long, Timestamp))))
def test_our_arrays_are_read_by_the_sdk(values: list[int]) -> None:
    assert _read_by_sdk(encode(Array(values))) == values


def test_our_symbols_in_an_array_are_read_by_the_sdk() -> None:
    assert _read_by_sdk(encode(Array([Symbol("a"), Symbol("bc")]))) == [b"a", b"bc"]


def test_a_moment_is_the_same_for_both() -> None:
    moment = datetime(2024, 2, 29, 12, 30, 1, tzinfo=UTC)
    assert encode(moment) == _written_by_sdk({TYPE: AMQPTypes.timestamp, VALUE: moment})


def test_types_that_the_sdk_cannot_read_are_known() -> None:
    # azure-servicebus has no char, decimal32 or decimal64: what sends them to it must expect an error.
    for value in (Char("a"), Decimal32(4), Decimal64(8)):
        with pytest.raises(TypeError):
            _read_by_sdk(encode(value))


def test_a_decimal_of_the_sdk_is_kept_as_its_bytes() -> None:
    written = _written_by_sdk(Decimal("12.5"))
    found = decode_exactly(written)
    assert isinstance(found, Decimal128)
    assert encode(found) == written
