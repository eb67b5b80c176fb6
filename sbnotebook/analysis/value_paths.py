"""Paths to values within JSON and AMQP values: a part of JSONPath (RFC 9535), as DuckDB writes it in expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from sbnotebook.model.amqp import Array, Described
from sbnotebook.model.budget import LEVELS

__all__ = ["Path", "Step", "change_at", "parse_path"]

_STEP: Final = re.compile(
    r"""(?P<dots>\.{0,2})(?:(?P<name>[^\W\d][\w-]*+|\*)|\[(?:(?P<place>[0-9]{1,9}|\*)|(?P<quoted>"[^"\\]*+"|'[^'\\]*+'))\])"""
)
_ALL: Final = "*"


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a path.

    Args:
        key: name of a member, place in a list, or None for all of them.
        is_deep: on this level and all below it.
    """

    key: str | int | None
    is_deep: bool = False


Path: TypeAlias = tuple[Step, ...]


def parse_path(text: str) -> Path | None:
    """Return the steps of a path such as ``$.items[*]["the name"]`` or ``$..email``; None for another text.

    Example:
        >>> parse_path("$.items[*].to")
        (Step(key='items', is_deep=False), Step(key=None, is_deep=False), Step(key='to', is_deep=False))
        >>> parse_path("$"), parse_path("email")
        ((), None)
    """
    if not text.startswith("$"):
        return None
    steps: list[Step] = []
    at = 1
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None or (match["name"] and not match["dots"]) or (not match["name"] and match["dots"] == "."):
            return None
        at = match.end()
        steps.append(Step(_key(match), match["dots"] == ".."))
    return tuple(steps)


def _key(match: re.Match[str]) -> str | int | None:
    if match["quoted"]:
        return match["quoted"][1:-1]
    if match["place"]:
        return None if match["place"] == _ALL else int(match["place"])
    return None if match["name"] == _ALL else match["name"]


def change_at(
    value: Any,
    paths: Iterable[tuple[str, Path]],
    change: Callable[[Any], Any],
    found: set[str],
    *,
    is_meant: bool = False,
) -> Any:
    """Return a value with changes at some paths. A path to an object or a list means all values within it.

    Args:
        value: of JSON or AMQP.
        paths: each with a name.
        change: returns the new value for one that is neither an object nor a list.
        found: gets the names of the paths that lead to a value.
        is_meant: True to change all values within the value.

    Raises:
        ValueError: the value is nested deeper than ``model.budget.LEVELS``.

    Example:
        >>> change_at({"a": [1, {"b": 2}], "b": 3}, [("", parse_path("$..b"))], lambda _: "x", set())
        {'a': [1, {'b': 'x'}], 'b': 'x'}
    """
    return _changed(value, list(paths), _Change(change, found), is_meant, 0)


@dataclass(frozen=True, slots=True)
class _Change:
    change: Callable[[Any], Any]
    found: set[str]


def _changed(value: Any, paths: Sequence[tuple[str, Path]], change: _Change, is_meant: bool, level: int) -> Any:
    if level > LEVELS:
        raise ValueError("The value is nested too deep.")
    ended = [name for name, steps in paths if not steps]
    change.found.update(ended)
    is_meant = is_meant or bool(ended)
    if not is_meant and not paths:
        return value
    if isinstance(value, Described):
        return Described(value.descriptor, _changed(value.value, paths, change, is_meant, level + 1))
    if isinstance(value, dict):
        members = cast("dict[Any, Any]", value)
        return {
            name: _changed(each, _inside(paths, str(name)), change, is_meant, level + 1)
            for name, each in members.items()
        }
    if isinstance(value, list):
        elements = cast("list[Any]", value)
        items = [_changed(each, _inside(paths, n), change, is_meant, level + 1) for n, each in enumerate(elements)]
        return Array(items, value.element_type) if isinstance(value, Array) else items
    return change.change(value) if is_meant else value


def _inside(paths: Sequence[tuple[str, Path]], key: str | int) -> list[tuple[str, Path]]:
    """Return the paths that continue at a member or element."""
    further: dict[tuple[str, Path], None] = {}
    for name, steps in paths:
        if steps and steps[0].key in (None, key):
            further[name, steps[1:]] = None
        if steps and steps[0].is_deep:
            further[name, steps] = None
    return list(further)
