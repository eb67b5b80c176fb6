"""environment.yml gives a Python and a Java that will do, and the whole project."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def from_conda() -> dict[str, SpecifierSet]:
    requirements = [Requirement(entry) for entry in environment() if isinstance(entry, str)]
    return {requirement.name: requirement.specifier for requirement in requirements}


def environment() -> list[str | dict[str, list[str]]]:
    return yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]


def test_the_python_is_one_of_those_that_are_tested() -> None:
    tested = {line.rsplit(" ", 1)[1] for line in project()["classifiers"] if "Python :: 3." in line}
    python = from_conda()["python"]
    assert {f"3.{minor}" for minor in range(40) if f"3.{minor}" in python} == tested
    assert min(tested) in SpecifierSet(project()["requires-python"])


def test_java_is_new_enough_for_spark() -> None:
    assert str(from_conda()["openjdk"]) == ">=17"


def test_pip_installs_this_folder_with_all_that_its_extras_add() -> None:
    (pip,) = (entry["pip"] for entry in environment() if isinstance(entry, dict))
    assert "pip" in from_conda()
    (line,) = pip
    found = re.fullmatch(r"--editable \.\[([\w,]+)\]", line)
    assert found is not None
    # demo brings spark with it.
    assert {*found[1].split(","), "spark"} == set(project()["optional-dependencies"])
    assert any(Requirement(line).extras == {"spark"} for line in project()["optional-dependencies"]["demo"])
