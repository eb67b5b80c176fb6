"""One engine carries every action out: only it catches the errors that end a run."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# The service and the local files: a handler of both ends a run.
SERVICE = {"ServiceBusError", "AzureError"}
FILES = {"Error", "DatabaseError"}
TOGETHER = """
import sqlite3
from azure.core.exceptions import AzureError

ENDS: Final = (OSError, sqlite3.Error)

def act():
    try:
        settle()
    except {caught}:
        pass
"""


def names(node: ast.expr, constants: dict[str, ast.expr]) -> set[str]:
    """Return the exceptions of a handler; constants of the module stand for their tuples."""
    match node:
        case ast.Tuple(elts=elements):
            return {name for element in elements for name in names(element, constants)}
        case ast.Starred(value=inner):
            return names(inner, constants)
        case ast.Name(id=name) if name in constants:
            return names(constants[name], {})
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return {name}
        case _:
            return set()


def handlers_that_end_a_run(code: str) -> list[int]:
    """Return the lines of handlers that catch errors of the service together with those of the files."""
    tree = ast.parse(code)
    constants = {
        target.id: value
        for statement in tree.body
        for target, value in (
            [(statement.target, statement.value)]
            if isinstance(statement, ast.AnnAssign)
            else [(target, statement.value) for target in statement.targets]
            if isinstance(statement, ast.Assign)
            else []
        )
        if isinstance(target, ast.Name) and value is not None
    }
    found: list[int] = []
    for handler in (node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)):
        caught = names(handler.type, constants) if handler.type else set[str]()
        if SERVICE & caught and FILES & caught:
            found.append(handler.lineno)
    return found


def test_one_place_catches_what_ends_a_run() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in (ROOT / "sbnotebook" / "settlement").rglob("*.py")
        for line in handlers_that_end_a_run(path.read_text())
    ]
    assert len(found) == 1, found


@pytest.mark.parametrize("caught", ["(AzureError, *ENDS)", "(ServiceBusError, sqlite3.Error)"])
def test_a_second_place_would_be_counted(caught: str) -> None:
    assert len(handlers_that_end_a_run(TOGETHER.format(caught=caught))) == 1


@pytest.mark.parametrize("caught", ["ENDS", "AzureError", "Exception"])
def test_other_handlers_are_not_counted(caught: str) -> None:
    assert not handlers_that_end_a_run(TOGETHER.format(caught=caught))
