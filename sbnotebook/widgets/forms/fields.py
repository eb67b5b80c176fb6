"""Fields of a form that say beside them what is wrong with what was written in them, and what is changed in a form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import ipywidgets as widgets

from sbnotebook.errors import ConfigurationError, SbNotebookError
from sbnotebook.widgets.panel import set_shown, text
from sbnotebook.widgets.pretty import visible
from sbnotebook.widgets.text_view import TextView

__all__ = ["FORM_CHANGED", "Field", "number", "on_change", "whole_number"]

T = TypeVar("T")

FORM_CHANGED: Final = "The form was changed after this plan was asked for, so it was put away: show the plan again."
_MOST_DIGITS: Final = 9


class Field(widgets.VBox, Generic[T]):
    """A text box with a name, and a sentence below it where its text cannot be used.

    Args:
        name: stands before it.
        read: takes the text, without spaces around it; raises an error of ours that says what to write instead.
        placeholder: what may be written, in the box as long as it is empty.
        value: what is in it at first.
    """

    def __init__(self, name: str, read: Callable[[str], T], *, placeholder: str = "", value: str = "") -> None:
        self._read = read
        self.box = widgets.Text(
            value,
            description=name,
            placeholder=placeholder,
            continuous_update=False,
            style={"description_width": "140px"},
            layout={"width": "560px"},
        )
        self._problem = text("", "problem")
        self._problem.layout.margin = "0 0 0 148px"
        super().__init__([self.box, self._problem])
        self.box.observe(self._look, "value")
        self._look()

    @property
    def problem(self) -> str:
        """What is wrong with the text, in a sentence; "" when nothing is."""
        return self._problem.value

    def read(self) -> T:
        """What was written.

        Raises:
            SbNotebookError: it cannot be used; the same stands at the field.
        """
        self._look()
        return self._read(self.box.value.strip())

    def _look(self, _change: object = None) -> None:
        try:
            self._read(self.box.value.strip())
        except SbNotebookError as error:
            self._problem.value = visible(str(error))
        else:
            self._problem.value = ""
        set_shown(self._problem, shown=bool(self._problem.value))


def on_change(form: widgets.Widget, changed: Callable[[], object]) -> None:
    """Call a function whenever something else is written in a form, also in fields that come into it later.

    Args:
        form: a field, or a box with fields.
        changed: must not block. While the kernel is busy, what was typed comes after the click that followed it.

    Example:
        >>> box = widgets.VBox([widgets.Text()])
        >>> on_change(box, lambda: print("changed"))
        >>> box.children[0].value = "now"
        changed
    """
    if isinstance(form, widgets.Box) and not isinstance(form, TextView):
        for child in form.children:
            on_change(child, changed)

        def follow(change: Any) -> None:
            for child in change["new"]:
                if child not in change["old"]:
                    on_change(child, changed)
            changed()

        form.observe(follow, "children")
    elif isinstance(form, widgets.ValueWidget) and not isinstance(form, widgets.Label):
        form.observe(lambda _: changed(), "value")


def whole_number(value: str) -> int | None:
    """A whole number from 1; None for an empty text.

    Raises:
        ConfigurationError: it is none.

    Example:
        >>> whole_number("12"), whole_number("")
        (12, None)
    """
    if not value:
        return None
    if not (value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS and int(value)):
        raise ConfigurationError("Write a whole number from 1, or nothing.")
    return int(value)


def number(value: str) -> float | None:
    """A number above 0; None for an empty text.

    Raises:
        ConfigurationError: it is none.

    Example:
        >>> number("0.5"), number("")
        (0.5, None)
    """
    if not value:
        return None
    try:
        found = float(value)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise ConfigurationError("Write a number above 0, such as 20 or 0.5, or nothing.")
    return found
