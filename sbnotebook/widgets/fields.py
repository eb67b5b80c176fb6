"""The typed fields of forms: an entry keeps the text that was written, reads its value, and shows its fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, Generic, Literal, TypeVar

from sbnotebook.errors import ConfigurationError, DecisionError, SbNotebookError
from sbnotebook.model import EntityAddress
from sbnotebook.widgets.blocks import Field, Value
from sbnotebook.widgets.panel import Panel

T = TypeVar("T")

FORM_CHANGED: Final = "The form was changed after this plan was asked for, so it was put away: show the plan again."
_MOST_DIGITS: Final = 9


class Entry(Generic[T]):
    def __init__(self, name: str, read: Callable[[Any], T], value: Value = "", **options: Any) -> None:
        self._name = name
        self._read = read
        self._value = value
        self._options = options
        self.is_checked = bool(value)
        """True if the field shows its fault."""
        self.on_change: Callable[[], object] = lambda: None

    @property
    def value(self) -> Any:
        return self._value

    @value.setter
    def value(self, value: Value) -> None:
        self._value, self.is_checked = value, True
        self.on_change()

    @property
    def problem(self) -> str:
        """Return the fault of the text, in a sentence; "" for none, and before something was written."""
        try:
            if self.is_checked:
                self.read()
        except SbNotebookError as error:
            return str(error)
        return ""

    def read(self) -> T:
        return self._read(self._value.strip() if isinstance(self._value, str) else self._value)

    def blocks(self) -> list[Field]:
        return [self.block()]

    def block(self, **options: Any) -> Field:
        write = partial(setattr, self, "value")
        return Field(self._name, self._value, write, problem=self.problem, **self._options | options)


FormPart = Entry[Any] | Panel


def number_entry(name: str, value: int, most: int, **options: Any) -> Entry[int]:
    """Return an entry for a whole number from 0 or 1."""
    return Entry(name, int, value, type="number", limits=(min(1, value), most), size="short", **options)


def check_entry(name: str, tooltip: str = "") -> Entry[bool]:
    return Entry(name, bool, value=False, type="check", tooltip=tooltip)


def choice_entry(name: str, options: Sequence[str], type: Literal["choice", "toggles"] = "choice") -> Entry[str]:  # noqa: A002
    return Entry(name, str, options[0], type=type, options=options)


def watch(parts: Iterable[FormPart], changed: Callable[[], object]) -> None:
    for part in parts:
        part.on_change = changed


def have_faults(parts: Iterable[FormPart]) -> bool:
    """Return whether entries cannot be read; from now on each shows its fault."""
    entries = [each for each in parts if isinstance(each, Entry)]
    for each in entries:
        each.is_checked = True
    return any(each.problem for each in entries)


# ------------------------------------------------------------ how a text is read


def optional(read: Callable[[str], T]) -> Callable[[str], T | None]:
    """Return a reader that gives None for an empty text."""
    return lambda value: read(value) if value else None


def required(problem: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if not value:
            raise DecisionError(problem)
        return value

    return read


def queue_or_topic(value: str) -> EntityAddress:
    address = EntityAddress.parse(value)
    if address != address.sends_to:
        raise DecisionError(f"A message cannot be sent to {address}: name a queue or a topic.")
    return address


def whole_number(value: str) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS and int(value)):
        raise ConfigurationError("Write a whole number from 1, or nothing.")
    return int(value)


def number(value: str) -> float:
    try:
        found = float(value)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise ConfigurationError("Write a number above 0, such as 20 or 0.5, or nothing.")
    return found
