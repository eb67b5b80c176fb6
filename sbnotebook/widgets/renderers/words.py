"""Blocks without buttons: as text for a terminal, and as static HTML for the record in a saved notebook.

The HTML loads nothing, runs nothing, and escapes all texts.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Any, Final

from sbnotebook.analysis import tables
from sbnotebook.model.connection_strings import scrub
from sbnotebook.widgets.blocks import CHOICES, Block, Node, Row, nodes_of
from sbnotebook.widgets.pretty import cell

_WORDS: Final = {
    "title": ("h4", "text"),
    "text": ("p", "text"),
    "code": ("pre", "text"),
    "column": ("h4", "name"),
    "tree": ("p", "hint"),
}
"""The tags of blocks that have one text, and the text."""


def text_of(blocks: Sequence[Block]) -> str:
    """Return blocks as lines of text; blocks of a row are beside each other, if each is a line."""
    found = nodes_of(blocks)

    def text_at(place: str) -> str:
        block, node = found[place]
        inner = [text for text in map(text_at, node.get("children", ())) if text]
        is_line = isinstance(block, Row) and not any("\n" in text for text in inner)
        return (" " if is_line else "\n").join([*_lines(block, node), *inner])

    return text_at("")


def _lines(block: Any, node: Node) -> list[str]:
    match node["kind"]:
        case "table" if not _has_changes(node):
            return [tables.text_table(node["columns"], node["rows"], node["caption"])]
        case "progress":
            return [f"{node['done']:.0%} done"]
        case "grid":
            return [repr(block.widget)]
        case "tree" if node["rows"]:
            return [tables.text_table([*node["rows"][0]], [[*row.values()] for row in node["rows"]])]
        case _:
            return [text for _, text in _words(node) if text]


def html_of(blocks: Sequence[Block]) -> str:
    """Return blocks as HTML, without buttons and without secrets."""
    return "".join(node_html(node) for _, node in nodes_of(blocks, is_plain=True).values())


def node_html(node: Node) -> str:
    match node["kind"]:
        case "table" if not _has_changes(node):
            rows = [[scrub(value) if isinstance(value, str) else value for value in row] for row in node["rows"]]
            return tables.html_table(node["columns"], rows, scrub(node["caption"]))
        case "progress":
            return f'<progress value="{node["done"]:g}"></progress>'
        case _:
            return "".join(f"<{tag}>{html.escape(scrub(text))}</{tag}>" for tag, text in _words(node) if text)


def _has_changes(node: Node) -> bool:
    return any(isinstance(value, list) for row in node["rows"] for value in row)


def _words(node: Node) -> Iterator[tuple[str, str]]:
    """Yield what a block says, without the blocks in it, each text with its tag in HTML."""
    match node["kind"]:
        case "table":
            yield "p", node["caption"]
            for row in node["rows"]:
                yield "p", "  " + " ".join(str(value) for value in row if not isinstance(value, list))
                for lines in (value for value in row if isinstance(value, list)):
                    yield "pre", "\n".join(f"    {mark} {text}" for mark, text in lines)
        case "chart":
            yield "p", f"{node['title']}: {'; '.join(_chart_words(node))}"
        case "field":
            text = _field_text(node)
            yield "p", f"{node['name']}: {text}" if text else ""
            yield "p", node["problem"]
        case kind if kind in _WORDS:
            tag, name = _WORDS[kind]
            yield tag, node[name]
        case _:
            pass


def _field_text(node: Node) -> str:
    value = node["value"]
    if node["type"] in CHOICES:
        return node["options"][value] if value >= 0 else ""
    return ("yes" if value else "no") if isinstance(value, bool) else cell(value)


def _chart_words(node: Node) -> Iterator[str]:
    for number, name in enumerate(node["names"]):
        known = [value for value in node[f"line{number}"] if value is not None]
        yield f"{name}: {known[-1]:,g} now, {min(known):,g} to {max(known):,g}" if known else f"{name}: not known yet"
