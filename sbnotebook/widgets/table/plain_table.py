"""Messages as a table of plain ipywidgets, for where the message table of our own is not loaded.

A page of rows at a time, drawn by the kernel: so it stands still while a cell runs.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import ipywidgets as widgets

from sbnotebook.analysis import frames, tables
from sbnotebook.client.messages import Messages
from sbnotebook.model import ReceivedMessage
from sbnotebook.widgets import background
from sbnotebook.widgets.background import Callbacks
from sbnotebook.widgets.panel import button, panel_style, row, set_shown, text
from sbnotebook.widgets.table.causes import CauseFinder, Causes
from sbnotebook.widgets.table.message_detail import detail_of
from sbnotebook.widgets.table.plain_page import PlainPage, title
from sbnotebook.widgets.table.plain_rows import PlainRows
from sbnotebook.widgets.table.rows import NOTHING, MessageKey, Rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PlainTable"]

_PAGE: Final = 20
_CAUSE_PARTS: Final = ("reason", "cause", "frame", "subject")
_CAUSE_TEXT: Final = 120
_LONGEST_LINE: Final = 500


class PlainTable(widgets.VBox):
    """Messages as a table with the interface of :class:`sbnotebook.widgets.table.message_table.MessageTable`.

    Args:
        messages: to show at first.
        columns: those that are shown, in this order; None for those that most want to see.
        facets: taken for the sake of the interface; this table has none.
        timeline: taken for the sake of the interface.
        causes: group the messages by what went wrong with them, to choose a group.
        countdown: taken for the sake of the interface: ``locked_until`` is shown as the time at which locks end.
        label: taken for the sake of the interface.

    Example:
        >>> table = PlainTable(columns=["subject"])
        >>> table.patch({("orders", 7): {"outcome": "settled"}})  # not there: passed over
        >>> len(table.messages), table.selected_keys
        (0, ())
    """

    def __init__(
        self,
        messages: Messages | Sequence[ReceivedMessage] = (),
        *,
        columns: Sequence[str] | None = None,
        facets: Sequence[str] | None = None,  # noqa: ARG002
        timeline: bool = False,  # noqa: ARG002
        causes: bool = False,
        countdown: bool = False,  # noqa: ARG002
        label: str = "Messages",  # noqa: ARG002
    ) -> None:
        self._lock = threading.RLock()
        self._chosen = columns
        self._with_causes = causes
        self._view = PlainRows(Rows(Messages().to_arrow()), columns)
        self._found: list[int] = []
        self._first = 0
        self._searches = self._shown_search = 0
        self._selection: set[int] = set()
        self._causes = Causes([], [])
        self._finder = CauseFinder(self._show_causes, self._fail)
        self._load = 0
        self._notes: dict[str, str] = {}
        self._on_selection, self._on_note = Callbacks(self._fail), Callbacks(self._fail)
        super().__init__(layout={"width": "100%"})
        self._make_controls()
        self.show(messages)

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
        set_shown(causes, shown=self._with_causes)
        set_shown(self._note, shown=False)
        self.children = (
            panel_style(),
            causes,
            row(self._search, self._sort, self._descending),
            row(
                self._previous,
                self._next,
                button("Select all of these", "Select every message that was found, on all pages", self._select_found),
                button("Clear selection", "Select no message", self._clear_selection),
                self._count,
            ),
            self._problem,
            self._page,
            self._beside,
        )

    # ------------------------------------------------------------ rows

    def take(self, rows: Rows) -> None:
        """Show rows as another table has them, changed cells included; nothing is selected.

        Args:
            rows: of the other table.
        """
        with self._lock:
            self._selection = set()
            self._load += 1
            self._show(rows)

    def show(
        self, messages: Messages | Sequence[ReceivedMessage], extra: Mapping[str, Sequence[object]] = NOTHING
    ) -> None:
        """Replace all rows; selection, search and sorting are kept, the selection by key.

        Args:
            messages: to show.
            extra: further columns, each with a value for every message.
        """
        rows = Rows(_table_of(messages), extra)
        with self._lock:
            keys = self.selected_keys
            self._selection = set(rows.present(keys))
            self._load += 1
            self._show(rows)
        if len(self._selection) != len(keys):
            self._on_selection()

    def append(
        self, messages: Messages | Sequence[ReceivedMessage], extra: Mapping[str, Sequence[object]] = NOTHING
    ) -> None:
        """Add rows behind those that are there; messages that are there already are left out.

        Args:
            messages: to add.
            extra: further columns, each with a value for every message.
        """
        with self._lock:
            self._show(self._view.rows.extended(_table_of(messages), extra))

    def _show(self, rows: Rows) -> None:
        self._view = PlainRows(rows, self._chosen)
        chosen = self._sort.value
        options = [("in order of arrival", ""), *((title(column), column.name) for column in self._view.columns())]
        if options != list(self._sort.options):
            self._sort.options = options
            self._sort.value = chosen if chosen in {name for _, name in options} else ""
        self._find_now()
        if self._with_causes:
            self._finder.find(self._load, rows.table)

    def patch(self, values: Mapping[MessageKey, Mapping[str, object]]) -> None:
        """Change cells; a column that is new appears.

        Args:
            values: new values by column, for each message.
        """
        with self._lock:
            self._view.rows.patch(values)
            self._draw()

    def remove(self, keys: Iterable[MessageKey]) -> None:
        """Take rows away, also out of the selection.

        Args:
            keys: of the messages; those that are not there are passed over.
        """
        with self._lock:
            removed = self._view.rows.removed
            removed[self._view.rows.present(keys)] = True
            before = len(self._selection)
            # Also what another table with the same rows has removed.
            self._selection = {number for number in self._selection if not removed[number]}
            self._find_now()
        if len(self._selection) != before:
            self._on_selection()

    @property
    def messages(self) -> Messages:
        """All rows, in the order in which they came."""
        return self._view.rows.messages()

    # ------------------------------------------------------------ selection

    def select(self, keys: Iterable[MessageKey]) -> None:
        """Select these messages and no others.

        Args:
            keys: of the messages; those that are not there are passed over.
        """
        with self._lock:
            self._selection = set(self._view.rows.present(keys))
            self._draw()
        self._on_selection()

    @property
    def selected_keys(self) -> tuple[MessageKey, ...]:
        """The keys of the selected messages."""
        with self._lock:
            return tuple(self._view.rows.keys[number] for number in sorted(self._selection))

    @property
    def selected(self) -> Messages:
        """The selected messages, with all columns."""
        with self._lock:
            return self._view.rows.messages(sorted(self._selection))

    @property
    def hidden(self) -> int:
        """How many of the selected messages the search hides now."""
        with self._lock:
            return len(self._selection.difference(self._found))

    def on_selection(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call a function whenever the selection changes, until the returned function is called."""
        return self._on_selection.add(callback)

    # ------------------------------------------------------------ causes

    def set_notes(self, notes: Mapping[str, str]) -> None:
        """Show notes on causes, by the cause's fingerprint."""
        self._notes = dict(notes)
        self._show_note()

    def on_note(self, callback: Callable[[str, str], object]) -> Callable[[], None]:
        """Call a function with fingerprint and text of each note that is written, until the returned one is called."""
        return self._on_note.add(callback)

    def _show_causes(self, load: int, causes: Causes) -> None:
        with self._lock:
            if load != self._load:
                return  # others were shown meanwhile, and their causes come, too
            chosen, self._causes = self._cause.value, causes
            counts = Counter(causes.fingerprints)
            told = [(_cause_text(cause, counts), cause["fingerprint"]) for cause in causes.told]
            self._cause.options = [("all", ""), *told]
            self._cause.value = chosen if chosen in counts else ""

    def _show_note(self) -> None:
        fingerprint = str(self._cause.value)
        set_shown(self._note, shown=bool(fingerprint))
        self._note.value = self._notes.get(fingerprint, "")

    def _write_note(self, _: object) -> None:
        fingerprint = str(self._cause.value)
        if fingerprint and self._note.value != self._notes.get(fingerprint, ""):
            self._notes[fingerprint] = self._note.value
            self._on_note(fingerprint, self._note.value)

    # ------------------------------------------------------------ what the user does

    def _search_again(self, _change: object) -> None:
        """Search beside: a callback must not keep the kernel, and many rows take their time."""
        with self._lock:
            self._first = 0
            self._show_note()
            self._searches += 1
            this, search = self._searches, self._search_of()
        background.start(search, done=lambda found: self._show_found(this, found), failed=self._fail)

    def _show_found(self, search: int, found: list[int]) -> None:
        with self._lock:
            if search != self._searches:
                return  # a later one, or other rows
            self._found, self._shown_search = found, search
            self._draw()
        if self._selection:
            self._on_selection()  # another number of them is hidden

    def _find_now(self) -> None:
        self._searches = self._shown_search = self._searches + 1
        self._found = self._search_of()()
        self._draw()

    def _search_of(self) -> Callable[[], list[int]]:
        """Finds the rows that are to be shown by now."""
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
        return [place for place, fingerprint in enumerate(self._causes.fingerprints) if fingerprint == chosen]

    def _turn(self, pages: int) -> None:
        with self._lock:
            self._first += pages * _PAGE
            self._draw()

    def _tick(self, key: MessageKey, is_on: bool) -> None:
        with self._lock:
            numbers = set(self._view.rows.present([key]))
            if not numbers or (numbers <= self._selection) == is_on:
                return
            self._selection = self._selection | numbers if is_on else self._selection - numbers
            self._draw()
        self._on_selection()

    def _select_found(self) -> None:
        with self._lock:
            if self._shown_search != self._searches:  # what is asked for now is meant, and not what was found before
                self._find_now()
            self._selection |= set(self._found)
            self._draw()
        self._on_selection()

    def _clear_selection(self) -> None:
        self.select(())

    def _look(self, key: MessageKey) -> None:
        with self._lock:
            numbers = self._view.rows.present([key])
            message = self._view.rows.messages(numbers)[0] if numbers else None
        if message is not None:
            background.start(lambda: _detail_text(message), done=self._show_detail, failed=self._fail)

    def _show_detail(self, told: str) -> None:
        self._detail.value = told
        set_shown(self._beside, shown=True)

    def _close_detail(self) -> None:
        set_shown(self._beside, shown=False)

    # ------------------------------------------------------------ drawing and telling

    def _draw(self) -> None:
        found, rows = self._found, self._view.rows
        self._first = max(0, min(self._first, (len(found) - 1) // _PAGE * _PAGE))
        shown = found[self._first : self._first + _PAGE]
        self._page.draw(self._view, shown, self._selection)
        self._previous.disabled = self._first == 0
        self._next.disabled = self._first + _PAGE >= len(found)
        total = len(rows) - int(rows.removed.sum())
        place = f"{self._first + 1:,} to {self._first + len(shown):,} of {len(found):,}" if shown else "No message"
        of = "" if len(found) == total else f" found ({total:,} in all)"
        chosen = len(self._selection)
        hidden = self.hidden if chosen else 0
        not_found = f" ({hidden:,} not among those found)" if hidden else ""
        self._count.value = f"{place}{of}, {chosen:,} selected{not_found}"

    def _fail(self, sentence: str) -> None:
        self._problem.value = sentence

    def __repr__(self) -> str:
        return tables.messages_text(self.messages)


def _table_of(messages: Messages | Sequence[ReceivedMessage]) -> pa.Table:
    return messages.to_arrow() if isinstance(messages, Messages) else frames.to_arrow(messages)


def _cause_text(cause: Mapping[str, str], counts: Mapping[str, int]) -> str:
    told = "; ".join(filter(None, (cause[name] for name in _CAUSE_PARTS))) or "no reason"
    return f"{counts[cause['fingerprint']]:,} with {told[:_CAUSE_TEXT]}".replace("\n", " ")


def _detail_text(message: ReceivedMessage) -> str:
    detail = detail_of(message)
    parts = [detail["title"], detail["about"], *detail["notes"]]
    for section in detail["sections"]:
        parts += ["", section["title"], *(f"  {name}: {value}" for name, value, *_ in section["rows"])]
    view = detail["views"][0]
    told = "\n".join([*parts, "", f"Body ({view['name']}) {view['note']}".rstrip(), view["text"]])
    # A browser lays a long line that changes its direction out in half a minute.
    return re.sub(rf"[^\n]{{{_LONGEST_LINE}}}(?=[^\n])", r"\g<0>\n", told)
