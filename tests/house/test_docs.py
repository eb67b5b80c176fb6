"""Every block of the documentation in Python or with magics runs, and every example in a docstring.

``tests/pages.py`` says how, and what takes the place of the reader's namespace. Pages whose blocks speak of ``spark``
are run by tests/spark/test_session_pages.py, where there is a session.
"""

from __future__ import annotations

import doctest
import multiprocessing
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name

import pytest

from tests import pages
from tests.pages import script

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# One page lists tests of the SDK.
OWN = [path for path in PAGES if path.name != "emulator-conformance.md"]
# An example that runs: neither its line nor a continuation line skips it.
EXAMPLE = re.compile(r"^ *>>> (?!(?:.*\n *\.\.\. )*.*# doctest: \+SKIP)", re.MULTILINE)
EXAMPLES = [path for path in sorted((ROOT / "sbnotebook").rglob("*.py")) if EXAMPLE.search(path.read_text())]
LARGE = ["tests.pages", "sbnotebook.client", "sbnotebook.emulator", "sbnotebook.settlement", "pandas", "duckdb"]


def needs_spark(page: Path) -> bool:
    """Tell whether the blocks of a page want a Spark session, by the name that every notebook has it under."""
    return re.search(r"\bspark\b", script(page.read_text())) is not None


def execute(page: str, text: str, folder: Path) -> None:
    """Run the code of a page in its process, and write errors to a file."""
    os.chdir(folder)
    with Path("errors").open("w") as errors, Path(os.devnull).open("w") as nowhere:
        os.dup2(errors.fileno(), sys.stderr.fileno())
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    pages.execute(page, text)


def run(page: str, text: str, folder: Path) -> tuple[int | None, str]:
    """Run a page in a new process, which has the large packages already; its exit code, and its errors."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LARGE)
    process = context.Process(target=execute, args=(page, text, folder))
    process.start()
    process.join(240)
    process.kill()
    return process.exitcode, (folder / "errors").read_text()


# The first pages of a reader, and one of each kind of action; the others are for a thorough run.
SHOWN = (
    "README.md", "index.md", "browse.md", "connect.md", "emulator.md", "lock.md", "outcomes.md",
    "process.md", "resubmit.md", "send.md", "undo.md",
)  # fmt: skip
RUN = [path for path in PAGES if script(path.read_text())]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(path, marks=() if path.name in SHOWN else pytest.mark.thorough)
        for path in RUN
        if not needs_spark(path)
    ],
    ids=lambda path: path.name,
)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    code, errors = run(str(page.relative_to(ROOT)), page.read_text(), tmp_path)
    assert code == 0, errors


COMMAND = re.compile(
    r"^```console\n(?P<line>sbnotebook .*)\n```\n\n```text\n(?P<shown>.*?)^```$", re.MULTILINE | re.DOTALL
)
COMMANDS = {path.name: found for path in PAGES if (found := COMMAND.findall(path.read_text()))}


@pytest.mark.thorough
@pytest.mark.parametrize("page", COMMANDS)
def test_a_command_prints_what_its_page_shows(page: str, tmp_path: Path) -> None:
    with pages.namespace() as emulator:
        variables = {
            "SBNOTEBOOK_CONNECTION": emulator.connection_string,
            "COLUMNS": "200",
            "XDG_DATA_HOME": str(tmp_path),
        }
        for line, shown in COMMANDS[page]:
            command = shlex.split(line.replace(pages.HOST, "env:SBNOTEBOOK_CONNECTION"))
            command[0] = str(Path(sys.executable).with_name(command[0]))
            result = subprocess.run(
                command, cwd=tmp_path, env={**os.environ, **variables},
                capture_output=True, text=True, check=False, timeout=120,
            )  # fmt: skip
            assert result.returncode == 0, result.stderr
            assert pages.unseen(result.stdout, shown) == [], result.stdout


def test_each_guide_with_a_command_shows_output() -> None:
    guides = {path.stem: path.read_text() for path in PAGES if path.parent.name == "how-to"}
    # A table of calls, a page without code, and two whose code is for programs that tests run.
    without = {"from-the-sdk", "spark-cluster", "spark-pipelines", "test-your-code"}
    assert {name for name, text in guides.items() if "```text\n" not in text} == without


def test_what_pages_name_is_there() -> None:
    texts = [page.read_text() for page in OWN]
    files = {name for text in texts for name in re.findall(r"`(?:\w+/)*(test_\w+\.py)`", text)}
    names = {name for text in texts for name in re.findall(r"`(sbnotebook(?:\.\w+)+)`", text)}
    assert len(files) > 50
    assert len(names) > 10
    assert files <= {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    for name in names - {"sbnotebook.decoders"}:  # an entry point
        resolve_name(name)


def test_every_column_of_a_table_has_a_header() -> None:
    heads = {page.name: re.findall(r"^(\|.*\|)\n\|[-:| ]+\|$", page.read_text(), re.MULTILINE) for page in PAGES}
    assert sum(map(len, heads.values())) > 150
    assert {name: head for name, found in heads.items() for head in found if re.search(r"\|\s*\|", head)} == {}


def test_blocks_run_in_order_and_exempt_ones_do_not() -> None:
    exempt = "<!-- no-run: shows a failure -->\n```python\n1 / 0\n```\n"
    page = f"# Page\n```python\na = 1\n```\n{exempt}\n```python\nprint(a)\n```\n"
    assert script(page) == "\n\na = 1\n\n\n\n\n\n\n\nprint(a)"


def test_a_failing_block_is_seen_with_its_page_and_line(tmp_path: Path) -> None:
    code, errors = run("page.md", "Text\n\n```python\nraise SystemError\n```\n", tmp_path)
    assert code == 1
    assert 'File "page.md", line 4' in errors


def test_magics_and_hidden_blocks_run_with_the_others(tmp_path: Path) -> None:
    connects = f"%load_ext sbnotebook\n%sb_connect {pages.HOST}"
    sees = "letters = %sb_peek orders/$dlq"
    page = f"```ipython\n{connects}\n{sees}\n```\n\n<!-- hidden\nassert len(letters) == 12\n-->\n"
    assert run("page.md", page, tmp_path) == (0, "")
    code, errors = run("page.md", f"{page}\n```ipython\n%sb_purge orders\n```\n", tmp_path)
    assert (code, "%sb_connect --write" in errors) == (1, True), errors


def test_an_exemption_without_a_reason_is_none() -> None:
    assert "1 / 0" in script("<!-- no-run -->\n```python\n1 / 0\n```\n")


def test_examples_of_several_lines_are_skipped_where_marked() -> None:
    assert not EXAMPLE.search("    >>> f(  # doctest: +SKIP\n    ...     1)\n    >>> g(\n    ... )  # doctest: +SKIP\n")
    assert EXAMPLE.search("    >>> f(\n    ...     1)\n    2\n    >>> g()  # doctest: +SKIP\n")


@pytest.mark.parametrize("module", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_examples_in_docstrings_are_true(module: Path) -> None:
    name = ".".join(module.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    result = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS)
    assert (result.failed, result.attempted > 0) == (0, True)
