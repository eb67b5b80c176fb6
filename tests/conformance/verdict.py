"""The results of the SDK's tests, compared with the expected ones."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Outcome", "Verdict", "counts_by_file", "expected_failures", "judge", "read_results"]

_EXPECTED: Final = Path(__file__).parent / "expected_failures.toml"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a test: passed, failed, skipped by the SDK, or xfailed as the SDK expects."""

    outcome: str
    seconds: float
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The unexpected results of a run.

    Args:
        failed: tests that failed and are not listed.
        passed: tests that are listed and passed.
        gone: tests that are listed and were not run.
    """

    failed: list[str]
    passed: list[str]
    gone: list[str]

    @property
    def is_good(self) -> bool:
        """Return whether all results were expected."""
        return not (self.failed or self.passed or self.gone)


def expected_failures() -> dict[str, str]:
    """Return the reason for each test that cannot pass."""
    return {each["test"]: each["reason"] for each in tomllib.loads(_EXPECTED.read_text()).get("failure", [])}


def read_results(path: Path) -> dict[str, Outcome]:
    """Read the results that the plugin wrote, by test."""
    return {test: Outcome(**outcome) for test, outcome in sorted(json.loads(path.read_text()).items())}


def judge(results: dict[str, Outcome], expected: dict[str, str], *, is_whole: bool = True) -> Verdict:
    """Compare the results of a run with the expected ones.

    Args:
        results: of the run.
        expected: tests that should fail, with reasons.
        is_whole: whether the run includes all tests, so that none of the expected ones may be missing.
    """
    failed = [test for test, outcome in results.items() if outcome.outcome == "failed"]
    return Verdict(
        failed=[test for test in failed if test not in expected],
        passed=[test for test in expected if test in results and test not in failed],
        gone=[test for test in expected if test not in results] if is_whole else [],
    )


def counts_by_file(results: dict[str, Outcome]) -> dict[str, Counter[str]]:
    """How many tests of each file ended in each way."""
    counts: dict[str, Counter[str]] = {}
    for test, outcome in results.items():
        counts.setdefault(test.partition("::")[0], Counter())[outcome.outcome] += 1
    return counts
