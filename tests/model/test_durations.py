from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.client.targets import duration
from sbnotebook.model.durations import duration_text


@pytest.mark.parametrize(
    ("seconds", "text", "rounded"),
    [
        (0, "0s", "0s"),
        (0.25, "0.25s", "0s"),
        (3, "3s", "3s"),
        (119.4, "1m59.4s", "1m59s"),
        (119.6, "1m59.6s", "2m"),
        (120.6, "2m0.6s", "2m"),
        (90, "1m30s", "1m30s"),
        (600, "10m", "10m"),
        (5_429, "1h30m29s", "1h30m"),
        (100_000, "1d3h46m40s", "1d4h"),
        (-3, "-3s", "-3s"),
    ],
)
def test_durations_are_written_as_users_write_them(seconds: float, text: str, rounded: str) -> None:
    assert duration_text(seconds) == duration_text(timedelta(seconds=seconds)) == text
    assert duration_text(seconds, rounded=True) == rounded


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=10_000)))
def test_written_durations_are_read_as_they_were(value: timedelta) -> None:
    assert abs(duration(duration_text(value)) - value) < timedelta(microseconds=2)
