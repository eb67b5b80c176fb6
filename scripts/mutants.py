"""Test the tests: change the code in one place at a time, and count how often a test fails (``make mutants``).

The places are a random sample. First the tests of their packages run once, and note which of them run which line. Then
each change runs the examples of its module and the tests that run its line, in a copy of the checkout. A change that
fails no test survives. ``tests/mutants.toml`` lists the changes that no test can notice, with the reason.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import accumulate, islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, TypeVar
from xml.etree import ElementTree as ET

from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from coverage import CoverageData

__all__ = ["Checkout", "Mutant", "Run", "Suite", "main", "sample"]

T = TypeVar("T")

PACKAGES: Final = ("sbnotebook/model", "sbnotebook/emulator/entities", "sbnotebook/settlement")
LEAST_KILLED: Final = 0.95
_BECOMES: Final = " => "
"""Between a line and the changed line, in the keys of tests/mutants.toml."""
SECONDS_EACH: Final = 120.0
"""That the tests of a change take together, at most."""
_BELOW: Final = 12
"""Lines in which the body of a function begins, below its first decorator."""
MEMORY: Final = 8 << 30
"""Bytes that a process of the tests may take: some changes make a loop endless."""

# `is` for `==` on an enum or a small number changes nothing.
_UNNOTICEABLE: Final = ("Is_Eq", "Eq_Is", "IsNot_NotEq", "NotEq_IsNot")
_CLASSES: Final[dict[str, Any]] = {
    name: plugins.get_operator(name) for name in plugins.operator_names() if not name.endswith(_UNNOTICEABLE)
}
_OPERATORS: Final = {name: operator() for name, operator in _CLASSES.items() if not operator.arguments()}


@dataclass(frozen=True)
class Mutant:
    """One change of a module.

    Attributes:
        module: the path of the module below the root.
        line: the number of the line that changes.
        before: the line as it is, without its indentation.
        after: the line with the change.
        code: the whole module with the change.
    """

    module: str
    line: int
    before: str
    after: str
    code: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}\n  - {self.before}\n  + {self.after}"

    def is_one_of(self, equivalents: Mapping[str, Mapping[str, str]]) -> bool:
        """Tell whether the table of its module has an entry for both lines."""
        return any(
            fnmatchcase(self.before, before) and fnmatchcase(self.after, after)
            for module, reasons in equivalents.items()
            if fnmatchcase(self.module, module)
            for before, _, after in (lines.partition(_BECOMES) for lines in reasons)
        )


def sample(root: Path, packages: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """Return up to ``count`` changes at random places of packages; annotations and docstrings are never changed.

    A seed draws the same places again after the code has changed elsewhere.
    """
    drawn: list[tuple[float, Path, int, tuple[str, int]]] = []
    for module in sorted(module for package in packages for module in (root / package).rglob("*.py")):
        lines = module.read_text(encoding="utf-8").splitlines()
        for line, column, changes in _places(module):
            chance = random.Random(f"{seed} {module.relative_to(root)} {lines[line - 1]} {column}")  # noqa: S311
            drawn.append((chance.random(), module, line, chance.choice(changes)))
    mutants = (_mutant(root, module, line, *change) for _, module, line, change in sorted(drawn))
    return list(islice(filter(None, mutants), count))


def _places(module: Path) -> Iterator[tuple[int, int, list[tuple[str, int]]]]:
    """Yield the line and column of each place that can be changed, and its changes: an operator and the occurrence."""
    nodes = list(ast_nodes(get_ast(module.read_text(encoding="utf-8"))))
    places: defaultdict[tuple[int, int], list[tuple[str, int]]] = defaultdict(list)
    for name, operator in _OPERATORS.items():
        starts = (start for node in nodes for start, _ in operator.mutation_positions(node))
        for occurrence, start in enumerate(starts):
            places[start].append((name, occurrence))
    for (line, column), changes in sorted(places.items()):
        yield line, column, changes


def _mutant(root: Path, module: Path, line: int, operator: str, occurrence: int) -> Mutant | None:
    """Return one change, or None if it changes nothing that runs."""
    code = module.read_text(encoding="utf-8")
    try:
        changed = str(mutate_code(code, _OPERATORS[operator], occurrence))
        if _what_runs(changed) == _what_runs(code):
            return None
    except (AttributeError, SyntaxError):  # cosmic-ray cannot replace a.B in `except a.B`
        return None
    before, after = (text.splitlines()[line - 1].strip() for text in (code, changed))
    return Mutant(str(module.relative_to(root)), line, before, after, changed)


def _what_runs(code: str) -> str:
    """Return the syntax tree without annotations, and without the `*` of signatures, which is not an operator."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.arguments):
            node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
            node.defaults = [*node.defaults, *filter(None, node.kw_defaults)]
            node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
    return ast.dump(tree)


@dataclass(frozen=True)
class Suite:
    """The tests of some packages.

    Args:
        seconds: that each test took, by its node id.
        running: the tests that run a line, by the module and the line.
    """

    seconds: Mapping[str, float]
    running: Mapping[tuple[str, int], Sequence[str]]

    def of(self, mutant: Mutant) -> dict[str, float]:
        """Return the tests that run the line of a change, as many as fit into two minutes.

        Those of the module's own file come first, and the quick ones of each. A line that runs on import has the tests
        that run lines with its constant, or the function below it; where there are none, those of its module's folder.
        """
        found = self.running.get((mutant.module, mutant.line)) or self._users(mutant) or self._near(mutant.module)
        own = _tests_of(mutant.module)
        folder = own.parent
        files = str(own.with_name(f"test_{own.stem}")), str(folder.with_name(f"test_{folder.name}_{own.stem}"))
        times = sorted((not test.startswith(files), self.seconds.get(test, 0.0), test) for test in found)
        ends = accumulate(seconds for _, seconds, _ in times)
        return {test: seconds for (_, seconds, test), end in zip(times, ends, strict=True) if end <= SECONDS_EACH}

    def _users(self, mutant: Mutant) -> list[str]:
        constants = _constants_at(mutant)
        lines = enumerate(mutant.code.splitlines(), 1)
        if constants:
            numbers = [number for number, line in lines if re.search(rf"\b({'|'.join(constants)})\b", line)]
        else:
            numbers = [*range(mutant.line + 1, mutant.line + _BELOW)]
        return sorted({test for number in numbers for test in self.running.get((mutant.module, number), ())})

    def _near(self, module: str) -> list[str]:
        folders = (f"{folder}/" for folder in _tests_of(module).parents)
        return next(filter(None, ([test for test in self.seconds if test.startswith(each)] for each in folders)), [])


def _constants_at(mutant: Mutant) -> list[str]:
    """Return the names of the constants whose value the changed line is a part of."""
    return [
        name.id
        for node in ast.walk(ast.parse(mutant.code))
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.lineno <= mutant.line <= (node.end_lineno or 0)
        for name in ast.walk(ast.Tuple([node.target] if isinstance(node, ast.AnnAssign) else node.targets))
        if isinstance(name, ast.Name) and re.match(r"[A-Z_]", name.id)
    ]


def _tests_of(module: str) -> Path:
    return Path("tests", *Path(module).parts[1:])


class Checkout:
    """A copy of the checkout, for one change at a time.

    Args:
        root: the checkout.
        folder: the folder for the copy.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self._folder = folder
        self._results = folder / "results.xml"
        shutil.copytree(root, folder, ignore=shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "_build"))

    def measure(self, modules: Iterable[str], jobs: int) -> Suite:
        """Run the tests of the packages of modules once.

        Raises:
            SystemExit: a test fails without any change.
        """
        folders = sorted({str(Path(*_tests_of(module).parts[:2])) for module in modules})
        data = CoverageData(str(self._folder / ".coverage"))
        package = next(Path(module).parts[0] for module in modules)
        spread = [f"-n{jobs if jobs > 1 else 0}", "--dist=loadfile"]
        noted = [f"--cov={package}", "--cov-context=test", "--cov-report="]
        passed = self._passes([*spread, *noted, "--maxfail=20", "-k", "not crash and not chaos", *folders], 1_500)
        cases, failed = self._cases(), self._failed()
        # Some fail only because noting takes time.
        if not passed and not (failed and self._passes(failed, 600)):
            raise SystemExit(f"Mend these tests first, they fail without any change: {' '.join(failed)}")
        data.read()
        running = {
            (str(Path(file).relative_to(self._folder)), line): [*{test.partition("|")[0] for test in tests if test}]
            for file in data.measured_files()
            for line, tests in data.contexts_by_lineno(file).items()
        }
        return Suite({_node_id(case): float(case.get("time", 0)) for case in cases}, running)

    def notices(self, mutant: Mutant, tests: Mapping[str, float]) -> bool:
        """Tell whether one of the tests fails with a change and not without it, or all take three times as long."""
        module = self._folder / mutant.module
        code = module.read_text(encoding="utf-8")
        module.write_text(mutant.code, encoding="utf-8")
        examples = ["--doctest-modules", "-o", "doctest_optionflags=ELLIPSIS", mutant.module]
        try:
            if self._passes([*examples, *tests], 60 + 3 * sum(tests.values())):
                return False
        finally:
            module.write_text(code, encoding="utf-8")
        failed = self._failed()
        if not tests.keys() >= {*failed} or not failed or self._passes(failed, 300):
            return True
        # It fails without the change, too, where it runs alone: others may notice the change.
        return self.notices(mutant, {test: seconds for test, seconds in tests.items() if test not in failed})

    def _passes(self, arguments: Sequence[str], seconds: float) -> bool:
        """Tell whether tests pass within ``seconds``; the first failure ends the run."""
        self._results.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-xqq", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=0"]
        running = subprocess.Popen(
            [*command, "--hypothesis-seed=0", f"--junitxml={self._results}", *arguments],
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": str(self._folder), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # the processes that the tests start end with it
        )
        try:
            return running.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()

    def _cases(self) -> list[ET.Element]:
        return [*ET.parse(self._results).iter("testcase")] if self._results.exists() else []  # noqa: S314 (ours)

    def _failed(self) -> list[str]:
        """Return the tests that failed, none where their modules could not be imported."""
        failed = [case for case in self._cases() if case.find("failure") is not None or case.find("error") is not None]
        return [_node_id(case) for case in failed if case.get("classname")]


def _node_id(case: ET.Element) -> str:
    return f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"


class Run:
    """One run over a sample, with a copy of the checkout for each job.

    Args:
        root: the checkout.
        jobs: how many changes are tested at once.
        folder: the folder for the copies.
    """

    def __init__(self, root: Path, jobs: int, folder: Path) -> None:
        self._jobs = jobs
        self._pool = ThreadPoolExecutor(jobs)
        self._free: SimpleQueue[Checkout] = SimpleQueue()
        for job in range(jobs):
            self._free.put(Checkout(root, folder / str(job)))

    def __call__(self, mutants: Sequence[Mutant], minutes: float) -> list[bool]:
        """Return for each change whether a test noticed it; those not begun within ``minutes`` are left out.

        Raises:
            SystemExit: tests fail without any change.
        """
        ends = time.monotonic() + minutes * 60
        tests = self._lend(lambda checkout: checkout.measure([mutant.module for mutant in mutants], self._jobs))
        print(f"{len(tests.seconds):,} tests ran.")

        def test(mutant: Mutant) -> bool | None:
            if time.monotonic() > ends:
                return None
            noticed = self._lend(lambda checkout: checkout.notices(mutant, tests.of(mutant)))
            print("." if noticed else f"\nSurvived: {mutant}\n", end="", flush=True)
            return noticed

        return [noticed for noticed in self._pool.map(test, mutants) if noticed is not None]

    def _lend(self, use: Callable[[Checkout], T]) -> T:
        checkout = self._free.get()
        try:
            return use(checkout)
        finally:
            self._free.put(checkout)


def main(arguments: Sequence[str] | None = None, root: Path = Path()) -> int:
    """Test the tests, and print the survivors; return 1 if fewer than 95 % of the changes were noticed."""
    parser = argparse.ArgumentParser(prog="python -m scripts.mutants", description=__doc__)
    parser.add_argument("packages", nargs="*", default=PACKAGES, help="folders of the modules to change")
    parser.add_argument("--count", type=int, default=60, help="how many changes")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="repeats the sample of a run")
    parser.add_argument("--jobs", type=int, default=6, help="how many at once; most tests wait more than they compute")
    parser.add_argument("--minutes", type=float, default=25, help="begin no further change after this time")
    asked = parser.parse_args(arguments)
    equivalents = tomllib.loads((root / "tests" / "mutants.toml").read_text(encoding="utf-8"))
    chosen = sample(root, asked.packages, asked.count, asked.seed)
    noticeable = [mutant for mutant in chosen if not mutant.is_one_of(equivalents)]
    print(f"Seed {asked.seed}: {len(chosen)} changes, {len(chosen) - len(noticeable)} known to be equivalent.")
    with tempfile.TemporaryDirectory(prefix="sbnotebook-mutants-") as folder:
        noticed = Run(root.resolve(), asked.jobs, Path(folder))(noticeable, asked.minutes)
    rate = sum(noticed) / max(1, len(noticed))
    print(f"\n{sum(noticed)} of {len(noticed)} changes were noticed, {rate:.0%}; seed {asked.seed}.")
    return int(rate < LEAST_KILLED)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))
    sys.exit(main())
