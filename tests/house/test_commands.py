"""What the commands of README leave behind, and the list of all commands."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from inspect import signature
from pathlib import Path

from sbnotebook.cli import lab

ROOT = Path(__file__).resolve().parents[2]
MAKE = shutil.which("make") or "make"


def test_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = " ".join(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE))
    listed = subprocess.run([MAKE, "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert sorted(re.findall(r"^make ([\w-]+)", listed, re.MULTILINE)) == sorted(phony.split())


def test_what_the_readme_leaves_in_a_clone_is_not_checked() -> None:
    """Or `make test` fails after `sbnotebook lab`: ruff and basedpyright leave this folder out."""
    tutorials = str(signature(lab).parameters["folder"].default)
    assert f"/{tutorials}/" in (ROOT / ".gitignore").read_text().split()
    assert tutorials in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["basedpyright"]["exclude"]
