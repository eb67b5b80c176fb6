"""What users take to Databricks; tests/spark/test_session_databricks.py runs the notebook."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import sbnotebook
from tests.databricks import cells

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
    assert found[1] == "%pip install sbnotebook"
    assert not [cell for cell in found if not cell.strip() or "MAGIC" in cell or "COMMAND" in cell]


@pytest.mark.parametrize("code", [0, 1])
def test_the_init_script_installs_the_wheel_or_the_cluster_does_not_start(tmp_path: Path, code: int) -> None:
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
