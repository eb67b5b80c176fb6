"""The pages on the structure name files, functions and packages that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "sbnotebook"
PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
HOPS = re.findall(r"^\| \d+ \| `([\w/]+\.py)` \| `([\w.]+)` \| \S", PAGE, re.MULTILINE)
PARTS = {
    "settlement": PAGE.partition("## Inside the settlement library")[2].partition("\n## ")[0].partition("### ")[0],
    "widgets": PAGE.partition("## Inside the widgets")[2].partition("\n## ")[0],
}
CHANGES = (ROOT / "CONTRIBUTING.md").read_text().partition("## Where to make a change")[2].partition("\n## ")[0]


def definitions(tree: ast.AST, prefix: str = "") -> set[str]:
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found |= {prefix + node.name} | definitions(node, f"{prefix}{node.name}.")
    return found


def exists(path: str) -> bool:
    return any((folder / path).exists() for folder in (PACKAGE, ROOT))


def test_the_traces_have_hops() -> None:
    names = [name.rpartition(".")[2] for _, name in HOPS]
    assert names.count("sb_peek") == names.count("sb_resubmit") == 1
    assert len(HOPS) == len(re.findall(r"^\| \d+ \|", PAGE, re.MULTILINE)) > 20


@pytest.mark.parametrize(("path", "name"), dict.fromkeys(HOPS))
def test_each_hop_exists(path: str, name: str) -> None:
    assert name in definitions(ast.parse((PACKAGE / path).read_text()))


def test_each_noun_of_settlement_is_in_its_file() -> None:
    rows = re.findall(r"^\| (`[A-Z].+?`) \| `([\w/.]+)` \| \S", PAGE.partition("### Its nouns")[2], re.MULTILINE)
    assert len(rows) > 20
    for cell, path in rows:
        files = (
            [PACKAGE / "settlement" / path] if path.endswith(".py") else (PACKAGE / "settlement" / path).glob("*.py")
        )
        found = set[str]().union(*(definitions(ast.parse(file.read_text())) for file in files))
        assert set(re.findall(r"`(\w+)`", cell)) <= found, cell


@pytest.mark.parametrize("package", PARTS)
def test_each_part_of_a_package_exists(package: str) -> None:
    cells = re.findall(r"^\| (`.+?`) \|", PARTS[package], re.MULTILINE)
    names = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert len(names) > 5
    assert not {name for name in names if not exists(f"sbnotebook/{package}/{name}")} - {
        path.stem for path in (PACKAGE / package).glob("*.py")
    }


def test_no_part_of_settlement_imports_a_part_above_it() -> None:
    rows = re.findall(r"^\| (`.+?`) \|", PARTS["settlement"], re.MULTILINE)
    level = {name: row for row, cell in enumerate(rows) for name in re.findall(r"`(\w+)`", cell)}
    graph = grimp.build_graph("sbnotebook", cache_dir=None)
    imports = {
        (importer.split(".")[2], imported.split(".")[2])
        for importer in graph.find_descendants("sbnotebook.settlement")
        for imported in graph.find_modules_directly_imported_by(importer)
        if imported.startswith("sbnotebook.settlement.")
    }
    assert len(imports) > 20
    assert not {(a, b) for a, b in imports if a in level and b in level and level[a] > level[b]}


def test_each_place_for_a_change_exists() -> None:
    paths = set(re.findall(r"`([\w/-]+(?:\.\w+|/\w+))`", CHANGES))
    assert {"model/schema.py", "settlement/actions", "emulator/faults.py"} < paths
    assert not {path for path in paths if not exists(path) and "/" in path}
