"""The two commands, and what CI runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from inspect import signature
from pathlib import Path

import yaml

from sbnotebook.cli import lab

ROOT = Path(__file__).resolve().parents[2]
MAKE = shutil.which("make") or "make"


def dry_run(target: str) -> str:
    """The commands that a target would run, without running them."""
    command = [MAKE, "--dry-run", "--no-print-directory", target]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_demo_sets_up_before_it_runs() -> None:
    assert dry_run("demo").splitlines() == [
        "python3 -m scripts.bootstrap environment java",
        ".venv/bin/sbnotebook demo",
    ]


def test_test_sets_up_everything_and_ends_with_pytest() -> None:
    commands = dry_run("test").splitlines()
    assert commands[0] == "python3 -m scripts.bootstrap"
    assert commands[-1].split()[0] == ".venv/bin/pytest"


def test_check_looks_at_everything() -> None:
    tools = [re.match(r"\.venv/bin/([\w-]+)", command) for command in dry_run("check").splitlines()]
    assert [tool and tool[1] for tool in tools] == ["ruff", "ruff", "basedpyright", "lint-imports", "pytest"]


def test_pytest_runs_tests_and_notebooks() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]
    assert options["testpaths"] == ["tests", "notebooks"]
    assert "--nbmake" in options["addopts"]


def test_spark_starts_its_workers_with_the_locked_python() -> None:
    printed = subprocess.run(
        [MAKE, "--no-print-directory", "--eval", "show:\n\t@echo $$PYSPARK_PYTHON", "show"],
        cwd=ROOT, capture_output=True, text=True, check=True, env={**os.environ, "PYSPARK_PYTHON": "other"},
    )  # fmt: skip
    assert printed.stdout.strip() == str(ROOT / ".venv" / "bin" / "python")


def test_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = " ".join(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE))
    listed = subprocess.run([MAKE, "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert sorted(re.findall(r"^make ([\w-]+)", listed, re.MULTILINE)) == sorted(phony.split())


def test_ci_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().splitlines()[-1] == "exec make --no-print-directory test"


def test_the_hooks_before_a_commit_are_valid() -> None:
    command = [sys.executable, "-m", "pre_commit", "validate-config", ".pre-commit-config.yaml"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_the_hooks_before_a_commit_are_the_checks_of_ci() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    tools = [hook["entry"].split()[0] for hook in hooks]
    checked = [command.split()[0] for command in dry_run("check").splitlines()]
    assert [*tools, ".venv/bin/pytest"] == checked


def test_what_the_readme_leaves_in_a_clone_is_not_checked() -> None:
    """Or `make test` fails after `sbnotebook lab`: ruff and basedpyright leave these folders out."""
    (flights,) = set(re.findall(r"--data-dir (\w+)", (ROOT / "README.md").read_text()))
    tutorials = str(signature(lab).parameters["folder"].default)
    assert {f"/{flights}/", f"/{tutorials}/"} <= set((ROOT / ".gitignore").read_text().split())
    assert tutorials in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["basedpyright"]["exclude"]
