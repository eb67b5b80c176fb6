from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import ipywidgets

from sbnotebook.widgets import front_end
from sbnotebook.widgets.text_view import TextView, cell, heading, paragraph, rows_block

if TYPE_CHECKING:
    import pytest


def test_what_is_shown_is_a_text_in_a_terminal_too() -> None:
    view = TextView()
    view.show(heading("A title"), paragraph("A sentence."), rows_block(["a", "b"], [[1, "x"]], "Rows"))
    assert repr(view).startswith("A title\nA sentence.\nRows\n")
    view.show(rows_block(["number", "change"], [[7, [("-", "old"), ("+", "new")]]], "Changes"))
    assert repr(view) == "Changes\n  7\n    - old\n    + new"


def test_all_that_is_shown_is_visible_short_and_exact() -> None:
    hostile = "\u202e<b>" + "x" * 10_000
    block = rows_block(["cell"], [[hostile], [2**60 + 1], [None]])
    rows = [row[0] for row in block.get("rows", [])]
    assert rows[0].startswith("⟨U+202E⟩<b>")
    assert len(rows[0]) < 500
    assert rows[1:] == [str(2**60 + 1), ""]
    assert cell("two\nlines") == "two\nlines"


def test_where_custom_widgets_do_not_load_it_is_a_box_of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBNOTEBOOK_WIDGETS", "plain")
    view = TextView()
    view.show(paragraph("$x$ stays as it is."))
    box: Any = view.children[0]
    assert len(view.children) == 1
    assert (box.value, box.disabled) == ("$x$ stays as it is.", True)
    view.close()


def test_a_browser_that_answers_while_the_view_is_made_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_end, "_PLAIN_AFTER", 0.5)
    opened = ipywidgets.Widget.open

    def answered(widget: Any) -> None:
        opened(widget)
        widget._handle_custom_msg({"kind": "ready"}, [])  # noqa: SLF001 (as a kernel calls it)

    async def kernel() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(ipywidgets.Widget, "open", answered)
            view = TextView()
        silent = TextView()
        async with asyncio.timeout(60):
            while not isinstance(silent.children[0], ipywidgets.Textarea):  # noqa: ASYNC110 (there is no event)
                await asyncio.sleep(0.05)
        assert not isinstance(view.children[0], ipywidgets.Textarea)

    asyncio.run(kernel())
