"""Make columns of a frame from the fields of JSON bodies, which are hostile input."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from sbnotebook.analysis.tables import printable
from sbnotebook.model.budget import PARSED_CHARACTERS

if TYPE_CHECKING:
    import pandas as pd

MOST_COLUMNS: Final = 200
"""The fields that most bodies have become columns."""
_LEVELS: Final = 4
"""Objects within objects; a deeper one, and a list, is a column of JSON text."""
_MOST_FIELDS: Final = 1_000
"""Fields of a body that are looked at."""
_LONGEST_NAME: Final = 100
_WHOLE: Final = "body_json"
_EXACT: Final = 2**53
"""Larger whole numbers are not exact as floats."""
_MOST_INT: Final = 2**63 - 1
NOT_JSON: Final = object()

_Path = tuple[str, ...]


def json_columns(bodies: Iterable[str | None]) -> pd.DataFrame:
    """Return a frame with a column for each field of JSON bodies, in the order of the bodies.

    A field of a field is named by its path, such as ``body_json.address.city``, as ``where`` names it. A body that is
    not JSON has no values. A body that is a list, a number or a text is in the column ``body_json``.

    At most 200 fields become columns, those that most bodies have; the others are left out, with a warning.

    Example:
        >>> json_columns(['{"total": 5, "to": {"city": "Oslo"}}', "no JSON"]).to_dict("list")
        {'body_json.total': [5, None], 'body_json.to.city': ['Oslo', None]}
    """
    import pandas as pd

    rows = [dict(_fields(body)) for body in bodies]
    counts: Counter[_Path] = Counter(path for row in rows for path in row)
    kept = {path for path, _ in counts.most_common(MOST_COLUMNS)}
    if len(counts) > MOST_COLUMNS:
        warnings.warn(
            f"The JSON bodies have {len(counts):,} different fields: the {MOST_COLUMNS} most frequent became columns.",
            stacklevel=3,
        )
    columns: dict[str, Any] = {}
    for path in (path for path in counts if path in kept):
        columns[_unused(path, columns)] = _column([row.get(path) for row in rows])
    return pd.DataFrame(columns, index=range(len(rows)))


def _column(values: list[Any]) -> pd.Series[Any]:
    import pandas as pd

    present = [value for value in values if value is not None]
    large = [value for value in present if type(value) is int and abs(value) > _EXACT]
    if not large:
        return pd.Series(values, dtype=object).convert_dtypes()
    # Through convert_dtypes, they would become floats where a value is missing.
    is_whole = max(map(abs, large)) <= _MOST_INT and all(type(value) is int for value in present)
    return pd.Series(values, dtype="Int64" if is_whole else object)


def json_value(body: str | None) -> Any:
    """Return the value of a body that is JSON, as ``where`` reads it; ``NOT_JSON`` of others."""
    if body is None or len(body) > PARSED_CHARACTERS:
        return NOT_JSON
    try:
        return json.loads(body, parse_constant=_refuse, object_pairs_hook=_first_of_each)
    except (ValueError, RecursionError):
        return NOT_JSON


def _fields(body: str | None) -> Iterator[tuple[_Path, Any]]:
    """Yield the paths of the fields of a body, and their values."""
    value = json_value(body)
    for path, each in parts_of_json(value, _LEVELS, _MOST_FIELDS) if value is not NOT_JSON else ():
        if isinstance(each, dict) and len(path) < _LEVELS:
            continue
        text = json.dumps(each, ensure_ascii=False) if isinstance(each, (dict, list)) else each
        # Half of a pair of surrogates, which JSON can escape, is in no frame.
        yield path, text.encode(errors="replace").decode() if isinstance(text, str) else text


def parts_of_json(value: Any, levels: int, most: int, *, with_items: bool = False) -> Iterator[tuple[Any, Any]]:
    """Yield the first parts of a value and their paths, down to a level; None in a path stands for items of a list."""
    waiting: list[tuple[tuple[str | None, ...], Any]] = [((), value)]
    for _ in range(most):
        if not waiting:
            return
        path, each = waiting.pop()
        yield path, each
        if isinstance(each, dict) and len(path) < levels:
            fields = cast("dict[str, Any]", each)
            waiting += [((*path, name), fields[name]) for name in reversed([*fields][:most])]
        elif isinstance(each, list) and with_items and len(path) < levels:
            waiting += [((*path, None), item) for item in cast("list[Any]", each)[:most]]


def _first_of_each(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; of fields with the same name the first, as ``where`` does."""
    found = dict(fields)
    if len(found) < len(fields):
        found |= reversed(fields)
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _unused(path: _Path, taken: Iterable[str]) -> str:
    """Return the name of a column, which no other column has."""
    name = printable(".".join((_WHOLE, *path)))[:_LONGEST_NAME]
    number, unused = 2, name
    while unused in taken:
        unused, number = f"{name} ({number})", number + 1
    return unused
