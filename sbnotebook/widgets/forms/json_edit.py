"""Changes in the text of a JSON document, in which everything else stays as it was written: spaces, digits, order.

Written anew, 1.10 would become 1.1, and a number of thirty digits another one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from sbnotebook.errors import DecisionError

__all__ = ["Path", "json_text", "parse_path", "remove_at", "set_at"]

Path = tuple[str | int, ...]
"""Names of an object's members and places in a list, from the outside to the inside."""

_PART: Final = re.compile(r"""\.?(?P<name>[^\W\d][\w-]*)|\[(?P<place>\d{1,9})\]|\[(?P<quoted>"(?:[^"\\]|\\.)*")\]""")
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_SHOWN: Final = 60
# Numbers stay text: one of a million digits would take hours.
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str)


class _Item(NamedTuple):
    """A member of an object or an element of a list: its key, and the places of it and its value."""

    key: str | int
    start: int
    value: int
    end: int


def parse_path(text: str) -> Path:
    r"""Parse a path such as ``$.carrier.code`` or ``legs[0]["from"]``.

    Raises:
        DecisionError: the text is none.

    Example:
        >>> parse_path('$.legs[0]["the end"].to')
        ('legs', 0, 'the end', 'to')
    """
    rest = text.strip().removeprefix("$")
    parts: list[str | int] = []
    while rest:
        match = _PART.match(rest)
        if match is None:
            break
        name, place, quoted = match["name"], match["place"], match["quoted"]
        parts.append(int(place) if place else json.loads(quoted) if quoted else name)
        rest = rest[match.end() :]
    if rest or not parts:
        raise DecisionError(
            f"{text[:_SHOWN]!r} is not a path in JSON: write one such as $.carrier.code or $.legs[0].to."
        )
    return tuple(parts)


def json_text(text: str) -> str:
    """Return a typed text as JSON: unchanged if it is JSON, and otherwise as a string.

    Example:
        >>> json_text("7"), json_text("UA"), json_text('"7"')
        ('7', '"UA"', '"7"')
    """
    try:
        _DECODER.decode(text)
    except (ValueError, RecursionError):
        return json.dumps(text, ensure_ascii=False)
    return text.strip()


def set_at(text: str, path: Path, value: str) -> str:
    """Return the document with another value at a path. A missing member is added.

    Args:
        text: the document.
        path: where.
        value: in JSON.

    Raises:
        DecisionError: the document is not JSON, or has no place for the path.

    Example:
        >>> set_at('{"fare": 1.10, "carrier": {"code": "??"}}', ("carrier", "code"), '"UA"')
        '{"fare": 1.10, "carrier": {"code": "UA"}}'
        >>> set_at('{"fare": 1.10}', ("carrier", "code"), '"UA"')
        '{"fare": 1.10, "carrier": {"code": "UA"}}'
    """
    start = _checked(text)
    for depth, step in enumerate(path):
        items = _items(text, start, step)
        found = next((item for item in reversed(items) if item.key == step), None)
        if found is None:
            return _added(text, start, items, path[depth:], value)
        start = found.value
    return text[:start] + value + text[_end(text, start) :]


def remove_at(text: str, path: Path) -> str:
    """Return the document without the member or element at a path; unchanged if it has none.

    Example:
        >>> remove_at('{"a": 1, "b": [1, 2], "c": 3}', ("b", 0)), remove_at('{"a": 1, "b": 2}', ("b",))
        ('{"a": 1, "b": [2], "c": 3}', '{"a": 1}')
    """
    start, items, place = _checked(text), list[_Item](), 0
    for step in path:
        items = _items(text, start, step)
        place = next((number for number, item in reversed(list(enumerate(items))) if item.key == step), -1)
        if place < 0:
            return text
        start = items[place].value
    if place > 0:
        return text[: items[place - 1].end] + text[items[place].end :]
    return text[: items[0].start] + text[items[1].start if len(items) > 1 else items[0].end :]


def _checked(text: str) -> int:
    """Check that a text is JSON, and return where its value begins."""
    try:
        _DECODER.decode(text)
    except RecursionError:
        raise DecisionError("The body is JSON that is nested too deep to be changed here.") from None
    except ValueError as error:
        raise DecisionError(f"The body is not JSON: {error}.") from None
    return _skip(text, 0)


def _items(text: str, start: int, step: str | int) -> Sequence[_Item]:
    opens, what = ("{", "object") if isinstance(step, str) else ("[", "list")
    if text[start] != opens:
        raise DecisionError(f"There is no {what} in the body that could have {step!r}: {text[start:][:_SHOWN]!r}.")
    return list(_walk(text, start))


def _walk(text: str, start: int) -> Iterator[_Item]:
    closes = "}" if text[start] == "{" else "]"
    place, at = 0, _skip(text, start + 1)
    while text[at] != closes:
        key: str | int = place
        value = at
        if closes == "}":
            key, colon = _DECODER.raw_decode(text, at)
            value = _skip(text, _skip(text, colon) + 1)
        end = _end(text, value)
        yield _Item(key, at, value, end)
        at, place = _skip(text, end), place + 1
        if text[at] == ",":
            at = _skip(text, at + 1)


def _added(text: str, start: int, items: Sequence[_Item], path: Path, value: str) -> str:
    """Return the document with a further member or element in the object or list at ``start``."""
    first, *inner = path
    for step in reversed(inner):
        if isinstance(step, int):
            raise DecisionError(f"There is nothing in the body at {first!r}, and so no list with a place {step}.")
        value = f"{{{json.dumps(step, ensure_ascii=False)}: {value}}}"
    if isinstance(first, int) and first > len(items):
        raise DecisionError(f"The list in the body has {len(items):,} elements, and so no place {first}.")
    member = value if isinstance(first, int) else f"{json.dumps(first, ensure_ascii=False)}: {value}"
    at = items[-1].end if items else start + 1
    return text[:at] + (", " if items else "") + member + text[at:]


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _end(text: str, at: int) -> int:
    return _DECODER.raw_decode(text, at)[1]
