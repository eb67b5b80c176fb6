"""The threat model names tests, and they are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house.marks import PAGES, with_marks

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "explanation" / "threat-model.md").read_text()
PARTS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
TEST = re.compile(r"`((?:[\w-]+/)*test_\w+\.py)`")


def is_there(name: str) -> bool:
    return (ROOT / name).is_file() if "/" in name else any((ROOT / "tests").rglob(name))


def test_every_test_that_is_named_is_there() -> None:
    named = TEST.findall(PAGE)
    assert len(named) > 40
    assert [name for name in named if not is_there(name)] == []
    assert not is_there("test_that_is_not_there.py")
    assert not is_there("tests/security/test_locks.py")


@pytest.mark.parametrize("part", PARTS)
def test_every_part_names_tests(part: str) -> None:
    assert TEST.search(PARTS[part])


def test_every_measure_has_its_test() -> None:
    tables = [table.splitlines() for table in re.findall(r"(?:^\|.*\|\n)+", PAGE, re.MULTILINE)]
    measures = [row for table in tables if "shown by" in table[0] for row in table[2:]]
    assert len(measures) > 20
    assert [row for row in measures if not TEST.search(row.split("|")[-2])] == []


def test_every_boundary_has_its_part() -> None:
    places = {re.sub(r"[^a-z -]", "", part.lower()).replace(" ", "-") for part in PARTS}
    linked = re.findall(r"\]\(#([\w-]+)\)", PAGE)
    assert len(linked) >= 7
    assert set(linked) <= places


def test_security_tests_are_named() -> None:
    tests = {path.name for path in (ROOT / "tests" / "security").glob("test_*.py")}
    assert tests - {name.rpartition("/")[2] for name in TEST.findall(PAGE)} == set()


@pytest.mark.parametrize("page", PAGES)
def test_pages_say_which_tests_make_test_leaves_out(page: str) -> None:
    text = (ROOT / page).read_text()
    assert with_marks(page) == text, "Run python -m tests.house.marks."
