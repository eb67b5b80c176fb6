"""A page of rows, drawn with plain ipywidgets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final

import ipywidgets as widgets

from sbnotebook.widgets.panel import NO_MATHEMATICS, button
from sbnotebook.widgets.table.packing import Column
from sbnotebook.widgets.table.plain_rows import PlainRows
from sbnotebook.widgets.table.rows import MessageKey

__all__ = ["PlainPage", "title"]

_WIDTHS: Final = {"time": "160px", "number": "80px", "flag": "60px"}
_WIDE: Final = ("body_text", "dead_letter_error_description")


class PlainPage(widgets.GridBox):
    """The rows of one page, each with a check box and a button that belong to its message for good.

    They go away with the row: a click on one of them that comes late, when other rows are shown already, is for the
    message that it stood beside, or for none.

    Args:
        tick: is told of each message that is selected, or is no longer; also where it is so already.
        look: is told of the message that somebody wants to see.
    """

    def __init__(self, tick: Callable[[MessageKey, bool], object], look: Callable[[MessageKey], object]) -> None:
        super().__init__()
        self._tick = tick
        self._look = look
        self._drawn: tuple[Any, ...] = ()
        self._boxes: list[widgets.Checkbox] = []
        self._buttons: list[widgets.Button] = []
        self._heads: list[widgets.Label] = []
        self._cells: list[widgets.Label] = []
        # One layout and one style for all cells: each would be another message to the browser for each cell.
        self._narrow = widgets.Layout(width="auto", min_width="0")
        self._style = widgets.Label().style
        self._bold = widgets.Label(style={"font_weight": "bold"}).style

    def draw(self, view: PlainRows, rows: Sequence[int], selected: Collection[int]) -> None:
        """Show these rows.

        Args:
            view: what is in them.
            rows: their numbers.
            selected: the numbers of those that are selected.
        """
        columns = view.columns()
        drawn = (view, tuple(rows), tuple(column.name for column in columns))
        if drawn != self._drawn:
            self._lay_out(view, rows, columns)
            self._drawn = drawn
        for box, number in zip(self._boxes, rows, strict=True):
            box.value = number in selected
        texts = [view.text(number, column.name) for number in rows for column in columns]
        for cell, value in zip(self._cells, texts, strict=True):
            cell.value = cell.tooltip = value

    def _lay_out(self, view: PlainRows, rows: Sequence[int], columns: Sequence[Column]) -> None:
        old = [*self._boxes, *self._buttons, *self._heads]
        keys = [view.rows.keys[number] for number in rows]
        self._boxes = [self._box(key) for key in keys]
        self._buttons = [self._button(key) for key in keys]
        wanted = len(rows) * len(columns)
        self._cells += [self._label(self._style) for _ in range(wanted - len(self._cells))]
        for cell in self._cells[wanted:]:
            cell.close()
        del self._cells[wanted:]
        widths = " ".join(map(_width, columns))
        self.layout = widgets.Layout(
            grid_template_columns=f"max-content max-content {widths}", grid_gap="0 10px", width="100%", overflow="auto"
        )
        self._heads = [self._label(self._bold, name) for name in ("message", "", *map(title, columns))]
        lines = [
            (box, look, *self._cells[place * len(columns) : (place + 1) * len(columns)])
            for place, (box, look) in enumerate(zip(self._boxes, self._buttons, strict=True))
        ]
        self.children = (*self._heads, *(child for line in lines for child in line))
        for widget in old:
            widget.close()

    def _label(self, style: Any, value: str = "") -> widgets.Label:
        return widgets.Label(value, layout=self._narrow, style=style, _dom_classes=NO_MATHEMATICS)

    def _box(self, key: MessageKey) -> widgets.Checkbox:
        box = widgets.Checkbox(description=f"#{key[1]}", indent=False, layout=self._narrow)

        def changed(change: Any) -> None:
            self._tick(key, bool(change["new"]))

        box.observe(changed, "value")
        return box

    def _button(self, key: MessageKey) -> widgets.Button:
        return button("Look", f"Show message #{key[1]}", partial(self._look, key))


def title(column: Column) -> str:
    """A column's name as it stands above it."""
    return str(column.message["title"])


def _width(column: Column) -> str:
    if column.name in _WIDE:
        return "minmax(120px, 2fr)"
    return _WIDTHS.get(column.kind, "minmax(110px, 1fr)")
