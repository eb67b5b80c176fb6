"""A table, and the bar below it: how many messages are selected, and a button with a form for each action."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from sbnotebook.client.messages import Messages
from sbnotebook.widgets.action_panel import ActionPanel
from sbnotebook.widgets.blocks import Block, Button, Column, Grid, Row, Text
from sbnotebook.widgets.fields import FORM_CHANGED, watch
from sbnotebook.widgets.forms.message_actions import LOOKS, ActionForm, Actions, have_faults
from sbnotebook.widgets.panel import Panel, must_wait
from sbnotebook.widgets.table.message_table import MessageTable, PlainTable
from sbnotebook.widgets.table.row_packing import MessageKey

_NONE: Final = "No message is selected. Tick rows, or select all that are shown."
_WAITING: Final = (
    "While a cell runs, all buttons and forms wait until it ends: this kernel answers them between cells. You can "
    "search, filter and select in the table meanwhile, but not in the plain one. With ipykernel 7.4 or newer, no "
    "button waits."
)
_OTHERS: Final = "The selection was changed after this plan was asked for, so it was put away: show the plan again."
_CLOSED: Final = "The form of this plan was closed, so the plan was put away: show it again."


class SelectionBar(Panel):
    def __init__(self, table: MessageTable, actions: Actions, panel: ActionPanel) -> None:
        super().__init__()
        self._table = table
        self._panel = panel
        self.actions = actions
        self.grid = Grid(table, PlainTable(table, self.redraw).blocks)
        """The table itself."""
        self._form: ActionForm | None = None
        self._opened = 0
        self._problem = self._said = ""
        self._planned: tuple[MessageKey, ...] = ()
        """The messages for which the form has asked for a plan."""
        self._take_back: Callable[[str], object] = lambda _: None
        table.on_selection(self.update)

    def blocks(self) -> list[Block]:
        if not self.actions:
            return []
        buttons = [
            Button(name, partial(self._open, form), LOOKS[name][0], icon=LOOKS[name][1])
            for name, form in self.actions.items()
        ]
        head, look = [Text(self._count, is_strong=True), Row(buttons)], "held" if self._table.selection else "selection"
        return [
            Column(head, look=look, key="selection"),
            Text(_WAITING if must_wait() else "", "quiet"),
            *([] if self._form is None else [self._form_block(self._form)]),
            Text(self._said),
        ]

    def _form_block(self, form: ActionForm) -> Block:
        controls = [Button("Close", self._close_form, "Close this form; nothing is done")]
        if form.plan or form.task:
            controls.insert(0, Button(form.submit, partial(self._submit, form), tone="primary"))
        fields = [block for part in form.fields for block in part.blocks()]
        blocks = [Text(form.words), *fields, Row(controls), Text(self._problem, "error")]
        return Column(blocks, form.title, "form", key=f"form-{self._opened}")

    @property
    def _count(self) -> str:
        count, hidden = len(self._table.selection), self._table.hidden
        if not count:
            return _NONE
        selected = "1 message is selected" if count == 1 else f"{count:,} messages are selected"
        return f"{selected}, {hidden:,} hidden by a filter." if hidden else f"{selected}."

    def update(self) -> None:
        """Show how many messages are selected now. A plan for others, which was not confirmed, is put away."""
        if self._planned and self._table.selected_keys != self._planned:
            self._take_back(_OTHERS)
        self.redraw()

    def offer(self, actions: Actions) -> None:
        """Offer other actions; the form of the others is closed."""
        self._close_form()
        self.actions, self._said = actions, ""
        self.redraw()

    def begin(self, name: str) -> None:
        if name in self.actions:
            self._open(self.actions[name])
            self.redraw()

    def close(self) -> None:
        self._close_form()
        super().close()
        self._table.close()

    def _open(self, make: Callable[[], ActionForm]) -> None:
        self._close_form()
        self._said = ""
        form = make()
        self._opened += 1
        watch(form.fields, lambda: self._take_back(FORM_CHANGED))
        for part in form.fields:
            if isinstance(part, Panel):
                part.outer = self
        self._form = form

    def _close_form(self, form: ActionForm | None = None) -> None:
        """Close the form, unless another one than this was opened meanwhile."""
        if form is not None and form is not self._form:
            return
        if self._planned:
            self._take_back(_CLOSED)  # does nothing to a plan that is carried out
        self._form, self._problem, self._planned = None, "", ()

    def _submit(self, form: ActionForm) -> None:
        self._problem = ""
        messages = self._table.messages if form.on_all else self._table.selected
        if not messages:
            self._problem = "There are no messages." if form.on_all else _NONE
            return
        if have_faults(form.fields):
            return
        if form.plan:
            self._planned = self._table.selected_keys
            self._take_back = self._panel.propose(
                partial(form.plan, messages),
                hidden=self._table.hidden,
                title=form.title,
                limits=form.limits(),
                carried_out=partial(self._close_form, form),
            )
        elif form.task:
            self.in_background(partial(self._do, form, form.task, messages), self._show_problem)

    def _show_problem(self, sentence: str) -> None:
        self._problem = sentence

    def _do(self, form: ActionForm, task: Callable[[Messages], str], messages: Messages) -> None:
        said = task(messages)
        self._close_form(form)
        self._said = said
