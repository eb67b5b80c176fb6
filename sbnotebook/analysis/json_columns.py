"""Make columns of a frame from the fields of JSON bodies, which are hostile input."""

from __future__ import annotations

import json
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, count
from time import thread_time
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from sbnotebook.analysis.tables import Shown, Table, printable
from sbnotebook.model.budget import CAUSE_SECONDS_OF_TABLE, PARSED_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    import pyarrow as pa

MOST_COLUMNS: Final = 200
"""The fields that most bodies have become columns."""
_LEVELS: Final = 4
"""Objects within objects; a deeper one, and a list, is a column of JSON text."""
_MOST_FIELDS: Final = 1_000
"""Fields of a body that are looked at."""
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


def json_value(body: str | None, of_members: Callable[..., Any] | None = None) -> Any:
    """Return the value of a JSON body, by default as ``where`` reads it; ``NOT_JSON`` of others."""
    if body is None or len(body) > PARSED_CHARACTERS:
        return NOT_JSON
    try:
        return json.loads(body, parse_constant=refuse_constant, object_pairs_hook=of_members or _first_of_each)
    except (ValueError, RecursionError):
        return NOT_JSON


def _fields(body: str | None) -> Iterator[tuple[_Path, Any]]:
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


def refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _unused(path: _Path, taken: Iterable[str]) -> str:
    name = printable(".".join(("body_json", *path)))[:100]
    names = chain([name], (f"{name} ({number})" for number in count(2)))
    return next(each for each in names if each not in taken)


# ---------------------------------------------------------------- the schemas of the bodies of each subject

USUAL: Final = "as usual"
"""The trait of a body that has the most frequent form of its subject."""
NO_JSON: Final = "not JSON"
_UNREAD: Final = "not read: the time for the forms of bodies is spent"
_SCHEMA_LEVELS: Final = 8
"""Objects and lists within each other; deeper ones are looked at as a whole."""
_SCHEMA_FIELDS: Final = 500
"""Fields of a body that are looked at."""
_MOST_FORMS: Final = 1_000
"""Forms of a subject that are counted."""
_MOST_NAMED: Final = 5
"""Differences that a trait names."""
_LONGEST_SHOWN: Final = 60
_TYPES: Final[Mapping[type, str]] = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    dict: "object",
    list: "array",
    type(None): "null",
}

_SchemaPath = tuple[str | None, ...]
"""Names of fields, and None for the items of a list."""
Form = frozenset[tuple[_SchemaPath, str]]
"""The paths of a body, and the types of their values."""


class Schemas(Shown, Mapping[str | None, dict[str, Any]]):
    """The JSON Schema of the bodies of each subject. Shown as a table of their fields.

    A field that each object has is ``required``. A type is a list of types where values differ.
    """

    def __init__(self, forms: Mapping[str | None, Counter[Form]]) -> None:
        self._forms = forms

    def __getitem__(self, subject: str | None) -> dict[str, Any]:
        forms = self._forms[subject]
        title = {"title": subject} if subject else {}
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **title, **_schema_of(forms)}

    def __iter__(self) -> Iterator[str | None]:
        return iter(self._forms)

    def __len__(self) -> int:
        return len(self._forms)

    def _table(self, most: int) -> Table:
        rows: list[list[Any]] = []
        for subject, forms in self._forms.items():
            types, present = _counted(forms)
            for path in sorted(filter(None, types), key=lambda each: (-present[each], _shown(each))):
                kinds = " or ".join(kind for kind, _ in types[path].most_common())
                rows.append([subject, _shown(path), kinds, present[path], forms.total()])
        caption = f"The fields of the JSON bodies of {len(self._forms):,} subject{'s' if len(self._forms) != 1 else ''}"
        return ["subject", "field", "type", "in bodies", "of"], rows[:most], caption


def forms_of(
    bodies: Iterable[str | None], seconds: float = CAUSE_SECONDS_OF_TABLE, clock: Callable[[], float] = thread_time
) -> Iterator[Form | str]:
    """Yield the form of each body, or why it has none, until the budget of time is spent."""
    until = clock() + seconds
    for body in bodies:
        if clock() >= until:
            yield _UNREAD
        elif (value := json_value(body)) is NOT_JSON:
            yield NO_JSON
        else:
            parts = parts_of_json(value, _SCHEMA_LEVELS, _SCHEMA_FIELDS, with_items=True)
            yield frozenset((path, _TYPES[type(each)]) for path, each in parts)


def _shown(path: _SchemaPath) -> str:
    # Half of a pair of surrogates, which JSON can escape, is in no table.
    names = ["[]" if name is None else f".{name[:_LONGEST_SHOWN]}" for name in path]
    return printable("".join(names).removeprefix(".").encode(errors="replace").decode()) or "the body"


def schemas_of(table: pa.Table) -> Schemas:
    subjects, bodies = (cast("Any", table).column(name).to_pylist() for name in ("subject", "body_text"))
    return Schemas(_by_subject(subjects, forms_of(bodies)))


def drifts_of(subjects: Sequence[str | None], bodies: Iterable[str | None]) -> list[str]:
    forms, difference = [*forms_of(bodies)], cache(_difference)
    usual = {subject: counted.most_common(1)[0][0] for subject, counted in _by_subject(subjects, forms).items()}
    return [
        form if isinstance(form, str) else difference(form, usual[subject])
        for subject, form in zip(subjects, forms, strict=True)
    ]


def _by_subject(subjects: Iterable[str | None], forms: Iterable[Form | str]) -> dict[str | None, Counter[Form]]:
    found: dict[str | None, Counter[Form]] = {}
    for subject, form in zip(subjects, forms, strict=True):
        if not isinstance(form, str):
            counted = found.setdefault(subject, Counter())
            if form in counted or len(counted) < _MOST_FORMS:
                counted[form] += 1
    return found


def _difference(form: Form, usual: Form) -> str:
    if form == usual:
        return USUAL
    own, others = _types_by_path(form), _types_by_path(usual)
    new, missing = own.keys() - others.keys(), others.keys() - own.keys()
    # Of an object, and not of each field in it.
    said = [f"new {_shown(path)}" for path in own if path in new and path[:-1] not in new]
    said += [f"missing {_shown(path)}" for path in others if path in missing and path[:-1] not in missing]
    said += [
        f"{_shown(path)} is {' or '.join(kinds)}, not {' or '.join(others[path])}"
        for path, kinds in own.items()
        if path in others and kinds != others[path]
    ]
    more = f"; and {len(said) - _MOST_NAMED:,} more" if len(said) > _MOST_NAMED else ""
    return "; ".join(said[:_MOST_NAMED]) + more


def _types_by_path(form: Form) -> dict[_SchemaPath, list[str]]:
    found: dict[_SchemaPath, list[str]] = {}
    for path, kind in sorted(form, key=lambda each: (_shown(each[0]), each[1])):
        found.setdefault(path, []).append(kind)
    return found


def _schema_of(forms: Counter[Form]) -> dict[str, Any]:
    types, present = _counted(forms)
    fields: defaultdict[_SchemaPath, list[_SchemaPath]] = defaultdict(list)
    for path in sorted(filter(None, types), key=_shown):
        fields[path[:-1]] += [path] if path[-1] is not None else []

    def of(path: _SchemaPath) -> dict[str, Any]:
        kinds = sorted(types[path])
        schema: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else kinds}
        if fields[path]:
            schema["properties"] = {str(each[-1]): of(each) for each in fields[path]}
            # Whether each item of a list has a field is not counted.
            always = [] if None in path else [each for each in fields[path] if present[each] == types[path]["object"]]
            schema |= {"required": [str(each[-1]) for each in always]} if always else {}
        return schema | ({"items": of((*path, None))} if (*path, None) in types else {})

    return of(())


def _counted(forms: Counter[Form]) -> tuple[dict[_SchemaPath, Counter[str]], Counter[_SchemaPath]]:
    types: defaultdict[_SchemaPath, Counter[str]] = defaultdict(Counter)
    present: Counter[_SchemaPath] = Counter()
    for form, bodies in forms.items():
        for path, kind in form:
            types[path][kind] += bodies
        for path in {path for path, _ in form}:
            present[path] += bodies
    return types, present
