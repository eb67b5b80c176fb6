"""Each capability has its place in the documentation, and a test that shows it: the page that lists them is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house.test_docs import ROOT

PAGE = ROOT / "docs" / "explanation" / "capabilities.md"
TABLE = re.compile(r"^\| capability \| where \| shown by \|\n\|[-|]+\|\n((?:\|.*\|\n)+)", re.MULTILINE)
PLACE = re.compile(r"\[[^\]]+\]\((?P<page>[\w./-]+\.md)(?:#[\w-]+)?\)")
TEST = re.compile(r"`(?P<file>[\w/]+/test_\w+\.py)(?:::(?P<name>test_\w+))?`")


def capabilities(text: str) -> list[list[str]]:
    """The rows of the page's tables, by their cells."""
    rows = [row for table in TABLE.findall(text) for row in table.splitlines()]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def wrong(row: list[str]) -> str | None:
    """What is not right about a row: a page or a test that is not there."""
    if len(row) != len(("capability", "where", "shown by")):
        return "It has other columns."
    _, where, shown_by = row
    place, test = PLACE.fullmatch(where), TEST.fullmatch(shown_by)
    if place is None or not (PAGE.parent / place["page"]).is_file():
        return f"There is no page {where}."
    path = Path(ROOT / "tests" / test["file"]) if test else None
    if test is None or path is None or not path.is_file():
        return f"There is no test file {shown_by}."
    name = test["name"]
    return None if name is None or re.search(rf"\bdef {name}\(", path.read_text()) else f"There is no test {name}."


ROWS = capabilities(PAGE.read_text())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_capability_has_a_page_and_a_test(row: list[str]) -> None:
    assert wrong(row) is None


def test_every_table_is_read() -> None:
    text = PAGE.read_text()
    assert len(ROWS) == len(re.findall(r"^\| .*\| `.*` \|$", text, re.MULTILINE)) >= 50


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (["A", "B"], "other columns"),
        (["A", "[B](missing.md)", "`model/test_report.py`"], "no page"),
        (["A", "[B](outcomes.md)", "`model/test_missing.py`"], "no test file"),
        (["A", "[B](outcomes.md)", "`model/test_report.py::test_missing`"], "no test test_missing"),
    ],
)
def test_what_is_not_there_is_told(row: list[str], sentence: str) -> None:
    assert sentence in str(wrong(row))
