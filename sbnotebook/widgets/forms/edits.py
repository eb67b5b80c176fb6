"""Changes to messages that a form describes, step by step, as an edit for a resubmit."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from types import FunctionType
from typing import Any, Final, Self

from sbnotebook.amqp import AmqpValue
from sbnotebook.errors import DecisionError
from sbnotebook.model import Message, ReceivedMessage
from sbnotebook.model.json_text import json_text, parse_path, set_at
from sbnotebook.model.property_text import from_text, property_type
from sbnotebook.settlement import Edit, edit_json, explained, refuse_coroutine_function

TEMPLATE: Final = """\
def edit(message):
    order = message.json
    order["repaired"] = True
    return message.with_changes(json=order)
"""
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
    return sorted(name for name, value in names.items() if not name.startswith("_") and _takes_one(value))


def _takes_one(value: object) -> bool:
    # Only functions, and not all that can be called: a notebook has dozens of imported classes.
    return isinstance(value, FunctionType) and value.__module__ == "__main__" and value.__code__.co_argcount == 1


def edit_named(name: str, names: Mapping[str, Any]) -> Edit:
    if not callable(names.get(name)):
        raise DecisionError(f"The notebook has no function {name!r} any more: run the cell that defines it.")
    refuse_coroutine_function(names[name], "An edit")
    return names[name]


def edit_of_source(source: str, names: Mapping[str, Any]) -> Edit:
    """Run code that the user typed, and return the function that it defines: ``edit``, or the last one."""
    here: dict[str, Any] = {"edit_json": edit_json, **names}
    try:
        exec(compile(source, _FILE, "exec"), here)  # noqa: S102 (their own code, on their own click)
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise DecisionError(f"Line {error.lineno}: {error.msg}{f': {line}' if line else '.'}") from None
    except Exception as error:
        raise DecisionError(_where(error)) from error
    made = [value for value in here.values() if _is_typed(value)]
    found = here["edit"] if here.get("edit") in made else made[-1] if made else None
    if found is None:
        raise DecisionError("There is no function: write one that takes a message, such as def edit(message): …")
    refuse_coroutine_function(found, "An edit")
    return found


def _is_typed(value: object) -> bool:
    return isinstance(value, FunctionType) and inspect.unwrap(value).__code__.co_filename == _FILE


def _where(error: BaseException) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == _FILE]
    what = f"{type(error).__name__}: {explained(error)}"
    return f"Line {lines[-1]}: {what}" if lines else what


class StepKind(StrEnum):
    """The kinds of changes, with what to write as their names and values; "" where they have none."""

    SET_PROPERTY = "Set property", "name of the property", "value; it keeps the type that it has"
    REMOVE_PROPERTY = "Remove property", "name of the property"
    SUBJECT = "Set subject", "", _EMPTY
    CONTENT_TYPE = "Set content type", "", _EMPTY
    CORRELATION_ID = "Set correlation id", "", _EMPTY
    SESSION_ID = "Set session id", "", _EMPTY
    REPLACE = "Replace text in body", "text to find", "text to put in its place"
    SET_JSON = "Set in JSON body", _PATH, "value: JSON, or a text"
    REMOVE_JSON = "Remove from JSON body", _PATH

    def __new__(cls, text: str, name_of: str = "", value_of: str = "") -> Self:
        made = str.__new__(cls, text)
        made._value_, made.name_of, made.value_of = text, name_of, value_of
        return made

    name_of: str
    value_of: str


@dataclass(frozen=True, slots=True)
class EditStep:
    """One change."""

    kind: StepKind
    name: str = ""
    value: str = ""

    def edit(self) -> Edit:
        if self.kind.name_of and not self.name:
            raise DecisionError(f"{self.kind}: the {self.kind.name_of} is missing.")
        match self.kind:
            case StepKind.SET_PROPERTY:
                return partial(_set_property, self.name, self.value)
            case StepKind.REMOVE_PROPERTY:
                return partial(_remove_property, self.name)
            case StepKind.REPLACE:
                return partial(_change_text, lambda text: text.replace(self.name, self.value))
            case StepKind.SET_JSON:
                path, value = parse_path(self.name), json_text(self.value)
                return partial(_change_text, lambda text: set_at(text, path, value))
            case StepKind.REMOVE_JSON:
                path = parse_path(self.name)
                return partial(_change_text, lambda text: set_at(text, path, None))
            case _:
                changes: dict[str, Any] = {self.kind.name.lower(): self.value or None}
                return lambda message: message.with_changes(**changes)


def edit_of_steps(steps: Sequence[EditStep]) -> Edit:
    edits: list[Callable[[Any], Message]] = [step.edit() for step in steps]

    def edit(message: ReceivedMessage) -> Message:
        edited: Message = message
        for each in edits:
            edited = each(edited)
        return edited

    return edit


def _set_property(name: str, text: str, message: Message) -> Message:
    properties = dict(message.application_properties)
    properties[name] = _typed(text, properties.get(name))
    return message.with_changes(application_properties=properties)


def _typed(text: str, before: AmqpValue) -> AmqpValue:
    """Convert a text to the type that the property has; a new property is a text."""
    return text if before is None else from_text(text, property_type(before))


def _remove_property(name: str, message: Message) -> Message:
    left = {key: value for key, value in message.application_properties.items() if key != name}
    return message.with_changes(application_properties=left)


def _change_text(change: Callable[[str], str], message: Message) -> Message:
    before = message.body_text
    if before is None:
        raise DecisionError("The body is not text: change it with a Python function.")
    after = change(before)
    return message if after == before else message.with_changes(body=after)
