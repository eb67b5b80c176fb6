"""Infer the form of JSON bodies for each subject, and find the bodies that differ from it. Bodies are hostile input."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from time import thread_time
from typing import TYPE_CHECKING, Any, Final

from sbnotebook.analysis.json_columns import NOT_JSON, json_value, parts_of_json
from sbnotebook.analysis.shown import Shown, Table
from sbnotebook.analysis.tables import printable
from sbnotebook.model.budget import CAUSE_SECONDS_OF_TABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

USUAL: Final = "as usual"
"""The trait of a body that has the most frequent form of its subject."""
NO_JSON: Final = "not JSON"
_UNREAD: Final = "not read: the time for the forms of bodies is spent"
_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_LEVELS: Final = 8
"""Objects and lists within each other; deeper ones are looked at as a whole."""
_MOST_FIELDS: Final = 500
"""Fields of a body that are looked at."""
_MOST_FORMS: Final = 1_000
"""Forms of a subject that are counted."""
_MOST_NAMED: Final = 5
"""Differences that a trait names."""
_LONGEST_NAME: Final = 60
_TYPES: Final[Mapping[type, str]] = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    dict: "object",
    list: "array",
    type(None): "null",
}

_Path = tuple[str | None, ...]
"""Names of fields, and None for the items of a list."""
Form = frozenset[tuple[_Path, str]]
"""The paths of a body, and the types of their values."""


class Schemas(Shown, Mapping[str | None, dict[str, Any]]):
    """The JSON Schema of the bodies of each subject. Shown as a table of their fields.

    A field that each object has is ``required``. A type is a list of types where values differ.
    """

    def __init__(self, forms: Mapping[str | None, Counter[Form]]) -> None:
        self._forms = forms

    def __getitem__(self, subject: str | None) -> dict[str, Any]:
        forms = self._forms[subject]
        return {"$schema": _DRAFT, **({"title": subject} if subject else {}), **_schema_of(forms)}

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
            parts = parts_of_json(value, _LEVELS, _MOST_FIELDS, with_items=True)
            yield frozenset((path, _TYPES[type(each)]) for path, each in parts)


def _shown(path: _Path) -> str:
    """Return a path as users read it, such as ``lines[].sku``."""
    # Half of a pair of surrogates, which JSON can escape, is in no table.
    names = ["[]" if name is None else f".{name[:_LONGEST_NAME]}" for name in path]
    return printable("".join(names).removeprefix(".").encode(errors="replace").decode()) or "the body"


def schemas_of(table: pa.Table) -> Schemas:
    """Infer the JSON Schema of the bodies of each subject."""
    untyped: Any = table
    subjects, bodies = (untyped.column(name).to_pylist() for name in ("subject", "body_text"))
    return Schemas(_by_subject(subjects, forms_of(bodies)))


def drifts_of(subjects: Sequence[str | None], bodies: Iterable[str | None]) -> list[str]:
    """Return for each body how its form differs from the most frequent one of its subject."""
    forms, difference = [*forms_of(bodies)], cache(_difference)
    usual = {subject: counted.most_common(1)[0][0] for subject, counted in _by_subject(subjects, forms).items()}
    return [
        form if isinstance(form, str) else difference(form, usual[subject])
        for subject, form in zip(subjects, forms, strict=True)
    ]


def _by_subject(subjects: Iterable[str | None], forms: Iterable[Form | str]) -> dict[str | None, Counter[Form]]:
    """Return how many bodies of each subject have each form."""
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


def _types_by_path(form: Form) -> dict[_Path, list[str]]:
    found: dict[_Path, list[str]] = {}
    for path, kind in sorted(form, key=lambda each: (_shown(each[0]), each[1])):
        found.setdefault(path, []).append(kind)
    return found


def _schema_of(forms: Counter[Form]) -> dict[str, Any]:
    """Return a JSON Schema for bodies of some forms."""
    types, present = _counted(forms)
    fields: defaultdict[_Path, list[_Path]] = defaultdict(list)
    for path in sorted(filter(None, types), key=_shown):
        fields[path[:-1]] += [path] if path[-1] is not None else []

    def of(path: _Path) -> dict[str, Any]:
        kinds = sorted(types[path])
        schema: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else kinds}
        if fields[path]:
            schema["properties"] = {str(each[-1]): of(each) for each in fields[path]}
            # Whether each item of a list has a field is not counted.
            always = [] if None in path else [each for each in fields[path] if present[each] == types[path]["object"]]
            schema |= {"required": [str(each[-1]) for each in always]} if always else {}
        return schema | ({"items": of((*path, None))} if (*path, None) in types else {})

    return of(())


def _counted(forms: Counter[Form]) -> tuple[dict[_Path, Counter[str]], Counter[_Path]]:
    """Return how many bodies have each path, by type and in all."""
    types: defaultdict[_Path, Counter[str]] = defaultdict(Counter)
    present: Counter[_Path] = Counter()
    for form, count in forms.items():
        for path, kind in form:
            types[path][kind] += count
        for path in {path for path, _ in form}:
            present[path] += count
    return types, present
