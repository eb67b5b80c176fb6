from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from sbnotebook.amqp import AmqpValue, Array, Described, Int, Long, Symbol, Timestamp, UInt, ULong
from sbnotebook.model import Message
from sbnotebook.testing.strategies import amqp_values, messages
from tests.comparison import differences, same_value


@given(amqp_values())
def test_a_value_is_the_same_as_itself(value: AmqpValue) -> None:
    assert same_value(value, value)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, Int(1)),
        (2**40, Long(2**40)),
        (math.nan, -math.nan),
        (datetime(1970, 1, 1, tzinfo=UTC), Timestamp(0)),
    ],
)
def test_values_that_are_sent_as_the_same_are_the_same(left: AmqpValue, right: AmqpValue) -> None:
    assert same_value(left, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (Int(1), Long(1)),
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ("b", Symbol("b")),
        ("a", b"a"),
        (None, False),
        ([1], [Long(1)]),
        ([1], [1, 1]),
        ([1], Array([1])),
        (Array([], UInt), Array([], ULong)),
        ({"a": 1}, {"a": Long(1)}),
        ({"a": 1}, {Symbol("a"): 1}),
        (Described(ULong(1), "a"), Described(ULong(2), "a")),
        (Described(ULong(1), "a"), Described(ULong(1), Symbol("a"))),
    ],
)
def test_values_of_other_types_or_contents_differ(left: AmqpValue, right: AmqpValue) -> None:
    assert not same_value(left, right)


@given(messages())
def test_a_message_does_not_differ_from_itself(message: Message) -> None:
    assert differences(message, message) == {}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"body": b"b"}, {"body": (b"a", b"b")}),
        ({"subject": Symbol("s")}, {"subject": ("s", "s")}),
        ({"application_properties": {"n": Long(1)}}, {"property n": (1, 1)}),
        ({"application_properties": {}}, {"property n": (1, None)}),
        ({"application_properties": {"n": 1, "m": None}}, {"property m": (None, None)}),
    ],
)
def test_differences_are_named(changes: dict[str, Any], found: dict[str, Any]) -> None:
    message = Message(body=b"a", subject="s", application_properties={"n": 1})
    assert differences(message, message.with_changes(**changes)) == found
