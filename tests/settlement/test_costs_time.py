"""Estimates of how long an action takes: from measured runs, in words."""

from __future__ import annotations

import pytest

from sbnotebook.settlement.costs import Speeds


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (99, "less than a second"),
        (100, "about 1s"),
        (5_000, "about 50s"),
        (11_900, "about 1m59s"),
        (90_000, "about 15m"),
    ],
)
def test_an_estimate_says_the_time_and_the_speed(count: int, words: str) -> None:
    speeds = Speeds()
    speeds.note("purge", 200, seconds=2.0)
    end = "at 100 messages a second, the speed of the last purge over this connection."
    assert speeds.estimate("purge", count) == f"This takes {words} {end}"


def test_nothing_is_estimated_without_a_measurement() -> None:
    speeds = Speeds()
    speeds.note("purge", 99, seconds=1.0)
    speeds.note("purge", 1_000, seconds=0.0)
    assert speeds.estimate("purge", 10) == speeds.estimate("send", 10) == ""
    speeds.note("purge", 100, seconds=1.0)
    assert not speeds.estimate("purge", 0)
    speeds.note("defer", 100, seconds=0.5)
    assert "at 200 messages a second" in speeds.estimate("defer", 10)
    assert not speeds.estimate("send", 10)
