"""Give each value in a JSON body its own type, in every place of an expression.

DuckDB knows a value in a body only as JSON. This module finds the paths into bodies that an expression names, reads the
kinds of their values from the messages, and puts a value of that type in the place of each path. Where that type does
not fit, DuckDB's own binder says so, and another is tried: there is no list of functions here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice, product
from typing import Any, Final, NamedTuple, cast

Node = dict[str, Any]
"""A part of an expression, as DuckDB describes it."""
Step = str | int | Node | None
"""A name, a place in a list, an expression for a place, or each item of a list."""

BODY_JSON: Final = "body_json"

# ---------------------------------------------------------------- the kinds of the values in messages

_ONE: Final = " ".join(  # noqa: FLY002 - the lines of SQL
    (
        """CASE left({0}, 1) WHEN '"' THEN 't' WHEN '{{' THEN 'o' WHEN '[' THEN 'o' WHEN 'n' THEN NULL""",
        "WHEN 't' THEN 'b' WHEN 'f' THEN 'b' ELSE CASE WHEN {0} IS NULL THEN NULL",
        "WHEN contains({0}, '.') OR contains({0}, 'e') OR contains({0}, 'E') THEN 'f'",
        "WHEN length({0}) < 19 OR TRY_CAST({0} AS BIGINT) IS NOT NULL THEN 'w'",
        "WHEN TRY_CAST({0} AS HUGEINT) IS NOT NULL THEN 'h' ELSE 'f' END END",
    )
)
"""The kind of a value: text, object or list, boolean, whole number, huge one or fraction; NULL of null."""
_EACH: Final = "array_to_string(list_sort(list_distinct(list_transform({0}, lambda {1}: {2}))), '{3}')"


def _kind(value: str) -> str:
    """Return SQL for the kind of a value; that of a list begins with a bracket, before the kinds of its items."""
    items = _EACH.format(f"json_extract({value}, '$[*]')::VARCHAR[]", "item", _ONE.format("item"), "")
    return f"CASE left({value}, 1) WHEN '[' THEN '[' || {items} ELSE {_ONE.format(value)} END"


def kinds_query(paths: Sequence[str], source: str, rows: str | None = None) -> str:
    """Return a query for the kinds of the values of some paths, in one row, or of those together, with their rows."""
    single = [path for path in paths if "[*]" not in path]
    values, kinds = [rows] if rows else [], list[str]()
    for place, path in enumerate(paths):
        is_many, name = "[*]" in path, f"value_{place}_"
        value = f"json_extract({BODY_JSON}, {_quoted(path)})" if is_many else f"values_[{single.index(path) + 1}]"
        values.append(f"{value}::VARCHAR{'[]' * is_many} AS {name}")
        kind = _EACH.format(name, "value", _kind("value"), "|") if is_many else _kind(name)
        kinds.append(kind if rows else f"list(DISTINCT {kind})")
    # All paths at once, so that a body is parsed once.
    extracted = f"*, json_extract({BODY_JSON}, [{', '.join(map(_quoted, single))}]) AS values_" if single else "*"
    inner = f"(SELECT {', '.join(values)} FROM (SELECT {extracted} FROM {source}))"  # noqa: S608 - the paths are quoted
    numbers, grouped = ([f"list({rows})"], " GROUP BY ALL") if rows else ([], "")
    return f"SELECT {', '.join(numbers + kinds)} FROM {inner}{grouped}"  # noqa: S608 - see above


def without_limits(kinds: Iterable[str]) -> tuple[str, ...]:
    """Return fractions for whole numbers, which have a largest one."""
    return tuple("fraction" if kind in {"whole", "huge"} else kind for kind in kinds)


def kind_of_all(kinds: Iterable[str | None]) -> str:
    """Return the kind that values of some kinds have together: ``text`` where they differ, ``none`` of nulls."""
    found = {each for kind in kinds for each in (kind or "").split("|") if each}
    lists = {kind for kind in found if kind[0] == "["}
    if lists and lists == found:
        items = _of_scalars(set("".join(lists)) - {"["})
        return f"list {'json' if items == 'none' else items}"
    return "text" if lists else _of_scalars(found)


def _of_scalars(kinds: set[str]) -> str:
    if not kinds:
        return "none"
    for name, of in (("truth", "b"), ("whole", "w"), ("huge", "wh"), ("fraction", "whf"), ("json", "o")):
        if kinds <= set(of):
            return name
    return "text"


# ---------------------------------------------------------------- SQL of a value, by its kind

_TYPES: Final = {"whole": "BIGINT", "huge": "HUGEINT", "fraction": "DOUBLE", "time": "TIMESTAMPTZ"}
_ITEMS: Final = _TYPES | {"truth": "BOOLEAN", "text": "VARCHAR", "json": "JSON"}
_LARGEST: Final = "99999999999999999999999.0"
_SQL: Final = {
    "none": "NULL",
    "text": "b ->> p",
    "truth": "CASE b ->> p WHEN 'true' THEN true WHEN 'false' THEN false END",
    "json": "nullif(json_extract(b, p), 'null'::JSON)",
    # Exact below 1e22; a larger number becomes the largest, so that it is still above all of them.
    "number": "coalesce(TRY_CAST(b ->> p AS DECIMAL(38, 15)), CASE WHEN TRY_CAST(b ->> p AS DOUBLE) > 0 "
    f"THEN {_LARGEST} WHEN TRY_CAST(b ->> p AS DOUBLE) < 0 THEN -{_LARGEST} END)",
    **{kind: f"TRY_CAST(b ->> p AS {name})" for kind, name in _TYPES.items()},
    **{f"list {kind}": f"TRY_CAST(json_extract(b, p) AS {name}[])" for kind, name in _ITEMS.items() if kind != "time"},
}
"""The value at the path ``p`` of the JSON ``b``, by its kind."""
_NUMBERS: Final = frozenset({"whole", "huge", "fraction"})
_OTHERS: Final = {
    "text": ("number", "fraction", "time", "truth", "list text"),
    "truth": ("text", "number", "time", "list text"),
    "none": ("text", "fraction", "time", "list json"),
    **dict.fromkeys(_NUMBERS, ("text", "fraction", "time", "list text")),
}
"""The kinds to try where the own kind of a value does not fit."""
_STRICT: Final = {"json": "struct_pack(any_ := b ->> p)", "list json": "[struct_pack(any_ := b ->> p)]"}
"""DuckDB reads a text as JSON, but not as one of these, which are bound for JSON to find where it does not fit."""
_MOST_TRIED: Final = 64
_MOST_ROUNDS: Final = 12
_EQUAL: Final = frozenset({"COMPARE_EQUAL", "COMPARE_NOTEQUAL", "COMPARE_DISTINCT_FROM", "COMPARE_NOT_DISTINCT_FROM"})
_TEXTS: Final = frozenset({"VARCHAR", "TEXT", "STRING"})
_NOWHERE: Final = 2**64 - 1
_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


@dataclass(eq=False)
class _Use:
    holder: Any
    key: Any
    base: Node
    steps: tuple[Step, ...]
    path: int
    parent: Node
    alias: str


class Refused(NamedTuple):
    place: tuple[int, int] | None
    reason: Exception


Bind = Callable[[], Refused | None]
"""Binds the tree as it is now, and returns what does not fit."""


class Paths:
    def __init__(self, tree: Any, parse: Callable[[str], Node], text_of: Callable[[Node], str] | None) -> None:
        self._parse, self._tree = parse, tree
        self._templates: dict[str, Node] = {}
        self._fitting: dict[tuple[str, ...], list[str]] = {}
        self.paths: list[str] = []
        self._uses: list[_Use] = []
        _spell_out(tree, _roots(tree), parse)
        roots = _roots(tree)
        named = [item for item in _items(tree) if _has_path(item, roots)] if text_of else []
        names = [(item, _name_of(item, roots, text_of)) for item in named if text_of]
        self._comparisons = [part for part in parts_of(tree) if part.get("type") in _EQUAL and _has_path(part, roots)]
        self._any_text = parse("concat(random(), '')")
        self._texts: list[Node] = []
        self._find(tree, roots)
        self._texts = [text for text, parent in self._near if parent in {id(use.parent) for use in self._uses}]
        for item, name in names:  # the name that the column has without a value in the place of the path
            item["alias"] = item["alias"] or name
        for use in self._uses:
            use.alias = use.holder[use.key]["alias"]
        self._literals = [(each, dict(each["literal"])) for use in self._uses for each in _texts_beside(use.parent)]

    def _find(self, tree: Any, roots: Mapping[str, tuple[Step, ...]]) -> None:
        self._near: list[tuple[Node, int]] = []
        waiting: list[tuple[Any, Any, Node]] = [(tree, key, {}) for key in _keys(tree)]
        while waiting:
            holder, key, parent = waiting.pop()
            part = holder[key]
            found = _path(part, roots)
            if found is not None and found.steps:
                whole = "$" + "".join(map(_step, (*found.before, *found.steps)))
                if whole not in self.paths:
                    self.paths.append(whole)
                self._uses.append(_Use(holder, key, found.base, found.steps, self.paths.index(whole), parent, ""))
                places = [step for step in found.steps if isinstance(step, dict)]
                waiting += [(each, inner, parent) for each in places for inner in _keys(each)]
            else:
                if isinstance(part, dict) and _literal(cast("Node", part)) == "STRING" and not _operands(parent):
                    self._near.append((cast("Node", part), id(parent)))
                near = cast("Node", part) if isinstance(part, dict) and "class" in part else parent
                waiting += [(part, inner, near) for inner in _keys(part)]

    def fit(self, kinds: Sequence[str], bind: Bind) -> None:
        """Put values of some kinds in the places of the paths, and of other kinds where those do not fit."""
        key = tuple(kinds)
        if key not in self._fitting:
            own = [_own(use, kinds[use.path]) for use in self._uses]
            strictly = self._strictly(own, bind, self._texts) or self._strictly(own, bind, [])
            if strictly is None:
                self._put(own)
                if (wrong := bind()) is not None:
                    raise wrong.reason
            self._fitting[key] = own if strictly is None else strictly
        self._put(self._fitting[key])

    def _strictly(self, own: list[str], bind: Bind, texts: list[Node]) -> list[str] | None:
        # DuckDB orders only values of types that go together, but compares a text with a number by reading the text. It
        # reads a quoted text as a number, too, and says only with the messages that it is none.
        changed = [(each, dict(each)) for each in self._comparisons + texts]
        for comparison in self._comparisons:
            comparison["type"] = "COMPARE_LESSTHAN"
        for text in texts:
            place = {key: text[key] for key in ("query_location", "query_location_length", "alias")}
            text.clear()
            text.update(deepcopy(self._any_text) | place)
        self._templates |= {kind: self._parse(sql) for kind, sql in _STRICT.items()}
        try:
            return self._fitted(own, bind)
        finally:
            self._templates |= {kind: self._parse(_SQL[kind]) for kind in _STRICT}
            for part, before in changed:
                kept = {key: part[key] for key in ("left", "right") if key in part}  # values that were put in
                part.clear()
                part.update(before | kept)

    def _fitted(self, chosen: list[str], bind: Bind) -> list[str] | None:
        self._put(chosen)
        wrong = bind()
        for _ in range(_MOST_ROUNDS):
            if wrong is None:
                return chosen
            better = self._better(chosen, wrong, bind)
            if better is None:
                return None
            chosen, wrong = better
        return None

    def _better(self, chosen: list[str], wrong: Refused, bind: Bind) -> tuple[list[str], Refused | None] | None:
        inside = [place for place in self._within(wrong.place) if not _cast_of(self._uses[place].parent)]
        tries = product(
            *((chosen[place], *_OTHERS.get(chosen[place], ("text", "number", "time", "list text"))) for place in inside)
        )
        own = [chosen[place] for place in inside]
        # Beside a number a text is compared as one, but in other places a text may have no number.
        is_compared = any(_operands(part) for part in parts_of(self._tree) if _place_of(part) == wrong.place)
        lost = _NUMBERS if is_compared else {"text"}

        def changes(kinds: tuple[str, ...]) -> tuple[int, int]:
            changed = [before for before, after in zip(own, kinds, strict=True) if before != after]
            return len(changed), sum(before in lost for before in changed)

        nearest = sorted(islice(tries, _MOST_TRIED**2), key=changes)
        for kinds in nearest[1:_MOST_TRIED]:
            other = list(chosen)
            for place, kind in zip(inside, kinds, strict=True):
                other[place] = kind
            self._put(other)
            now = bind()
            if now is None or not _is_within(now, wrong):
                return other, now
        return None

    def _within(self, place: tuple[int, int] | None) -> list[int]:
        around = [part for part in parts_of(self._tree) if place is not None and _place_of(part) == place]
        inside = {id(part) for one in around for part in parts_of(one)}
        found = [place for place, use in enumerate(self._uses) if id(use.holder[use.key]) in inside]
        return found or list(range(len(self._uses)))

    def _put(self, chosen: Sequence[str]) -> None:
        for literal, own in self._literals:
            literal["literal"] = dict(own)
        for use, kind in zip(self._uses, chosen, strict=True):
            for text in _texts_beside(use.parent) if kind in _NUMBERS else ():
                text["literal"]["kind"] = "NUMERIC"
            use.holder[use.key] = self._value(use, kind) | {"alias": use.alias}

    def _value(self, use: _Use, kind: str) -> Node:
        if kind not in self._templates:
            self._templates[kind] = self._parse(_SQL[kind])
        return _filled(self._templates[kind], {"b": use.base, "p": self._path_text(use.steps)})

    def _path_text(self, steps: Sequence[Step]) -> Node:
        """Return a constant, or an expression where a place in a list is one."""
        texts, places = ["$"], list[Node]()
        for step in steps:
            if isinstance(step, dict):
                places.append(step)
                texts[-1] += "["
                texts.append("]")
            else:
                texts[-1] += _step(step)
        if not places:
            return self._parse(_quoted(texts[0]))
        made = self._parse(f"concat({', b, '.join(map(_quoted, texts))})")
        for argument, place in zip(made["arguments"][1::2], places, strict=True):
            argument["expression"] = place
        return made


def _own(use: _Use, kind: str) -> str:
    """Return the kind that a value takes in its place, if DuckDB has nothing against it."""
    beside, named = {_literal(each) for each in _operands(use.parent)}, _cast_of(use.parent)
    is_of_truths = use.parent.get("type") in {"OPERATOR_NOT", "CONJUNCTION_AND", "CONJUNCTION_OR"}
    if is_of_truths or "BOOLEAN" in {*beside, named}:
        return kind if kind == "none" else "truth"
    if named:
        return "text" if named in _TEXTS else "json" if named == "JSON" else kind
    if kind == "json" and _operands(use.parent):
        return "text"
    is_number = kind in _NUMBERS
    if "STRING" in beside and not (is_number and len(_all_texts(use.parent)) == len(_texts_beside(use.parent))):
        return "text"
    # There is no number in 'true'.
    return "number" if beside & {"INTEGER", "NUMERIC"} and not is_number and kind in {"text", "truth"} else kind


def _is_within(one: Refused, other: Refused) -> bool:
    if one.place is None or other.place is None:
        return one.place == other.place and str(one.reason) == str(other.reason)
    return other.place[0] <= one.place[0] <= sum(other.place)


# ---------------------------------------------------------------- parts of an expression


class _Found(NamedTuple):
    """A path: its base, the steps from the body to that, and the steps from there."""

    base: Node
    before: tuple[Step, ...]
    steps: tuple[Step, ...]


def parts_of(tree: Any) -> Iterator[Node]:
    waiting = [tree]
    while waiting:
        part: Any = waiting.pop()
        if isinstance(part, dict):
            yield part  # pyright: ignore[reportUnknownVariableType]
        waiting += (part[key] for key in _keys(part))


def _keys(part: Any) -> Iterable[Any]:
    items: Any = part
    return items if isinstance(part, dict) else range(len(items)) if isinstance(part, list) else ()


def _operands(part: Node) -> list[Node]:
    """Return what a comparison compares; nothing for other parts."""
    if part.get("class") == "COMPARISON":
        sides: list[Node] = [part["left"], part["right"]]
        # x IS TRUE compares a cast of x.
        return [side["child"] if _place_of(side) is None and "child" in side else side for side in sides]
    return [part["input"], part["lower"], part["upper"]] if part.get("class") == "BETWEEN" else []


def _literal(part: Node) -> str:
    return part.get("literal", {}).get("kind", "")


def _all_texts(part: Node) -> list[Node]:
    return [each for each in _operands(part) if _literal(each) == "STRING"]


def _texts_beside(part: Node) -> list[Node]:
    """Return the quoted numbers that a part compares with."""
    return [each for each in _all_texts(part) if _NUMBER.fullmatch(each["literal"]["text"])]


def _cast_of(part: Node) -> str:
    is_cast = part.get("type") == "OPERATOR_CAST"
    return str(part["type_expr"].get("type_name", "?")).upper() if is_cast else ""


def _place_of(part: Node) -> tuple[int, int] | None:
    start: int = part.get("query_location", _NOWHERE)
    return None if start == _NOWHERE else (start, part.get("query_location_length", 0))


def _path(part: Any, roots: Mapping[str, tuple[Step, ...]]) -> _Found | None:
    """Return the path into a body that a part is; None for other parts."""
    steps: list[Step] = []
    while isinstance(part, dict) and cast("Node", part).get("type") != "COLUMN_REF":
        inner, step = _last_step(cast("Node", part))
        if inner is None or step is None:
            return None
        steps[:0] = step
        part = inner
    names: list[str] = cast("Node", part).get("column_names", []) if isinstance(part, dict) else []
    for place, name in enumerate(names[:3]):
        before = roots.get(name.lower())
        if before is not None:
            base = {**cast("Node", part), "column_names": names[: place + 1], "alias": ""}
            found = (*names[place + 1 :], *steps)
            return None if any(map(_is_odd, found)) else _Found(base, before, found)
    return None


def _last_step(part: Node) -> tuple[Node | None, Sequence[Step] | None]:
    """Return what a part takes a value out of, and the path to it."""
    kind, name = part.get("type"), part.get("function_name")
    if kind in {"ARRAY_EXTRACT", "STRUCT_EXTRACT"}:
        inner, key = part["children"]
        text = key.get("literal", {}).get("text")
        match _literal(key):
            case "STRING":
                return inner, (text,)
            case "INTEGER":
                return inner, (int(text),)
            case "":
                return inner, (key,)
            case _:
                return None, None
    if name in {"->>", "->", "json_extract", "json_extract_string"} and len(part["arguments"]) == 2:  # noqa: PLR2004
        inner, key = (argument["expression"] for argument in part["arguments"])
        if _literal(key) == "INTEGER":
            return inner, (int(key["literal"]["text"]),)
        return inner, _steps_of(key["literal"]["text"]) if _literal(key) == "STRING" else None
    return None, None


_STEP: Final = re.compile(r'\.(?:"([^"\\]+)"|([^."\[\]*\\]+))|\[(#?-?\d+)\]')


def _steps_of(path: str) -> list[Step] | None:
    """Return the steps of a path of JSON that DuckDB reads, such as ``$.a[0]`` and ``a``; None for other paths."""
    if not path.startswith("$"):
        return None if path.startswith("/") or not path else [path]
    steps, at = list[Step](), 1
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return None
        steps.append(int(step[3].replace("#", "") or 0) if step[3] else step[1] or step[2])
        at = step.end()
    return steps or [""]


def _step(step: Step) -> str:
    match step:
        case "":
            return ""
        case str():
            return f'."{step}"'
        case int():
            return f"[{step}]" if step >= 0 else f"[#{step}]"
        case _:
            return "[*]"


def _is_odd(step: Step) -> bool:
    return isinstance(step, str) and bool(set(step) & {'"', "\\", "\0"})


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _filled(template: Any, values: Mapping[str, Node]) -> Any:
    if isinstance(template, list):
        return [_filled(each, values) for each in cast("list[Any]", template)]
    if not isinstance(template, dict):
        return template
    parts = cast("Node", template)
    name = parts.get("column_names", [""])[0]
    return values[name] if name in values else {key: _filled(each, values) for key, each in parts.items()}


# ---------------------------------------------------------------- the JSON in a query, and the names of its columns


def _spell_out(tree: Any, roots: Mapping[str, tuple[Step, ...]], parse: Callable[[str], Node]) -> None:
    """Write lists of values as comparisons, and what DuckDB reads as a lambda as the path that is meant."""
    for part in parts_of(tree):
        if part.get("type") == "LAMBDA" and part.get("syntax_type") == "SINGLE_ARROW" and _path(part["lhs"], roots):
            _spell_arrow(part, parse)
        elif part.get("type") == "COMPARE_IN" and any(_path(each, roots) for each in part["children"]):
            _spell_in(part)


def _spell_arrow(part: Node, parse: Callable[[str], Node]) -> None:
    # body -> 'a' > 3 is to DuckDB what body -> ('a' > 3) is.
    lhs, whole = part["lhs"], {"whole": part["expr"]}
    holder: Any
    key: Any
    holder, key = whole, "whole"
    while "literal" not in holder[key]:
        inner: Any = holder[key]
        if "left" in inner:
            holder, key = inner, "left"
        elif inner.get("arguments") and inner.get("is_operator"):
            holder, key = inner["arguments"][0], "expression"
        elif inner.get("input"):
            holder, key = inner, "input"
        elif inner.get("children"):
            holder, key = inner["children"], 0
        elif "child" in inner:
            holder, key = inner, "child"
        else:
            return
    arrow: Node = _filled(parse("json_extract(b, p)"), {"b": lhs, "p": holder[key]})
    holder[key] = arrow
    alias = part["alias"]
    part.clear()
    part.update(whole["whole"])
    part["alias"] = alias


def _spell_in(part: Node) -> None:
    value, *others = part["children"]
    equal = [
        {
            **{key: other.get(key, 0) for key in ("query_location", "query_location_length")},
            **dict[str, Any]({"class": "COMPARISON", "type": "COMPARE_EQUAL", "alias": ""}),
            "left": deepcopy(value),
            "right": other,
        }
        for other in others
    ]
    kept = {key: part[key] for key in ("alias", "query_location", "query_location_length")}
    part.clear()
    part.update(equal[0] if len(equal) == 1 else {"class": "CONJUNCTION", "type": "CONJUNCTION_OR", "children": equal})
    part.update(kept)


def _roots(tree: Any) -> dict[str, tuple[Step, ...]]:
    """Return the names of JSON in a query, and the path of each from the body."""
    roots: dict[str, tuple[Step, ...]] = {BODY_JSON: ()}
    for _ in range(_MOST_ROUNDS):
        known = len(roots)
        for part in parts_of(tree):
            for name, value in _named(part):
                steps = _steps_to(value, roots)
                if steps is not None and name:
                    roots.setdefault(name.lower(), steps)
        if len(roots) == known:
            break
    return roots


def _steps_to(value: Any, roots: Mapping[str, tuple[Step, ...]]) -> tuple[Step, ...] | None:
    if isinstance(value, dict) and cast("Node", value).get("function_name") == "unnest":
        inner = _steps_to(value["arguments"][0]["expression"], roots)
        return None if inner is None else (*inner, None)
    found = _path(value, roots)
    return None if found is None else (*found.before, *found.steps)


def _named(part: Node) -> Iterator[tuple[str, Any]]:
    """Yield the names that one part of a query gives to values."""
    for item in part.get("select_list", ()):
        names = item.get("column_names", [""])
        yield item.get("alias") or (names[-1] if len(names) > 1 or names[0] != BODY_JSON else ""), item
        if item.get("type") == "STRUCT_EXTRACT":
            yield item["children"][1].get("literal", {}).get("text", ""), item
    if part.get("type") == "TABLE_FUNCTION":
        yield (part.get("column_name_alias") or [""])[0], part["function"]
    columns, query = part.get("column_name_alias") or part.get("aliases"), part.get("subquery", part.get("query_node"))
    if columns and query:
        yield from zip(columns, query.get("node", query).get("select_list", ()), strict=False)
    arguments = [argument["expression"] for argument in part.get("arguments", ()) if "expression" in argument]
    for each in arguments[1:]:
        if each.get("type") == "LAMBDA" and each.get("syntax_type") == "LAMBDA_KEYWORD":
            names = each["lhs"].get("column_names", [""])
            yield names[0], {"function_name": "unnest", "arguments": [{"expression": arguments[0]}]}


def _items(tree: Any) -> list[Node]:
    """Return the columns without a name of their own that queries select."""
    items = [item for part in parts_of(tree) for item in part.get("select_list", ())]
    return [item for item in items if not item.get("alias") and item.get("type") != "STAR"]


def _has_path(item: Node, roots: Mapping[str, tuple[Step, ...]]) -> bool:
    return any(found is not None and found.steps for found in (_path(part, roots) for part in parts_of(item)))


def _name_of(item: Node, roots: Mapping[str, tuple[Step, ...]], text_of: Callable[[Node], str]) -> str:
    found = _path(item, roots)
    last = found.steps[-1] if found and found.steps else None
    return last if isinstance(last, str) and last and item.get("type") != "ARRAY_EXTRACT" else text_of(item)
