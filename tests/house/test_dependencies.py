"""Every dependency has its reason in docs/explanation/dependencies.md, and only dependencies do."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]


def test_every_dependency_has_a_reason_and_its_place() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    places = {
        "": pyproject["project"]["dependencies"],
        **pyproject["project"]["optional-dependencies"],
        **pyproject["dependency-groups"],
    }
    declared = {
        (Requirement(line).name, place) for place, lines in places.items() for line in lines if isinstance(line, str)
    }
    page = (ROOT / "docs" / "explanation" / "dependencies.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \|(?: `?([\w-]+)`? \|)? \S.*\|$", page, re.MULTILINE)
    assert set(rows) == declared - {("sbnotebook", "demo")}
