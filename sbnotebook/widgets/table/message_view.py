"""The table of messages in a panel: the one for the browser, or a plain one if the browser cannot draw it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Final, TypedDict, Unpack

import ipywidgets as widgets

from sbnotebook.client.messages import Messages
from sbnotebook.model import ReceivedMessage
from sbnotebook.widgets.background import Callbacks, answer_at_once
from sbnotebook.widgets.box_panel import button, row, set_shown, text
from sbnotebook.widgets.front_end import Patience
from sbnotebook.widgets.table.message_table import MessageTable
from sbnotebook.widgets.table.plain_table import PlainTable
from sbnotebook.widgets.table.rows import RowModel, Table

_VARIABLE: Final = "SBNOTEBOOK_WIDGETS"
_HINT_AFTER: Final = 3.0
_PLAIN_AFTER: Final = 15.0
"""Seconds of an idle kernel. A browser that answers later still gets its table."""
_HINT: Final = "The table does not appear?"
_PLAIN: Final = "This is the plain table: the browser did not load the other one."


class TableOptions(TypedDict, total=False):
    """Options of a table: see :class:`sbnotebook.widgets.table.message_table.MessageTable`."""

    columns: Sequence[str] | None
    facets: Sequence[str] | None
    timeline: bool
    causes: bool
    countdown: bool
    label: str
    cause_action: str


class MessageView(Table, widgets.VBox):
    """Messages as a table in any notebook.

    The browser says when it has loaded the table. If it does not, although the kernel was free to hear it, a table of
    plain ipywidgets replaces it, with the same rows and selection; if the browser answers later, its table returns.
    ``SBNOTEBOOK_WIDGETS=plain`` in the environment uses the plain table from the start.

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
        self.model = RowModel(messages, columns=options.get("columns"), causes=options.get("causes", False))
        self.own: MessageTable | None = None
        """The table for the browser; None where the environment asks for the plain one."""
        self._plain: PlainTable | None = None
        self._is_by_hand = False
        self._patience: tuple[Patience, ...] = ()
        self._said = text("", "quiet")
        self._switch = button("", "Show the other table, with the same rows and selection", self._switched)
        self._notice = row(self._said, self._switch)
        self._on_swap = Callbacks(self._fail)
        super().__init__(layout={"width": "100%", "min_width": "0"})
        set_shown(self._notice, shown=False)
        is_plain = os.environ.get(_VARIABLE) == "plain"
        self._shown: MessageTable | PlainTable = self._make_plain() if is_plain else self._make_own(options)
        self.children = (self._notice, self._shown)
        if self.own is not None:
            self.own.on_ready(self._heard)
            if self.own.is_ready:  # the browser answered on another thread before this
                self._heard()
        answer_at_once(self)

    def _make_own(self, options: TableOptions) -> MessageTable:
        own = self.own = MessageTable(self.model, **options)
        self._patience = (Patience(_HINT_AFTER, self._hint), Patience(_PLAIN_AFTER, self._give_up))
        return own

    def _make_plain(self) -> PlainTable:
        self._plain = PlainTable(self.model)
        return self._plain

    @property
    def hidden(self) -> int:
        """Return how many of the selected messages a filter hides now."""
        return self._shown.hidden

    @property
    def is_plain(self) -> bool:
        """Tell whether the plain table is shown."""
        return self._shown is self._plain

    def use_plain(self, plain: bool = True) -> None:
        """Show the plain table or the other, with the same rows and the same selection."""
        own = self.own
        if own is None or plain == self.is_plain:
            return
        self._shown = (self._plain or self._make_plain()) if plain else own
        self.children = (self._notice, self._shown)
        self._say(_PLAIN if plain else _HINT, plain=plain)
        set_shown(self._notice, shown=plain or not own.is_ready)
        self.model.on_selection()  # the other table hides other messages
        self._on_swap(plain)

    def on_swap(self, callback: Callable[[bool], object]) -> Callable[[], None]:
        """Call a function whenever the other table is shown."""
        return self._on_swap.add(callback)

    def _switched(self) -> None:
        self._is_by_hand = True
        self.use_plain(not self.is_plain)

    def _heard(self) -> None:
        """Show the table that the browser has loaded, unless the user chose the plain one."""
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

    def close(self) -> None:
        """Remove the table from the screen."""
        for patience in self._patience:
            patience.stop()
        for table in (self.own, self._plain):
            if table is not None:
                table.close()
        super().close()
