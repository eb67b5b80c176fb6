"""The words that errors have in common."""

from __future__ import annotations

import time

import pytest

from sbnotebook.errors import near_match

OPTIONS = ("--write", "--read-only", "--max-in-flight", "--dry-run")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("--readonly", "--read-only"),
        ("--READ_ONLY", "--read-only"),
        ("--max-inflight", "--max-in-flight"),
        ("--dryrun", "--dry-run"),
        ("--subject", None),
        ("", None),
        ("--writ", None),
        ("--where", None),
    ],
)
def test_near_match_returns_the_similar_name_as_it_is_known(written: str, meant: str | None) -> None:
    assert near_match(written, OPTIONS) == meant


def test_near_match_of_equals_is_the_first_name() -> None:
    assert near_match("dryrun", ["dry_run", "dry-run"]) == "dry_run"


def test_near_match_of_a_very_long_name_takes_no_time() -> None:
    started = time.thread_time()
    assert near_match("--write" * 1_000_000, OPTIONS) is None
    assert time.thread_time() - started < 1
