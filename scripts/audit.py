"""Look for published advisories about locked or allowed versions: ``python -m scripts.audit``.

Each version in ``requirements/*.txt``, and the lowest one that ``pyproject.toml`` allows of each dependency, is
compared with ``requirements/advisories.toml``. Then pip-audit asks OSV, which knows more. Where it cannot be reached,
the list alone decides, and the output says so.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

__all__ = ["affected", "ask_service", "main", "used"]

ROOT: Final = Path(__file__).resolve().parent.parent
LOCKS: Final = ROOT / "requirements"
WITHIN: Final = 600.0
"""Seconds to wait for the service."""


def used(root: Path = ROOT) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the version and the place of all that is locked, and of the lowest that is allowed."""
    for lock in sorted((root / "requirements").glob("*.txt")):
        for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", lock.read_text(), re.MULTILINE):
            yield canonicalize_name(name), version, lock.name
    pyproject = tomllib.loads((root / "pyproject.toml").read_text())
    groups: Iterable[list[Any]] = [
        pyproject["project"]["dependencies"],
        *pyproject["project"]["optional-dependencies"].values(),
        *pyproject["dependency-groups"].values(),
    ]
    for line in (line for group in groups for line in group if isinstance(line, str)):
        requirement = Requirement(line)
        for bound in requirement.specifier:
            if bound.operator in (">=", "=="):
                yield canonicalize_name(requirement.name), bound.version, "pyproject.toml"


def affected(versions: Iterable[tuple[str, str, str]], advisories: Iterable[dict[str, Any]]) -> list[str]:
    """Return a line for each version that a published advisory affects.

    Args:
        versions: names, versions and places.
        advisories: those of ``requirements/advisories.toml``.
    """
    harmful = [each for each in advisories if "harmless" not in each]
    return [
        f"{place}: {name} {version} has {', '.join(each['ids'])}; {each['fixed']} has not"
        for name, version, place in versions
        for each in harmful
        if each["package"] == name and Version(each.get("introduced", "0")) <= Version(version) < Version(each["fixed"])
    ]


def ask_service(lock: Path, harmless: Iterable[str]) -> list[str] | None:
    """Return a line for each package of a lock that pip-audit knows an advisory for; None where it gets no answer.

    Args:
        lock: with hashes, so that nothing is installed for it.
        harmless: the numbers of advisories to leave out.
    """
    command = [str(Path(sys.executable).with_name("pip-audit")), "--requirement", str(lock), "--disable-pip"]
    command += ["--require-hashes", "--vulnerability-service", "osv", "--format", "json", "--progress-spinner", "off"]
    for each in harmless:
        command += ["--ignore-vuln", each]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WITHIN)
    except subprocess.TimeoutExpired:
        return None
    if not said.stdout.startswith("{"):
        last = said.stderr.strip().rpartition("\n")[2]
        return None if "ConnectionError" in last else [f"{lock.name}: pip-audit failed: {last}"]
    packages: list[dict[str, Any]] = json.loads(said.stdout)["dependencies"]
    return [
        f"{lock.name}: {package['name']} {package['version']} has {known['id']}"
        for package in packages
        for known in package.get("vulns", ())
    ]


def main() -> int:
    """Print the findings.

    Returns:
        The exit code: 0 when nothing is affected, as far as is known, and 1 otherwise.
    """
    listed = tomllib.loads((LOCKS / "advisories.toml").read_text())
    found = affected(used(), listed["advisory"])
    harmless = [number for each in listed["advisory"] if "harmless" in each for number in each["ids"]]
    for lock in sorted(LOCKS.glob("*.txt")):
        told = ask_service(lock, harmless)
        if told is None:
            print(f"{lock.name}: pip-audit reached no service, so only the list of {listed['checked']} was compared.")
        found += told or []
    for line in found:
        print(line)
    print(f"{len(found)} affected." if found else "Nothing is affected by an advisory that is known here.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
