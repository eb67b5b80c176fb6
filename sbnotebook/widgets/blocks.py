"""The blocks that panels are made of.

A panel is a function from its model to a tree of these. The renderers show any tree: ``renderers.browser`` with a
script of ours, ``renderers.plain`` with ipywidgets, ``renderers.words`` as static HTML and as text.
A new panel writes blocks, and no renderer.

A block is a value. When its model changes, a panel makes all of its blocks again, and a renderer draws what differs. It
knows a block again by its place, which has its type and its name; give a ``key`` to blocks that would be mixed up
otherwise, such as the fields of several messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Final, Literal

from sbnotebook.widgets.pretty import cell

Tone = Literal["plain", "quiet", "good", "warning", "error"]
Value = str | int | float | bool
Node = dict[str, Any]
"""A block as a renderer sees it: its type as ``kind``, its values, and its ``children`` by their places."""
Look = Literal["", "card", "form", "notice", "left", "actions", "words", "selection", "held"]
"""The looks of a column. A card has a frame and its name. A form, too: it takes the focus when a click opens it.
A notice is marked. A left column is narrow, beside others.
Actions hold a plan, and its words take the focus. A selection is a bar; a held one stays at the foot of the screen."""

_MAX_TEXT: Final = 4_000
"""Characters of a sentence."""
_EXACT: Final = 2**53
"""The numbers of JavaScript are exact up to this one."""
CHOICES: Final = ("choice", "list", "toggles")
"""The types of fields whose value is one of their options; renderers know it by its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    key: str = ""


@dataclass(frozen=True, slots=True)
class Title(Block):
    """The name of a panel, or of what follows in it (``is_small``)."""

    text: str
    is_small: bool = False


@dataclass(frozen=True, slots=True)
class Text(Block):
    """A sentence of any origin; an empty one is not drawn."""

    text: str
    tone: Tone = "plain"
    is_strong: bool = False


@dataclass(frozen=True, slots=True)
class Code(Block):
    """A text to copy, which is not cut. The browser copies it each time that ``copies`` grows, or selects it."""

    text: str
    copies: int = 0


@dataclass(frozen=True, slots=True)
class Table(Block):
    """Rows of values, below a caption that opens and closes them.

    A list is a change: its lines, each with its mark: ``-`` goes, ``+`` comes, a space stays.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""
    is_open: bool = True


@dataclass(frozen=True, slots=True)
class Chart(Block):
    """Lines over time: ``times`` in milliseconds since the epoch, and for each name its values, None for unknown."""

    title: str
    times: Sequence[int]
    lines: Mapping[str, Sequence[float | None]]


@dataclass(frozen=True, slots=True)
class Progress(Block):
    """How much of the whole is done, from 0 to 1."""

    done: float


@dataclass(frozen=True, slots=True)
class Button(Block):
    """Something that a click does; the main one of its place is ``primary``, one that removes is ``danger``."""

    name: str
    click: Callable[[], object]
    tooltip: str = ""
    tone: Literal["", "primary", "danger", "warning"] = ""
    icon: str = ""
    is_enabled: bool = True


@dataclass(frozen=True, slots=True)
class Field(Block):
    """A value that users may change; ``change`` gets it when they leave the field.

    ``text``, ``area`` (several lines), ``code``, ``suggest`` (a text, with ``options`` to choose from), ``choice``,
    ``list`` and ``toggles`` (one of ``options``), ``number`` (a whole one between ``limits``, or any), ``check``.
    """

    name: str
    value: Value
    change: Callable[[Any], object]
    type: Literal["text", "area", "code", "suggest", "choice", "list", "toggles", "number", "check"] = "text"
    options: Sequence[str] = ()
    hint: str = ""
    problem: str = ""
    tooltip: str = ""
    limits: tuple[float, float] | None = None
    is_whole: bool = True
    size: Literal["short", "medium", "wide"] = "medium"
    is_enabled: bool = True


@dataclass(frozen=True, slots=True)
class Row(Block):
    """Blocks beside each other, and in further lines where there is no room."""

    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Column(Block):
    """Blocks below each other. When ``forward`` grows, a user who acts in the panel is led to it."""

    blocks: Sequence[Block]
    name: str = ""
    look: Look = ""
    forward: int = 0


@dataclass(frozen=True, slots=True)
class Menu(Block):
    """Buttons that are seldom wanted, behind one with this name."""

    name: str
    blocks: Sequence[Button]


@dataclass(frozen=True, slots=True)
class Grid(Block):
    """An anywidget with a script of its own, and the blocks that take its place where no script of ours is loaded."""

    widget: Any
    plain: Callable[[], Sequence[Block]]


@dataclass(frozen=True, slots=True)
class Tree(Block):
    """Entities with their counts, to filter, open and choose; ``change`` gets the chosen path and those that are open.

    ``blocks`` are at its foot. ``hint`` is shown where there are no rows. ``plain`` makes the blocks that are shown
    instead where no script of ours is loaded.
    """

    blocks: Sequence[Block]
    rows: Sequence[Mapping[str, object]]
    value: str
    expanded: Sequence[str]
    change: Callable[[str, list[str]], object]
    plain: Callable[[], Sequence[Block]]
    hint: str = ""


# ------------------------------------------------------------ what renderers make of them


def nodes_of(blocks: Sequence[Block], *, is_plain: bool = False) -> dict[str, tuple[Block, Node]]:
    """Return the blocks of a tree and their nodes by place; those at the top are the children of the place "".

    All texts in nodes are visible characters, cut at a length; a renderer only has to escape them.

    Example:
        >>> [(place, node["kind"]) for place, (_, node) in nodes_of([Row([Text("a"), Text("b")])]).items()]
        [('', 'column'), ('/row', 'row'), ('/row/text', 'text'), ('/row/text.1', 'text')]
    """
    found: dict[str, tuple[Block, Node]] = {}

    def walk(block: Block, place: str) -> None:
        node = _node_of(block)
        found[place] = block, node
        inner: Sequence[Block] | None = getattr(block, "blocks", None)
        if is_plain and isinstance(block, (Grid, Tree)):
            node |= {"kind": "column", "name": "", "look": "", "forward": 0}
            inner = [*(inner or ()), *block.plain()]
        if inner is None:
            return
        children: list[str] = node.setdefault("children", [])
        counts = Counter[str]()
        for child in inner:
            parts = _kind_of(child), getattr(child, "type", ""), child.key or getattr(child, "name", "")
            known = "-".join(filter(None, parts))
            at = f"{place}/{known}.{counts[known]}" if counts[known] else f"{place}/{known}"
            counts[known] += 1
            if not (isinstance(child, Text) and not child.text):
                children.append(at)
                walk(child, at)

    walk(Column(blocks), "")
    return found


def _kind_of(block: Block) -> str:
    return type(block).__name__.lower()


@cache
def _names(kind: type[Block]) -> tuple[str, ...]:
    hidden = {"key", "blocks", "click", "change", "widget", "plain", "lines"}
    return tuple(field.name for field in fields(kind) if field.name not in hidden)


def _node_of(block: Block) -> Node:
    node: Node = {"kind": _kind_of(block)}
    for name in _names(type(block)):
        value: Any = getattr(block, name)
        if isinstance(value, str) and name != "value" and not (isinstance(block, Code) and name == "text"):
            node[name] = cell(value, _MAX_TEXT)
        elif name in ("columns", "options"):
            node[name] = [cell(each) for each in value]
        else:
            node[name] = list(value) if isinstance(value, tuple) else value
    match block:
        case Table(rows=rows):
            node["rows"] = [[_shown(value) for value in row] for row in rows]
        case Chart(lines=lines):
            # Each line is a value of its own, so that only its new end is sent.
            node |= {f"line{number}": list(values) for number, values in enumerate(lines.values())}
            node["names"] = [cell(name) for name in lines]
        case Field(type=kind, options=options, value=value) if kind in CHOICES:
            node["value"] = options.index(str(value)) if value in options else -1
        case Grid(widget=widget):  # which may have been closed meanwhile
            node["widget"] = f"IPY_MODEL_{widget.comm.comm_id}" if widget.comm else ""
        case _:
            pass
    return node


def _shown(value: object) -> object:
    # Sequence numbers of partitioned entities are larger than the numbers of JavaScript are exact.
    if isinstance(value, list) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _EXACT):
        return value
    return cell(value)


def answer(block: Block, value: Any) -> None:
    """Do what a click on a button means, or tell a field the value that a renderer gives."""
    match block:
        case Button(is_enabled=True):
            block.click()
        case Tree():
            block.change(value["chosen"], value["expanded"])
        case Field(is_enabled=True):
            block.change(block.options[value] if block.type in CHOICES else value)
        case _:
            pass
