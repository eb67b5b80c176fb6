"""Names the tests of changed files, for ``make quick``: those that mirror them, and those of what imports them.

Without files it takes what differs from the last commit or is new. If nothing does, it takes what the branch changed
since it left main. If that is nothing, too, it names the folders whose tests are fast.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from grimp import ImportGraph, build_graph

__all__ = ["main", "related_tests"]

ROOT: Final = Path(__file__).resolve().parents[1]
FAST: Final = (
    "tests/model",
    "tests/analysis",
    "tests/emulator/entities",
    "tests/emulator/amqp",
    "tests/emulator/service",
    "tests/client",
    "tests/magics",
)
"""What ``make quick`` runs if nothing changed."""
SLOW: Final = ("tests/browser/", "tests/cluster/", "tests/conformance/", "tests/crash/")
"""Run only if they changed themselves: each starts a browser, a cluster, or programs to kill."""
ALWAYS: Final = ("tests/house/test_shape.py", "tests/house/test_prose.py")
"""Any change may break these."""
MOST: Final = 40
"""Files of tests in a quick run, the nearest first."""


def related_tests(changed: Iterable[str], root: Path = ROOT) -> list[str]:
    """Return the files of tests for changed files, the nearest first.

    Args:
        changed: paths below the root.
        root: the folder of the project.
    """
    changed = list(changed)
    tests = sorted(str(path.relative_to(root)) for path in (root / "tests").rglob("test_*.py"))
    near = [test for path in changed for test in _of_file(path, tests, root)]
    modules = [path for path in changed if path.startswith("sbnotebook/") and path.endswith(".py")]
    graph = build_graph("sbnotebook", cache_dir=None) if modules else None
    far = [test for path in modules if graph for user in _users(path, graph) for test in _mirrors(user, tests)]
    return list(dict.fromkeys([*near, *(test for test in far if not test.startswith(SLOW))]))


def _of_file(path: str, tests: Sequence[str], root: Path) -> Iterator[str]:
    """Yield the tests of one file: itself, those that mirror a module, or those that use a helper of theirs."""
    if path in tests or (path.endswith(".ipynb") and (root / path).exists()):
        yield path
    elif path.startswith("sbnotebook/") and path.endswith(".py"):
        yield from _mirrors(path, tests)
    elif path.startswith("scripts/"):
        yield from (test for test in tests if test == f"tests/house/test_{Path(path).stem}.py")
    elif path.endswith("conftest.py"):
        folder = path.removesuffix("conftest.py")
        yield from (test for test in tests if folder and test.startswith(folder))
    elif path.startswith("tests/") and path.endswith(".py"):
        name = path.removesuffix(".py").replace("/", ".")
        yield from (test for test in tests if f"{name} " in (root / test).read_text(encoding="utf-8"))


def _mirrors(module: str, tests: Sequence[str]) -> Iterator[str]:
    """Yield the tests that are named after a module, such as test_queue.py and test_queue_locks.py for queue.py."""
    path = Path(module.replace("sbnotebook", "tests", 1))
    names = {f"{path.parent}/test_{path.stem}"}
    if path.stem == "__init__":
        names = {f"{path.parent}/test_init", f"{path.parent.parent}/test_{path.parent.name}"}
    for test in tests:
        stem = test.removesuffix(".py")
        if any(stem == name or stem.startswith(f"{name}_") for name in names):
            yield test


def _users(module: str, graph: ImportGraph) -> Iterator[str]:
    """Yield the modules that import this one."""
    dotted = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    if dotted in graph.modules:
        for user in sorted(graph.find_modules_that_directly_import(dotted)):
            place = user.replace(".", "/")
            yield f"{place}/__init__.py" if (ROOT / place).is_dir() else f"{place}.py"


def changed_files() -> list[str]:
    """Return what differs from the last commit or is new, or else what differs from main."""
    found = _git("diff", "--name-only", "HEAD") + _git("ls-files", "--others", "--exclude-standard")
    if found:
        return found
    base = _git("merge-base", "HEAD", "main") or _git("merge-base", "HEAD", "origin/main")
    return _git("diff", "--name-only", base[0]) if base else []


def _git(*arguments: str) -> list[str]:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()


def main(arguments: Sequence[str]) -> None:
    """Print the tests of the named files, or of all that changed."""
    changed = list(arguments) or changed_files()
    if not changed:
        print(*FAST)
        return
    tests = related_tests(changed)
    if len(tests) > MOST:
        print(f"{len(tests)} files test what changed; the nearest {MOST} run.", file=sys.stderr)
    print(*dict.fromkeys([*tests[:MOST], *ALWAYS]))


if __name__ == "__main__":
    main(sys.argv[1:])
