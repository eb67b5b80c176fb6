from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from scripts.reference_pages import MAGICS, magic_page
from tests.magics.conftest import Kernel, Shell


def test_loading_twice_keeps_the_connection(shell: Shell) -> None:
    ran = shell.run("%reload_ext sbnotebook\n%sb_entities")
    assert ran.err == ""
    assert isinstance(ran.value, list)


def test_shells_have_their_own_connections(shell: Shell, unconnected: Shell) -> None:
    assert unconnected.error("%sb_entities") == "There is no connection: run %sb_connect first."
    assert shell.run("%sb_entities").err == ""


def test_sdk_log_is_in_no_cell(kernel: Kernel) -> None:
    assert "control" in kernel.run("import logging; logging.getLogger('other').error('control')").text
    assert kernel.run("logging.getLogger('azure.servicebus').error('noise')").text == ""


def test_the_magics_load_without_pyspark_and_plotly() -> None:
    code = (
        "import sys; from IPython.core.interactiveshell import InteractiveShell; InteractiveShell()"
        ".run_line_magic('load_ext', 'sbnotebook'); print({'pyspark', 'plotly'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.splitlines()[-1] == "set()"


def test_magics_are_in_the_reference_with_their_options(unconnected: Shell) -> None:
    reference = Path(__file__).parents[2] / "docs" / "reference"
    rows = re.findall(r"^\| `%(\w+)", (reference / "magics.md").read_text(), re.MULTILINE)
    headings = [
        name for page in MAGICS.values() for name in re.findall(r"^## `%+(\w+)`", magic_page(*page), re.MULTILINE)
    ]
    line_magics: dict[str, Any] = unconnected.ipython.magics_manager.magics["line"]
    magics = sorted(name for name in line_magics if name.partition("_")[0] == "sb")
    assert magics[0] == "sb"
    assert sorted(headings) == magics[1:]
    assert sorted(rows) == magics[1:]


def test_options_in_the_reference_have_meaning_and_default() -> None:
    text = magic_page(*MAGICS["reference/magics-act.md"])
    rows = re.findall(r"^\| (`-.*) \| (.*) \| (.*) \|$", text, re.MULTILINE)
    assert ("`--max-resubmits` N", "5 for dead letters") in {(option, default) for option, _, default in rows}
    assert len(rows) > 50
    assert [option for option, meaning, _ in rows if not meaning.strip()] == []
    assert "positional arguments" not in text


def test_magics_are_also_python_methods() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "magics.md"
    rows = [row for row in page.read_text().splitlines() if row.startswith("| `%")]
    for row in rows:
        names = re.findall(r"`([\w.]+)`", row.split("|")[-2])
        assert names, row
        for name in names:
            resolve_name(name if name.startswith("sbnotebook.") else f"sbnotebook.client.{name}")
