"""``make conformance``: the SDK's own live tests against the emulator.

Every test that fails and is not listed in ``expected_failures.toml``, and every one that is listed and passes, fails
the run; a few that fail by surprise are repeated once, alone. A whole run writes
docs/reference/emulator-conformance.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from report import write_page
from source import LIVE, tests_of_the_sdk
from verdict import Outcome, expected_failures, judge, read_results

__all__ = ["main", "run"]

_HERE: Final = Path(__file__).parent
_WORKERS: Final = 32
"""Nearly all of the tests' time is spent waiting."""
_MOST_REPEATED: Final = 5
"""Tests that failed by surprise are repeated if they are so few: with so many at once, one may wait too long."""


def run(tests: list[str], workers: int, options: list[str] | None = None) -> dict[str, Outcome]:
    """Run tests of the SDK, in as many processes, and tell how each ended."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.json")
        command = [sys.executable, "-m", "pytest", "-p", "plugin", "-c", str(_HERE / "live.ini"), "--rootdir=."]
        command += ["--results", str(results), "-n", str(workers), *(options or []), *tests]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_HERE), str(_HERE.parents[1])])}
        subprocess.run(command, cwd=tests_of_the_sdk(), env=environment, check=False)
        return read_results(results)


def main() -> int:
    """Run, compare, and write the page; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make conformance", description=__doc__)
    parser.add_argument("tests", nargs="*", help="some of the tests only, as pytest names them")
    parser.add_argument("--workers", type=int, default=_WORKERS)
    arguments = parser.parse_args()
    results = run(arguments.tests or list(LIVE), arguments.workers)
    expected = expected_failures()
    verdict = judge(results, expected, is_whole=not arguments.tests)
    if 0 < len(verdict.failed) <= _MOST_REPEATED:
        print("Once more, alone:", *verdict.failed, sep="\n    ")
        results |= run(verdict.failed, workers=1)
        verdict = judge(results, expected, is_whole=not arguments.tests)
    for test in verdict.failed:
        print(f"failed, and is not expected to: {test}\n    {results[test].text}")
    for test in verdict.passed:
        print(f"passed, and is expected to fail: {test}")
    for test in verdict.gone:
        print(f"is expected to fail, and was not run: {test}")
    if verdict.is_good and not arguments.tests:
        write_page(results, expected)
    print("As expected." if verdict.is_good else "Not as expected.")
    return 0 if verdict.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
