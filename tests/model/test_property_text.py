from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sbnotebook.amqp import (
    AmqpValue,
    Char,
    Decimal32,
    Decimal128,
    Described,
    Float,
    Long,
    Symbol,
    Timestamp,
    ULong,
    type_name,
)
from sbnotebook.amqp.encoding import type_names
from sbnotebook.errors import ConfigurationError
from sbnotebook.model.property_text import decimal_bytes, from_text, property_type, to_text
from sbnotebook.testing.strategies import PRIMITIVES, amqp_values
from tests.comparison import same_value


@pytest.mark.parametrize("name", PRIMITIVES)
@given(data=st.data())
def test_every_primitive_comes_back_as_it_was(name: str, data: st.DataObject) -> None:
    value = data.draw(PRIMITIVES[name])
    assert same_value(from_text(to_text(value), property_type(value)), value)


@given(amqp_values())
# Out of datetime's range, and looking like a date of the year 2534 to datetime.fromisoformat.
@example(Timestamp(253_411_010_120_000))
@example(Timestamp(-(2**63)))
@example(2**40)
@example(datetime(2024, 2, 29, 1, 2, 3, 456_000, tzinfo=UTC))
def test_every_value_comes_back_as_it_was(value: AmqpValue) -> None:
    assert same_value(from_text(to_text(value), property_type(value)), value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a text", "a text"),
        (Symbol("name"), "name"),
        (True, "true"),
        (Long(-5), "-5"),
        (ULong(2**64 - 1), "18446744073709551615"),
        (Float(0.5), "0.5"),
        (float("inf"), "inf"),
        (Timestamp(1_704_067_200_123), "2024-01-01T00:00:00.123+00:00"),
        (b"\x00\xff", "AP8="),
        (Described(Symbol("acme:money"), 5), "AKMKYWNtZTptb25leVQF"),
        (Described(Symbol("com.microsoft:uri"), "https://contoso.com"), "https://contoso.com"),
        (Decimal128(decimal_bytes(Decimal("-33802.4489"))), "-33802.4489"),
        (Decimal128(decimal_bytes(Decimal("9.50"), is_of_net=True)), "9.50"),
        (Decimal32(bytes.fromhex("3180006e")), "MYAAbg=="),
    ],
    ids=repr,
)
def test_texts_are_readable(value: AmqpValue, text: str) -> None:
    assert to_text(value) == text


def test_null_has_no_text() -> None:
    assert to_text(None) is None


@pytest.mark.parametrize("value", ["text", None, 5, 2.5, Long(3), [1]], ids=repr)
def test_a_value_without_a_type_stays_as_it_is(value: Any) -> None:
    assert from_text(value, None) is value


@pytest.mark.parametrize(("text", "kind"), [("[1]", "list"), ('{"a": 1}', "map"), ("[1]", "array"), ("x", "binary")])
def test_a_typed_value_without_a_text_is_refused(text: str, kind: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        from_text(text, kind)
    said = f"{text!r} is not a property value of the AMQP type {kind!r}, which is written as base64."
    assert str(refused.value) == said


@pytest.mark.parametrize(("kind", "size"), [("decimal32", 4), ("decimal64", 8)])
@pytest.mark.parametrize("text", ["1.5", "AAAA", "", "="])
def test_a_short_decimal_says_how_it_is_given(kind: str, size: int, text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        from_text(text, kind)
    assert str(refused.value) == (
        f"{text!r} is not a property value of the AMQP type {kind!r}: give its {size} bytes as base64, "
        "or a number as a decimal128."
    )


def test_a_moment_is_written_as_people_write_it() -> None:
    assert from_text("2024-01-01T00:00:00", "timestamp") == Timestamp(1_704_067_200_000)
    assert from_text("2024-01-01", "timestamp") == Timestamp(1_704_067_200_000)


def test_a_duration_is_read_as_hours_minutes_and_seconds() -> None:
    duration = from_text("01:16:05.5", "com.microsoft:timespan")
    assert duration == Described(Symbol("com.microsoft:timespan"), Long(45_655_000_000))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("256", "ubyte"),
        ("-1", "ulong"),
        (str(2**31), "int"),
        ("1.5", "long"),
        ("1e39", "float"),
        ("yes", "boolean"),
        ("True", "boolean"),
        ("true", "bool"),
        ("2024-13-01", "timestamp"),
        (str(2**63), "timestamp"),
        ("not base64!", "binary"),
        ("YWJj!", "binary"),
        ("RQ==!", "list"),
        ("AAAA", "decimal32"),
        ("AAAAAAA=", "decimal64"),
        ("ab", "char"),
        ("", "char"),
        ("123", "uuid"),
        ("AAAA", "map"),
        ("", "list"),
        ("5", "integer"),
        ("5", "__class__"),
        (None, "int"),
    ],
    ids=str,
)
def test_a_text_that_is_no_value_of_the_type_is_refused(text: Any, kind: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not a property value of the AMQP type"):
        from_text(text, kind)


@given(st.text(), st.sampled_from([*type_names.values(), "", "nonsense"]) | st.text())
def test_a_hostile_text_is_a_value_or_refused(text: str, kind: str) -> None:
    try:
        value = from_text(text, kind)
    except ConfigurationError as error:
        shown = str(error)
    else:
        shown = type_name(value)
        assert shown == kind
    assert len(shown) < 400


def test_a_decimal_has_its_size() -> None:
    assert same_value(from_text("AAAAAA==", "decimal32"), Decimal32(4))
    assert same_value(from_text("é", "char"), Char("é"))


def test_a_long_text_is_cut_in_an_error() -> None:
    with pytest.raises(ConfigurationError) as refused:
        from_text("t" * 61, "k" * 61)
    assert str(refused.value) == f"{'t' * 60!r} is not a property value of the AMQP type {'k' * 60!r}."
