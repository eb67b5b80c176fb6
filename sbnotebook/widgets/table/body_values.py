"""Values in JSON bodies as columns of a table, to filter by them. Bodies are hostile input: nothing is evaluated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from sbnotebook.model.budget import PARSED_CHARACTERS
from sbnotebook.widgets.pretty import JsonPath

BODY: Final = "body_json"
"""The prefix of these columns' names, as in an expression of ``where``."""
_LONGEST_PATH: Final = 64
_LONGEST_NAME: Final = 1_000
_PLAIN_NAME: Final = re.compile(r"[^\W\d][\w-]*+")
# Numbers stay text: one of a million digits would take hours.
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
_CONSTANTS: Final = {None: "null", True: "true", False: "false"}


def checked_path(path: object) -> JsonPath:
    """Return a path that a browser sent."""
    parts: list[Any] = cast("list[Any]", path) if isinstance(path, list) else []
    if not 0 < len(parts) <= _LONGEST_PATH or any(type(part) not in (str, int) for part in parts):
        raise ValueError("This is not a path in a JSON body.")
    if sum(len(str(part)) for part in parts) > _LONGEST_NAME:
        raise ValueError("The names on the way to this value are too long for a column.")
    return tuple(parts)


def path_name(path: JsonPath) -> str:
    """Return the name of the column for a path."""
    parts = (f".{part}" if _PLAIN_NAME.fullmatch(str(part)) else f"[{json.dumps(part)}]" for part in path)
    return BODY + "".join(parts)


def body_values(texts: Iterable[str | None], path: JsonPath) -> list[str | None]:
    """Return the value at a path in each body as text, None where there is none; of objects and lists their kind."""
    return [_value_at(text, path) for text in texts]


def _value_at(text: str | None, path: JsonPath) -> str | None:
    if text is None or len(text) > PARSED_CHARACTERS:
        return None
    try:
        value: Any = _DECODER.decode(text.lstrip("\ufeff"))
    except (ValueError, RecursionError):
        return None
    for part in path:
        if isinstance(part, int):
            items: Sequence[Any] = cast("list[Any]", value) if isinstance(value, list) else ()
            if part >= len(items):
                return None
            value = items[part]
        elif isinstance(value, dict) and part in value:
            value = cast("dict[str, Any]", value)[part]
        else:
            return None
    return _text_of(value)


def _text_of(value: Any) -> str:
    if isinstance(value, dict):
        return "{…}"
    if isinstance(value, list):
        return "[…]"
    return value if isinstance(value, str) else _CONSTANTS[value]
