from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.emulator.entities.options import FOREVER, format_duration, parse_duration
from sbnotebook.errors import ConfigurationError


@pytest.mark.parametrize("text", ["", "P", "PT", "1M", "P1M", "PT1M2", "PT-1S", "PT1.5M", "60"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a duration"):
        parse_duration(text)


@given(st.integers(0, 10**11))
def test_a_written_duration_is_read_again(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds)) == milliseconds


def test_for_ever_is_written_as_the_service_does() -> None:
    assert format_duration(None) == FOREVER
    assert parse_duration(FOREVER) == 922_337_203_685_478  # The longest that .NET knows, rounded to ms.


def test_a_long_invalid_duration_is_quoted_up_to_40_characters() -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_duration("x" * 41)
    assert str(refused.value).startswith(f"{'x' * 40!r} is not a duration")


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "PT0S"),
        (1, "PT0.001S"),
        (60_000, "PT1M"),
        (3_600_000, "PT1H"),
        (86_400_000, "P1D"),
        (90_061_001, "P1DT1H1M1.001S"),
    ],
)
def test_durations_are_written_in_their_shortest_form(milliseconds: int, text: str) -> None:
    assert format_duration(milliseconds) == text
    assert parse_duration(f" {text} ") == milliseconds
