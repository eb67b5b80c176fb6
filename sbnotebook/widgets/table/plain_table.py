"""Messages as a table of plain ipywidgets, for notebooks that do not load custom widgets.

The kernel draws one page of rows at a time. Without subshells, the table does not change while a cell runs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

import ipywidgets as widgets
import pyarrow as pa
import pyarrow.compute as pc

from sbnotebook.model import ReceivedMessage
from sbnotebook.model.body import json_letters
from sbnotebook.widgets import background
from sbnotebook.widgets.box_panel import NO_MATHEMATICS, button, panel_style, row, set_shown, text
from sbnotebook.widgets.pretty import visible
from sbnotebook.widgets.table.message_detail import detail_of
from sbnotebook.widgets.table.row_packing import CUT, TableColumn, cleaned, shown_texts, table_columns
from sbnotebook.widgets.table.rows import MessageKey, RowModel, Rows, Table
from sbnotebook.widgets.text_view import cell

_PAGE: Final = 20
_MOST_COLUMNS: Final = 8
"""More would not fit beside each other."""
_ALWAYS: Final = "sequence_number"
_WIDTHS: Final = {"time": "160px", "number": "80px", "flag": "60px"}
_WIDE: Final = ("body_text", "dead_letter_error_description")
_CAUSE_PARTS: Final = ("reason", "cause", "frame", "subject")
_CAUSE_TEXT: Final = 120
_LONG_LINE: Final = re.compile(r"[^\n]{500}(?=[^\n])")


class PlainTable(Table, widgets.VBox):
    """Messages as a table with a search, a sort order, pages, and a check box for each row.

    ``locked_until`` is shown as a time, and there are neither facets nor a timeline.

    Args:
        model: the rows to show, which another table may show, too.

    Example:
        >>> table = PlainTable(RowModel(columns=["subject"]))
        >>> len(table.messages), table.selected_keys
        (0, ())
    """

    def __init__(self, model: RowModel) -> None:
        self.model = model
        self._view = PlainRows(model.rows, model.columns)
        self._found: list[int] = []
        self._first = 0
        self._searches = self._shown_search = 0
        super().__init__(layout={"width": "100%"})
        self._make_controls()
        with model.lock:
            model.views.append(self)
            self.rows_shown()
        self.notes_changed()
        model.find_causes()

    def _make_controls(self) -> None:
        wide, auto = {"width": "100%"}, {"width": "auto"}
        self._search = widgets.Text(
            description="Find", placeholder="in all columns, then Enter", continuous_update=False
        )
        self._sort = widgets.Dropdown(description="Sort by", layout={"width": "280px"})
        self._descending = widgets.Checkbox(description="descending", indent=False, layout=auto)
        self._cause = widgets.Dropdown(description="Cause", options=[("all", "")], layout=wide)
        self._note = widgets.Textarea(description="Note", continuous_update=False, rows=2, layout=wide)
        for control in (self._search, self._sort, self._descending, self._cause):
            control.observe(self._search_again, "value")
        self._note.observe(self._write_note, "value")
        self._count = text("", "strong")
        self._problem = text("", "problem")
        self._previous = button("Previous", "Show the rows before these", partial(self._turn, -1), icon="chevron-left")
        self._next = button("Next", "Show the rows behind these", partial(self._turn, 1), icon="chevron-right")
        self._page = PlainPage(self._tick, self._look)
        self._detail = widgets.Textarea(disabled=True, layout={"width": "100%", "height": "320px"})
        self._beside = widgets.VBox([row(button("Close", "Show no single message", self._close_detail)), self._detail])
        set_shown(self._beside, shown=False)
        causes = widgets.VBox([self._cause, self._note])
        set_shown(causes, shown=self.model.with_causes)
        set_shown(self._note, shown=False)
        self.children = (
            panel_style(),
            causes,
            row(self._search, self._sort, self._descending),
            row(
                self._previous,
                self._next,
                button("Select all of these", "Select every message that was found, on all pages", self._select_found),
                button("Clear selection", "Select no message", partial(self.select, ())),
                self._count,
            ),
            self._problem,
            self._page,
            self._beside,
        )

    @property
    def hidden(self) -> int:
        """Return how many of the selected messages the search hides now."""
        with self.model.lock:
            return len(set(self.model.selection).difference(self._found))

    # ------------------------------------------------------------ changes of the rows

    def rows_shown(self) -> None:
        """Draw other rows, sorted and searched as before."""
        self._view = PlainRows(self.model.rows, self.model.columns)
        chosen = self._sort.value
        options = [("in order of arrival", ""), *((column.title, column.name) for column in self._view.columns())]
        if options != list(self._sort.options):
            self._sort.options = options
            self._sort.value = chosen if chosen in {name for _, name in options} else ""
        if not len(self.model.rows):
            self.causes_found()
        self._find_now()

    def rows_added(self, first: int) -> None:  # noqa: ARG002
        """Search all rows again, the new ones included."""
        self.rows_shown()

    def rows_removed(self, numbers: Sequence[int]) -> None:  # noqa: ARG002
        """Search the rows that are left."""
        self._find_now()

    def cells_changed(self, changes: Mapping[str, Mapping[int, object]]) -> None:  # noqa: ARG002
        """Draw the page with its changed cells."""
        self._draw()

    def selection_changed(self) -> None:
        """Draw the check boxes."""
        self._draw()

    def causes_found(self) -> None:
        """Offer the causes, and keep the chosen one."""
        chosen, causes = self._cause.value, self.model.causes
        counts = Counter(causes.fingerprints)
        told = [(_cause_text(cause, counts), cause["fingerprint"]) for cause in causes.told]
        self._cause.options = [("all", ""), *told]
        self._cause.value = chosen if chosen in counts else ""
        if self._cause.value:
            self._search_again(None)

    def notes_changed(self) -> None:
        """Show the note of the chosen cause."""
        fingerprint = str(self._cause.value)
        set_shown(self._note, shown=bool(fingerprint))
        self._note.value = self.model.notes.get(fingerprint, "")

    def say_problem(self, sentence: str) -> None:
        """Show an error."""
        self._problem.value = sentence

    # ------------------------------------------------------------ what the user does

    def _write_note(self, _: object) -> None:
        fingerprint, notes = str(self._cause.value), self.model.notes
        if fingerprint and self._note.value != notes.get(fingerprint, ""):
            notes[fingerprint] = self._note.value
            self.model.on_note(fingerprint, self._note.value)

    def _search_again(self, _change: object) -> None:
        """Search in the background: a callback must not block the kernel, and many rows take their time."""
        with self.model.lock:
            self._first = 0
            self.notes_changed()
            self._searches += 1
            this, search = self._searches, self._search_of()
        background.start(search, done=lambda found: self._show_found(this, found), failed=self.say_problem)

    def _show_found(self, search: int, found: list[int]) -> None:
        with self.model.lock:
            if search != self._searches:
                return  # a later one, or other rows
            self._found, self._shown_search = found, search
            self._draw()
        if self.model.selection:
            self.model.on_selection()  # another number of them is hidden

    def _find_now(self) -> None:
        self._searches = self._shown_search = self._searches + 1
        self._found = self._search_of()()
        self._draw()

    def _search_of(self) -> Callable[[], list[int]]:
        """Return a function that finds the rows that the user asks for now."""
        return partial(
            self._view.find,
            self._search.value,
            only=self._rows_of_cause(),
            sort=self._sort.value or None,
            descending=self._descending.value,
        )

    def _rows_of_cause(self) -> list[int] | None:
        chosen = self._cause.value
        if not chosen:
            return None
        return [place for place, fingerprint in enumerate(self.model.causes.fingerprints) if fingerprint == chosen]

    def _turn(self, pages: int) -> None:
        with self.model.lock:
            self._first += pages * _PAGE
            self._draw()

    def _tick(self, key: MessageKey, is_on: bool) -> None:
        model = self.model
        with model.lock:
            numbers, selected = set(model.rows.present([key])), set(model.selection)
            if not numbers or (numbers <= selected) == is_on:
                return
            model.set_selection(selected | numbers if is_on else selected - numbers)
        model.on_selection()

    def _select_found(self) -> None:
        with self.model.lock:
            if self._shown_search != self._searches:  # the latest search counts, not the rows still shown
                self._find_now()
            self.model.set_selection({*self.model.selection, *self._found})
        self.model.on_selection()

    def _look(self, key: MessageKey) -> None:
        with self.model.lock:
            numbers = self.model.rows.present([key])
            message = self.model.rows.messages(numbers)[0] if numbers else None
        if message is not None:
            background.start(lambda: _detail_text(message), done=self._show_detail, failed=self.say_problem)

    def _show_detail(self, told: str) -> None:
        self._detail.value = told
        set_shown(self._beside, shown=True)

    def _close_detail(self) -> None:
        set_shown(self._beside, shown=False)

    def _draw(self) -> None:
        found, rows, selection = self._found, self.model.rows, self.model.selection
        self._first = max(0, min(self._first, (len(found) - 1) // _PAGE * _PAGE))
        shown = found[self._first : self._first + _PAGE]
        self._page.draw(self._view, shown, set(selection))
        self._previous.disabled = self._first == 0
        self._next.disabled = self._first + _PAGE >= len(found)
        # The line above the page: where it is, how many rows there are, and how many are selected.
        total = len(rows) - int(rows.removed.sum())
        place = f"{self._first + 1:,} to {self._first + len(shown):,} of {len(found):,}" if shown else "No message"
        of = "" if len(found) == total else f" found ({total:,} in all)"
        hidden = self.hidden if selection else 0
        not_found = f" ({hidden:,} not among those found)" if hidden else ""
        self._count.value = f"{place}{of}, {len(selection):,} selected{not_found}"


def _cause_text(cause: Mapping[str, str], counts: Mapping[str, int]) -> str:
    told = "; ".join(filter(None, (cause[name] for name in _CAUSE_PARTS))) or "no reason"
    return f"{counts[cause['fingerprint']]:,} with {told[:_CAUSE_TEXT]}".replace("\n", " ")


def _detail_text(message: ReceivedMessage) -> str:
    detail = detail_of(message)
    parts = [detail["title"], detail["about"], *detail["notes"]]
    if fault := detail["fault"]:
        parts += ["", "Dead letter", f"  {fault['reason']}", *(f"  {line}" for line, _ in fault["lines"])]
    for section in detail["sections"]:
        parts += ["", section["title"], *(f"  {name}: {value}" for name, value, *_ in section["rows"])]
    view = detail["views"][0]
    told = "\n".join([*parts, "", f"Body ({view['name']}) {view['note']}".rstrip(), view["text"]])
    # A browser needs half a minute to lay out a long line that changes its direction.
    return _LONG_LINE.sub(r"\g<0>\n", told)


# ------------------------------------------------------------ rows and cells


class PlainRows:
    """Looks into rows for a table that has to be drawn by the kernel.

    Args:
        rows: of the table.
        chosen: columns that are shown, in this order; None for those that most want to see.
    """

    def __init__(self, rows: Rows, chosen: Sequence[str] | None = None) -> None:
        self.rows = rows
        self._cells = rows.with_extra()
        self._texts: dict[str, Any] = {}
        self._known = table_columns(self._cells, rows.extra, chosen)

    def columns(self) -> list[TableColumn]:
        """Return the columns beside the sequence number. Changed cells may bring new ones to the end."""
        names = {column.name for column in self._known} | {"cause"}
        new = [TableColumn(name, "text") for name in tuple(self.rows.patched) if name not in names]
        shown = [column for column in self._known if column.name != _ALWAYS and not column.hidden]
        return [*shown[: _MOST_COLUMNS - len(new)], *new]

    def text(self, row: int, name: str) -> str:
        """Return the content of a cell, in visible characters, cut at a length."""
        patched = self.rows.patched.get(name, {})
        if row in patched:
            return cell(patched[row], CUT)
        value = self._cells.column(name)[row].as_py() if name in self._cells.column_names else None
        return cell(json_letters(value) if name == "body_text" and value else value, CUT)

    def find(
        self, text: str = "", *, only: Collection[int] | None = None, sort: str | None = None, descending: bool = False
    ) -> list[int]:
        """Return the rows to show, in their order."""
        found: Any = pa.array(~self.rows.removed)
        if text.strip():
            found = pc.and_kleene(found, self._holding(visible(text.strip())))
        if only is not None:
            found = pc.and_kleene(found, pc.is_in(pa.array(range(len(self.rows))), pa.array(sorted(only), pa.int64())))
        order: list[int] = self._order(sort, descending=descending) if sort else list(range(len(self.rows)))
        shown = found.to_pylist()
        return [row for row in order if shown[row]]

    def _holding(self, text: str) -> Any:
        """Return for each row whether one of its cells contains a text."""
        found: Any = pa.array([False] * len(self.rows))
        for name in {*self._cells.column_names, *tuple(self.rows.patched)}:
            values = self._texts_of(name)
            if values is not None:
                found = pc.or_kleene(found, pc.match_substring(values, text, ignore_case=True))
        return found

    def _texts_of(self, name: str) -> Any:
        if name in self.rows.patched:
            return _as_texts(self._column(name))
        if name not in self._texts:
            self._texts[name] = _as_texts(self._column(name))
        return self._texts[name]

    def _order(self, name: str, *, descending: bool) -> list[int]:
        values = self._column(name)
        if pa.types.is_map(values.type):
            values = self._texts_of(name)
        order = "descending" if descending else "ascending"
        return pc.array_sort_indices(values, order=order, null_placement="at_end").to_pylist()

    def _column(self, name: str) -> Any:
        """Return a column with its changed cells."""
        known: Any = self._cells.column(name) if name in self._cells.column_names else pa.nulls(len(self.rows))
        # Cells may change meanwhile, so read them from a copy.
        values: Any = known.combine_chunks() if isinstance(known, pa.ChunkedArray) else known
        if name == "body_text":
            values = shown_texts(name, values)
        patched = self.rows.patched.get(name)
        if not patched:
            return values
        changed = values.to_pylist()
        for number, value in dict(patched).items():
            changed[number] = value
        try:
            return pa.array(changed)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return pa.array([None if value is None else str(value) for value in changed], pa.string())


def _as_texts(values: Any) -> Any:
    """Return values as texts to search; None for those that are not searched."""
    kind = values.type
    if pa.types.is_string(kind):
        return cleaned(values)
    if pa.types.is_timestamp(kind):
        return pc.strftime(values.cast(pa.timestamp("s", tz="UTC"), safe=False), format="%Y-%m-%d %H:%M:%SZ")
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return values.cast(pa.string())
    if pa.types.is_map(kind):
        return cleaned(pa.array([_properties(value) for value in values.to_pylist()], pa.string()))
    return None


def _properties(pairs: Any) -> str | None:
    return None if pairs is None else ", ".join(f"{name}={value}" for name, value in pairs)


# ------------------------------------------------------------ a page


class PlainPage(widgets.GridBox):
    """The rows of one page, each with a check box and a button that belong to its message for good.

    They disappear with the row. A late click, when other rows are shown already, applies to the message beside which it
    was, or to none.

    Args:
        tick: called with the key of a message, and whether it is selected now; perhaps it was before.
        look: called with the key of the message to show.
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
        """Show these rows."""
        columns = view.columns()
        drawn = (view, tuple(rows), tuple(column.name for column in columns))
        if drawn != self._drawn:
            self._lay_out(view, rows, columns)
            self._drawn = drawn
        for box, number in zip(self._boxes, rows, strict=True):
            box.value = number in selected
        texts = [view.text(number, column.name) for number in rows for column in columns]
        for label, value in zip(self._cells, texts, strict=True):
            label.value = label.tooltip = value

    def _lay_out(self, view: PlainRows, rows: Sequence[int], columns: Sequence[TableColumn]) -> None:
        old = [*self._boxes, *self._buttons, *self._heads]
        keys = [view.rows.keys[number] for number in rows]
        self._boxes = [self._box(key) for key in keys]
        self._buttons = [self._button(key) for key in keys]
        wanted = len(rows) * len(columns)
        self._cells += [self._label(self._style) for _ in range(wanted - len(self._cells))]
        for label in self._cells[wanted:]:
            label.close()
        del self._cells[wanted:]
        widths = " ".join(map(_width, columns))
        self.layout = widgets.Layout(
            grid_template_columns=f"max-content max-content {widths}", grid_gap="0 10px", width="100%", overflow="auto"
        )
        self._heads = [self._label(self._bold, name) for name in ("message", "", *(column.title for column in columns))]
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


def _width(column: TableColumn) -> str:
    if column.name in _WIDE:
        return "minmax(120px, 2fr)"
    return _WIDTHS.get(column.kind, "minmax(110px, 1fr)")
