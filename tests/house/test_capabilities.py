"""Each capability has its place in the documentation, and a test that shows it: the page that lists them is true."""

from __future__ import annotations

import re

import pytest

from tests.house.test_docs import ROOT

PAGE = ROOT / "docs" / "explanation" / "capabilities.md"
TABLE = re.compile(r"^\| capability \| where \| shown by \|\n\|[-|]+\|\n((?:\|.*\|\n)+)", re.MULTILINE)
PLACE = re.compile(r"\[[^\]]+\]\((?P<page>[\w./-]+\.md)(?:#[\w-]+)?\)")
TEST = re.compile(r"`(?P<file>test_\w+\.py)`: (?P<name>[\w ]+)(?: †)?")


def capabilities(text: str) -> list[list[str]]:
    """The rows of the page's tables, by their cells."""
    rows = [row for table in TABLE.findall(text) for row in table.splitlines()]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def wrong(row: list[str]) -> str | None:
    """Return the fault of a row: a missing page or test."""
    if len(row) != len(("capability", "where", "shown by")):
        return "It has other columns."
    _, where, shown_by = row
    place, test = PLACE.fullmatch(where), TEST.fullmatch(shown_by)
    if place is None or not (PAGE.parent / place["page"]).is_file():
        return f"There is no page {where}."
    files = [path.read_text() for path in (ROOT / "tests").rglob(test["file"])] if test else []
    if test is None or not files:
        return f"There is no test file {shown_by}."
    name = f"test_{test['name']}".replace(" ", "_")
    return None if any(f"def {name}(" in text for text in files) else f"There is no test {name}."


ROWS = capabilities(PAGE.read_text())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_capability_has_a_page_and_a_test(row: list[str]) -> None:
    assert wrong(row) is None


def test_every_table_is_read() -> None:
    text = PAGE.read_text()
    assert len(ROWS) == len(re.findall(r"^\| .*\| `test_.* \|$", text, re.MULTILINE)) >= 50


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (["A", "B"], "other columns"),
        (["A", "[B](missing.md)", "`test_report.py`: is missing"], "no page"),
        (["A", "[B](outcomes.md)", "`test_missing.py`: is missing"], "no test file"),
        (["A", "[B](outcomes.md)", "`test_report.py`: is missing"], "no test test_is_missing"),
    ],
)
def test_what_is_not_there_is_told(row: list[str], sentence: str) -> None:
    assert sentence in str(wrong(row))
