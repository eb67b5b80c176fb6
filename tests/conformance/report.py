"""docs/reference/emulator-conformance.md, written from a run and from the list of features."""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from source import VERSION
from verdict import Outcome, counts_by_file

__all__ = ["PAGE", "Feature", "feature_table", "features", "page", "place", "write_page"]

_HERE: Final = Path(__file__).parent
_ROOT: Final = _HERE.parents[1]
_FEATURES: Final = _HERE / "features.toml"
PAGE: Final = _ROOT / "docs" / "reference" / "emulator-conformance.md"
_WAYS: Final = ("passed", "failed", "skipped", "xfailed")

_INTRODUCTION: Final = f"""\
# The emulator's conformance

`make conformance` runs the live tests of `azure-servicebus` {VERSION}, the SDK's own and unmodified, against the
emulator, each with an emulator of its own over TLS. The run writes this page. It fails if a test fails that is not
listed here, or if a listed test passes.
"""


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature of Service Bus in the emulator, with the tests that show it."""

    area: str
    name: str
    tests: tuple[str, ...]


def features() -> list[Feature]:
    """Return the features of the emulator, area by area."""
    listed = tomllib.loads(_FEATURES.read_text())
    return [Feature(area, name, tuple(tests)) for area, entries in listed.items() for name, tests in entries.items()]


def feature_table() -> str:
    """Return the table of features, each with a test that shows it."""
    rows = [f"| {each.area} | {each.name} | {_links(each.tests)} |" for each in features()]
    return "\n".join(["| area | feature | shown by |", "|---|---|---|", *rows])


def page(results: dict[str, Outcome], expected: dict[str, str]) -> str:
    """Return the whole page."""
    parts = [_INTRODUCTION, "## Results\n", _result_table(results), ""]
    parts += ["`skipped` and `xfailed` count tests that the SDK itself skips or expects to fail.", ""]
    parts += ["## Tests that cannot pass\n", _failures(results, expected), ""]
    parts += ["## Tests that the SDK skips\n", _skips(results), ""]
    parts += ["## Features of the emulator\n", feature_table(), ""]
    return "\n".join(parts)


def write_page(results: dict[str, Outcome], expected: dict[str, str]) -> None:
    """Write the page into the documentation."""
    PAGE.write_text(page(results, expected))


def _result_table(results: dict[str, Outcome]) -> str:
    counts = counts_by_file(results)
    rows = [f"| `{file}` | " + " | ".join(str(count[way]) for way in _WAYS) + " |" for file, count in counts.items()]
    sums = " | ".join(f"**{sum(count[way] for count in counts.values())}**" for way in _WAYS)
    return "\n".join([f"| tests of | {' | '.join(_WAYS)} |", "|---|---:|---:|---:|---:|", *rows, f"| all | {sums} |"])


def _failures(results: dict[str, Outcome], expected: dict[str, str]) -> str:
    failed = [test for test, outcome in results.items() if outcome.outcome == "failed"]
    if not failed:
        return "None: every test passes that the SDK does not skip itself."
    return "\n".join(
        ["| test | reason |", "|---|---|", *(f"| `{_short(test)}` | {expected[test]} |" for test in failed)]
    )


def _skips(results: dict[str, Outcome]) -> str:
    skipped = [outcome.text.removeprefix("Skipped: ") for outcome in results.values() if outcome.outcome == "skipped"]
    rows = [f"| {reason} | {count} |" for reason, count in Counter(skipped).items()]
    return "\n".join(["| reason | tests |", "|---|---:|", *rows])


def _short(test: str) -> str:
    file, _, name = test.partition("::")
    return f"{file.removesuffix('.py')} {name.rpartition('::')[2]}"


def _links(tests: tuple[str, ...]) -> str:
    return ", ".join(f"`{_short(test)}`" for test in tests)


def place(test: str, tests_of_the_sdk: Path) -> tuple[Path, str]:
    """The file of a feature's test, ours or the SDK's, and the name of its function."""
    file, _, name = test.partition("::")
    return (_ROOT if file.startswith("tests/") else tests_of_the_sdk) / file, name
