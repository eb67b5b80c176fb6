"""Blocks as static HTML, for the record in a saved notebook: it loads nothing, runs nothing, and escapes all texts."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any, Final

from sbnotebook.analysis import tables
from sbnotebook.settlement import scrub
from sbnotebook.widgets.blocks import Block, Node, is_change, nodes_of
from sbnotebook.widgets.renderers.terminal import chart_words, field_text

_SAID: Final = {
    "title": ("h4", "text"),
    "text": ("p", "text"),
    "code": ("pre", "text"),
    "form": ("h5", "title"),
    "column": ("h5", "name"),
}
"""The tag of a block that is a text, and the name of this text."""
_TAGS: Final = {"-": "del", "+": "ins"}


def html_of(blocks: Sequence[Block]) -> str:
    """Return blocks as HTML, without buttons and without secrets."""
    return "".join(node_html(node) for _, node in nodes_of(blocks, is_plain=True).values())


def node_html(node: Node) -> str:
    """Return what one block says, without the blocks in it."""
    kind = node["kind"]
    if kind in _SAID:
        tag, name = _SAID[kind]
        return _said(tag, node[name])
    match kind:
        case "table":
            return _table(node)
        case "chart":
            return _said("p", f"{node['title']}: {'; '.join(chart_words(node))}")
        case "progress":
            return f'<progress value="{node["done"]:g}"></progress>'
        case "field":
            return _said("p", f"{node['name']}: {field_text(node)}") + _said("p", node["problem"])
        case _:
            return ""


def _said(tag: str, text: str) -> str:
    return f"<{tag}>{html.escape(scrub(text))}</{tag}>" if text else ""


def _table(node: Node) -> str:
    rows = node["rows"]
    if any(is_change(value) for row in rows for value in row):
        return _said("p", node["caption"]) + "".join(_row_of_changes(row) for row in rows)
    scrubbed = [[scrub(value) if isinstance(value, str) else value for value in row] for row in rows]
    return tables.html_table(node["columns"], scrubbed, scrub(node["caption"]))


def _row_of_changes(row: Sequence[object]) -> str:
    return "".join(_changes(value) if is_change(value) else _said("p", str(value)) for value in row)


def _changes(lines: Any) -> str:
    return f"<pre>{'<br>'.join(_said(_TAGS.get(mark, 'span'), f'{mark} {text}') for mark, text in lines)}</pre>"
