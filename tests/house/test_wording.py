"""Docstrings begin with a verb, and test names are short enough to search for."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [path for folder in ("sbnotebook", "scripts", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
TESTS = list((ROOT / "tests").rglob("test_*.py"))

LONGEST_TEST_NAME = 62
# No verb, but what a sentence without one begins with.
NO_VERBS = re.compile(
    r"(A|About|All|An|Around|At|Both|Either|Everything|For|From|How|In|It|Its|Neither|Nothing|Of|On|One|Several"
    r"|Something|That|The|Their|There|These|Those|Two|Up|What|Whatever|When|Where|Whether|Which|Who|Whoever|Whose|Why"
    r"|With|Without|Active|Bytes|Columns|Decisions|Deliveries|Entries|Files|Groups|JSON|Messages|Milliseconds|Numbers"
    r"|Plans|Queues|Rows|Seconds|Sequence|Texts|True|Values|Widgets)\b"
)


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def begins_with_a_verb(docstring: str) -> bool:
    return not NO_VERBS.match(docstring)


def place(path: Path, function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return f"{path.relative_to(ROOT)}:{function.lineno} {function.name}"


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    wrong = [
        place(path, each)
        for path in SOURCES
        for each in functions(path)
        if not begins_with_a_verb(ast.get_docstring(each) or "Do")
    ]
    assert not wrong, "\n".join(wrong)


def test_names_of_tests_are_searchable() -> None:
    wrong = [
        place(path, each)
        for path in TESTS
        for each in functions(path)
        if each.name.startswith("test_") and len(each.name) > LONGEST_TEST_NAME
    ]
    assert not wrong, "\n".join(wrong)


def test_a_docstring_without_a_verb_is_recognised() -> None:
    assert begins_with_a_verb("Return the address.")
    assert not begins_with_a_verb("Whether it is locked.")
    assert not begins_with_a_verb("The address.")
