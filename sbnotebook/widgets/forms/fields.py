"""The fields of all forms: they read the input, and show faults below it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import ipywidgets as widgets

from sbnotebook.errors import ConfigurationError, DecisionError, SbNotebookError
from sbnotebook.model import EntityAddress
from sbnotebook.widgets.box_panel import set_shown, text
from sbnotebook.widgets.pretty import visible
from sbnotebook.widgets.text_view import TextView

__all__ = [
    "FORM_CHANGED",
    "Field",
    "as_it_is",
    "number",
    "on_change",
    "optional",
    "problems_of",
    "queue_or_topic",
    "required",
    "whole_number",
]  # fmt: skip

T = TypeVar("T")

FORM_CHANGED: Final = "The form was changed after this plan was asked for, so it was put away: show the plan again."
_MOST_DIGITS: Final = 9
_GAP: Final = 8
"""Pixels between the name of a field and its box."""


class Field(widgets.VBox, Generic[T]):
    """A text box with a name, and a sentence beneath it while its text cannot be used.

    Args:
        name: before the box.
        read: takes the text, without spaces around it; raises an error of ours that says what to write instead.
        placeholder: shown in the box while it is empty.
        value: the text at first.
        label: the width of the name, in pixels.
        width: the width of name and box, in pixels.

    Example:
        >>> field = Field("At most", whole_number, value="3")
        >>> field.read()
        3
        >>> field.value = "many"
        >>> field.problem
        'Write a whole number from 1, or nothing.'
    """

    def __init__(
        self,
        name: str,
        read: Callable[[str], T],
        *,
        placeholder: str = "",
        value: str = "",
        label: int = 120,
        width: int = 560,
    ) -> None:
        self._read = read
        self.box = widgets.Text(
            value,
            description=name,
            placeholder=placeholder,
            continuous_update=False,
            style={"description_width": f"{label}px"},
            layout={"width": f"{width}px"},
        )
        self._problem = text("", "problem")
        self._problem.layout.margin = f"0 0 0 {label + _GAP}px"
        super().__init__([self.box, self._problem])
        self.box.observe(self._check, "value")
        set_shown(self._problem, shown=False)
        if value:
            self._check()

    @property
    def value(self) -> str:
        """Return the text as it was written."""
        return self.box.value

    @value.setter
    def value(self, value: str) -> None:
        self.box.value = value

    @property
    def problem(self) -> str:
        """Return the fault of the text, in a sentence; "" for none."""
        return self._problem.value

    def read(self) -> T:
        """Return the input."""
        self._check()
        return self._read(self.box.value.strip())

    def _check(self, _change: object = None) -> None:
        try:
            self._read(self.box.value.strip())
        except SbNotebookError as error:
            self._problem.value = visible(str(error))
        else:
            self._problem.value = ""
        set_shown(self._problem, shown=bool(self._problem.value))


def on_change(form: widgets.Widget, changed: Callable[[], object]) -> None:
    """Call a function whenever something else is written in a form, also in fields that come into it later.

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


def problems_of(*form: widgets.Widget) -> set[str]:
    """Return the faults that fields show now.

    Example:
        >>> sorted(problems_of(Field("Rate", number, value="many")))
        ['Write a number above 0, such as 20 or 0.5, or nothing.']
    """
    found = {each.problem for each in form if isinstance(each, Field) and each.problem}
    boxes = [each for each in form if isinstance(each, widgets.Box)]
    return found.union(*(problems_of(*each.children) for each in boxes))


# ------------------------------------------------------------ how a text is read


def as_it_is(value: str) -> str:
    """Return the text."""
    return value


def optional(read: Callable[[str], T]) -> Callable[[str], T | None]:
    """Return a reader that gives None for an empty text.

    Example:
        >>> optional(queue_or_topic)("") is None
        True
    """
    return lambda value: read(value) if value else None


def required(problem: str) -> Callable[[str], str]:
    """Return a reader that refuses an empty text."""

    def read(value: str) -> str:
        if not value:
            raise DecisionError(problem)
        return value

    return read


def queue_or_topic(value: str) -> EntityAddress:
    """Return the address of a queue or topic."""
    address = EntityAddress.parse(value)
    if address != address.sends_to:
        raise DecisionError(f"A message cannot be sent to {address}: name a queue or a topic.")
    return address


def whole_number(value: str) -> int | None:
    """Return a whole number from 1; None for an empty text.

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
    """Return a number above 0; None for an empty text.

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
