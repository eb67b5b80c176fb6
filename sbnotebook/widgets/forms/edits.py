"""Changes to messages that a form describes, step by step, as an edit for a resubmit."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import Any, Final, NamedTuple

from sbnotebook.errors import DecisionError
from sbnotebook.model import Message, ReceivedMessage
from sbnotebook.model.edits import Edit, edit_json, refuse_coroutine_function
from sbnotebook.model.json_text import json_text, parse_path, set_at
from sbnotebook.model.property_text import from_text, property_type
from sbnotebook.settlement import explained

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


# ------------------------------------------------------------ the steps of a form


def edit_of_steps(steps: Sequence[tuple[str, str, str]]) -> Edit:
    """Return the edit of some changes: of each its name in :data:`STEPS`, and the name and the value that it needs."""
    edits = [_edit_of_step(*step) for step in steps]

    def edit(message: ReceivedMessage) -> Message:
        edited: Message = message
        for each in edits:
            edited = each(edited)
        return edited

    return edit


def _edit_of_step(kind: str, name: str, value: str) -> Callable[[Message], Message]:
    name_of = STEPS[kind].name_of
    if name_of and not name:
        raise DecisionError(f"{kind}: the {name_of} is missing.")
    return STEPS[kind].make(name, value)


def _set_property(name: str, text: str) -> Callable[[Message], Message]:
    def edit(message: Message) -> Message:
        before = message.application_properties.get(name)
        value = text if before is None else from_text(text, property_type(before))  # a new property is a text
        return message.with_changes(application_properties={**message.application_properties, name: value})

    return edit


def _remove_property(name: str, _: str) -> Callable[[Message], Message]:
    def edit(message: Message) -> Message:
        left = {key: value for key, value in message.application_properties.items() if key != name}
        return message.with_changes(application_properties=left)

    return edit


def _set_field(field: str) -> Callable[[str, str], Callable[[Message], Message]]:
    def make(_: str, value: str) -> Callable[[Message], Message]:
        changes: dict[str, Any] = {field: value or None}
        return lambda message: message.with_changes(**changes)

    return make


def _replace(old: str, new: str) -> Callable[[Message], Message]:
    return partial(_change_text, lambda text: text.replace(old, new))


def _set_json(name: str, value: str) -> Callable[[Message], Message]:
    path, new = parse_path(name), json_text(value)
    return partial(_change_text, lambda text: set_at(text, path, new))


def _remove_json(name: str, _: str) -> Callable[[Message], Message]:
    path = parse_path(name)
    return partial(_change_text, lambda text: set_at(text, path, None))


def _change_text(change: Callable[[str], str], message: Message) -> Message:
    before = message.body_text
    if before is None:
        raise DecisionError("The body is not text: change it with a Python function.")
    after = change(before)
    return message if after == before else message.with_changes(body=after)


class Step(NamedTuple):
    """The hints for the name and the value of a change, "" where it has none, and the function that makes its edit."""

    name_of: str
    value_of: str
    make: Callable[[str, str], Callable[[Message], Message]]


REPLACE: Final = "Replace text in body"
STEPS: Final = {
    "Set property": Step("name of the property", "value; it keeps the type that it has", _set_property),
    "Remove property": Step("name of the property", "", _remove_property),
    "Set subject": Step("", _EMPTY, _set_field("subject")),
    "Set content type": Step("", _EMPTY, _set_field("content_type")),
    "Set correlation id": Step("", _EMPTY, _set_field("correlation_id")),
    "Set session id": Step("", _EMPTY, _set_field("session_id")),
    REPLACE: Step("text to find", "text to put in its place", _replace),
    "Set in JSON body": Step(_PATH, "value: JSON, or a text", _set_json),
    "Remove from JSON body": Step(_PATH, "", _remove_json),
}
