"""What users take to Databricks, and its magics beside ours.

tests/spark/test_session_databricks.py runs the notebook.
"""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import sbnotebook
from tests.databricks import MAGICS, cells

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "databricks"
PIP = "/databricks/python/bin/pip"
VOLUME = "/Volumes/CATALOG/SCHEMA/VOLUME"
WHEEL = f"sbnotebook-{sbnotebook.__version__}-py3-none-any.whl"


def test_a_notebook_is_cut_into_the_cells_that_databricks_shows() -> None:
    marked = "# MAGIC %md\n# MAGIC # Title"
    source = f"# Databricks notebook source\n{marked}\n\n# COMMAND ----------\n\na = 1\n# MAGIC %pip list\n"
    assert cells(source) == ["%md\n# Title", "a = 1\n%pip list"]
    found = cells((FOLDER / "dead_letters.py").read_text())
    assert found[0].startswith("%md\n# ")
    assert found[1] == f"%pip install {VOLUME}/{WHEEL}"
    assert not [cell for cell in found if not cell.strip() or "MAGIC" in cell or "COMMAND" in cell]


@pytest.mark.parametrize("code", [0, 1])
def test_init_script_installs_wheel_or_cluster_fails(tmp_path: Path, code: int) -> None:
    pip, said = tmp_path / "pip", tmp_path / "said"
    pip.write_text(f'#!/bin/bash\nprintf "%s\\n" "$@" >"{said}"\nexit {code}\n')
    pip.chmod(0o700)
    script = (FOLDER / "init.sh").read_text()
    assert f"{VOLUME}/{WHEEL}" in script
    result = subprocess.run(
        ["/bin/bash", "-c", script.replace(PIP, str(pip))], capture_output=True, text=True, check=False, timeout=60
    )
    assert result.returncode == code
    assert said.read_text().splitlines()[-1] == f"{VOLUME}/{WHEEL}"


@pytest.fixture
def ipython() -> Any:
    """A shell that has the magics of Databricks' documentation before sbnotebook comes."""
    shell: Any = InteractiveShell(config=Config(HistoryManager={"hist_file": ":memory:"}))
    for name in MAGICS:
        shell.register_magic_function(partial(databricks, name), "line_cell", name)
    return shell


def databricks(name: str, line: str, cell: str = "") -> str:
    return f"{name} {line}{cell}"


def test_no_magic_that_was_there_is_replaced(ipython: Any) -> None:
    magics: dict[str, dict[str, Any]] = ipython.magics_manager.magics
    before = {kind: set(named) for kind, named in magics.items()}
    ipython.run_line_magic("load_ext", "sbnotebook")
    for kind, names in before.items():
        assert magics[kind].keys() > names
        assert all(name.partition("_")[0] == "sb" for name in magics[kind].keys() - names)
        assert not [name for name in names if name.startswith("sb_")]
    for name in MAGICS:
        assert ipython.run_line_magic(name, "line") == f"{name} line"
        assert ipython.run_cell_magic(name, "", "cell") == f"{name} cell"


def test_automagic_leaves_sql_and_python_lines_alone(ipython: Any) -> None:
    """Databricks turns automagic on: a line that begins with a magic's name needs no percent sign."""
    ipython.run_line_magic("load_ext", "sbnotebook")
    assert ipython.automagic
    for line in ("select 1", "complete = 3", "peek orders", "send = 1", "lock = 2"):
        assert ipython.prefilter(line) == line
    assert "run_line_magic" in ipython.prefilter("sb_entities")
