"""Answers to wrong inputs, kept in files that people review when they change.

A file has inputs, each behind ``>>>`` (and ``...`` for further lines) and followed by its answer. A test runs the
inputs and compares. With ``SBNOTEBOOK_WRITE_ANSWERS=1``, as in ``make answers``, it writes the answers instead.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

__all__ = ["check_answers"]

FOLDER: Final = Path(__file__).with_name("answers")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_VOLATILE: Final = (
    (re.compile(r"\b(?:localhost|127\.0\.0\.1):\d+"), "HOST"),
    (re.compile(r"(?<![\w/])(?:/[\w.+-]+){2,}"), "PATH"),
    (re.compile(r"0x[0-9a-f]{6,}"), "0xADDRESS"),
)
_SENTENCE_ENDS: Final = re.compile(r"[.?!](?=\s+[A-Z%'\"]|$)")
_NO_ANSWERS: Final = ("Traceback (most recent", 'File "', "<?xml", "<Error>", "</", "\n")
_MOST_SENTENCES: Final = 2


def check_answers(name: str, answered: Callable[[str], str], *, step: int = 1) -> None:
    """Compare the answers of a file with those that a function gives to its inputs now.

    Args:
        name: the file's.
        answered: returns what an input leads to.
        step: of so many inputs, only the last is run, where each takes seconds; the others keep their answers.
    """
    path = FOLDER / name
    kept = path.read_text()
    now = "".join(_with_answers(kept, answered, step))
    if os.environ.get("SBNOTEBOOK_WRITE_ANSWERS"):
        path.write_text(now)
    else:
        difference = "\n".join(
            difflib.unified_diff(kept.splitlines(), now.splitlines(), "kept", "now", n=1, lineterm="")
        )
        assert not difference, f"Review the answers, and keep them with 'make answers':\n{difference}"
    assert not (bad := list(_not_one_sentence(now))), "\n".join(bad)


def _with_answers(kept: str, answered: Callable[[str], str], step: int) -> Iterator[str]:
    count = 0
    for block in re.split(r"(?m)^(?=>>>|#|$)", kept):
        count += block.startswith(">>>")
        if not block.startswith(">>>") or count % step:
            yield block
            continue
        lines = [line for line in block.splitlines() if line.startswith((">>> ", "... "))]
        given = "\n".join(line[4:] for line in lines)
        yield "\n".join([*lines, _steady(answered(given)), ""])


def _steady(text: str) -> str:
    """Return an answer without what differs from run to run."""
    text = _COLOUR.sub("", text)
    for pattern, name in _VOLATILE:
        text = pattern.sub(name, text)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip()) or "(nothing)"


def _not_one_sentence(text: str) -> Iterator[str]:
    """Yield the answers that show a frame or XML, or are longer than two sentences."""
    for block in re.split(r"(?m)^(?=>>>|#|$)", text):
        if block.startswith(">>>"):
            answer = "\n".join(line for line in block.splitlines() if not line.startswith((">>> ", "... ")))
            if any(sign in answer for sign in _NO_ANSWERS) or len(_SENTENCE_ENDS.findall(answer)) > _MOST_SENTENCES:
                yield block
