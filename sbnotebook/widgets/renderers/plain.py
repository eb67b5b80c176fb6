"""Blocks as ipywidgets, for front ends that load no script of ours, such as a VS Code without its CDN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import ipywidgets as widgets

from sbnotebook.widgets.blocks import CHOICES, Block, Node, nodes_of
from sbnotebook.widgets.renderers.browser import style
from sbnotebook.widgets.renderers.words import node_html

# Jupyter would render text between two dollar signs as mathematics: orders/$dlq and events/$dlq.
_NO_MATHEMATICS: Final = ("mathjax_ignore", "tex2jax_ignore")
_WIDTHS: Final = {"short": "180px", "medium": "420px", "wide": "98%"}
_NAMED: Final = {"style": {"description_width": "initial"}}
_TYPED: Final = {"continuous_update": False, **_NAMED}
_FIELDS: Final[dict[str, tuple[Any, dict[str, Any]]]] = {
    "text": (widgets.Text, _TYPED),
    "area": (widgets.Textarea, _TYPED),
    "code": (widgets.Textarea, _TYPED),
    "suggest": (widgets.Combobox, _TYPED),
    "choice": (widgets.Dropdown, _NAMED),
    "list": (widgets.Select, _NAMED),
    "toggles": (widgets.ToggleButtons, {"style": {"button_width": "auto"}}),
    "number": (widgets.BoundedFloatText, _NAMED),
    "check": (widgets.Checkbox, {"indent": False}),
}


class PlainView(widgets.VBox):
    """Draws blocks; each widget stays as long as its block is there."""

    def __init__(self, act: Callable[[Block, object], object]) -> None:
        looks = widgets.HTML(f"<style>{style('look.css')}</style>", layout={"display": "none"})
        super().__init__([looks], _dom_classes=("sbn-panel", *_NO_MATHEMATICS))
        self._act = act
        self._found: dict[str, tuple[Block, Node]] = {}
        self.parts: dict[str, Any] = {"": self}
        self._is_drawing = False

    def draw(self, blocks: Sequence[Block]) -> None:
        self._found = found = nodes_of(blocks, is_plain=True)
        self._is_drawing = True
        try:
            for place, (_, node) in list(found.items())[1:]:
                if place not in self.parts:
                    self.parts[place] = self._made(place, node)
                _update(self.parts[place], node)
            for place, (_, node) in reversed(found.items()):
                if "children" in node:
                    box = self.parts[place]
                    own = box.children[:1] if isinstance(box, widgets.VBox) else ()  # what it says itself
                    children = (*own, *(self.parts[child] for child in node["children"]))
                    if children != box.children:
                        box.children = children
        finally:
            self._is_drawing = False
        for place in self.parts.keys() - found.keys():
            close_all(self.parts.pop(place))

    def _made(self, place: str, node: Node) -> Any:
        match node["kind"]:
            case "button":
                made = widgets.Button(layout={"width": "auto"})
                made.on_click(lambda _: self._tell(place, None))
                return made
            case "field":
                is_whole = node["type"] == "number" and node["is_whole"]
                make, options = (widgets.BoundedIntText, _NAMED) if is_whole else _FIELDS[node["type"]]
                width = "auto" if node["type"] in ("check", "toggles") else _WIDTHS[node["size"]]
                made = make(layout={"width": width}, **options)
                trait = "index" if node["type"] in CHOICES else "value"
                made.observe(lambda change: self._tell(place, change["new"]), trait)
                return made
            case "row" | "menu":
                return widgets.HBox(layout={"flex_flow": "row wrap", "align_items": "center"})
            case "progress":
                return widgets.FloatProgress(min=0.0, max=1.0)
            case _:
                said = widgets.HTML(_dom_classes=_NO_MATHEMATICS)
                return widgets.VBox([said]) if "children" in node else said

    def _tell(self, place: str, value: object) -> None:
        if not self._is_drawing and place in self._found:
            self._act(self._found[place][0], value)


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
    part.description, part.tooltip = f"{node['name']}{fault}", node["tooltip"]
    part.disabled = not node["is_enabled"]
    if hasattr(part, "placeholder"):
        part.placeholder = node["hint"]
    if node["limits"]:
        part.max = max(node["limits"][1], part.min)
        part.min, part.max = node["limits"]
    if hasattr(part, "options") and list(part.options) != node["options"]:
        part.options = node["options"]
    if node["type"] in CHOICES:
        part.index = None if node["value"] < 0 else node["value"]
    else:
        part.value = node["value"]


def close_all(widget: Any) -> None:
    """Close a widget and all in it, with their styles: the kernel keeps each one that is not closed."""
    for part in (*getattr(widget, "children", ()), getattr(widget, "layout", None), getattr(widget, "style", None)):
        if isinstance(part, widgets.Widget):
            close_all(part)
    widget.close()
