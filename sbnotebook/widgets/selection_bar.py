"""The bar below a table: how many messages are selected, and a button with a form for each action."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import ipywidgets as widgets

from sbnotebook.widgets import background
from sbnotebook.widgets.action_panel import ActionPanel
from sbnotebook.widgets.background import must_wait
from sbnotebook.widgets.box_panel import THROUGH, button, close_all, row, set_shown, text
from sbnotebook.widgets.forms.fields import FORM_CHANGED, on_change, problems_of
from sbnotebook.widgets.forms.message_actions import Action, PlanForm, TaskForm, ViewForm
from sbnotebook.widgets.pretty import visible
from sbnotebook.widgets.table.rows import MessageKey, Table

_NONE: Final = "No message is selected. Tick rows, or select all that are shown."
_WAITING: Final = (
    "While a cell runs, all buttons and forms wait until it ends: this kernel answers them between cells. You can "
    "search, filter and select in the table meanwhile, but not in the plain one. With ipykernel 7.4 or newer, no "
    "button waits."
)
_OTHERS: Final = "The selection was changed after this plan was asked for, so it was put away: show the plan again."
_CLOSED: Final = "The form of this plan was closed, so the plan was put away: show it again."


class SelectionBar(widgets.VBox):
    """Shows how many messages are selected, and opens the forms of actions.

    Args:
        table: whose selection it is.
        actions: to offer.
        panel: shows the plans and carries them out.
    """

    def __init__(self, table: Table, actions: Sequence[Action], panel: ActionPanel) -> None:
        self._table = table
        self._panel = panel
        self._count = text("", "strong")
        self._place = widgets.VBox()
        self._planned: tuple[MessageKey, ...] = ()
        self._planning: tuple[widgets.Widget, ...] = ()
        self._take_back: Callable[[str], object] = lambda _: None
        self._said = text()
        self.buttons = {
            action.name: button(action.name, action.tooltip, partial(self._open, action), icon=action.icon)
            for action in actions
        }
        waiting = [text(_WAITING, "quiet")] if must_wait() else []
        self._head = widgets.VBox([self._count, row(*self.buttons.values())])
        self._head.add_class("sbn-selection")
        super().__init__([self._head, *waiting, self._place, self._said])
        self.add_class(THROUGH)  # the head stays in sight as long as the panel, and not only as this box
        self._ends = (table.on_selection(self.update), panel.on_report(lambda _: self._carried_out()))
        self._say("")
        self.update()

    @property
    def words(self) -> str:
        """Return how many messages are selected, and the last message of the bar."""
        return " ".join(filter(None, (self._count.value, self._said.value)))

    def update(self) -> None:
        """Say how many messages are selected now. A plan for others, which was not confirmed, is put away."""
        keys, hidden = self._table.selected_keys, self._table.hidden
        count = len(keys)
        if keys != self._planned:
            self._take_back(_OTHERS)
        if not count:
            self._count.value = _NONE
            self._head.remove_class("sbn-sticky")
            return
        self._head.add_class("sbn-sticky")
        selected = "1 message is selected" if count == 1 else f"{count:,} messages are selected"
        self._count.value = f"{selected}, {hidden:,} hidden by a filter." if hidden else f"{selected}."

    def begin(self, name: str) -> None:
        """Show the form of the action with this name, for the selected messages; another form is closed."""
        if name in self.buttons:
            self.buttons[name].click()

    def close(self) -> None:
        """Take it away, with a plan that is not confirmed; the selection is not watched any more."""
        for end in self._ends:
            end()
        self._close_form()
        super().close()

    def _open(self, action: Action) -> None:
        """Show the form of an action, in place of the one that is open."""
        self._say("")
        form = action.form()
        problem = text("", "problem")
        away = button("Close", "Close this form; nothing is done", self._close_form)
        controls = [away]
        if not isinstance(form, ViewForm):
            name = form.submit if isinstance(form, TaskForm) else "Show the plan"
            controls = [button(name, form.words, partial(self._submit, form, problem), kind="primary"), away]
        box = widgets.VBox([text(form.title, "strong"), text(form.words), *form.fields, row(*controls), problem])
        box.add_class("sbn-form")
        for each in form.fields:
            on_change(each, partial(self._changed, box))
        self._place_form(box)

    def _close_form(self) -> None:
        self._place_form()

    def _changed(self, form: widgets.VBox) -> None:
        if self._planning == (form,):
            self._take_back(FORM_CHANGED)

    def _carried_out(self) -> None:
        # Another form may have been opened meanwhile.
        if self._place.children == self._planning:
            self._close_form()

    def _place_form(self, *form: widgets.VBox) -> None:
        old, self._place.children = self._place.children, form
        if old and old == self._planning:
            self._take_back(_CLOSED)  # does nothing to a plan that is carried out
        for each in old:
            close_all(each)

    def _submit(self, form: PlanForm | TaskForm, problem: widgets.Label) -> None:
        problem.value = ""
        is_on_all = isinstance(form, TaskForm) and form.on_all
        messages = self._table.messages if is_on_all else self._table.selected
        if not messages:
            problem.value = "There are no messages." if is_on_all else _NONE
            return
        try:
            if isinstance(form, PlanForm):
                given = form.read()
                self._planned, self._planning = self._table.selected_keys, self._place.children
                self._take_back = self._panel.propose(
                    partial(given.make, messages),
                    hidden=self._table.hidden,
                    title=form.title,
                    max_in_flight=given.limits.max_in_flight,
                    rate=given.limits.rate,
                )
            else:

                def show(sentence: str) -> None:
                    problem.value = visible(sentence)

                background.start(partial(form.read(), messages), done=self._done, failed=show)
        except Exception as error:  # noqa: BLE001 (shown here, where it is seen)
            sentence = visible(background.sentence(error))
            # A field that is at fault shows the sentence itself.
            problem.value = "" if sentence in problems_of(*form.fields) else sentence

    def _done(self, said: object) -> None:
        self._close_form()
        self._say(str(said))

    def _say(self, words: str) -> None:
        self._said.value = visible(words)
        set_shown(self._said, shown=bool(words))
