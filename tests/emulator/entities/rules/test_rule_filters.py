from __future__ import annotations

from typing import Any

import pytest

from sbnotebook.amqp import AmqpValue, Int, Long, Timestamp
from sbnotebook.emulator.entities.rules.rule import correlation_filter, sql_filter
from sbnotebook.emulator.entities.rules.subject import FilterError
from sbnotebook.errors import ConfigurationError
from tests.emulator.entities.rules.conftest import subject

FIELDS = {
    "correlation_id": "correlation_id", "message_id": "message_id", "to": "to", "reply_to": "reply_to",
    "subject": "label", "session_id": "session_id", "reply_to_session_id": "reply_to_session_id",
    "content_type": "content_type",
}  # fmt: skip


def test_unknown_is_no_match() -> None:
    message = subject({"color": "red"})
    assert sql_filter("color = 'red'").matches(message)
    assert sql_filter("size = 1").matches(message) is False
    assert not sql_filter("NOT size = 1").matches(message)


def test_parameters_have_names_with_or_without_the_sign() -> None:
    for name in ("@least", "least", "LEAST"):
        taken = sql_filter("size >= @least", {name: 5})
        assert [taken.matches(subject({"size": Long(size)})) for size in (4, 5)] == [False, True]


def test_a_parameter_without_a_value_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="@least"):
        sql_filter("size >= @least", {"@most": 5})


def test_a_filter_that_cannot_be_evaluated_is_an_error() -> None:
    with pytest.raises(FilterError, match="Nonsense"):
        sql_filter("sys.Nonsense = 1").matches(subject())


@pytest.mark.parametrize("field", FIELDS)
def test_a_correlation_filter_compares_a_system_property(field: str) -> None:
    given: dict[str, Any] = {field: "a"}
    taken = correlation_filter(**given)
    others = {FIELDS[other]: "a" for other in FIELDS if FIELDS[other] != FIELDS[field]}
    assert taken.matches(subject(**{FIELDS[field]: "a"}))
    assert not taken.matches(subject(**{FIELDS[field]: "A"}))
    assert not taken.matches(subject(**others))


def test_a_correlation_filter_wants_everything_that_is_given() -> None:
    taken = correlation_filter(subject="a", correlation_id="c", properties={"color": "red", "size": Int(5)})
    system = {"label": "a", "correlation_id": "c"}
    assert taken.matches(subject({"Color": "red", "size": Long(5), "more": 1}, **system))
    assert not taken.matches(subject({"color": "red", "size": Long(6)}, **system))
    assert not taken.matches(subject({"color": "red"}, **system))
    assert not taken.matches(subject({"color": "red", "size": Long(5)}, label="a"))


@pytest.mark.parametrize(
    ("expected", "found"), [("5", Long(5)), (True, Long(1)), (Timestamp(6), Long(6)), (None, None), ("a", "A")]
)
def test_a_correlation_filter_keeps_types_apart(expected: AmqpValue, found: AmqpValue) -> None:
    assert not correlation_filter(properties={"value": expected}).matches(subject({"value": found}))


def test_a_correlation_filter_needs_something_to_compare() -> None:
    with pytest.raises(ConfigurationError, match="at least one property"):
        correlation_filter()
    correlation_filter(subject="")
