"""The parts that all panels are built from, and their base: in a terminal a panel is a text."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import ipywidgets as widgets
import traitlets

from sbnotebook.widgets.background import answer_at_once
from sbnotebook.widgets.front_end import Rich, RichOrPlain, is_in_marimo, module, panel_of, style

# Jupyter would render text between two dollar signs as mathematics: orders/$dlq and events/$dlq.
NO_MATHEMATICS: Final = ("mathjax_ignore", "tex2jax_ignore")
THROUGH: Final = "sbn-through"
"""The class of a box whose parts are laid out in the box around it."""
SCRIPTS: Final = ("columns.js", "header.js", "slices.js", "focused.js", "drawing.js", "icons.js", "panel_view.js")
"""The files of the anywidget that draws a panel."""
_STYLE: Final = """
.widget-label.sbn-text { white-space: pre-wrap; overflow-wrap: anywhere; overflow: visible; height: auto;
  line-height: 1.5; min-width: 0; }
.widget-label.sbn-title { font-size: 1.3em; font-weight: 600; }
.widget-label.sbn-strong { font-weight: 600; }
.widget-label.sbn-quiet { color: var(--jp-ui-font-color2, #666); }
.widget-label.sbn-problem { color: var(--jp-error-color1, #b71c1c); }
.sbn-notice { border-left: 4px solid var(--jp-warn-color1, #ef6c00); background: var(--jp-layout-color2, #f5f5f5);
  padding: 6px 10px; margin: 4px 0; }
.sbn-form { border: 1px solid var(--jp-border-color1, #bdbdbd); border-radius: 3px; padding: 10px 12px; margin: 4px 0; }
.sbn-panel .widget-inline-hbox, .sbn-panel .widget-textarea { max-width: calc(100% - 4px); min-width: 0; }
.sbn-panel .widget-inline-hbox input { min-width: 0; }
.sbn-panel .jupyter-button:focus-visible { outline: 2px solid var(--jp-brand-color1, #1976d2); outline-offset: 1px; }
.sbn-panel { --sbn-covered: 100px; }
.sbn-acting { scroll-margin: min(180px, 12vh) 0 8px; }
.sbn-panel .sbn-through { display: contents; }
.sbn-panel .sbn-selection { margin-top: 8px; }
.sbn-panel .sbn-sticky { position: sticky; bottom: 0; z-index: 4; padding: 2px 0;
  background: var(--jp-layout-color0, Canvas); border-top: 1px solid var(--jp-border-color1, #bdbdbd); }
/* A box that may scroll would hold the sticky part fast; one that clips does not. */
.sbn-panel, .sbn-panel .widget-box, .sbn-shown, .sbn-shown .widget-box { overflow: visible; min-width: 0; }
:is(.jp-OutputArea, .jp-OutputArea-child, .jp-OutputArea-output, .output_subarea):has(.sbn-sticky) { overflow: clip;
  min-width: 0; }
.notebook_app #notebook:has(.sbn-sticky) { overflow: visible; } /* the classic notebook scrolls the box around it */
/* JupyterLab would put the icon of a broken link on each part. */
.sbn-shown.jupyter-widgets-disconnected::before, .sbn-shown > .jupyter-widgets-disconnected::before { content: none; }
.sbn-panel.jupyter-widgets-disconnected::before { content: "The kernel of this panel has ended: run its cell again.";
  position: static; padding: 6px 10px; font: inherit; color: inherit;
  border-left: 4px solid var(--jp-warn-color1, #ef6c00); background: var(--jp-layout-color2, #f5f5f5); }
.sbn-panel .jupyter-widgets-disconnected::before { content: none; }
"""


def panel_style() -> widgets.HTML:
    """Return the style of all parts, which a panel has among its children."""
    return widgets.HTML(f"<style>{_STYLE}{style('vscode.css')}</style>", layout=widgets.Layout(display="none"))


def text(value: str = "", *kinds: str) -> widgets.Label:
    """Make a text of any origin, over as many lines as it needs."""
    label = widgets.Label(value)
    for name in ("sbn-text", *NO_MATHEMATICS, *(f"sbn-{kind}" for kind in kinds)):
        label.add_class(name)
    return label


def button(name: str, tooltip: str, clicked: Callable[[], object], *, icon: str = "", kind: str = "") -> widgets.Button:
    """Make a button as wide as its name."""
    made = widgets.Button(
        description=name, tooltip=tooltip, icon=icon, button_style=kind, layout=widgets.Layout(width="auto")
    )

    def on_click(_: widgets.Button) -> None:
        clicked()

    made.on_click(on_click)
    return made


def row(*children: widgets.Widget) -> widgets.HBox:
    """Put widgets beside each other, and in further lines where there is no room."""
    return widgets.HBox(children, layout=widgets.Layout(flex_flow="row wrap", align_items="center"))


def close_all(widget: widgets.Widget) -> None:
    """Close a widget and all in it, with their styles: the kernel keeps each one that is not closed."""
    for part in (*getattr(widget, "children", ()), getattr(widget, "layout", None), getattr(widget, "style", None)):
        if isinstance(part, widgets.Widget):
            close_all(part)
    widget.close()


def set_shown(widget: widgets.DOMWidget, *, shown: bool) -> None:
    """Show a widget or hide it; it has no room when it is hidden."""
    widget.layout.display = None if shown else "none"


class _View(Rich):
    """Draws the parts of a panel."""

    _esm = module(*SCRIPTS)
    _css = style("parts.css")

    children = traitlets.Tuple().tag(sync=True, **widgets.widget_serialization)


class Panel(widgets.VBox):
    """A panel that a notebook shows as widgets and a terminal as text.

    Its buttons and fields are answered while a cell runs. One anywidget draws all of its parts; the plain widgets
    remain for front ends without anywidgets. In marimo the panel is that anywidget: ``mo.ui.anywidget(panel)``, or the
    panel as the last value of a cell.

    Args:
        children: what it holds.
        options: of the box.
    """

    _shown: RichOrPlain | None = None
    _esm: Any = traitlets.Unicode().tag(sync=True)
    _css: Any = traitlets.Unicode().tag(sync=True)

    @traitlets.default("_esm")
    def _code_in_marimo(self) -> str:
        return module(*SCRIPTS) if is_in_marimo() else ""

    @traitlets.default("_css")
    def _style_in_marimo(self) -> str:
        return f"{_STYLE}{style('parts.css', 'panel_view.css')}" if is_in_marimo() else ""

    def __init__(self, children: Sequence[widgets.Widget] = (), **options: Any) -> None:
        super().__init__(children, **options)
        answer_at_once(self)

    def close(self) -> None:
        """Take it from the screen."""
        if self._shown is not None:
            self._shown.close()
        for part in (*self.children, self.layout):
            close_all(part)
        super().close()

    def to_text(self) -> str:
        """Return the panel as text, when it has loaded; by default its ``repr``, which does not wait."""
        return repr(self)

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, Any] | None:
        # Where there is a kernel, there may be a browser, and the text stands for the panel in a saved notebook only.
        # ipywidgets would cut it at 110 characters.
        bundle: Any = super()._repr_mimebundle_(**kwargs)
        if is_in_marimo():
            return bundle
        if "ipykernel" not in sys.modules:
            return bundle | {"text/plain": self.to_text()}
        drawn: Any = self._drawn()._repr_mimebundle_(**kwargs)
        return drawn | {"text/plain": bundle["text/plain"]}

    def _drawn(self) -> RichOrPlain:
        """Return what a front end with widgets shows: it is made once, when it is first displayed."""
        if self._shown is None:
            self._shown = RichOrPlain(_View(children=[self]), self)
            self._shown.add_class("sbn-shown")
            answer_at_once(self._shown)
        return self._shown

    def _display_(self) -> object:
        # marimo asks for it: https://docs.marimo.io/guides/integrating_with_marimo/displaying_objects/
        return panel_of(self)
