"""Which of the tests that a page names run in ``make check-all`` only, wholly or in part.

``python -m tests.house.marks`` writes it into the pages.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = ("docs/explanation/capabilities.md", "docs/explanation/threat-model.md")
LATER: Final = " †"
NAMED: Final = re.compile(r"`(?P<file>(?:[\w-]+/)*test_\w+\.py)`(?P<name>: [\w ]+\w)?(?: †)?")


@cache
def are_thorough(path: Path) -> dict[str, bool]:
    """Return for each test of a file whether only a thorough run has it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    marks = [ast.unparse(each) for each in tree.body if isinstance(each, ast.Assign)]
    whole = any(each.startswith("pytestmark = ") and "mark.thorough" in each for each in marks)
    return {
        each.name: whole or any("mark.thorough" in ast.unparse(mark) for mark in each.decorator_list)
        for each in tree.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_")
    }


def mark(file: str, name: str | None) -> str:
    """Return what to say behind a named test, or behind a named file."""
    paths = [ROOT / file] if "/" in file else [*(ROOT / "tests").rglob(file)]
    found = [each for path in paths for each in are_thorough(path).items()]
    wanted = name and f"test_{name.removeprefix(': ').replace(' ', '_')}"
    chosen = {thorough for each, thorough in found if wanted in (None, each)}
    return LATER if True in chosen else ""


def with_marks(page: str) -> str:
    """Return the text of a page in which each test says where it runs."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return NAMED.sub(
        lambda found: f"`{found['file']}`{found['name'] or ''}{mark(str(found['file']), found['name'])}", text
    )


if __name__ == "__main__":
    for each in PAGES:
        (ROOT / each).write_text(with_marks(each), encoding="utf-8")
