"""Documentation, docstrings, comments and texts of sbnotebook follow the rules of English in CONTRIBUTING.md."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from scripts.prose import BANNED, LONGEST_SENTENCE, VERBS, check, faults, files

ROOT = Path(__file__).resolve().parents[2]

# Each breaks exactly the rule of the same place in BANNED.
BROKEN = (
    "Messages are had by number.",
    "Nobody takes it.",
    "For who has no notebook.",
    "It returns what is left.",
    "It ends what comes later.",
    "The original stands there.",
    "The run goes on.",
    "It takes all that is there.",
    "Here one can look.",
    "A queue of one's own.",
    "In short, to settle is to decide.",
    "This is no number.",
    "It is under way.",
    "The run was cut off.",
    "It writes down the numbers.",
    "This connection only looks.",
    "Look outside of the queue.",
    "It is not repeated behind your back.",
)  # fmt: skip


@pytest.mark.parametrize(("sentence", "rule"), list(zip(BROKEN, BANNED, strict=True)), ids=lambda each: str(each)[:40])
def test_each_rule_finds_its_sentence(sentence: str, rule: re.Pattern[str]) -> None:
    assert [advice.partition(": ")[2] for _, advice in faults(f"All is well. {sentence}")] == [BANNED[rule]]


@pytest.mark.parametrize(
    "sentence",
    [
        "Service Bus tells sbnotebook which locks ended.",
        "There is no queue 'orders'. It is no longer active.",
        "Only one can win. `Nobody` is a name in code, and so is ``what is``.",
        "The name stands for the namespace.",
        f"Use {', '.join(['`x`'] * 50)} and `y`.",
    ],
)
def test_plain_sentences_pass(sentence: str) -> None:
    assert faults(sentence) == []


def test_a_sentence_is_too_long_from_the_next_word_on() -> None:
    assert faults(" ".join(["word"] * LONGEST_SENTENCE) + ". Another one.") == []
    assert faults(" ".join(["word"] * (LONGEST_SENTENCE + 1)) + ".") != []


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("page.md", "# Page\n\nIt is\ntold.\n", 3),
        ("page.md", "| a | b |\n|---|---|\n| a | It is told. |\n", 3),
        ("page.md", "- All is well.\n- It is told.\n\n```python\nx = 'is told'\n```\n", 2),
        ("sbnotebook/module.py", '"""Do.\n\nArgs:\n    name: It is told.\n"""\n', 4),
        ("sbnotebook/module.py", "x = 1\ny = 2  # it is told\n", 2),
        ("sbnotebook/module.py", 'def f(name):\n    raise ValueError(f"The {name} is told.")\n', 2),
        ("tests/module.py", '"""It is told."""\n"it is told as data"\n', 1),
        ("script.js", "const x = 1;\n// It is told.\n", 2),
        ("Makefile", "x: ## It is told\n", 1),
        ("how-to/page.md", "# Page\n\n## Send\n", 1),
    ],
)
def test_prose_is_found_wherever_it_is(name: str, text: str, line: int, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert [fault.line for fault in check(path)] == [line]


def test_prose_is_found_in_notebooks(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["It is\n", "told."]},
        {"cell_type": "code", "source": ["x = 1  # It is told.\n", "print('it is told')"]},
    ]
    path = tmp_path / "page.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    assert [fault.line for fault in check(path)] == [1, 2]


def test_verbs_of_headings_are_sorted_and_imperative() -> None:
    assert not [verb for verb in VERBS if not re.fullmatch(r"[A-Z][a-z-]+(?<!ing)", verb)]


def test_all_prose_is_looked_at() -> None:
    found = {str(path.relative_to(ROOT)) for path in files()}
    places = {
        "README.md",
        "CHANGELOG.md",
        "docs/index.md",
        "notebooks/02_triage.ipynb",
        "sbnotebook/errors.py",
        "Makefile",
    }
    assert places <= found


def test_prose_is_plain() -> None:
    found = [str(fault) for path in files() for fault in check(path)]
    assert not found, "\n".join(found)
