from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sbnotebook.client.targets import duration, start_time, time_to_come
from sbnotebook.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", timedelta(seconds=90)),
        ("5m", timedelta(minutes=5)),
        ("1h30m", timedelta(minutes=90)),
        ("2d", timedelta(days=2)),
        ("250ms", timedelta(milliseconds=250)),
        ("1.5h", timedelta(minutes=90)),
        (" 1 H 30 M ", timedelta(minutes=90)),
        ("0s", timedelta(0)),
        ("1m1m", timedelta(minutes=2)),
        ("5 minutes", timedelta(minutes=5)),
        ("1 hour, 30 min", timedelta(minutes=90)),
        ("2 weeks", timedelta(weeks=2)),
        ("5", timedelta(seconds=5)),
    ],
)
def test_durations_are_read_as_users_write_them(text: str, expected: timedelta) -> None:
    assert duration(text) == expected


def test_duration_of_a_number_is_seconds() -> None:
    assert duration(90) == duration(90.0) == timedelta(seconds=90)


@pytest.mark.parametrize("long", ["100000000d", timedelta(days=365_251)])
def test_a_duration_is_not_longer_than_the_calendar(long: str | timedelta) -> None:
    with pytest.raises(ConfigurationError, match=r"A duration has 1,000 years at most; '.*' is longer"):
        duration(long)


TEXTS = ("", " ", "m", "5m later", "-5m", "5mm", ".5m", "5..5m", "1e3s", "9" * 400 + "d", "soon")


@pytest.mark.parametrize("other", [*TEXTS, float("nan"), float("inf"), 1e300, [1], object(), b"5m"], ids=range(17))
def test_other_texts_and_values_are_no_durations(other: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not a duration: write 90s, 5m, 1h30m or 2d"):
        duration(other)


def test_a_time_to_come_may_be_as_old_as_clocks_differ() -> None:
    time = datetime.now(UTC) - timedelta(seconds=30)
    assert time_to_come(time) == time


def test_times_and_durations_both_say_since_when() -> None:
    assert start_time("2d") == timedelta(days=2)
    assert start_time("2026-01-31T08:00:00+00:00") == datetime(2026, 1, 31, 8, tzinfo=UTC)
    assert start_time("2026-01-31") == datetime(2026, 1, 31).astimezone()


@given(st.text() | st.text(alphabet="0123456789.smhd ", max_size=12))
@example("9" * 100_000)
@example("1s" * 100_000)
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        found = duration(text)
    except ConfigurationError as error:
        found = error
    assert isinstance(found, timedelta) or len(str(found)) < 250
