"""Sentences, tables and changes in a panel: the text of messages is shown as text, and nothing else.

The labels of ipywidgets do not work: a notebook renders text between two dollar signs as a formula, and ``orders/$dlq``
has a dollar sign.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypedDict

import ipywidgets
import traitlets

from sbnotebook.analysis import tables
from sbnotebook.widgets.front_end import Rich, RichOrPlain, module, style
from sbnotebook.widgets.pretty import visible

_MOST: Final = 400
"""Characters of a cell."""
_MOST_SAID: Final = 4_000
"""Characters of a sentence."""
_EXACT: Final = 2**53
_LINE: Final = 18
"""Pixels of a line of plain text."""

Tone = Literal["plain", "quiet", "good", "warning", "error"]


class Block(TypedDict, total=False):
    """A part of the view. Made by :func:`heading`, :func:`paragraph`, :func:`rows_block` and :func:`code_block`."""

    kind: Literal["title", "said", "table", "code"]
    text: str
    tone: Tone
    caption: str
    columns: list[str]
    rows: list[list[Any]]
    open: bool


def heading(text: str) -> Block:
    """Make a title."""
    return {"kind": "title", "text": cell(text, _MOST_SAID), "tone": "plain"}


def paragraph(text: str, tone: Tone = "plain") -> Block:
    """Make a sentence."""
    return {"kind": "said", "text": cell(text, _MOST_SAID), "tone": tone}


def code_block(text: str) -> Block:
    """Make a text to copy, which is not cut: see :meth:`TextView.copy_code`."""
    return {"kind": "code", "text": text}


def rows_block(
    columns: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "", *, is_open: bool = True
) -> Block:
    """Make a table below a caption that opens and closes it.

    Example:
        >>> rows_block(["number", "change"], [[7, [("-", "old"), ("+", "new")]]])["rows"]
        [[7, [('-', 'old'), ('+', 'new')]]]
    """
    shown = [[value if _is_whole(value) else cell(value) for value in row] for row in rows]
    return {"kind": "table", "columns": list(columns), "rows": shown, "caption": caption, "open": is_open}


def _is_whole(value: object) -> bool:
    # Sequence numbers of partitioned entities are larger than the numbers of JavaScript are exact.
    return isinstance(value, list) or (isinstance(value, int) and abs(value) <= _EXACT)


def cell(value: object, most: int = _MOST) -> str:
    r"""Return a value as a text of visible characters, cut at a length.

    Example:
        >>> cell("red\u202eder"), cell(None), cell("long" * 200)[-18:]
        ('red⟨U+202E⟩der', '', '… (800 characters)')
    """
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
    text = str(value)
    return visible(text) if len(text) <= most else f"{visible(text[:most])}… ({len(text):,} characters)"


class TextView(RichOrPlain):
    """Shows blocks of text, in colours or in a plain text box.

    Args:
        keeps_focus: take the keyboard focus of buttons in the same panel that go, and go back and forth between forms
            and the buttons that open them.

    Example:
        >>> view = TextView()
        >>> view.show(heading("Complete 2 messages?"), paragraph("Nothing is archived.", "warning"))
        >>> print(view)
        Complete 2 messages?
        Nothing is archived.
    """

    _rich: _Text
    _plain: ipywidgets.Textarea

    def __init__(self, *, keeps_focus: bool = False) -> None:
        self.blocks: tuple[Block, ...] = ()
        plain = ipywidgets.Textarea(disabled=True, layout={"width": "100%"})
        super().__init__(_Text(keeps_focus=keeps_focus), plain, layout={"min_width": "0"})

    def show(self, *blocks: Block) -> None:
        """Show these blocks in place of those before."""
        self.blocks = blocks
        self._rich.blocks = [dict(block) for block in blocks]
        self._plain.value = str(self)
        self._plain.layout.height = f"{min(24, 2 + self._plain.value.count(chr(10))) * _LINE}px"
        self.layout.display = None if blocks else "none"

    def come_forward(self) -> None:
        """Scroll it into sight where a button of the same panel has the focus, and take the focus."""
        self._rich.forwards += 1

    def copy_code(self) -> None:
        """Copy the code that is shown to the clipboard, where the browser allows it; otherwise select it."""
        self._rich.copies += 1

    def close(self) -> None:
        """Take it from the screen."""
        self._plain.close()
        super().close()

    def __repr__(self) -> str:
        return "\n".join(map(_text, self.blocks))

    __str__ = __repr__


class _Text(Rich):
    _esm = module("focused.js", "clipboard.js", "focus.js", "text_view.js")
    _css = style("text_view.css", "vscode.css")

    blocks = traitlets.List(traitlets.Dict()).tag(sync=True)
    keeps_focus = traitlets.Bool(default_value=False).tag(sync=True)
    # Counters, because a page may act on a message before it shows the blocks that the kernel sent earlier.
    forwards = traitlets.Int(0).tag(sync=True)
    copies = traitlets.Int(0).tag(sync=True)


def _text(block: Block) -> str:
    if "rows" not in block:
        return block.get("text", "")
    rows, caption = block["rows"], block.get("caption", "")
    if not any(isinstance(value, list) for row in rows for value in row):
        return tables.text_table(block.get("columns", []), rows, caption)
    return "\n".join([caption, *(f"  {line}" for row in rows for line in _change_lines(row))])


def _change_lines(row: Sequence[Any]) -> Iterable[str]:
    yield " ".join(str(value) for value in row if not isinstance(value, list))
    for lines in (value for value in row if isinstance(value, list)):
        yield from (f"  {mark} {text}" for mark, text in lines)
