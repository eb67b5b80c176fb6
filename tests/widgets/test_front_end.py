from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from sbnotebook.widgets import front_end
from sbnotebook.widgets.front_end import module, style
from sbnotebook.widgets.table.message_table import MessageTable

FOLDER = Path(front_end.__file__).with_name("static")
TOP_LEVEL = re.compile(r"^(?:async )?(?:function\*?|class|const|let) ([A-Za-z_$][\w$]*)", re.MULTILINE)
REACHES_OUT = re.compile(r"https?://(?!www\.w3\.org/)|\bfetch\(|XMLHttpRequest|WebSocket|sendBeacon|@import|url\(")
EVALUATES = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function\(|srcdoc")
# Users who prefer reduced motion see the same panels as all others.
MOVES = re.compile(r"\b(?:animation|transition)\b[\w-]*\s*:|@keyframes|smooth|\.animate\(")


@pytest.fixture
def table() -> str:
    return str(MessageTable.get_state(MessageTable(), ["_esm"])["_esm"])


def test_files_are_joined_without_their_imports_and_exports(table: str) -> None:
    assert not re.search(r"^import\b", table, re.MULTILINE)
    assert re.findall(r"^export .*", table, re.MULTILINE) == ["export default () => {"]
    assert "function inflated(" in table
    assert table.index("class Store") < table.index("export default")


def test_module_drops_imports_and_keeps_words_in_strings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.js").write_text('export const one = "import x from y";\n')
    (tmp_path / "two.js").write_text(
        'import {\n  one,\n} from "./one.js";\nimport "./one.js";\nexport default () => one;\n'
    )
    monkeypatch.setattr(front_end, "_FOLDER", tmp_path)
    assert module("one.js", "two.js") == 'const one = "import x from y";\n\nexport default () => one;\n'


def test_top_level_names_differ_over_all_files_that_are_joined(table: str) -> None:
    assert [name for name, count in Counter(TOP_LEVEL.findall(table)).items() if count > 1] == []


def test_a_missing_file_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.js"):
        module("nothing.js")
    with pytest.raises(FileNotFoundError, match=r"nothing\.css"):
        style("nothing.css")


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
