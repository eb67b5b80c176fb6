from __future__ import annotations

import math
import operator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.amqp import (
    Byte,
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
    encode,
)  # fmt: skip
from sbnotebook.emulator.entities.rules.subject import (
    MOST_TEXT_CHARACTERS,
    FilterError,
    Operand,
    RuleSubject,
    combine,
    compare,
    convert,
    negate,
    text_of,
    to_operand,
)

HOUR = timedelta(hours=1)


def shown(value: Operand) -> str:
    """The type tells values apart that look the same."""
    return f"{type(value).__name__} {str(value)[:20]}"


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (Int(2), Long(2)), (Byte(2), ULong(2)), (Int(2), 2.0), (Float(2.5), 2.5), ("a", Symbol("a")),
        (Timestamp(5), Timestamp(5)), (UUID(int=1), UUID(int=1)), (True, True), (b"a", b"a"), (HOUR, HOUR),
    ],
    ids=shown,
)  # fmt: skip
def test_equal_values_are_equal_whatever_their_width(left: Operand, right: Operand) -> None:
    assert compare(operator.eq, left, right) is True
    assert compare(operator.ne, left, right) is False


@pytest.mark.parametrize(
    ("left", "right"),
    [("5", Long(5)), (True, Long(1)), (Timestamp(5), Long(5)), (UUID(int=1), str(UUID(int=1))), (b"a", "a"),
     (None, None), (None, "a"), ([], []), ({}, {})],
    ids=shown,
)  # fmt: skip
def test_comparing_values_of_different_kinds_is_unknown(left: Operand, right: Operand) -> None:
    for test in (operator.eq, operator.ne, operator.lt, operator.ge):
        assert compare(test, left, right) is None


@pytest.mark.parametrize("value", [True, UUID(int=1), b"a"])
def test_values_without_an_order_are_equal_or_not_and_no_more(value: Operand) -> None:
    assert compare(operator.eq, value, value) is True
    assert compare(operator.le, value, value) is None


@pytest.mark.parametrize(
    ("left", "symbol", "right", "result"),
    [
        (Int(-1), "/", Int(1), Int(-1)), (Int(1), "/", Int(-1), Int(-1)), (Int(-1), "/", Int(-1), Int(1)),
        (Int(7), "/", Int(2), Int(3)), (Int(-7), "/", Long(2), Long(-3)), (Int(-7), "%", Long(2), Long(-1)),
        (Int(7), "%", Int(-2), Int(1)), (Int(7), "/", 2.0, 3.5), (Byte(1), "+", UShort(2), Int(3)),
        (UInt(1), "+", Int(2), Long(3)), (UInt(1), "+", UByte(2), UInt(3)), (ULong(1), "*", UInt(3), ULong(3)),
        (Float(0.5), "*", Int(3), Float(1.5)), (Float(0.5), "+", 0.25, 0.75), (7.5, "%", Int(2), 1.5),
        ("a", "+", "b", "ab"), ("a", "+", Long(1), "a1"), (2.0, "+", "a", "2a"), (True, "+", "", "True"),
        (Timestamp(3_600_005), "-", Timestamp(5), HOUR), (Timestamp(5), "+", HOUR, Timestamp(3_600_005)),
        (Timestamp(3_600_005), "-", HOUR, Timestamp(5)), (HOUR, "+", HOUR, timedelta(hours=2)),
        (1.0, "/", Int(0), math.inf), (-1.0, "/", Int(0), -math.inf), (1.0, "/", -0.0, -math.inf),
        (-7.5, "%", 2.0, -1.5), (5.0, "%", math.inf, 5.0), (0.0, "/", 5.0, 0.0), (3.0, "-", Float(1.0), 2.0),
        (Int(-7), "/", Int(-2), Int(3)), (Int(-8), "%", Int(-3), Int(-2)), (HOUR, "-", HOUR, timedelta()),
        (Timestamp(5), "-", Timestamp(3_600_005), -HOUR), ("a" * 32_767, "+", "b", "a" * 32_767 + "b"),
    ],
    ids=shown,
)  # fmt: skip
def test_calculating_promotes_types_as_csharp_does(left: Operand, symbol: str, right: Operand, result: Operand) -> None:
    found = combine(symbol, left, right)
    assert (type(found), found) == (type(result), result)


@pytest.mark.parametrize(("left", "symbol"), [(0.0, "/"), (0.0, "%"), (1.0, "%"), (math.inf, "%"), (math.nan, "/")])
def test_a_division_by_zero_without_a_sign_is_no_number(left: float, symbol: str) -> None:
    found: Any = combine(symbol, left, Int(0))
    assert math.isnan(found)


@pytest.mark.parametrize(
    ("left", "symbol", "right"),
    [
        ("a", "-", "b"), (True, "*", Int(1)), ("a", "*", Int(2)), (Timestamp(1), "+", Timestamp(1)),
        (Timestamp(1), "*", HOUR), (HOUR, "+", Int(1)), (b"a", "+", "a"), ([], "+", Int(1)), (Int(1), "/", Int(0)),
        (Long(1), "%", Short(0)), (Long(2**63 - 1), "+", Int(1)), (Int(2**31 - 1), "+", Int(1)),
        (UInt(0), "-", UInt(1)), (Timestamp(2**63 - 1), "+", HOUR), (Timestamp(2**63 - 1), "-", Timestamp(-(2**63))),
        ("a" * MOST_TEXT_CHARACTERS, "+", "a"),
    ],
    ids=shown,
)  # fmt: skip
def test_an_impossible_calculation_raises_filter_error(left: Operand, symbol: str, right: Operand) -> None:
    with pytest.raises(FilterError):
        combine(symbol, left, right)


@pytest.mark.parametrize("symbol", ["+", "-", "*", "/", "%"])
def test_a_missing_value_makes_the_result_unknown(symbol: str) -> None:
    assert combine(symbol, None, Long(0)) is None
    assert combine(symbol, "a", None) is None
    assert negate(None) is None


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1).filter(bool))
def test_quotient_and_remainder_belong_together(left: int, right: int) -> None:
    quotient: Any = combine("/", Long(left), Long(right))
    remainder: Any = combine("%", Long(left), Long(right))
    assert quotient * right + remainder == left
    assert abs(remainder) < abs(right)
    assert remainder == 0 or (remainder < 0) == (left < 0)


def test_a_minus_keeps_the_type() -> None:
    for value, result in (
        (Int(3), Int(-3)),
        (UInt(3), Long(-3)),
        (1.5, -1.5),
        (Float(1.5), Float(-1.5)),
        (HOUR, -HOUR),
    ):
        found = negate(value)
        assert (type(found), found) == (type(result), result)
    with pytest.raises(FilterError, match="string"):
        negate("a")


def test_single_precision_overflows_to_infinity() -> None:
    assert combine("*", Float(3e38), Float(10.0)) == math.inf


@pytest.mark.parametrize(
    ("value", "existing", "result"),
    [
        (Long(5), Int(9), Int(5)), (Long(300), UByte(9), Long(300)), (2.0, Int(9), Int(2)), (2.5, Int(9), 2.5),
        (Long(2), 9.0, 2.0), (Long(2), Float(9.0), Float(2.0)), ("a", Int(9), "a"), (Long(5), "a", Long(5)),
        (Long(5), True, Long(5)), (Long(5), b"a", Long(5)),
        (Long(5), None, Long(5)), (math.inf, Int(9), math.inf), (True, Int(9), True), (None, Int(9), None),
    ],
    ids=shown,
)  # fmt: skip
def test_a_number_keeps_the_type_of_its_property_if_it_fits(value: Operand, existing: Operand, result: Operand) -> None:
    found = convert(value, existing)
    assert (type(found), found) == (type(result), result)


def test_dotnet_types_on_amqp_are_unwrapped() -> None:
    ticks = int((datetime(2024, 5, 6, tzinfo=UTC) - datetime(1, 1, 1, tzinfo=UTC)).total_seconds()) * 10**7
    moment = Timestamp.from_datetime(datetime(2024, 5, 6, tzinfo=UTC))
    assert to_operand(Described(Symbol("com.microsoft:datetime-offset"), Long(ticks))) == moment
    assert to_operand(Described(Symbol("com.microsoft:uri"), "sb://a")) == "sb://a"
    assert to_operand(datetime(2024, 5, 6, tzinfo=UTC)) == moment
    assert to_operand(Described(Symbol("com.microsoft:timespan"), Long(36_000_000_000))) == HOUR
    other = Described(Symbol("another"), Long(1))
    assert to_operand(other) is other
    for name in ("com.microsoft:timespan", "com.microsoft:web"):
        odd = Described(Symbol(name), "no number")
        assert to_operand(odd) is odd


def test_texts_are_those_of_csharp() -> None:
    assert [text_of(value) for value in (False, Long(-1), 2.5, Float(3.0), UUID(int=0))] == [
        "False", "-1", "2.5", "3", "00000000-0000-0000-0000-000000000000",
    ]  # fmt: skip
    with pytest.raises(FilterError, match="binary"):
        text_of(b"a")
    with pytest.raises(FilterError, match="too large"):
        text_of(Timestamp(2**62))


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (Int, -(2**31), 2**31 - 1), (UInt, 0, 2**32 - 1), (Long, -(2**63), 2**63 - 1), (ULong, 0, 2**64 - 1),
    ],
)  # fmt: skip
def test_a_result_has_the_range_of_its_type(kind: type[int], low: int, high: int) -> None:
    for value, symbol in ((low, "-"), (high, "+")):
        found = combine(symbol, kind(value), kind(0))
        assert (type(found), found) == (kind, value)
        with pytest.raises(FilterError, match="too large for its type"):
            combine(symbol, kind(value), kind(1))
        with pytest.raises(FilterError, match="too large for its type"):
            combine(symbol, kind(value), kind(100))


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (Byte, -(2**7), 2**7 - 1), (UByte, 0, 2**8 - 1), (Short, -(2**15), 2**15 - 1), (UShort, 0, 2**16 - 1),
        (Int, -(2**31), 2**31 - 1), (UInt, 0, 2**32 - 1), (ULong, 0, 2**64 - 1),
    ],
)  # fmt: skip
def test_a_number_is_converted_within_the_range_of_its_type(kind: type[int], low: int, high: int) -> None:
    for value in (low, high):
        assert type(convert(Long(value), kind(1))) is kind
    for value in (low - 1, high + 1):
        assert type(convert(Long(value), kind(1))) is Long


@pytest.mark.parametrize(
    ("left", "right", "kind"),
    [
        (ULong, UByte, ULong), (ULong, Int, Long), (Long, UInt, Long), (UInt, UShort, UInt), (UInt, Byte, Long),
        (Short, UByte, Int), (UByte, UShort, Int), (int, Int, Long),
    ],
)  # fmt: skip
def test_the_type_of_a_result_holds_both_operands(left: type[int], right: type[int], kind: type[int]) -> None:
    assert type(combine("+", left(1), right(1))) is kind
    assert type(combine("+", right(1), left(1))) is kind


def test_a_moment_ends_where_its_type_does() -> None:
    millisecond = timedelta(milliseconds=1)
    assert combine("+", Timestamp(2**63 - 2), millisecond) == Timestamp(2**63 - 1)
    assert combine("-", Timestamp(-(2**63) + 1), millisecond) == Timestamp(-(2**63))
    for moment, symbol in ((Timestamp(2**63 - 1), "+"), (Timestamp(-(2**63)), "-")):
        for span in (millisecond, HOUR):
            with pytest.raises(FilterError, match="too large"):
                combine(symbol, moment, span)


def test_a_time_span_is_counted_in_ticks() -> None:
    message = RuleSubject(b"")
    message.set("span", timedelta(microseconds=1), system=False)
    assert message.payload.endswith(encode(Described(Symbol("com.microsoft:timespan"), Long(10))))
    assert to_operand(Described(Symbol("com.microsoft:timespan"), Long(19))) == timedelta(microseconds=1)
    assert to_operand(Described(Symbol("com.microsoft:datetime-offset"), Long(621_355_968_000_010_000))) == 1
    uri = Described(Symbol("com.microsoft:uri"), Long(1))
    assert to_operand(uri) is uri
