"""Databricks' own magics and those of sbnotebook, side by side in one shell."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from tests.databricks import MAGICS


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
        assert all(name.startswith("sb_") for name in magics[kind].keys() - names)
        assert not [name for name in names if name.startswith("sb_")]
    for name in MAGICS:
        assert ipython.run_line_magic(name, "line") == f"{name} line"
        assert ipython.run_cell_magic(name, "", "cell") == f"{name} cell"


def test_with_automagic_no_line_of_sql_or_python_is_taken_for_one_of_ours(ipython: Any) -> None:
    """Databricks turns automagic on: a line that begins with a magic's name needs no percent sign."""
    ipython.run_line_magic("load_ext", "sbnotebook")
    assert ipython.automagic
    for line in ("select 1", "complete = 3", "peek orders", "send = 1", "lock = 2"):
        assert ipython.prefilter(line) == line
    assert "run_line_magic" in ipython.prefilter("sb_entities")
