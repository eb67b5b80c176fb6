"""Blocks as ipywidgets, for front ends that load no script of ours, such as a VS Code without its CDN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import ipywidgets as widgets

from sbnotebook.widgets.blocks import CHOICES, Block, Node, nodes_of
from sbnotebook.widgets.front_end import style
from sbnotebook.widgets.renderers.words import node_html

# Jupyter would render text between two dollar signs as mathematics: orders/$dlq and events/$dlq.
_NO_MATHEMATICS: Final = ("mathjax_ignore", "tex2jax_ignore")
_WIDTHS: Final = {"short": "180px", "medium": "420px", "wide": "98%"}
_NAMED: Final = {"description_width": "initial"}
_BOXES: Final = {"row": widgets.HBox, "menu": widgets.HBox}
_KINDS: Final[dict[str, Any]] = {
    "text": widgets.Text,
    "area": widgets.Textarea,
    "code": widgets.Textarea,
    "suggest": widgets.Combobox,
    "choice": widgets.Dropdown,
    "list": widgets.Select,
    "toggles": widgets.ToggleButtons,
    "check": widgets.Checkbox,
}


class PlainView(widgets.VBox):
    """Draws blocks; each widget stays as long as its block is there."""

    def __init__(self, act: Callable[[Block, object], object]) -> None:
        looks = widgets.HTML(f"<style>{style('look.css')}</style>", layout={"display": "none"})
        super().__init__([looks], _dom_classes=("sbn-panel", *_NO_MATHEMATICS))
        self._act = act
        self._blocks: dict[str, Block] = {}
        self._nodes: dict[str, Node] = {}
        self._parts: dict[str, Any] = {"": self}
        self._is_drawing = False

    def draw(self, blocks: Sequence[Block]) -> None:
        found = nodes_of(blocks, is_plain=True)
        self._blocks = {place: block for place, (block, _) in found.items()}
        self._is_drawing = True
        try:
            for place, (_, node) in found.items():
                if not place:
                    continue
                if place not in self._parts or _is_other(self._nodes[place], node):
                    self._parts[place] = self._made(place, node)
                _update(self._parts[place], node)
            for place, (_, node) in reversed(found.items()):
                if (places := node.get("children")) is not None:
                    self._fill(place, [self._parts[child] for child in places])
        finally:
            self._is_drawing = False
        for place in self._parts.keys() - found.keys():
            self._parts.pop(place).close()
        self._nodes = {place: node for place, (_, node) in found.items()}

    def _fill(self, place: str, parts: list[Any]) -> None:
        box = self._parts[place]
        own = box.children[:1] if isinstance(box, widgets.VBox) else ()  # what it says itself
        if (*own, *parts) != box.children:
            box.children = (*own, *parts)

    def _made(self, place: str, node: Node) -> Any:
        kind = node["kind"]
        if kind == "button":
            made = widgets.Button(layout={"width": "auto"})
            made.on_click(lambda _: self._tell(place, None))
        elif kind == "field":
            made = _field(node)
            trait = "index" if node["type"] in CHOICES else "value"
            made.observe(lambda change: self._tell(place, change["new"]), trait)
        elif kind in _BOXES:
            made = _BOXES[kind](layout={"flex_flow": "row wrap", "align_items": "center"})
        elif "children" in node:
            made = widgets.VBox([_html()])
        elif kind == "progress":
            made = widgets.FloatProgress(min=0.0, max=1.0)
        else:
            made = _html()
        return made

    def _tell(self, place: str, value: object) -> None:
        block = self._blocks.get(place)
        if not self._is_drawing and block is not None:
            self._act(block, value)

    def close(self) -> None:
        for place, part in self._parts.items():
            if place:
                close_all(part)
        self._parts = {"": self}
        close_all(self.children[0])
        super().close()


def _html() -> widgets.HTML:
    return widgets.HTML(_dom_classes=_NO_MATHEMATICS)


def _is_other(before: Node, now: Node) -> bool:
    return before["kind"] != now["kind"] or before.get("type") != now.get("type")


def _field(node: Node) -> Any:
    width = {"width": "auto" if node["type"] in ("check", "toggles") else _WIDTHS[node["size"]]}
    if node["type"] == "number":
        return (widgets.BoundedIntText if node["is_whole"] else widgets.BoundedFloatText)(style=_NAMED, layout=width)
    made = _KINDS[node["type"]](layout=width)
    if node["type"] == "check":
        made.indent = False
    elif node["type"] == "toggles":
        made.style.button_width = "auto"
    else:
        made.style.description_width = "initial"
    if hasattr(made, "continuous_update"):
        made.continuous_update = False
    return made


def _update(part: Any, node: Node) -> None:
    match node["kind"]:
        case "button":
            part.description, part.tooltip, part.icon = node["name"], node["tooltip"], node["icon"]
            part.button_style, part.disabled = node["tone"], not node["is_enabled"]
        case "field":
            _update_field(part, node)
        case "progress":
            part.value = node["done"]
        case "row" | "menu":
            pass
        case _:
            said = part.children[0] if isinstance(part, widgets.VBox) else part
            said.value = node_html(node)


def _update_field(part: Any, node: Node) -> None:
    fault = f" — {node['problem']}" if node["problem"] else ""
    part.description, part.tooltip, part.disabled = f"{node['name']}{fault}", node["tooltip"], not node["is_enabled"]
    if hasattr(part, "placeholder"):
        part.placeholder = node["hint"]
    if node["limits"]:
        part.max = max(node["limits"][1], part.min)
        part.min, part.max = node["limits"]
    options = tuple(node["options"])
    if hasattr(part, "options") and tuple(part.options) != options:
        part.options = options
    if node["type"] in CHOICES:
        part.index = None if node["value"] < 0 else node["value"]
    elif part.value != node["value"]:
        part.value = node["value"]


def close_all(widget: Any) -> None:
    """Close a widget and all in it, with their styles: the kernel keeps each one that is not closed."""
    for part in (*getattr(widget, "children", ()), getattr(widget, "layout", None), getattr(widget, "style", None)):
        if isinstance(part, widgets.Widget):
            close_all(part)
    widget.close()
