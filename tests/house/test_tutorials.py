"""The pages that list the tutorials name each of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from nbclient.client import NotebookClient
from nbformat import NotebookNode

from tests.house.test_docs import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def rows(page: str, name: str) -> list[str]:
    """The rows of a page's table that begin with this tutorial."""
    return [line for line in (ROOT / page).read_text().splitlines() if line.startswith("| ") and name in line]


def source(notebook: Path) -> str:
    return "".join("".join(cell["source"]) for cell in json.loads(notebook.read_text())["cells"])


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.parametrize("page", ["docs/tutorials/index.md", "notebooks/README.md"])
def test_a_tutorial_is_listed_with_what_it_needs(notebook: Path, page: str) -> None:
    (row,) = rows(page, notebook.stem)
    code = source(notebook)
    assert ("`demo`" in row) == ("sbnotebook.demo" in code)
    assert ("Java" in row) == ("%sb_spark" in code or "sbnotebook.spark" in code)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_tutorials_state_needs_and_end_what_they_began(notebook: Path) -> None:
    cells = ["".join(cell["source"]) for cell in json.loads(notebook.read_text())["cells"]]
    assert "**Needs**" in cells[0]
    assert "**Leaves**" in cells[0]
    # One of them ends with a panel, which needs the running emulator.
    assert cells[-1].endswith(("cleanup.close()", "*Shut down* the kernel, and the emulator is gone."))
    assert ("spark.stop()" in cells[-1] or "sparkSession.stop()" in cells[-1]) == ("pyspark" in "".join(cells))


def test_kernels_of_notebooks_need_no_free_port() -> None:
    """A port that another test takes before the kernel does would end the kernel."""
    client = NotebookClient(NotebookNode(metadata={}), kernel_name="python3")
    assert client.create_kernel_manager().transport == "ipc"
