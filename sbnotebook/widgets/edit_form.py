"""A form for changes to messages before a resubmit: by fields or a Python function, with a preview."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Event
from types import FunctionType
from typing import Any, Final, NamedTuple

from sbnotebook.errors import DecisionError
from sbnotebook.model import Message, ReceivedMessage
from sbnotebook.model.edits import Edit, edit_changes, edit_json, refuse_coroutine_function
from sbnotebook.model.json_text import json_text, parse_path, set_at
from sbnotebook.model.property_text import from_text, property_type
from sbnotebook.settlement import explained
from sbnotebook.widgets.blocks import Block, Button, Column, Row, Text
from sbnotebook.widgets.fields import Entry, check_entry, choice_entry, watch
from sbnotebook.widgets.panel import Panel
from sbnotebook.widgets.plan_text import changes_table

TEMPLATE: Final = """\
def edit(message):
    order = message.json
    order["repaired"] = True
    return message.with_changes(json=order)
"""
Change = Callable[[Message, str, str], Message]
"""Changes a message, by a name and a value."""
_FILE: Final = "<edit>"
_EMPTY: Final = "value; empty for none"
_PATH: Final = "path, such as $.carrier.code"


def notebook_names() -> dict[str, Any]:
    """Return what the notebook has defined; nothing outside a notebook."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    return dict(shell.user_ns) if shell is not None else {}


def edit_functions(names: Mapping[str, Any]) -> list[str]:
    """Return the names of the user's functions that can be called with one message."""
    # Only functions, and not all that can be called: a notebook has dozens of imported classes.
    functions = {name: value for name, value in names.items() if isinstance(value, FunctionType) and name[:1] != "_"}
    return sorted(
        name for name, each in functions.items() if each.__module__ == "__main__" and each.__code__.co_argcount == 1
    )


def edit_of_source(source: str, names: Mapping[str, Any]) -> Edit:
    """Run code that the user typed, and return the function that it defines: ``edit``, or the last one."""
    here: dict[str, Any] = {"edit_json": edit_json, **names}
    try:
        exec(compile(source, _FILE, "exec"), here)  # noqa: S102 (their own code, on their own click)
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise DecisionError(f"Line {error.lineno}: {error.msg}{f': {line}' if line else '.'}") from None
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == _FILE]
        where = f"Line {lines[-1]}: " if lines else ""
        raise DecisionError(f"{where}{type(error).__name__}: {explained(error)}") from error
    functions = (value for value in here.values() if isinstance(value, FunctionType))
    made: list[Any] = [each for each in functions if inspect.unwrap(each).__code__.co_filename == _FILE]
    if not made:
        raise DecisionError("There is no function: write one that takes a message, such as def edit(message): …")
    return here["edit"] if here.get("edit") in made else made[-1]


# ------------------------------------------------------------ the steps of a form


def edit_of_steps(steps: Sequence[tuple[str, str, str]]) -> Edit:
    """Return the edit of changes: of each its name in :data:`STEPS`, and the name and value it needs."""
    for kind, name, _ in steps:
        if STEPS[kind].name_of and not name:
            raise DecisionError(f"{kind}: write the {STEPS[kind].name_of}.")
        if STEPS[kind].name_of == _PATH:
            parse_path(name)

    def edit(message: ReceivedMessage) -> Message:
        edited: Message = message
        for kind, name, value in steps:
            edited = STEPS[kind].change(edited, name, value)
        return edited

    return edit


def _set_property(message: Message, name: str, text: str) -> Message:
    before = message.application_properties.get(name)
    value = text if before is None else from_text(text, property_type(before))  # a new property is a text
    return message.with_changes(application_properties={**message.application_properties, name: value})


def _remove_property(message: Message, name: str, _: str) -> Message:
    left = {key: value for key, value in message.application_properties.items() if key != name}
    return message.with_changes(application_properties=left)


def _set_field(field: str) -> Change:
    return lambda message, _, value: message.with_changes(**{field: value or None})


def _change_text(change: Callable[[str, str, str], str]) -> Change:
    def changed(message: Message, name: str, value: str) -> Message:
        before = message.body_text
        if before is None:
            raise DecisionError("The body is not text: change it with a Python function.")
        after = change(before, name, value)
        return message if after == before else message.with_changes(body=after)

    return changed


class Step(NamedTuple):
    """The hints for the name and the value of a change, "" where it has none, and what makes it."""

    name_of: str
    value_of: str
    change: Change


REPLACE: Final = "Replace text in body"
STEPS: Final = {
    "Set property": Step("name of the property", "value; it keeps the type that it has", _set_property),
    "Remove property": Step("name of the property", "", _remove_property),
    "Set subject": Step("", _EMPTY, _set_field("subject")),
    "Set content type": Step("", _EMPTY, _set_field("content_type")),
    "Set correlation id": Step("", _EMPTY, _set_field("correlation_id")),
    "Set session id": Step("", _EMPTY, _set_field("session_id")),
    REPLACE: Step("text to find", "text to put in its place", _change_text(str.replace)),
    "Set in JSON body": Step(
        _PATH,
        "value: JSON, or a text",
        _change_text(lambda text, path, value: set_at(text, parse_path(path), json_text(value))),
    ),
    "Remove from JSON body": Step(_PATH, "", _change_text(lambda text, path, _: set_at(text, parse_path(path), None))),
}


_FIELDS: Final = "By a form"
_PYTHON: Final = "By a Python function"
_TYPED: Final = "written here"


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
    def __init__(self, messages: Callable[[], Sequence[ReceivedMessage]]) -> None:
        super().__init__()
        self._messages = messages
        self._place = 0
        self._tried: tuple[str, Edit] | None = None
        self._which = ""
        self._shown: Sequence[Block] = ()
        self.steps: tuple[StepRow, ...] = ()
        self.way = choice_entry("How to edit", [_FIELDS, _PYTHON], "toggles")
        self.function = Entry("Function", str, _TYPED, type="choice", options=[_TYPED])
        self.code = Entry("Code", str, TEMPLATE, type="code")
        self.gets_json = check_entry("The function gets the JSON of the body, and changes it or returns another")
        watch([self.way, self.function, self.code], lambda: self.on_change())  # noqa: PLW0108 (it is set later)
        watch([self.gets_json], self._refresh)

    def blocks(self) -> list[Block]:
        if self.way.value == _FIELDS:
            changes = [step.block(partial(self._remove, step)) for step in self.steps]
            add = Button("Add a change", self.add_step, "One more thing to change", icon="plus")
            parts = [Column([*changes, Row([add], key="add")], key="changes")]
        else:
            functions = self.function.block(options=[_TYPED, *edit_functions(notebook_names())])
            code = self.code.blocks() if self.function.value == _TYPED else []
            parts = [functions, self.gets_json.block(), *code]
        controls = [
            Button("Try it", self.preview, "Show what it changes in a selected message", icon="eye"),
            Button("Previous", partial(self._flip, -1), "The message before", icon="chevron-left"),
            Button("Next", partial(self._flip, 1), "The next message", icon="chevron-right"),
            Text(self._which, "quiet"),
        ]
        return [
            self.way.block(),
            *parts,
            Text(
                (
                    "The clone always gets a new message id, derived from the original's, which stays in the property "
                    "OriginalMessageId."
                ),
                "quiet",
            ),
            Row(controls, key="controls"),
            *self._shown,
        ]

    # ------------------------------------------------------------ what it gives

    @property
    def edit(self) -> Edit | None:
        """Return the edit that was described; None where nothing is changed."""
        if self.way.value == _FIELDS:
            steps = [each.step for each in self.steps]
            return edit_of_steps(steps) if steps else None
        if (name := self.function.value) != _TYPED:
            if not callable(notebook_names().get(name)):
                raise DecisionError(f"The notebook has no function {name!r} any more: run the cell that defines it.")
            function = notebook_names()[name]
        elif self._tried is not None and self._tried[0] == self.code.value:
            function = self._tried[1]  # that was run: later changes were not tried
        else:
            raise DecisionError("The function was not tried as it is now: click Try it, and look at what it changes.")
        refuse_coroutine_function(function, "An edit")
        return edit_json(function) if self.gets_json.value else function

    def add_step(self) -> StepRow:
        made = StepRow()
        watch([made.kind, made.name, made.value], self._refresh)
        self.steps = (*self.steps, made)
        self.on_change()
        return made

    def preview(self) -> None:
        """Show its changes in the current message; this runs typed code. Returns at once."""
        with self.lock:  # the look before must not show its result over this
            self._which = "Trying …"
            self.look(self._try)

    # ------------------------------------------------------------ in the background

    def _try(self, stop: Event) -> None:
        which, found = self._changes()
        with self.showing(stop):
            self._which, self._shown = which, [found]

    def ended(self, problem: str) -> None:
        if problem:
            self._which, self._shown = "", [Text(problem, "error")]

    def _changes(self) -> tuple[str, Block]:
        if self.way.value == _PYTHON and self.function.value == _TYPED:
            source, self._tried = self.code.value, None
            self._tried = source, edit_of_source(source, notebook_names())
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

    def _refresh(self) -> None:
        # Typed text may arrive after the click that follows it, and the preview must show the text that is used.
        self.on_change()
        if self._shown:
            self.preview()

    def _flip(self, step: int) -> None:
        self._place += step
        self.preview()

    def _remove(self, gone: StepRow) -> None:
        self.steps = tuple(each for each in self.steps if each is not gone)
        self._refresh()
