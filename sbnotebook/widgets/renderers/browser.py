"""Blocks in the browser: one anywidget, whose script is ``static/blocks.js``.

The page has the whole tree once, and after that what differs. It answers with the place of a block that was clicked or
changed. Changes are numbered: a page that has missed one asks for the whole tree again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import anywidget
import traitlets

from sbnotebook.widgets.blocks import Block, Node, nodes_of
from sbnotebook.widgets.front_end import module, style

_LONG: Final = 20
"""Values of a list from which only a new end is sent."""


class BrowserView(anywidget.AnyWidget):
    """Draws blocks in pages, and keeps what the user types, the focus and the place in the page."""

    _esm = module("blocks.js")
    _css = style("look.css", "blocks.css")

    tree: Any = traitlets.Any().tag(sync=True, to_json=lambda _, view: view.whole())
    record = traitlets.Unicode().tag(sync=True)
    is_ready = False
    """True once a browser has loaded it."""

    def __init__(
        self,
        blocks: Sequence[Block],
        act: Callable[[Block, object], object],
        seen: Callable[[str, str], object] = lambda *_: None,
    ) -> None:
        self._act, self._seen = act, seen
        self._sending = threading.Lock()
        self._blocks: dict[str, Block] = {}
        self._nodes: dict[str, Node] = {}
        self._turn = 0
        self.draw(blocks)  # so that a page has them with the widget
        super().__init__()

    def open(self) -> None:
        """Open the comm to the browser, which may answer on another thread before the constructor ends."""
        self.on_msg(self._note)
        super().open()

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
                if self.is_ready:  # a page that comes later has the whole
                    self.send({"kind": "change", "turn": self._turn, **changes})

    def _note(self, _widget: object, content: Any, _buffers: object) -> None:
        self.is_ready = True
        kind = content.get("kind")
        if kind == "ready":
            with self._sending:
                if content.get("turn") != self._turn:
                    self.send({"kind": "whole", **self.whole()})
        elif kind == "act":
            block = self._blocks.get(str(content["place"]))
            if block is not None:  # else it went while the user clicked
                self._act(block, content.get("value"))
        elif kind == "seen":
            self._seen(str(content["page"]), str(content["how"]))


def difference(before: dict[str, Node], now: dict[str, Node]) -> dict[str, Any]:
    """Return what a page that has these nodes lacks: new ones as a whole, and the changed values of others."""
    nodes = {
        place: node if place not in before else _changed(before[place], node)
        for place, node in now.items()
        if before.get(place) != node
    }
    return {"nodes": nodes, "gone": [place for place in before if place not in now]}


def _changed(before: Node, now: Node) -> Node:
    if before["kind"] != now["kind"]:
        return now
    return {name: _end(before.get(name), value) for name, value in now.items() if before.get(name) != value}


def _end(before: Any, now: Any) -> Any:
    """Return a list that has moved on by a few values as these, and how many went at its beginning."""
    if not (isinstance(before, list) and isinstance(now, list)) or len(before) < _LONG:
        return now
    for dropped in range(_LONG):
        kept: list[Any] = before[dropped:]
        if now[: len(kept)] == kept:
            return {"dropped": dropped, "added": now[len(kept) :]}
    return now
