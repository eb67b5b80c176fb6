"""A form for changes to messages before they are resubmitted: by fields or by a Python function, with a preview."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Event
from typing import Any, Final

from sbnotebook.errors import DecisionError
from sbnotebook.model import ReceivedMessage
from sbnotebook.model.edits import Edit, edit_changes, edit_json
from sbnotebook.widgets.blocks import Block, Button, Column, Row, Text
from sbnotebook.widgets.fields import Entry, check_entry, choice_entry, watch
from sbnotebook.widgets.forms.edits import (
    REPLACE,
    STEPS,
    TEMPLATE,
    edit_functions,
    edit_named,
    edit_of_source,
    edit_of_steps,
    notebook_names,
)
from sbnotebook.widgets.panel import Panel
from sbnotebook.widgets.plan_text import changes_table

_FIELDS: Final = "By a form"
_PYTHON: Final = "By a Python function"
_TYPED: Final = "written here"
_HINT: Final = (
    "The clone always gets a new message id, derived from the original's, which stays in the property "
    "OriginalMessageId."
)


class StepRow:
    def __init__(self) -> None:
        self.kind = choice_entry("Change", list(STEPS))
        self.name, self.value = Entry("Name", str), Entry("Value", str)

    @property
    def step(self) -> tuple[str, str, str]:
        # Spaces at the ends of a text to find or to set are meant.
        name = self.name.value if self.kind.value == REPLACE else self.name.value.strip()
        return self.kind.value, name, self.value.value

    def block(self, remove: Callable[[], object]) -> Row:
        kind = STEPS[self.kind.value]
        wanted = ((self.name, kind.name_of), (self.value, kind.value_of))
        fields = [entry.block(hint=hint) for entry, hint in wanted if hint]
        return Row([self.kind.block(), *fields, Button("Remove", remove, "Leave this change out")], key=f"{id(self)}")


class EditForm(Panel):
    """Asks how messages are changed, and shows what that changes in each of them."""

    def __init__(
        self,
        messages: Callable[[], Sequence[ReceivedMessage]],
        *,
        names: Callable[[], Mapping[str, Any]] = notebook_names,
    ) -> None:
        super().__init__()
        self._messages = messages
        self._names = names
        self._place = 0
        self._tried: tuple[str, Edit] | None = None
        self._which = ""
        self._shown: tuple[Block, ...] = ()
        self.on_change: Callable[[], object] = lambda: None
        self.steps: tuple[StepRow, ...] = ()
        """The changes of the form."""
        self.way = choice_entry("How to edit", [_FIELDS, _PYTHON], "toggles")
        self.function = Entry("Function", str, _TYPED, type="choice", options=[_TYPED])
        self.code = Entry("Code", str, TEMPLATE, type="code")
        self.gets_json = check_entry("The function gets the JSON of the body, and changes it or returns another")
        watch([self.way, self.function, self.code], self._changed)
        watch([self.gets_json], self._refresh)

    def blocks(self) -> list[Block]:
        if self.way.value == _FIELDS:
            changes = [step.block(partial(self._remove, step)) for step in self.steps]
            add = Button("Add a change", self.add_step, "One more thing to change", icon="plus")
            parts = [Column([*changes, Row([add], key="add")], key="changes")]
        else:
            functions = self.function.block(options=[_TYPED, *edit_functions(self._names())])
            code = self.code.blocks() if self.function.value == _TYPED else []
            parts = [functions, self.gets_json.block(), *code]
        controls = [
            Button("Try it", self.preview, "Show what it changes in a selected message", icon="eye"),
            Button("Previous", partial(self._flip, -1), "The message before", icon="chevron-left"),
            Button("Next", partial(self._flip, 1), "The next message", icon="chevron-right"),
            Text(self._which, "quiet"),
        ]
        return [self.way.block(), *parts, Text(_HINT, "quiet"), Row(controls, key="controls"), *self._shown]

    # ------------------------------------------------------------ what it gives

    @property
    def edit(self) -> Edit | None:
        """Return the edit that was described; None where nothing is changed."""
        if self.way.value == _FIELDS:
            steps = [each.step for each in self.steps]
            return edit_of_steps(steps) if steps else None
        if self.function.value != _TYPED:
            return self._given(edit_named(self.function.value, self._names()))
        # Use the code that was run: later changes were not tried.
        if self._tried is None or self._tried[0] != self.code.value:
            raise DecisionError("The function was not tried as it is now: click Try it, and look at what it changes.")
        return self._given(self._tried[1])

    def _given(self, function: Edit) -> Edit:
        return edit_json(function) if self.gets_json.value else function

    def add_step(self) -> StepRow:
        made = StepRow()
        watch([made.kind, made.name, made.value], self._refresh)
        self.steps = (*self.steps, made)
        self._changed()
        return made

    def preview(self) -> None:
        """Show its changes in the current message; this runs typed code. Returns at once."""
        is_typed = self.way.value == _PYTHON and self.function.value == _TYPED
        with self.lock:  # the look before must not show its result over this
            self._which = "Trying …"
            self.look(partial(self._try, self.code.value if is_typed else None))

    # ------------------------------------------------------------ in the background

    def _try(self, source: str | None, stop: Event) -> None:
        which, found = self._changes(source)
        with self.showing(stop):
            self._which, self._shown = which, (found,)

    def ended(self, problem: str) -> None:
        if problem:
            self._which, self._shown = "", (Text(problem, "error"),)

    def _changes(self, source: str | None) -> tuple[str, Block]:
        if source is not None:
            self._tried = None
            self._tried = source, edit_of_source(source, self._names())
        edit = self.edit
        messages = self._messages()
        if edit is None:
            return "", Text("Nothing is changed: add a change, or send the messages as they are.", "quiet")
        if not messages:
            return "", Text("Select messages to see what it changes in them.", "quiet")
        self._place %= len(messages)
        message = messages[self._place]
        changes = edit_changes(message, edit)
        which = f"Message {self._place + 1:,} of {len(messages):,}, number {message.sequence_number}"
        return which, changes_table(changes) if changes else Text("It changes nothing in this message.", "warning")

    # ------------------------------------------------------------ clicks

    def _changed(self) -> None:
        self.on_change()

    def _refresh(self) -> None:
        # Typed text may arrive after the click that follows it, and the preview must show the text that is used.
        self._changed()
        if self._shown:
            self.preview()

    def _flip(self, step: int) -> None:
        self._place += step
        self.preview()

    def _remove(self, gone: StepRow) -> None:
        self.steps = tuple(each for each in self.steps if each is not gone)
        self._refresh()
