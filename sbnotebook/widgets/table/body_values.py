"""Values in JSON bodies as columns of a table, to filter by them. Bodies are hostile input: nothing is evaluated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from sbnotebook.model.budget import PARSED_CHARACTERS
from sbnotebook.model.json_text import Path

BODY: Final = "body_json"
"""The prefix of these columns' names, as in an expression of ``where``."""
_PLAIN_NAME: Final = re.compile(r"[^\W\d][\w-]*+")
# Numbers stay text: one of a million digits would take hours.
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
_CONSTANTS: Final = {None: "null", True: "true", False: "false"}


def path_name(path: Path) -> str:
    """Return the name of the column for a path."""
    parts = (f".{part}" if _PLAIN_NAME.fullmatch(str(part)) else f"[{json.dumps(part)}]" for part in path)
    return BODY + "".join(parts)


def body_values(texts: Iterable[str | None], path: Path) -> list[str | None]:
    """Return the value at a path in each body as text, None where there is none; of objects and lists their kind."""
    return [_value_at(text, path) for text in texts]


def _value_at(text: str | None, path: Path) -> str | None:
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
