"""environment.yml asks conda for what pyproject.toml asks pip for."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
CONDA_NAMES = {"python-duckdb": "duckdb"}
# What conda adds: the interpreter, Java, and pip for the section of its own.
CONDA_ONLY = {"openjdk", "pip"}


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def environment() -> tuple[list[str], list[str]]:
    entries: list[str | dict[str, list[str]]] = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    conda = [entry for entry in entries if isinstance(entry, str)]
    pip = [line for entry in entries if isinstance(entry, dict) for line in entry["pip"]]
    return conda, pip


def by_name(lines: list[str]) -> dict[str, str]:
    requirements = [Requirement(line) for line in lines]
    return {CONDA_NAMES.get(each.name, each.name): str(each.specifier) for each in requirements}


def test_conda_and_pip_ask_for_the_same_versions() -> None:
    extras = [line for extra in project()["optional-dependencies"].values() for line in extra]
    wanted = by_name([*project()["dependencies"], *(line for line in extras if not line.startswith("sbnotebook["))])
    conda, pip = environment()
    found = by_name([*conda, *(line for line in pip if not line.startswith("--editable"))])
    python = found.pop("python")

    assert python == project()["requires-python"]
    assert {name: found[name] for name in found.keys() - CONDA_ONLY} == wanted


def test_conda_brings_the_java_that_spark_needs() -> None:
    conda, _ = environment()
    assert by_name(conda)["openjdk"] == ">=17"


def test_the_project_itself_is_installed_from_its_own_folder() -> None:
    _, pip = environment()
    assert pip[-1] == "--editable ."
