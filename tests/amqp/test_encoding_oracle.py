"""Our value codec against the one inside of azure-servicebus, in both directions."""

# ruff: noqa: SLF001
# The SDK's codec is private and untyped; it is only looked at here, and nowhere used.
# pyright: reportPrivateUsage=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
from __future__ import annotations

import math
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
    Array,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    decode_exactly,
    encode,
)
from sbnotebook.testing.strategies import PRIMITIVES
from tests.comparison import same_value


def _read_by_sdk(data: bytes) -> Any:
    buffer = memoryview(data)
    rest, value = sdk_decode._DECODE_BY_CONSTRUCTOR[buffer[0]](buffer[1:])
    assert len(rest) == 0
    return value


def _written_by_sdk(value: Any) -> bytes:
    output = bytearray()
    sdk_encode.encode_value(output, value)
    return bytes(output)


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


# The SDK has its own class for decimals.
_NAMES = [name for name in PRIMITIVES if hasattr(AMQPTypes, name) and name != "decimal128"]


@pytest.mark.parametrize("name", _NAMES)
@given(data=st.data())
def test_a_value_is_the_same_to_the_sdk(name: str, data: st.DataObject) -> None:
    value = data.draw(PRIMITIVES[name].filter(lambda value: not (isinstance(value, float) and math.isnan(value))))
    assert same_value(decode_exactly(_written_by_sdk({TYPE: getattr(AMQPTypes, name), VALUE: value})), value)
    assert _read_by_sdk(encode(value)) == _with_bytes_for_text(value)


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
def test_lists_and_maps_are_the_same_to_the_sdk(value: Any) -> None:
    assert decode_exactly(_written_by_sdk(value)) == value
    assert _read_by_sdk(encode(value)) == _with_bytes_for_text(value)


def _with_bytes_for_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list):
        return [_with_bytes_for_text(each) for each in value]
    if isinstance(value, dict):
        return {_with_bytes_for_text(key): _with_bytes_for_text(each) for key, each in value.items()}
    return value


@pytest.mark.parametrize("name", ["long", "timestamp", "uuid", "symbol"])
@given(data=st.data())
def test_an_array_is_the_same_to_the_sdk(name: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(PRIMITIVES[name], min_size=1, max_size=40))
    amqp_type = getattr(AMQPTypes, name)
    written = _written_by_sdk({TYPE: AMQPTypes.array, VALUE: [{TYPE: amqp_type, VALUE: each} for each in values]})
    assert same_value(decode_exactly(written), Array(values))
    assert _read_by_sdk(encode(Array(values))) == _with_bytes_for_text(values)


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
