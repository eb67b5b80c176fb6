"""requirements/*.txt pin everything that pyproject.toml asks for, with hashes and without addresses."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def pins(lock: str) -> dict[str, list[str]]:
    """Versions by package; one package may have several, for different Pythons."""
    found: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / "requirements" / lock).read_text(), re.MULTILINE):
        found.setdefault(name, []).append(version)
    return found


def group(name: str) -> list[str]:
    entries: list[str | dict[str, str]] = pyproject()["dependency-groups"][name]
    return [
        line for entry in entries for line in ([entry] if isinstance(entry, str) else group(entry["include-group"]))
    ]


def all_extras() -> list[str]:
    project = pyproject()["project"]
    extras = [line for extra in project["optional-dependencies"].values() for line in extra]
    return [*project["dependencies"], *(line for line in extras if not line.startswith("sbnotebook["))]


def asked_for(lock: str) -> list[str]:
    match lock:
        case "dev.txt":
            return [*all_extras(), *group("dev")]
        case "clients.txt":
            return [*pyproject()["project"]["dependencies"], *group("clients")]
        case "lowest.txt":
            return [*all_extras(), *group("test")]
        case _:
            return group(lock.removesuffix(".txt"))


@pytest.mark.parametrize("lock", [lock.name for lock in LOCKS])
def test_a_lock_satisfies_pyproject(lock: str) -> None:
    pinned = pins(lock)
    for line in asked_for(lock):
        requirement = Requirement(line)
        assert requirement.name in pinned, f"{line}: run make lock"
        unfit = [version for version in pinned[requirement.name] if version not in requirement.specifier]
        assert not unfit, f"{line}: run make lock"


def test_the_lowest_lock_has_the_lowest_versions() -> None:
    pinned = pins("lowest.txt")
    for line in asked_for("lowest.txt"):
        requirement = Requirement(line)
        (lower,) = (Version(bound.version) for bound in requirement.specifier if bound.operator in {">=", "=="})
        assert [Version(version) for version in pinned[requirement.name]] == [lower], f"{line}: run make lock"


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_pin_has_a_hash_and_a_lock_names_no_address(lock: Path) -> None:
    text = lock.read_text()
    entries = re.split(r"\n(?=\S)", text)
    without = [entry for entry in entries if not entry.startswith("#") and "--hash=sha256:" not in entry]
    assert not without
    assert "://" not in text
    assert "index" not in re.sub(r"^[\w.-]+==.*$", "", text, flags=re.MULTILINE)


def test_the_lock_of_npm_has_hashes_and_names_no_registry() -> None:
    packages = json.loads((ROOT / "tests" / "clients" / "javascript" / "package-lock.json").read_text())["packages"]
    del packages[""]
    assert packages["node_modules/@azure/service-bus"]["version"] == "7.9.5"
    assert not [name for name, package in packages.items() if "integrity" not in package or "resolved" in package]
