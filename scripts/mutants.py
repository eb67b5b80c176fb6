"""Test the tests: change the code in one place at a time, and count how often a test fails (``make mutants``).

The places are a random sample. Each change runs the examples of its module and the tests of its own package, in a copy
of the checkout. A change that fails no test survives. ``tests/mutants.toml`` lists the changes that no test can notice,
with the reason.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

__all__ = ["Checkout", "Mutant", "Run", "main", "sample", "suite_of"]

T = TypeVar("T")

PACKAGES: Final = ("sbnotebook/model", "sbnotebook/emulator/entities", "sbnotebook/settlement")
LEAST_KILLED: Final = 0.95
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

    def is_one_of(self, patterns: Sequence[dict[str, str]]) -> bool:
        """Tell whether the module and both lines match one of the entries."""
        return any(
            all(fnmatchcase(getattr(self, field), each[field]) for field in ("module", "before", "after"))
            for each in patterns
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
    except (AttributeError, SyntaxError):  # cosmic-ray cannot replace a.B in `except a.B`, nor tell `*` of a signature
        return None
    before, after = (text.splitlines()[line - 1].strip() for text in (code, changed))
    return Mutant(str(module.relative_to(root)), line, before, after, changed)


def _what_runs(code: str) -> str:
    """Return the syntax tree without annotations."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
    return ast.dump(tree)


def suite_of(root: Path, module: str) -> list[str]:
    """Return the test files of a module's package, those of the module first."""
    mirror = Path("tests", *Path(module).parts[1:])
    folder = next(each for each in mirror.parents if (root / each).is_dir())
    own = "test_" + mirror.relative_to(folder).parts[0].removesuffix(".py")
    files = [each.relative_to(root) for each in (root / folder).glob("test_*.py")]
    return [str(each) for each in sorted(files, key=lambda file: (not file.name.startswith(own), file))]


class Checkout:
    """A copy of the checkout, for one change at a time.

    Args:
        root: the checkout.
        folder: the folder for the copy.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self._folder = folder
        shutil.copytree(root, folder, ignore=shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "_build"))

    def notices(self, mutant: Mutant, seconds: float) -> bool:
        """Tell whether a test of its package fails with a change, or takes longer than ``seconds``."""
        module = self._folder / mutant.module
        code = module.read_text(encoding="utf-8")
        module.write_text(mutant.code, encoding="utf-8")
        try:
            return not self.passes([mutant.module, *suite_of(self._folder, mutant.module)], seconds)
        finally:
            module.write_text(code, encoding="utf-8")

    def passes(self, tests: Sequence[str], seconds: float) -> bool:
        """Tell whether test files and examples pass within ``seconds``; the first failure ends the run."""
        command = [sys.executable, "-m", "pytest", "-xqq", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
        examples = ["--doctest-modules", "-o", "doctest_optionflags=ELLIPSIS"]
        running = subprocess.Popen(
            [*command, *examples, *tests],
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


class Run:
    """One run over a sample, with a copy of the checkout for each job.

    Args:
        root: the checkout.
        jobs: how many changes are tested at once.
        folder: the folder for the copies.
    """

    def __init__(self, root: Path, jobs: int, folder: Path) -> None:
        self._root = root
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
        suites = [tuple(sorted(suite_of(self._root, mutant.module))) for mutant in mutants]
        seconds = dict(zip(dict.fromkeys(suites), self._pool.map(self._time, dict.fromkeys(suites)), strict=True))

        def test(mutant: Mutant, suite: tuple[str, ...]) -> bool | None:
            if time.monotonic() > ends:
                return None
            # Three times as long as without a change is a hang.
            noticed = self._lend(lambda checkout: checkout.notices(mutant, 30 + 3 * seconds[suite]))
            print("." if noticed else f"\nSurvived: {mutant}\n", end="", flush=True)
            return noticed

        return [noticed for noticed in self._pool.map(test, mutants, suites) if noticed is not None]

    def _time(self, tests: tuple[str, ...]) -> float:
        begun = time.monotonic()
        if not self._lend(lambda checkout: checkout.passes(tests, 1_200)):
            raise SystemExit(f"Mend these tests first, they fail without any change: {' '.join(tests)}")
        return time.monotonic() - begun

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
    equivalents = tomllib.loads((root / "tests" / "mutants.toml").read_text(encoding="utf-8"))["equivalent"]
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
