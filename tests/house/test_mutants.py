"""The script that tests the tests."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from scripts.mutants import main, sample

CODE = """
def larger(a: int | None, b: int) -> int:
    if a is not None and a > b:
        return a
    return b
"""
STRICT = """
from kit.model.tiny import larger

def test_larger():
    assert [larger(1, 2), larger(2, 2), larger(3, 2), larger(None, 2)] == [2, 2, 3, 2]
"""
LENIENT = """
from kit.model.tiny import larger

def test_larger():
    larger(1, 2)
"""
EQUIVALENT = """
["kit/model/tiny.py"]
"if a < b: => *" = "Such a line is not there."
"if a is not None and a > b: => if a is not None and a *= b:" = "Two equal numbers are the same."
"""


def test_the_changes_that_no_test_can_notice_can_be_read() -> None:
    assert tomllib.loads((Path(__file__).parents[1] / "mutants.toml").read_text(encoding="utf-8"))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in ("kit/model", "tests/model"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "kit/__init__.py").touch()
    (tmp_path / "kit/model/__init__.py").touch()
    (tmp_path / "kit/model/tiny.py").write_text(CODE)
    (tmp_path / "tests/mutants.toml").write_text(EQUIVALENT)
    return tmp_path


@pytest.mark.thorough
def test_mutants_pass_with_strict_tests(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "tests/model/test_tiny.py").write_text(STRICT)
    assert main(["kit/model", "--count", "1", "--seed", "5", "--jobs", "1"], tree) == 0, capsys.readouterr().out


@pytest.mark.thorough
def test_mutants_fail_with_lenient_tests(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "tests/model/test_tiny.py").write_text(LENIENT)
    assert main(["kit/model", "--count", "1", "--seed", "5", "--jobs", "1"], tree) == 1
    assert "Survived: kit/model/tiny.py:3\n  - if a is not None and a > b:\n  + " in capsys.readouterr().out


@pytest.mark.thorough
def test_mutants_need_tests_that_pass(tree: Path) -> None:
    (tree / "tests/model/test_tiny.py").write_text(LENIENT + "    assert False")
    with pytest.raises(SystemExit, match="fail without any change"):
        main(["kit/model", "--count", "1", "--seed", "5", "--jobs", "1"], tree)


def test_mutants_repeat_by_seed_and_spare_annotations(tree: Path) -> None:
    sampled = sample(tree, ["kit/model"], 100, 1)
    assert sampled == sample(tree, ["kit/model"], 100, 1)
    assert {mutant.line for mutant in sampled} == {3}


def test_mutants_of_a_seed_outlive_changes_elsewhere(tree: Path) -> None:
    sampled = sample(tree, ["kit/model"], 100, 1)
    (tree / "kit/model/tiny.py").write_text("\nLIMIT = 3\n" + CODE)
    again = sample(tree, ["kit/model"], 100, 1)
    assert {mutant.after for mutant in sampled} < {mutant.after for mutant in again}
