"""No version that is locked, or allowed as the lowest, is affected by an advisory that is known."""

from __future__ import annotations

import tomllib
from typing import Any

from packaging.version import Version

from scripts.audit import LOCKS, affected, used

LISTED: dict[str, Any] = tomllib.loads((LOCKS / "advisories.toml").read_text())


def test_nothing_that_is_used_has_a_known_advisory() -> None:
    assert affected(used(), LISTED["advisory"]) == []


def test_an_affected_version_would_be_found() -> None:
    versions = [("aiohttp", "3.12.0", "pyproject.toml"), ("setuptools", "78.1.0", "x"), ("setuptools", "78.1.1", "x")]
    found = affected(versions, LISTED["advisory"])
    assert sum(line.startswith("pyproject.toml: aiohttp 3.12.0 has ") for line in found) >= 6
    of_setuptools = [line for line in found if line.startswith("x:")]
    assert of_setuptools == ["x: setuptools 78.1.0 has CVE-2025-47273; 78.1.1 has not"]


def test_what_is_used_is_all_of_it() -> None:
    places = {place for _, _, place in used()}
    assert places == {lock.name for lock in LOCKS.glob("*.txt")} | {"pyproject.toml"}
    assert ("aiohttp", "pyproject.toml") in {(name, place) for name, _, place in used()}


def test_every_advisory_is_complete() -> None:
    names = {name for name, _, _ in used()}
    for advisory in LISTED["advisory"]:
        assert advisory["package"] in names
        assert advisory["ids"]
        assert Version(advisory.get("introduced", "0")) < Version(advisory["fixed"])
        assert len(advisory.get("harmless", "said why")) >= len("said why")
