"""Blocks in the browser: one anywidget, whose script is ``static/blocks.js``.

The page has the whole tree once, and after that what differs. It answers with the place of a block that was clicked or
changed. Changes are numbered: a page that has missed one asks for the whole tree again.

The scripts and styles are plain files in ``static``. A widget is sent to the browser as one ES module, so that it needs
no server for its parts. The files are ES modules, too, which editors and browsers understand as they are; joined, they
share one scope, so their top-level names differ.
"""

from __future__ import annotations

import base64
import re
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import anywidget
import traitlets

from sbnotebook.widgets.blocks import Block, Node, nodes_of

_FOLDER: Final = Path(__file__).parents[1] / "static"
_IMPORT: Final = re.compile(r"""^import\s[^;"']{0,300}+["']\./([^"'\n]++)["'];?[ \t]*\n""", re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?!default\b)", re.MULTILINE)
_LONG: Final = 20
"""Values of a list from which only a new end is sent."""


@cache
def module(name: str) -> str:
    """Join a file of JavaScript and those that it imports to one ES module."""
    parts: dict[str, str] = {}

    def take(name: str) -> None:
        script = (_FOLDER / name).read_text(encoding="utf-8")
        for imported in _IMPORT.findall(script):
            if imported not in parts:
                take(imported)
        parts[name] = _EXPORT.sub("", _IMPORT.sub("", script))

    take(name)
    script = "\n".join(parts.values())
    if not is_in_marimo():
        return script
    # marimo serves other scripts as files of the cell that runs, and so refuses widgets that a click makes.
    return f"data:text/javascript;base64,{base64.b64encode(script.encode()).decode()}"


@cache
def style(*names: str) -> str:
    return "\n".join((_FOLDER / name).read_text(encoding="utf-8") for name in names)


def marimo() -> Any:
    return sys.modules.get("marimo")


def is_in_marimo() -> bool:
    """Tell whether a cell of marimo runs this, or a thread or a click that belongs to one."""
    return marimo() is not None and marimo().running_in_notebook()


class BrowserView(anywidget.AnyWidget):
    """Draws blocks in pages, and keeps what the user types, the focus and the place in the page."""

    _esm = module("blocks.js")
    _css = style("look.css", "blocks.css")

    tree: Any = traitlets.Any().tag(sync=True, to_json=lambda _, view: view.whole())
    record = traitlets.Unicode().tag(sync=True)

    def __init__(
        self,
        blocks: Sequence[Block],
        act: Callable[[Block, object], object],
        seen: Callable[[str, str], object] = lambda *_: None,
        loaded: Callable[[], object] = lambda: None,
    ) -> None:
        self._act, self._seen, self._loaded = act, seen, loaded
        self.is_ready = threading.Event()
        """Set once a browser has loaded it."""
        self._sending = threading.Lock()
        self._blocks: dict[str, Block] = {}
        self._nodes: dict[str, Node] = {}
        self._turn = 0
        self.draw(blocks)  # so that a page has them with the widget
        self.on_msg(self._note)  # the page may answer on another thread before the constructor ends
        super().__init__()

    def whole(self) -> dict[str, object]:
        return {"turn": self._turn, "nodes": self._nodes}

    def draw(self, blocks: Sequence[Block]) -> None:
        found = nodes_of(blocks)
        nodes = {place: node for place, (_, node) in found.items()}
        with self._sending:
            self._blocks = {place: block for place, (block, _) in found.items()}
            changes = difference(self._nodes, nodes)
            if changes["nodes"] or changes["gone"]:
                self._nodes, self._turn = nodes, self._turn + 1
                if self.is_ready.is_set():  # a page that comes later has the whole
                    self.send({"kind": "change", "turn": self._turn, **changes})

    def _note(self, _widget: object, content: Any, _buffers: object) -> None:
        self.is_ready.set()
        match content.get("kind"):
            case "ready":
                with self._sending:
                    if content.get("turn") != self._turn:
                        self.send({"kind": "whole", **self.whole()})
                self._loaded()
            case "act":
                if block := self._blocks.get(str(content["place"])):  # else it went while the user clicked
                    self._act(block, content.get("value"))
            case "seen":
                self._seen(str(content["page"]), str(content["how"]))
            case _:
                pass


def difference(before: dict[str, Node], now: dict[str, Node]) -> dict[str, Any]:
    """Return what a page that has these nodes lacks: new ones as a whole, and the changed values of others."""
    nodes: dict[str, Node] = {}
    for place, node in now.items():
        known = before.get(place)
        if known is None:
            nodes[place] = node
        elif known != node:
            nodes[place] = {
                name: _end(known.get(name), value) for name, value in node.items() if known.get(name) != value
            }
    return {"nodes": nodes, "gone": [place for place in before if place not in now]}


def _end(before: Any, now: Any) -> Any:
    """Return a list that has moved on by a few values as these, and how many went at its beginning."""
    if not (isinstance(before, list) and isinstance(now, list)) or len(before) < _LONG:
        return now
    for dropped in range(_LONG):
        kept: list[Any] = before[dropped:]
        if now[: len(kept)] == kept:
            return {"dropped": dropped, "added": now[len(kept) :]}
    return now
