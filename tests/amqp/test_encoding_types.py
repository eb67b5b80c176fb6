from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest

from sbnotebook.amqp import Array, Described, Int, Long, Short, Symbol, Timestamp, ULong, type_name
from sbnotebook.amqp.encoding import plain


def test_a_timestamp_counts_milliseconds() -> None:
    moment = datetime(2024, 2, 29, 12, 30, 1, 250_000, tzinfo=UTC)
    assert Timestamp.from_datetime(moment) == 1_709_209_801_250
    assert Timestamp.from_datetime(moment).to_datetime() == moment


def test_from_datetime_takes_any_zone_and_naive_as_utc() -> None:
    east = timezone(timedelta(hours=2))
    assert Timestamp.from_datetime(datetime(1970, 1, 1, 2, tzinfo=east)) == 0
    assert Timestamp.from_datetime(datetime(1970, 1, 1, 1)) == 3_600_000  # noqa: DTZ001 - naive on purpose


def test_a_timestamp_before_1970_is_negative() -> None:
    assert Timestamp(-1).to_datetime() == datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    assert Timestamp.from_datetime(datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC)) == -1


def test_a_timestamp_outside_of_the_calendar_has_no_moment() -> None:
    with pytest.raises(OverflowError):
        Timestamp(2**62).to_datetime()


def test_an_array_knows_its_element_type() -> None:
    assert Array([Symbol("a")]).element_type is Symbol
    assert Array((), ULong).element_type is ULong
    assert Array([ULong(1)]) == [1]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, "null"),
        (True, "boolean"),
        (5, "int"),
        (2**31, "long"),
        (Short(5), "short"),
        (1.5, "double"),
        ("a", "string"),
        (Symbol("a"), "symbol"),
        (b"a", "binary"),
        (bytearray(b"a"), "binary"),
        (UUID(int=0), "uuid"),
        (datetime(2024, 1, 1, tzinfo=UTC), "timestamp"),
        ([], "list"),
        ({}, "map"),
        (Array(), "array"),
        (Described(ULong(1), None), "described"),
    ],
)
def test_the_name_of_the_type_that_is_written(value: Any, name: str) -> None:
    assert type_name(value) == name


@pytest.mark.parametrize(
    ("value", "kind"),
    [(2**30, Int), (2**31 - 1, Int), (2**31, Long), (-(2**31), Int), (-(2**31) - 1, Long), (-(2**30) - 1, Int)],
)
def test_a_plain_int_is_int_where_it_fits(value: int, kind: type) -> None:
    assert type(plain(value)) is kind
    assert plain(value) == value


def test_plain_takes_a_subclass_as_its_base() -> None:
    class Name(str):
        __slots__ = ()

    assert type(plain(Name("a"))) is str
    assert type(plain(bytearray(b"a"))) is bytes  # pyright: ignore[reportArgumentType] (as an untyped caller may)
    with pytest.raises(TypeError, match="AMQP has no type for object"):
        plain(object())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_an_empty_array_holds_strings_unless_it_is_told() -> None:
    assert Array().element_type is str
    assert Array([1], Long).element_type is Long
