from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import sbnotebook

HEAVY = ("IPython", "azure", "duckdb", "ipywidgets", "pandas", "plotly", "pyarrow", "pyspark")


def declared() -> dict[str, str]:
    """The public names that type checkers see, and the module that each comes from."""
    tree = ast.parse(Path(sbnotebook.__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 0]
    ours = [node for node in imports if (node.module or "").startswith("sbnotebook.") and node.col_offset]
    return {alias.name: node.module or "" for node in ours for alias in node.names}


def test_import_loads_none_of_the_packages_behind_it() -> None:
    script = f"import sys, sbnotebook; print([name for name in {HEAVY} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_a_process_that_only_moves_messages_loads_no_aiohttp() -> None:
    found = "print('azure.servicebus' in sys.modules, 'aiohttp' in sys.modules)"
    script = f"import sys; from sbnotebook.settlement import AsyncNamespace; {found}"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "True False"


def test_type_checkers_see_every_public_name() -> None:
    assert sorted(declared()) == sorted(sbnotebook.__all__)


@pytest.mark.parametrize("name", sbnotebook.__all__)
def test_a_public_name_is_the_object_of_its_module(name: str) -> None:
    assert getattr(sbnotebook, name) is getattr(import_module(declared()[name]), name)


def test_every_error_is_public() -> None:
    errors = import_module("sbnotebook.errors").__all__
    assert {name for name in errors if name[0].isupper()} <= set(sbnotebook.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'"):
        getattr(sbnotebook, "frobnicate")  # noqa: B009


def test_dir_lists_names_that_are_not_loaded_yet() -> None:
    assert set(sbnotebook.__all__) <= set(dir(sbnotebook))
