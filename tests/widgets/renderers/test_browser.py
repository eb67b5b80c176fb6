from __future__ import annotations

import re
from pathlib import Path

import pytest

from sbnotebook import widgets

FOLDER = Path(widgets.__file__).with_name("static")
REACHES_OUT = re.compile(r"https?://(?!www\.w3\.org/)|\bfetch\(|XMLHttpRequest|WebSocket|sendBeacon|@import|url\(")
EVALUATES = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function\(|srcdoc")
# Users who prefer reduced motion see the same panels as all others.
MOVES = re.compile(r"\b(?:animation|transition)\b[\w-]*\s*:|@keyframes|smooth|\.animate\(")


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_scripts_are_short_and_neither_fetch_nor_evaluate(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    assert REACHES_OUT.findall(text) == []
    assert EVALUATES.findall(text) == []
    assert MOVES.findall(text) == []


def test_what_the_scan_looks_for_is_found() -> None:
    assert REACHES_OUT.search('import "https://cdn.example/x.js"')
    assert EVALUATES.search("element.innerHTML = text")
    assert MOVES.search("transition: width 0.2s")
    assert MOVES.search('scrollIntoView({ behavior: "smooth" })')
