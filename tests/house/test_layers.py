"""Each import contract is seen to fail: a copy of the package gets one deliberate violation."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

VIOLATIONS = {
    "layers": [
        ("sbnotebook/model/upward.py", "import sbnotebook.settlement\n"),
        ("sbnotebook/emulator/sideways.py", "import sbnotebook.settlement\n"),
        ("sbnotebook/unplaced.py", ""),
    ],
    "border of settlement": [
        ("sbnotebook/client/inside.py", "from sbnotebook.settlement.plan import Plan\n"),
        ("sbnotebook/probe/inside.py", "import sbnotebook.settlement.engine\n"),
    ],
    "azure": [("sbnotebook/doctor.py", "import azure.servicebus\n")],
    "emulator": [
        ("sbnotebook/emulator/sdk.py", "import azure.core\n"),
        ("sbnotebook/emulator/shared.py", "from sbnotebook import settlement\n"),
    ],
    "model": [
        ("sbnotebook/model/frame.py", "import pandas\n"),
        ("sbnotebook/errors.py", "import sbnotebook.model\nimport anyio\n"),
    ],
    "acyclic": [
        ("sbnotebook/model/report.py", "import sbnotebook.model.report\n"),
        ("sbnotebook/model/address.py", "if TYPE_CHECKING:\n    import sbnotebook.model.message\n"),
    ],
}


def lint(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    lint_imports = Path(sys.executable).with_name("lint-imports")
    command = [str(lint_imports), "--no-logo", "--no-cache", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for folder in ("sbnotebook", "scripts"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_every_package_is_looked_at() -> None:
    roots = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]
    assert sorted(roots) == sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))


def test_every_contract_has_a_violation_here() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert {contract["id"] for contract in contracts} == VIOLATIONS.keys()


@pytest.mark.thorough
def test_the_copy_keeps_every_contract(copy: Path) -> None:
    result = lint(copy)
    assert result.returncode == 0, result.stdout


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("contract", "path", "line"),
    [(contract, path, line) for contract, cases in VIOLATIONS.items() for path, line in cases],
)
def test_a_violation_breaks_its_contract(copy: Path, contract: str, path: str, line: str) -> None:
    with (copy / path).open("a") as module:
        module.write(line)
    result = lint(copy, "--contract", contract)
    assert result.returncode == 1
    assert "1 broken" in result.stdout
