"""Measure the structure of a checkout: ``python -m scripts.structure BEFORE AFTER`` prints a column for each.

Sizes are read from the files of ``sbnotebook``: of all of it, and of each package. Frames are measured against the
emulator, with the interpreter in the checkout's own ``.venv``. Counted are the live frames of sbnotebook, on the
kernel's thread and on the loop's, when a magic reaches the method of the SDK that does its work.
"""

from __future__ import annotations

import ast
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any, Final

__all__ = ["measure_calls", "measure_sizes", "table"]

PACKAGE: Final = "sbnotebook"
SDK: Final = str(Path("azure", "servicebus")) + os.sep
# Each magic, the cells before it, and the method of the SDK that does its work.
SEND: Final = "%sb_send orders 'hello' --yes"
CALLS: Final[dict[str, tuple[list[str], str, str]]] = {
    "%sb_peek": ([SEND], "%sb_peek orders", "_mgmt_request_response_with_retry"),
    "%sb_send": ([], SEND, "_transfer_message_async"),
    "%sb_complete": ([SEND, "%sb_lock orders -n 1"], "%sb_complete --yes", "_process_outgoing_frame"),
    "%sb_resubmit": (
        [SEND, "%sb_lock orders -n 1", "%sb_dead_letter --reason Bad --yes"],
        "%sb_resubmit orders/$dlq --to orders --yes",
        "_transfer_message_async",
    ),
}


def measure_sizes(tree: Path) -> dict[str, str]:
    """Return the sizes of all and of each package, and how long files and functions are: median, 90th percentile."""
    texts = [path.read_text(encoding="utf-8") for path in (tree / PACKAGE).rglob("*.py")]
    packages = sorted(path.parent for path in (tree / PACKAGE).glob("*/__init__.py"))
    files = [len(text.splitlines()) for text in texts]
    functions = [
        _lines_of_code(node)
        for text in texts
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return {
        "files": f"{len(files):,}",
        "lines": f"{sum(files):,}",
        "lines of a file (median, 90th percentile)": _spread(files),
        "functions": f"{len(functions):,}",
        "lines of a function without its docstring (median, 90th percentile)": _spread(functions),
        **{f"{each.name}: lines, statements, classes, exported names": _sizes_of(each) for each in packages},
    }


def _sizes_of(package: Path) -> str:
    texts = [path.read_text(encoding="utf-8") for path in package.rglob("*.py")]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    counts = [sum(isinstance(node, kind) for node in nodes) for kind in (ast.stmt, ast.ClassDef)]
    border = ast.walk(ast.parse((package / "__init__.py").read_text(encoding="utf-8")))
    own = [node for node in border if isinstance(node, ast.ImportFrom) and package.name in str(node.module)]
    exported = [alias.name for node in own for alias in node.names]
    lines = sum(len(text.splitlines()) for text in texts)
    return ", ".join(f"{count:,}" for count in [lines, *counts, len(exported)])


def _lines_of_code(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    parts = [function, function.body[0]] if ast.get_docstring(function) else [function]
    whole, *docstring = [(part.end_lineno or part.lineno) - part.lineno + 1 for part in parts]
    return whole - sum(docstring)


def _spread(lengths: list[int]) -> str:
    return f"{statistics.median(lengths):g}, {statistics.quantiles(lengths, n=10, method='inclusive')[-1]:.0f}"


def measure_calls(tree: Path) -> dict[str, str]:
    """Return for each magic of :data:`CALLS` the live frames at the SDK's method, and the modules on the path.

    Raises:
        subprocess.CalledProcessError: the magics could not be run there.
    """
    command = [tree / ".venv" / "bin" / "python", Path(__file__).resolve(), "--calls"]
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve())}
    ran = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


class _Probe:
    """A profiler that records the live frames when sbnotebook calls the SDK, and the modules that ran before.

    Args:
        package: the folder of sbnotebook.
        method: the SDK's method.
    """

    def __init__(self, package: Path) -> None:
        self._package = str(package) + os.sep
        self.method = ""
        self.live: list[str] = []
        self.entered: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Look at one call; Python calls this for every function."""
        if event != "call" or not self.method:
            return
        file = frame.f_code.co_filename
        if file.startswith(self._package):
            self.entered.add(file)
        elif frame.f_code.co_name == self.method and SDK in file:
            live = self._frames(frame)
            if threading.current_thread() is not threading.main_thread():
                live += self._frames(sys._current_frames()[threading.main_thread().ident or 0])  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
            self.live, self.method = live, ""

    def _frames(self, frame: FrameType | None) -> list[str]:
        files: list[str] = []
        while frame is not None:
            files.append(frame.f_code.co_filename)
            frame = frame.f_back
        return [file for file in files if file.startswith(self._package)]


def _calls_here() -> dict[str, str]:
    probe = _Probe(Path.cwd() / PACKAGE)
    threading.setprofile(probe)  # before the loop's thread starts
    sys.setprofile(probe)
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output
    from traitlets.config import Config

    from sbnotebook.emulator import running

    shell: Any = InteractiveShell(config=Config(HistoryManager={"hist_file": ":memory:"}))
    shell.run_line_magic("load_ext", PACKAGE)
    measured: dict[str, str] = {}
    with running() as emulator, tempfile.TemporaryDirectory() as folder, capture_output():
        os.environ["XDG_DATA_HOME"] = folder  # not your own journal
        shell.user_ns["target"] = emulator.connection_string
        shell.run_cell("%sb_connect {target} --into namespace").raise_error()
        shell.run_cell("namespace.create_queue('orders')").raise_error()
        # Once to open links and import modules, once to measure.
        for _ in range(2):
            for name, (before, line, method) in CALLS.items():
                for cell in before:
                    shell.run_cell(cell).raise_error()
                probe.live, probe.entered, probe.method = [], set(), method
                shell.run_cell(line).raise_error()
                measured[f"{name}: live frames (their files; modules entered)"] = (
                    f"{len(probe.live)} ({len({*probe.live})}; {len(probe.entered)})"
                )
    return measured


def table(trees: list[Path]) -> str:
    """Return a Markdown table of all measures, with a column for each checkout."""
    columns = [{"": tree.resolve().name, **measure_sizes(tree), **measure_calls(tree)} for tree in trees]
    rows = [" | ".join(["", name, *(column[name] for column in columns), ""]).strip() for name in columns[0]]
    rows.insert(1, "|---|" + "---:|" * len(trees))
    return "\n".join(rows)


if __name__ == "__main__":
    if sys.argv[1:] == ["--calls"]:
        print(json.dumps(_calls_here()))
    else:
        print(table([Path(each) for each in sys.argv[1:]] or [Path()]))
