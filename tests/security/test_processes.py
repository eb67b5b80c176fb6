"""The processes of Python that sbnotebook starts: none of them imports files of the current folder."""

from __future__ import annotations

import re
from pathlib import Path

import sbnotebook

PACKAGE = Path(sbnotebook.__file__).parent


def test_every_python_process_ignores_the_current_folder() -> None:
    options = [
        (path.name, option)
        for path in sorted(PACKAGE.rglob("*.py"))
        for option in re.findall(r"\bsys\.executable,\s*([^\s,\]]+)", path.read_text(encoding="utf-8"))
    ]
    assert {name for name, _ in options} >= {"cli.py", "process.py"}
    assert {option for _, option in options} == {'"-P"'}, options
