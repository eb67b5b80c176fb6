"""The pytest plugin by which the SDK's own tests meet the emulator instead of Azure."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import math
import re
import sys
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import pytest

# First, before anything has taken certifi's or the socket module's functions for itself.
from namespaces import here

here.take_over_the_network()
sys.path.insert(0, str(Path(__file__).parent / "stand_ins"))

__all__ = ["Results", "pytest_addoption", "pytest_collection_modifyitems", "pytest_configure", "pytest_pyfunc_call"]

_FUNCTION: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_MOST_TEXT: Final = 300
"""Characters of a failure's message that are kept."""


class Results:
    """Records the outcome of each test."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ended: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the outcome of the call, or of a set-up or a clean-up that went wrong."""
        if report.when != "call" and report.outcome == "passed":
            return
        text = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else ""
        crash = getattr(report.longrepr, "reprcrash", None)
        if crash is not None:
            text = f"{Path(crash.path).name}:{crash.lineno}: {crash.message}"
        outcome = "xfailed" if hasattr(report, "wasxfail") and report.skipped else report.outcome
        self._ended[report.nodeid] = {"outcome": outcome, "seconds": report.duration, "text": text[:_MOST_TEXT]}

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        self._path.write_text(json.dumps(self._ended, indent=1))


@pytest.fixture(scope="session")
def test_proxy() -> None:
    """Record HTTP requests; the SDK's conftest asks for it, and nothing is recorded."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Say where the results go."""
    parser.addoption("--results", type=Path, default=None)


def pytest_configure(config: pytest.Config) -> None:
    """Know the marks of the SDK's tests, and keep the results where several processes run them."""
    config.addinivalue_line("markers", "asyncio: a coroutine")
    path = config.getoption("--results")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Results(path))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what never talks to a namespace and so says nothing about the emulator; begin with the longest.

    A process is given two tests at once, so a short one follows each long one.
    """
    live = [item for item in items if _is_live(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in live])
    waits = {path: _waits(path) for path in {item.path for item in live}}
    live.sort(key=lambda item: -waits[item.path].get(item.name.partition("[")[0], 0))
    half = (len(live) + 1) // 2
    pairs = zip_longest(live[:half], reversed(live[half:]))
    items[:] = [item for pair in pairs for item in pair if item is not None]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters.keys() & pyfuncitem.funcargs.keys()
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def _waits(path: Path) -> dict[str, int]:
    """About how long each test of a file waits (s), by the numbers in its calls of sleep and its waiting times."""
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, _FUNCTION)]
    return {
        function.name: sum(
            math.prod(int(number) for number in re.findall(r"\d+", wait))
            for wait in re.findall(r"(?:sleep\(|max_wait_time=|socket_timeout=)([\d* ]+)", ast.unparse(function))
        )
        for function in functions
    }


def _is_live(item: pytest.Item) -> bool:
    marks = {mark.name for mark in item.iter_markers()}
    return bool(marks & {"liveTest", "live_test_only"}) or hasattr(getattr(item, "obj", None), "needs_a_namespace")
