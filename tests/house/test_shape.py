"""The ceilings that keep the code readable, names and docstrings, and tests that mirror the package file by file."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("sbnotebook", "pyspark_servicebus", "scripts", "benchmarks")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))

MOST_LINES = 800
MOST_FUNCTION_LINES = 40
LONGEST_TEST_NAME = 62
VAGUE_NAMES = {"utils", "util", "helpers", "common", "core", "base", "manager", "misc"}

# No verb, but what a sentence without one begins with.
NO_VERBS = re.compile(
    r"(A|About|All|An|Around|At|Both|Either|Everything|For|From|How|In|It|Its|Neither|Nothing|Of|On|One|Several"
    r"|Something|That|The|Their|There|These|Those|Two|Up|What|Whatever|When|Where|Whether|Which|Who|Whoever|Whose|Why"
    r"|With|Without|Active|Bytes|Columns|Decisions|Deliveries|Entries|Files|Groups|JSON|Messages|Milliseconds|Numbers"
    r"|Plans|Queues|Rows|Seconds|Sequence|Texts|True|Values|Widgets)\b"
)

# Tests of something else than one module of the package.
APART = ("house", "security", "packaging", "browser", "crash", "cluster", "bench", "conformance", "test_secrets.py")


def place(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def functions(path: Path) -> list[Function]:
    return [node for node in ast.walk(tree(path)) if isinstance(node, Function)]


def lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def lines_of_code(function: Function) -> int:
    # A class in a function, made for a base that is an argument, counts by its own methods.
    classes = sum(lines(part) for part in function.body if isinstance(part, ast.ClassDef))
    return lines(function) - classes - (lines(function.body[0]) if ast.get_docstring(function) else 0)


def mirrored(test: Path) -> bool:
    """Tell whether a test file is about a module or package: test_queue.py and test_queue_locks.py about queue."""
    folder = ROOT / "sbnotebook" / test.relative_to(ROOT / "tests").parent
    words = test.stem.removeprefix("test_").split("_")
    names = ["__init__" if test.stem == "test_init" else "_".join(words[:count]) for count in range(1, len(words) + 1)]
    return any((folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file() for name in names)


def test_files_are_short() -> None:
    lengths = {place(path): len(path.read_text().splitlines()) for path in (*SOURCES, *TESTS)}
    assert not {path: length for path, length in lengths.items() if length > MOST_LINES}


def test_functions_are_short() -> None:
    found = ((f"{place(path)}:{each.lineno}", each) for path in SOURCES for each in functions(path))
    lengths = {where: lines_of_code(function) for where, function in found}
    assert not {function: length for function, length in lengths.items() if length > MOST_FUNCTION_LINES}


def test_modules_are_named_after_what_they_hold() -> None:
    assert not [place(path) for path in SOURCES if VAGUE_NAMES & {path.stem, path.parent.name}]


def test_modules_say_what_they_are_for() -> None:
    assert not [place(path) for path in SOURCES if not ast.get_docstring(tree(path))]


def test_a_test_file_mirrors_a_module() -> None:
    mirrors = [test for test in TESTS if test.relative_to(ROOT / "tests").parts[0] not in APART]
    assert not [place(test) for test in mirrors if not mirrored(test)]


def begins_with_a_verb(docstring: str) -> bool:
    return not NO_VERBS.match(docstring)


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    wrong = [
        f"{place(path)}:{each.name}"
        for path in SOURCES
        for each in functions(path)
        if "probe" not in map(ast.unparse, each.decorator_list)  # its docstring is its expectation
        and not begins_with_a_verb(ast.get_docstring(each) or "Do")
    ]
    assert not wrong, "\n".join(wrong)


def test_names_of_tests_are_searchable() -> None:
    wrong = [
        f"{place(path)}:{each.name}"
        for path in TESTS
        for each in functions(path)
        if each.name.startswith("test_") and len(each.name) > LONGEST_TEST_NAME
    ]
    assert not wrong, "\n".join(wrong)


def test_a_docstring_without_a_verb_is_recognised() -> None:
    assert begins_with_a_verb("Return the address.")
    assert not begins_with_a_verb("Whether it is locked.")
    assert not begins_with_a_verb("The address.")
