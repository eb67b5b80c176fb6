"""Blocks without buttons: as text for a terminal, and as static HTML for the record in a saved notebook.

The HTML loads nothing, runs nothing, and escapes all texts.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any, Final

from sbnotebook.analysis import tables
from sbnotebook.model.connection_strings import scrub
from sbnotebook.widgets.blocks import CHOICES, Block, Grid, Node, Progress, Row, Table, Tree, is_change, nodes_of
from sbnotebook.widgets.pretty import cell

_TAGS: Final = {"-": "del", "+": "ins"}


def text_of(blocks: Sequence[Block]) -> str:
    """Return blocks as lines of text; blocks of a row are beside each other, if each is a line."""
    found = nodes_of(blocks)

    def text_at(place: str) -> str:
        block, node = found[place]
        inner = [text for text in map(text_at, node.get("children", ())) if text]
        is_line = isinstance(block, Row) and not any("\n" in text for text in inner)
        return (" " if is_line else "\n").join([*_lines(block, node), *inner])

    return text_at("")


def _lines(block: Block, node: Node) -> list[str]:
    match block:
        case Table():
            return [_text_table(node)]
        case Progress():
            return [f"{block.done:.0%} done"]
        case Grid():
            return [repr(block.widget)]
        case Tree():
            return (
                [tables.text_table([*block.rows[0]], [[*row.values()] for row in block.rows])]
                if block.rows
                else [node["hint"]]
            )
        case _:
            return [text for _, text in words_of(node)]


def html_of(blocks: Sequence[Block]) -> str:
    """Return blocks as HTML, without buttons and without secrets."""
    return "".join(node_html(node) for _, node in nodes_of(blocks, is_plain=True).values())


def node_html(node: Node) -> str:
    """Return what one block says, without the blocks in it."""
    match node["kind"]:
        case "table":
            return _html_table(node)
        case "progress":
            return f'<progress value="{node["done"]:g}"></progress>'
        case _:
            return "".join(_said(tag, text) for tag, text in words_of(node))


def _said(tag: str, text: str) -> str:
    return f"<{tag}>{html.escape(scrub(text))}</{tag}>" if text else ""


def _html_table(node: Node) -> str:
    rows = node["rows"]
    if any(is_change(value) for row in rows for value in row):
        return _said("p", node["caption"]) + "".join(_row_of_changes(row) for row in rows)
    scrubbed = [[scrub(value) if isinstance(value, str) else value for value in row] for row in rows]
    return tables.html_table(node["columns"], scrubbed, scrub(node["caption"]))


def _row_of_changes(row: Sequence[object]) -> str:
    return "".join(_changes(value) if is_change(value) else _said("p", str(value)) for value in row)


def _changes(lines: Any) -> str:
    return f"<pre>{'<br>'.join(_said(_TAGS.get(mark, 'span'), f'{mark} {text}') for mark, text in lines)}</pre>"


def words_of(node: Node) -> list[tuple[str, str]]:
    """Return what a block says, without the blocks in it, each text with its tag in HTML; tables say it otherwise."""
    words: list[tuple[str, str]] = []
    match node["kind"]:
        case "title":
            words = [("h4", node["text"])]
        case "text":
            words = [("p", node["text"])]
        case "code":
            words = [("pre", node["text"])]
        case "column":
            words = [("h5", node["name"])]
        case "chart":
            words = [("p", f"{node['title']}: {'; '.join(_chart_words(node))}")]
        case "field":
            words = [("p", f"{node['name']}: {text}" if (text := _field_text(node)) else ""), ("p", node["problem"])]
        case _:
            pass
    return [each for each in words if each[1]]


def _text_table(node: Node) -> str:
    rows, caption = node["rows"], node["caption"]
    if not any(is_change(value) for row in rows for value in row):
        return tables.text_table(node["columns"], rows, caption)
    return "\n".join([caption, *(f"  {line}" for row in rows for line in _change_lines(row))])


def _change_lines(row: Sequence[Any]) -> Iterable[str]:
    yield " ".join(str(value) for value in row if not is_change(value))
    for lines in (value for value in row if is_change(value)):
        yield from (f"  {mark} {text}" for mark, text in lines)


def _field_text(node: Node) -> str:
    value = node["value"]
    if node["type"] in CHOICES:
        return node["options"][value] if value >= 0 else ""
    return ("yes" if value else "no") if isinstance(value, bool) else cell(value)


def _chart_words(node: Node) -> Iterable[str]:
    for number, name in enumerate(node["names"]):
        known = [value for value in node[f"line{number}"] if value is not None]
        yield f"{name}: {known[-1]:,g} now, {min(known):,g} to {max(known):,g}" if known else f"{name}: not known yet"
