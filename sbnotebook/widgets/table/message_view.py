"""The table of messages that a panel stands on: our own where the browser can draw it, else one of plain ipywidgets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypedDict, Unpack

import ipywidgets as widgets

from sbnotebook.analysis import tables
from sbnotebook.client.messages import Messages
from sbnotebook.model import ReceivedMessage
from sbnotebook.widgets.background import Callbacks, Patience
from sbnotebook.widgets.panel import button, row, set_shown, text
from sbnotebook.widgets.table.message_table import MessageTable
from sbnotebook.widgets.table.plain_table import PlainTable
from sbnotebook.widgets.table.rows import NOTHING, MessageKey

__all__ = ["MessageView", "TableOptions"]

_VARIABLE: Final = "SBNOTEBOOK_WIDGETS"
_HINT_AFTER: Final = 3.0
_PLAIN_AFTER: Final = 15.0
"""Seconds of an idle kernel. What comes later is shown nevertheless."""
_HINT: Final = "The table does not appear?"
_PLAIN: Final = "This is the plain table: the browser did not load the other one."


class TableOptions(TypedDict, total=False):
    """How a table shows its messages: see :class:`sbnotebook.widgets.table.message_table.MessageTable`."""

    columns: Sequence[str] | None
    facets: Sequence[str] | None
    timeline: bool
    causes: bool
    countdown: bool
    label: str


class MessageView(widgets.VBox):
    """Messages as a table in any notebook.

    The browser says when it has loaded the table. When it does not, although the kernel could have heard it, a table
    of plain ipywidgets takes its place, with the same rows and selection; and when it does so later, that gives it
    back. ``SBNOTEBOOK_WIDGETS=plain`` in the environment has the plain one from the beginning.

    Args:
        messages: to show at first.
        options: see :class:`sbnotebook.widgets.table.message_table.MessageTable`.

    Example:
        >>> view = MessageView(columns=["sequence_number", "subject"])
        >>> view.use_plain()
        >>> view.is_plain, len(view.messages)
        (True, 0)
    """

    def __init__(self, messages: Messages | Sequence[ReceivedMessage] = (), **options: Unpack[TableOptions]) -> None:
        self._options = options
        self._notes: Mapping[str, str] = {}
        self.own: MessageTable | None = None
        """The table that needs a browser; None where the environment wants the plain one."""
        self._plain: PlainTable | None = None
        self._is_by_hand = False
        self._patience: tuple[Patience, ...] = ()
        self._said = text("", "quiet")
        self._switch = button("", "Show the other table, with the same rows and selection", self._switched)
        self._notice = row(self._said, self._switch)
        self._on_selection, self._on_note, self._on_swap = (Callbacks(self._fail) for _ in range(3))
        super().__init__(layout={"width": "100%", "min_width": "0"})
        set_shown(self._notice, shown=False)
        if os.environ.get(_VARIABLE) == "plain":
            self._shown: MessageTable | PlainTable = self._make_plain(messages)
        else:
            self._shown = self._make_own(messages)
        self.children = (self._notice, self._shown)

    def _make_own(self, messages: Messages | Sequence[ReceivedMessage]) -> MessageTable:
        own = self.own = MessageTable(messages, **self._options)
        self._follow(own)
        own.on_ready(self._heard)
        self._patience = (Patience(_HINT_AFTER, self._hint), Patience(_PLAIN_AFTER, self._give_up))
        return own

    def _make_plain(self, messages: Messages | Sequence[ReceivedMessage] = ()) -> PlainTable:
        plain = self._plain = PlainTable(messages, **self._options)
        self._follow(plain)
        plain.set_notes(self._notes)
        return plain

    def _follow(self, table: MessageTable | PlainTable) -> None:
        """Tell what happens in a table as long as it is the one that is shown."""
        table.on_selection(lambda: self._on_selection() if table is self._shown else None)
        table.on_note(lambda cause, words: self._on_note(cause, words) if table is self._shown else None)

    # ------------------------------------------------------------ which table

    @property
    def is_plain(self) -> bool:
        """Whether the plain table is shown."""
        return self._shown is self._plain

    def use_plain(self, plain: bool = True) -> None:
        """Show the plain table or the other, with the same rows and the same selection."""
        own = self.own
        if own is None or plain == self.is_plain:
            return
        if self._plain is None:
            self._make_plain().take(own.rows)
        keys = self.selected_keys
        self._shown = self._plain if plain and self._plain is not None else own
        self._shown.select(keys)
        self.children = (self._notice, self._shown)
        self._say(_PLAIN if plain else _HINT, plain=plain)
        set_shown(self._notice, shown=plain or not own.is_ready)
        self._on_swap(plain)

    def on_swap(self, callback: Callable[[bool], object]) -> Callable[[], None]:
        """Call a function whenever the other table takes the place, until the function that is returned is called.

        Args:
            callback: is told whether the plain one is shown now.
        """
        return self._on_swap.add(callback)

    def _switched(self) -> None:
        self._is_by_hand = True
        self.use_plain(not self.is_plain)

    def _heard(self) -> None:
        """The browser has loaded the table."""
        for patience in self._patience:
            patience.stop()
        if not self._is_by_hand:
            self.use_plain(False)
        set_shown(self._notice, shown=self.is_plain)

    def _hint(self) -> None:
        if not self.is_plain:
            self._say(_HINT, plain=False)
            set_shown(self._notice, shown=True)

    def _give_up(self) -> None:
        if not self._is_by_hand:
            self.use_plain()

    def _say(self, words: str, *, plain: bool) -> None:
        self._said.value = words
        self._switch.description = "Try the other one" if plain else "Use the plain one"

    def _fail(self, sentence: str) -> None:
        self._said.value = sentence
        set_shown(self._notice, shown=True)

    # ------------------------------------------------------------ what every table can

    @property
    def _tables(self) -> list[MessageTable | PlainTable]:
        # Both have all rows, so that either can be shown at any time.
        return [table for table in (self.own, self._plain) if table is not None]

    def show(
        self, messages: Messages | Sequence[ReceivedMessage], extra: Mapping[str, Sequence[object]] = NOTHING
    ) -> None:
        """Replace all rows: see :meth:`sbnotebook.widgets.table.message_table.MessageTable.show`."""
        for table in self._tables:
            table.show(messages, extra)

    def append(
        self, messages: Messages | Sequence[ReceivedMessage], extra: Mapping[str, Sequence[object]] = NOTHING
    ) -> None:
        """Add rows: see :meth:`sbnotebook.widgets.table.message_table.MessageTable.append`."""
        for table in self._tables:
            table.append(messages, extra)

    def patch(self, values: Mapping[MessageKey, Mapping[str, object]]) -> None:
        """Change cells: see :meth:`sbnotebook.widgets.table.message_table.MessageTable.patch`."""
        for table in self._tables:
            table.patch(values)

    def remove(self, keys: Iterable[MessageKey]) -> None:
        """Take rows away: see :meth:`sbnotebook.widgets.table.message_table.MessageTable.remove`."""
        gone = tuple(keys)
        for table in self._tables:
            table.remove(gone)

    @property
    def messages(self) -> Messages:
        """All rows, in the order in which they came."""
        return self._shown.messages

    def select(self, keys: Iterable[MessageKey]) -> None:
        """Select these messages and no others."""
        self._shown.select(keys)

    @property
    def selected_keys(self) -> tuple[MessageKey, ...]:
        """The keys of the selected messages."""
        return self._shown.selected_keys

    @property
    def selected(self) -> Messages:
        """The selected messages, with all columns."""
        return self._shown.selected

    @property
    def hidden(self) -> int:
        """How many of the selected messages a filter hides now."""
        return self._shown.hidden

    def on_selection(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call a function whenever the selection changes, until the function that is returned is called."""
        return self._on_selection.add(callback)

    def set_notes(self, notes: Mapping[str, str]) -> None:
        """Show notes beside the causes, by fingerprint."""
        self._notes = dict(notes)
        for table in self._tables:
            table.set_notes(notes)

    def on_note(self, callback: Callable[[str, str], object]) -> Callable[[], None]:
        """Call a function with fingerprint and text of each note that is written, until the returned one is called."""
        return self._on_note.add(callback)

    def close(self) -> None:
        """Take it from the screen."""
        for patience in self._patience:
            patience.stop()
        for table in self._tables:
            table.close()
        super().close()

    def __repr__(self) -> str:
        return tables.messages_text(self.messages)
