"""Blocks as static HTML, for the record in a saved notebook: it loads nothing, runs nothing, and escapes all texts."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any, Final

from sbnotebook.analysis import tables
from sbnotebook.settlement import scrub
from sbnotebook.widgets.blocks import Block, Node, is_change, nodes_of
from sbnotebook.widgets.renderers.terminal import words_of

_TAGS: Final = {"-": "del", "+": "ins"}


def html_of(blocks: Sequence[Block]) -> str:
    """Return blocks as HTML, without buttons and without secrets."""
    return "".join(node_html(node) for _, node in nodes_of(blocks, is_plain=True).values())


def node_html(node: Node) -> str:
    """Return what one block says, without the blocks in it."""
    match node["kind"]:
        case "table":
            return _table(node)
        case "progress":
            return f'<progress value="{node["done"]:g}"></progress>'
        case _:
            return "".join(_said(tag, text) for tag, text in words_of(node))


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
