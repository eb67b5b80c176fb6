"""An edit that somebody writes as a Python function in a panel, with errors that name the line."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, Final

from sbnotebook.errors import DecisionError
from sbnotebook.model import Message, ReceivedMessage
from sbnotebook.settlement.plan import Edit, edited_by, refuse_coroutine_function

__all__ = ["TEMPLATE", "edit_functions", "edit_named", "edit_of_source", "notebook_names"]

TEMPLATE: Final = """\
import json

def edit(message):
    body = json.loads(message.body_text)
    body["repaired"] = True
    return message.with_changes(body=json.dumps(body).encode())
"""
_FILE: Final = "<edit>"


def notebook_names() -> dict[str, Any]:
    """What the notebook has defined; nothing outside of one."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    return dict(shell.user_ns) if shell is not None else {}


def edit_functions(names: Mapping[str, Any]) -> list[str]:
    """The names of functions that somebody has defined, and that can be called with one message."""
    return sorted(name for name, value in names.items() if not name.startswith("_") and _takes_one(value))


def _takes_one(value: object) -> bool:
    # Only functions, and not all that can be called: a notebook has dozens of imported classes.
    return isinstance(value, FunctionType) and value.__module__ == "__main__" and value.__code__.co_argcount == 1


def edit_named(name: str, names: Mapping[str, Any]) -> Edit:
    """A function that the notebook has defined.

    Raises:
        DecisionError: there is none of that name.
    """
    function = names.get(name)
    if not callable(function):
        raise DecisionError(f"The notebook has no function {name!r} any more: run the cell that defines it.")
    return _told(function, function.__code__.co_filename if isinstance(function, FunctionType) else _FILE)


def edit_of_source(source: str, names: Mapping[str, Any]) -> Edit:
    r"""Run what somebody has typed, and take the function that it defines: ``edit``, or the last one.

    Args:
        source: Python code. It is run here and now, as a cell of the notebook is.
        names: what the notebook has defined, which the code may use and does not change.

    Raises:
        DecisionError: it does not run, with the line; or it defines no function.

    Example:
        >>> edit = edit_of_source("def edit(message):\n    return message.with_changes(subject='UA')", {})
        >>> edit(Message()).subject
        'UA'
    """
    here: dict[str, Any] = dict(names)
    try:
        exec(compile(source, _FILE, "exec"), here)  # noqa: S102 (their own code, on their own click)
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise DecisionError(f"Line {error.lineno}: {error.msg}{f': {line}' if line else '.'}") from None
    except Exception as error:
        raise DecisionError(_where(error, _FILE)) from error
    made = [value for value in here.values() if isinstance(value, FunctionType) and value.__code__.co_filename == _FILE]
    found = here["edit"] if here.get("edit") in made else made[-1] if made else None
    if found is None:
        raise DecisionError("There is no function: write one that takes a message, such as def edit(message): …")
    return _told(found, _FILE)


def _told(function: Callable[[Any], Any], file: str) -> Edit:
    """The function as an edit whose errors name the line."""
    refuse_coroutine_function(function, "An edit")

    def edit(message: ReceivedMessage) -> Message:
        try:
            return edited_by(function, message)
        except DecisionError:
            raise
        except Exception as error:
            raise DecisionError(_where(error, file)) from error

    return edit


def _where(error: BaseException, file: str) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    what = f"{type(error).__name__}: {error}"
    return f"Line {lines[-1]}: {what}" if lines else what
