"""A form for changes to messages before they are resubmitted: by fields or by a Python function, with a preview."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import ipywidgets as widgets

from sbnotebook.errors import DecisionError
from sbnotebook.model import ReceivedMessage
from sbnotebook.settlement import Edit, edit_changes, edit_json
from sbnotebook.widgets import background
from sbnotebook.widgets.box_panel import button, panel_style, row, set_shown, text
from sbnotebook.widgets.forms.edits import (
    TEMPLATE,
    EditStep,
    StepKind,
    edit_functions,
    edit_named,
    edit_of_source,
    edit_of_steps,
    notebook_names,
)
from sbnotebook.widgets.plan_text import changes_table
from sbnotebook.widgets.text_view import Block, TextView, paragraph

_FIELDS: Final = "By a form"
_PYTHON: Final = "By a Python function"
_TYPED: Final = "written here"
_HINT: Final = (
    "The clone always gets a new message id, derived from the original's, which stays in the property "
    "OriginalMessageId."
)


class StepRow(widgets.HBox):
    """One change: of what, its name, and its value.

    Args:
        remove: is given the row when it is not wanted any more.
        changed: is called when something else was written in it.
    """

    def __init__(self, remove: Callable[[StepRow], object], changed: Callable[[], object]) -> None:
        fitting = {"description_width": "initial"}
        self.kind = widgets.Dropdown(
            options=[(str(kind), kind) for kind in StepKind],
            description="Change",
            style=fitting,
            layout={"width": "250px"},
        )
        self.name = widgets.Text(description="Name", style=fitting, layout={"width": "280px"})
        self.value = widgets.Text(description="Value", style=fitting, layout={"width": "320px"})
        away = button("Remove", "Leave this change out", lambda: remove(self))
        super().__init__([self.kind, self.name, self.value, away], layout={"flex_flow": "row wrap"})
        self.kind.observe(self._ask, "value")
        for each in (self.kind, self.name, self.value):
            each.observe(lambda _: changed(), "value")
        self._ask()

    @property
    def step(self) -> EditStep:
        """Return the change as it was written."""
        kind = self.kind.value or StepKind.SUBJECT
        # Spaces at the ends of a text to find or to set are meant.
        name = self.name.value if kind is StepKind.REPLACE else self.name.value.strip()
        return EditStep(kind, name, self.value.value)

    def _ask(self, _change: object = None) -> None:
        kind = self.kind.value or StepKind.SUBJECT
        for box, placeholder in ((self.name, kind.name_of), (self.value, kind.value_of)):
            box.placeholder = placeholder
            set_shown(box, shown=bool(placeholder))


class EditForm(widgets.VBox):
    """Asks how messages are changed, and shows what that changes in each of them.

    Code that is typed is run on a click of *Try it* only, in a thread of its own.

    Args:
        messages: gives the messages that are changed, to show it on.
        names: gives what the notebook has defined, for the functions that may be named.

    Example:
        >>> form = EditForm(lambda: [])
        >>> form.edit is None
        True
        >>> row = form.add_step()
        >>> row.kind.value, row.value.value = StepKind.SUBJECT, "repaired"
        >>> form.edit is None
        False
    """

    def __init__(
        self,
        messages: Callable[[], Sequence[ReceivedMessage]],
        *,
        names: Callable[[], Mapping[str, Any]] = notebook_names,
    ) -> None:
        self._messages = messages
        self._names = names
        self._place = 0
        self._turn = 0
        self._lock = threading.Lock()
        self._tried: tuple[str, Edit] | None = None
        self.way = widgets.ToggleButtons(
            options=[_FIELDS, _PYTHON],
            tooltip="How to edit",
            tooltips=["Choose changes", "Write a function, or name one"],
            style={"button_width": "190px"},
        )
        self._steps = widgets.VBox()
        add = button("Add a change", "One more thing to change", self.add_step, icon="plus")
        self._fields = widgets.VBox([self._steps, row(add)])
        self._make_python()
        self._try = button("Try it", "Show what it changes in a selected message", self.preview, icon="eye")
        self._back = button("Previous", "The message before", lambda: self._flip(-1), icon="chevron-left")
        self._on = button("Next", "The next message", lambda: self._flip(1), icon="chevron-right")
        self._which = text("", "quiet")
        self._shown = TextView()
        self._shown.show()
        super().__init__([
            panel_style(), self.way, self._fields, self._python, text(_HINT, "quiet"),
            row(self._try, self._back, self._on, self._which), self._shown,
        ])  # fmt: skip
        self.way.observe(self._choose, "value")
        self.function.observe(self._choose, "value")
        self.gets_json.observe(lambda _: self._refresh(), "value")
        self._choose()

    def _make_python(self) -> None:
        self.function = widgets.Dropdown(
            options=[_TYPED], description="Function", style={"description_width": "initial"}
        )
        self.code = widgets.Textarea(TEMPLATE, layout={"width": "760px", "height": "150px"}, continuous_update=True)
        self.code.add_class("sbn-code")
        self.gets_json = widgets.Checkbox(
            description="The function gets the JSON of the body, and changes it or returns another", indent=False
        )
        self._python = widgets.VBox([self.function, self.gets_json, self.code])

    # ------------------------------------------------------------ what it gives

    @property
    def edit(self) -> Edit | None:
        """Return the edit that was described; None where nothing is changed."""
        if self.way.value == _FIELDS:
            steps = [each.step for each in self.steps]
            return edit_of_steps(steps) if steps else None
        if self.function.value != _TYPED:
            return self._given(edit_named(self.function.value or "", self._names()))
        # Use the code that was run: later changes were not tried.
        if self._tried is None or self._tried[0] != self.code.value:
            raise DecisionError("The function was not tried as it is now: click Try it, and look at what it changes.")
        return self._given(self._tried[1])

    def _given(self, function: Edit) -> Edit:
        return edit_json(function) if self.gets_json.value else function

    @property
    def steps(self) -> tuple[StepRow, ...]:
        """Return the changes of the form."""
        return self._steps.children

    def add_step(self) -> StepRow:
        """Add a change, to be filled in."""
        made = StepRow(self._remove, self._refresh)
        self._steps.children = (*self.steps, made)
        return made

    def preview(self) -> None:
        """Show its changes in the current message; this runs typed code. Returns at once."""
        with self._lock:
            self._turn += 1
            turn = self._turn
        self._which.value = "Trying …"
        is_typed = self.way.value == _PYTHON and self.function.value == _TYPED
        source = self.code.value if is_typed else None
        background.start(
            lambda: self._look(source),
            done=lambda found: self._show(turn, *found),
            failed=lambda why: self._show(turn, "", (paragraph(why, "error"),)),
        )

    def close(self) -> None:
        """Take it from the screen."""
        self._shown.close()
        super().close()

    def __repr__(self) -> str:
        return "\n".join(filter(None, (self._which.value, repr(self._shown))))

    # ------------------------------------------------------------ in the background

    def _look(self, source: str | None) -> tuple[str, tuple[Block, ...]]:
        if source is not None:
            self._tried = None
            self._tried = source, edit_of_source(source, self._names())
        edit = self.edit
        messages = self._messages()
        if edit is None:
            return "", (paragraph("Nothing is changed: add a change, or send the messages as they are.", "quiet"),)
        if not messages:
            return "", (paragraph("Select messages to see what it changes in them.", "quiet"),)
        self._place %= len(messages)
        message = messages[self._place]
        changes = edit_changes(message, edit)
        which = f"Message {self._place + 1:,} of {len(messages):,}, number {message.sequence_number}"
        return which, (
            changes_table(changes) if changes else paragraph("It changes nothing in this message.", "warning"),
        )

    def _show(self, turn: int, which: str, blocks: tuple[Block, ...]) -> None:
        with self._lock:
            if turn == self._turn:
                self._which.value = which
                self._shown.show(*blocks)

    # ------------------------------------------------------------ clicks

    def _refresh(self) -> None:
        # Typed text may arrive after the click that follows it, and the preview must show the text that is used.
        if self._shown.blocks:
            self.preview()

    def _flip(self, step: int) -> None:
        self._place += step
        self.preview()

    def _remove(self, gone: StepRow) -> None:
        self._steps.children = tuple(each for each in self.steps if each is not gone)
        gone.close()
        self._refresh()

    def _choose(self, _change: object = None) -> None:
        is_python = self.way.value == _PYTHON
        if is_python:
            options = [_TYPED, *edit_functions(self._names())]
            if options != list(self.function.options):
                self.function.options = options
        set_shown(self._fields, shown=not is_python)
        set_shown(self._python, shown=is_python)
        set_shown(self.code, shown=self.function.value == _TYPED)
