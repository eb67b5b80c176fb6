"""A value taken out of a JSON body is the text, number or truth that it is, in each place of an expression."""

# Values of any kind go through the functions of Python below.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
# ruff: noqa: E501 - a case is a line

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

from sbnotebook.analysis.frames import to_arrow
from sbnotebook.analysis.query import result_of, where
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Message

EXPRESSIONS = int(os.environ.get("SBNOTEBOOK_CRASHES", "100"))
ORDERS = [
    {
        "total": 2,
        "carrier": "DHL",
        "price": 0.5,
        "tags": ["x", "y"],
        "items": [{"sku": "A", "n": 2}, {"sku": "B", "n": 10}],
    },
    {"total": 9, "carrier": "UPS", "price": 1.25, "to": {"city": {"name": "Oslo"}}},
    {"total": 10, "items": [], "at": "2026-01-02T10:00:00Z"},
    {"total": 100, "carrier": None, "price": 3, "id": 2**53 + 1, "paid": True},
]
TABLE = to_arrow(Message(body=body) for body in (*(json.dumps(each).encode() for each in ORDERS), b"no JSON"))


def rows(query: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in result_of(TABLE, query).to_pylist()]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select max(body_json.total), min(body_json.total), median(body_json.total)", [(100, 2, 9.5)]),
        (
            "select body_json.total where body_json is not null order by body_json.total desc",
            [(100,), (10,), (9,), (2,)],
        ),
        ("select greatest(body_json.total, 60) where body_json.total < 10", [(60,), (60,)]),
        ("select body_json.carrier, count(*) group by all order by 1", [("DHL", 1), ("UPS", 1), (None, 3)]),
        ("select body_json.carrier || '-' || body_json.total where body_json.total = 2", [("DHL-2",)]),
        ("select list_contains(body_json.tags, 'y'), len(body_json.tags), body_json.tags[0] limit 1", [(True, 2, "x")]),
        ("select body_json.carrier collate nocase = 'dhl' limit 1", [(True,)]),
        ("select body_json.items[0].sku, body_json.items[-1].n + 1 limit 1", [("A", 11)]),
        ("select body_json.items[resubmit_count].n limit 1", [(2,)]),
        ("select quantile_cont(body_json.total, 0.5), count(distinct body_json.carrier)", [(9.5, 2)]),
        ("select string_agg(body_json.carrier, ',' order by body_json.total desc)", [("UPS,DHL",)]),
        ("select sum(body_json.total) filter (where body_json.carrier = 'UPS')", [(9,)]),
        ("select first(body_json.total) over (order by body_json.total desc nulls last) limit 1", [(100,)]),
        ("select sum(body_json.total), avg(body_json.price) having max(body_json.total) > 9", [(121, 4.75 / 3)]),
        ("select body_json.id, body_json.paid where body_json.paid", [(2**53 + 1, True)]),
        ("select count(*) where body_json.at > now() - interval 1000 year", [(1,)]),
        ("select body_json->'total' > 3, body_json->'items'->0->>'sku' limit 1", [(False, "A")]),
        ("select len(list_filter(body_json.items, lambda x: x.n > 3)) limit 1", [(1,)]),
        ("select [x.sku for x in body_json.items][2] limit 1", [("B",)]),
        ("select body_json.to.city.name where body_json.to.city.name like 'O%'", [("Oslo",)]),
        ("select body_json.total, body_json['total'] as total limit 1", [(2,)]),
        (
            "select case when body_json.total > 5 then body_json.carrier else body_json.total end limit 2",
            [("2",), ("UPS",)],
        ),
        ("select body_json.missing, sum(body_json.missing) over () limit 1", [(None, None)]),
        ("select distinct on (body_json.missing) body_json.total order by body_json.missing, 1", [(2,)]),
    ],
)
def test_values_in_queries(query: str, expected: list[tuple[Any, ...]]) -> None:
    assert rows(f"from messages {query}") == [pytest.approx(row) for row in expected]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select m.body_json.carrier from messages m limit 1", [("DHL",)]),
        ("with t as (select body_json from messages) select max(body_json.total) from t", [(100,)]),
        ("with t as (select body_json as b from messages) select b.items[0].sku from t limit 1", [("A",)]),
        ("with t(z) as (select body_json.to from messages) select z.city.name from t where z.city.name = 'Oslo'", [("Oslo",)]),
        ("select x.sku, sum(x.n) from (select unnest(body_json.items) as x from messages) group by 1 order by 2", [("A", 2), ("B", 10)]),
        ("select max(i.n) from messages m, unnest(m.body_json.items) as u(i)", [(10,)]),
        ("select count(*) from messages a join messages b on a.body_json.total = b.body_json.total", [(4,)]),
        ("select body_json.total from messages where body_json.carrier in (select body_json.carrier from messages)", [(2,), (9,)]),
        ("select total from (select body_json.total from messages order by 1 desc limit 1)", [(100,)]),
        ("select distinct body_json.carrier from messages union select 'DHL' order by 1", [("DHL",), ("UPS",), (None,)]),
    ],
)  # fmt: skip
def test_values_under_other_names(query: str, expected: list[tuple[Any, ...]]) -> None:
    assert rows(query) == expected


def test_columns_keep_their_names() -> None:
    query = "select body_json.total, max(body_json.price), body_json['carrier'] as c from messages group by all"
    assert result_of(TABLE, query).column_names == ["total", "max(body_json.price)", "c"]


def chosen(expression: str, *values: Any) -> list[Any]:
    messages = [
        Message(message_id=str(n), subject="1", body=json.dumps({"v": value}).encode())
        for n, value in enumerate(values)
    ]
    return [values[int(str(message.message_id))] for message in where(messages, expression)]


@pytest.mark.parametrize(
    ("expression", "values", "expected"),
    [
        ("body_json.v > 3", [2, 10, "many", "7", "2.5", True, None, {}, [9], 1e300], [10, "7", 1e300]),
        ("abs(body_json.v) > 3", [2, -10, "many", "-7", {}, None], [-10, "-7"]),
        ("body_json.v + 1 > 3", [2, 10, "many", {}, [1], 2**63 - 1], [10, 2**63 - 1]),
        ("body_json.v * body_json.v > 100", [2, 11, 2**62, 10**30], [11, 2**62, 10**30]),
        ("lower(body_json.v) = 'ua'", ["UA", 5, True, None, {}, [1]], ["UA"]),
        ("body_json.v like '1%'", ["1a", 12, 2, 1.5, None], ["1a", 12, 1.5]),
        ("body_json.v = 'UA'", ["UA", 5, True, {}, []], ["UA"]),
        ("body_json.v <> 'UA'", ["UA", 5, True, None], [5, True]),
        ("coalesce(body_json.v, 'x') = 'x'", ["x", 5, None, True, {}], ["x", None]),
        ("body_json.v = 9007199254740993", [2**53 + 1, 2**53, "9007199254740993", 0.5], [2**53 + 1, "9007199254740993"]),
        ("body_json.v = 123456789012345678901234567890", [123456789012345678901234567890, 1.5], [123456789012345678901234567890]),
        ("body_json.v > '9.5'", [9, 10, 100, 9.7], [10, 100, 9.7]),
        ("body_json.v in (2, 10)", [2, 2.4, "10", "x", None, True], [2, "10"]),
        ("body_json.v in ('a', 'b')", ["a", 2, None, "c"], ["a"]),
        ("body_json.v = subject", ["1", 1, "x", 2], ["1", 1]),
        ("body_json.v = length(subject)", ["1", 1, "x", 2], ["1", 1]),
        ("body_json.v and true", [True, False, 1, "true", "x"], [True, "true"]),
        ("body_json.v is null", [None, 0, "", False, {}, []], [None]),
        ("body_json.v < now()", ["2020-01-01T00:00:00Z", "x", 5, None], ["2020-01-01T00:00:00Z"]),
        ("list_contains(body_json.v, 'a')", [["a", "b"], ["c"], "a", 5, [1], []], [["a", "b"]]),
        ("body_json.v[0] = 1", [[1, 2], [2], [], {"a": 1}, "1"], [[1, 2]]),
        ("body_json.v.a.b = 1", [{"a": {"b": 1}}, {"a": 1}, {"a": None}, 5], [{"a": {"b": 1}}]),
    ],
)  # fmt: skip
def test_values_of_several_kinds(expression: str, values: list[Any], expected: list[Any]) -> None:
    assert chosen(expression, *values) == expected
    assert [each for value in values for each in chosen(expression, value)] == expected  # alone as among others


@pytest.mark.parametrize(
    "body",
    [
        b'{"v": NaN}',
        b"nan",
        b'{"v":-Infinity}',
        b'[{"v": [1,\tinf]}]',
        b'{"v": "\\ud800"}',
        b"{'v': 1}",
        b"\x00",
        b"[" * 100_000,
        b'{"v": 1} {"v": 2}',
    ],
)
def test_bodies_that_are_not_json_have_no_values(body: bytes) -> None:
    good = Message(body=b'{"v": 5}')
    assert where([Message(body=body), good], "body_json.v > 0 or body_json.v < 0") == [good]
    assert where([good, Message(body=body), good], "body_json is null") == [Message(body=body)]


def test_texts_that_look_like_constants_are_json() -> None:
    bodies = [b'{"v": " nan, inf,"}', b'"-Infinity"', b'{"nan": "more info"}', b'["\\" [inf]"]', b'"[NaN"']
    messages = [Message(body=body) for body in bodies]
    assert where(messages, "body_json is not null") == messages


def test_values_of_several_kinds_are_texts_in_a_query() -> None:
    table = to_arrow(Message(body=json.dumps({"v": value}).encode()) for value in (2, 10, "many"))
    assert [row["v"] for row in result_of(table, "select body_json.v from messages").to_pylist()] == ["2", "10", "many"]
    assert result_of(table, "select count(*) as n from messages where body_json.v > 3").to_pylist() == [{"n": 1}]
    assert result_of(table, "select sum(body_json.v) as n from messages").to_pylist() == [{"n": 12}]


def test_a_cast_that_fails_says_how_to_leave_values_out() -> None:
    messages = [Message(application_properties={"attempt": value}) for value in ("5", "abc")]
    with pytest.raises(ConfigurationError, match=r"Could not convert string 'abc' to INT32; to leave .* try_cast"):
        where(messages, "application_properties['attempt']::int > 3")
    assert where(messages, "try_cast(application_properties['attempt'] as int) > 3") == messages[:1]


# ------------------------------------------------------------------------------------------- against Python


class Function(NamedTuple):
    """SQL with ``{0}`` for each argument, what it does in Python, the kinds of its arguments, and of its result."""

    sql: str
    python: Callable[..., Any]
    takes: str
    gives: str


def known(values: Iterable[Any]) -> list[Any]:
    return [each for each in values if each is not None]


def half_up(number: float) -> float:
    return math.copysign(math.floor(abs(number) + 0.5), number)


FUNCTIONS = [  # t text, n whole number, f fraction, b truth
    Function("{} + {}", lambda a, b: a + b, "nn", "n"),
    Function("{} - {}", lambda a, b: a - b, "nn", "n"),
    Function("{} * {}", lambda a, b: a * b, "nn", "n"),
    Function("{} / (abs({}) + 1)", lambda a, b: a / (abs(b) + 1), "nn", "f"),
    Function("abs({}) // (abs({}) + 1)", lambda a, b: abs(a) // (abs(b) + 1), "nn", "n"),
    Function("abs({}) % (abs({}) + 1)", lambda a, b: abs(a) % (abs(b) + 1), "nn", "n"),
    Function("mod(abs({}), 7)", lambda a: abs(a) % 7, "n", "n"),
    Function("-({})", lambda a: -a, "n", "n"),
    Function("abs({})", abs, "n", "n"),
    Function("abs({})", abs, "f", "f"),
    Function("sign({})", lambda a: (a > 0) - (a < 0), "n", "n"),
    Function("{} + {}", lambda a, b: a + b, "ff", "f"),
    Function("{} - {}", lambda a, b: a - b, "fn", "f"),
    Function("{} * {}", lambda a, b: a * b, "fn", "f"),
    Function("sqrt(abs({}))", lambda a: math.sqrt(abs(a)), "f", "f"),
    Function("floor({})", math.floor, "f", "f"),
    Function("ceil({})", math.ceil, "f", "f"),
    Function("round({})", half_up, "f", "f"),
    Function("trunc({})", math.trunc, "f", "f"),
    Function("even({})", lambda a: math.copysign(math.ceil(abs(a) / 2) * 2, a), "f", "f"),
    Function("gcd(abs({}), abs({}))", math.gcd, "nn", "n"),
    Function("xor({}, {})", lambda a, b: a ^ b, "nn", "n"),
    Function("{} || {}", lambda a, b: a + b, "tt", "t"),
    Function("{} || {}", lambda a, b: f"{a}{b}", "tn", "t"),
    Function("lower({})", str.lower, "t", "t"),
    Function("upper({})", str.upper, "t", "t"),
    Function("reverse({})", lambda a: a[::-1], "t", "t"),
    Function("trim({})", lambda a: a.strip(" "), "t", "t"),
    Function("ltrim({})", lambda a: a.lstrip(" "), "t", "t"),
    Function("rtrim({})", lambda a: a.rstrip(" "), "t", "t"),
    Function("lpad({}, 6, '*')", lambda a: a[:6].rjust(6, "*"), "t", "t"),
    Function("rpad({}, 6, '*')", lambda a: a[:6].ljust(6, "*"), "t", "t"),
    Function("left({}, 2)", lambda a: a[:2], "t", "t"),
    Function("right({}, 2)", lambda a: a[-2:], "t", "t"),
    Function("substring({}, 2, 2)", lambda a: a[1:3], "t", "t"),
    Function("repeat({}, 2)", lambda a: a * 2, "t", "t"),
    Function("replace({}, 'a', 'bc')", lambda a: a.replace("a", "bc"), "t", "t"),
    Function("translate({}, 'ab', 'ba')", lambda a: a.translate(str.maketrans("ab", "ba")), "t", "t"),
    Function("regexp_replace({}, 'b', '-', 'g')", lambda a: a.replace("b", "-"), "t", "t"),
    Function("split_part({}, 'a', 1)", lambda a: a.split("a")[0], "t", "t"),
    Function("md5({})", lambda a: hashlib.md5(a.encode(), usedforsecurity=False).hexdigest(), "t", "t"),
    Function("hex({})", lambda a: a.encode().hex().upper(), "t", "t"),
    Function("length({})", len, "t", "n"),
    Function("strlen({})", lambda a: len(a.encode()), "t", "n"),
    Function("strpos({}, 'b')", lambda a: a.find("b") + 1, "t", "n"),
    Function("ascii('z' || {})", lambda a: ord("z") + 0 * len(a), "t", "n"),
    Function("contains({}, 'a')", lambda a: "a" in a, "t", "b"),
    Function("starts_with({}, 'a')", lambda a: a.startswith("a"), "t", "b"),
    Function("ends_with({}, 'b')", lambda a: a.endswith("b"), "t", "b"),
    Function("{} like 'a%'", lambda a: a.startswith("a"), "t", "b"),
    Function("{} ilike '%B%'", lambda a: "b" in a.lower(), "t", "b"),
    Function("regexp_matches({}, '^[ab]')", lambda a: a[:1] in {"a", "b"}, "t", "b"),
    Function("{} = {}", lambda a, b: a == b, "tt", "b"),
    Function("{} <> {}", lambda a, b: a != b, "tt", "b"),
    Function("{} < {}", lambda a, b: a < b, "tt", "b"),
    Function("{} = {}", lambda a, b: a == b, "nn", "b"),
    Function("{} <= {}", lambda a, b: a <= b, "nn", "b"),
    Function("{} > {}", lambda a, b: a > b, "fn", "b"),
    Function("{} >= {}", lambda a, b: a >= b, "ff", "b"),
    Function("{} in (1, 2, 30)", lambda a: a in {1, 2, 30}, "n", "b"),
    Function("{} in ('a', 'ab', '')", lambda a: a in {"a", "ab", ""}, "t", "b"),
    Function("{} between -5 and 5", lambda a: -5 <= a <= 5, "n", "b"),
    Function("{} between 'a' and 'b'", lambda a: "a" <= a <= "b", "t", "b"),
    Function("not ({})", lambda a: not a, "b", "b"),
    Function("list_contains(['a', 'b'], {})", lambda a: a in {"a", "b"}, "t", "b"),
    Function("array_length(str_split({}, 'a'))", lambda a: len(a.split("a")), "t", "n"),
]
# These have their own rule for nulls.
OF_NULLS = [
    *(Function("greatest({}, {})", lambda *a: max(known(a), default=None), kind * 2, kind) for kind in "tnf"),
    *(Function("least({}, {})", lambda *a: min(known(a), default=None), kind * 2, kind) for kind in "tnf"),
    Function("coalesce({}, {})", lambda a, b: b if a is None else a, "tt", "t"),
    Function("coalesce({}, 7)", lambda a: 7 if a is None else a, "n", "n"),
    Function("ifnull({}, 'none')", lambda a: "none" if a is None else a, "t", "t"),
    Function("nullif({}, {})", lambda a, b: None if a == b else a, "tt", "t"),
    Function("if({}, {}, {})", lambda a, b, c: b if a else c, "bnn", "n"),
    Function("case when {} then {} else 'other' end", lambda a, b: b if a else "other", "bt", "t"),
    Function("case {} when 'a' then 1 else 2 end", lambda a: 1 if a == "a" else 2, "t", "n"),
    Function("{} is null", lambda a: a is None, "t", "b"),
    Function("{} is not null", lambda a: a is not None, "n", "b"),
    Function("{} is distinct from {}", lambda a, b: a != b, "nn", "b"),
    Function("concat({}, {})", lambda a, b: (a or "") + (b or ""), "tt", "t"),
    Function("({} and {})", lambda a, b: False if a is False or b is False else None if None in (a, b) else True, "bb", "b"),
    Function("({} or {})", lambda a, b: True if a or b else None if None in (a, b) else False, "bb", "b"),
]  # fmt: skip
PATHS = {
    "t": [
        "body_json.t",
        "body_json->>'$.t'",
        "body_json['t']",
        "body_json.o.t",
        "body_json.l[0]",
        "body_json->>'$.l[1]'",
    ],
    "n": ["body_json.n", "body_json->>'n'", "body_json.o.n", "body_json.o['n']", "body_json.i[0]", "body_json.i[-1]"],
    "f": ["body_json.f", "body_json->>'$.f'", "body_json.o.f"],
    "b": ["body_json.b", "body_json.o.b", "body_json->>'$.b'"],
}


def value(path: str, body: Any) -> Any:
    for key in re.findall(r"[a-z]+|-?\d+", path.removeprefix("body_json")):
        if isinstance(body, list):
            body = body[int(key)] if -len(body) <= int(key) < len(body) else None
        else:
            body = body.get(key) if isinstance(body, dict) else None
    return body


class Drawn(NamedTuple):
    sql: str
    python: Callable[[Any], Any]


def drawn(chance: random.Random, kind: str, depth: int) -> Drawn:
    if depth <= 0 or chance.random() < 0.2:
        path = chance.choice(PATHS[kind])
        return Drawn(f"({path})", lambda body: value(path, body))
    function = chance.choice([each for each in FUNCTIONS + OF_NULLS if each.gives == kind])
    arguments = [drawn(chance, each, depth - 1) for each in function.takes]

    def python(body: Any) -> Any:
        values = [argument.python(body) for argument in arguments]
        return None if None in values and function not in OF_NULLS else function.python(*values)

    return Drawn(f"({function.sql.format(*(argument.sql for argument in arguments))})", python)


def drawn_body(chance: random.Random) -> dict[str, Any]:
    def scalar(kind: str) -> Any:
        if chance.random() < 0.15:
            return None
        if kind == "t":
            return chance.choice(["", "a", "ab", "Bb ", " é", "10", "true", "😀", "'\"", "9"])
        if kind == "n":
            return chance.choice([0, 1, -3, 9, 10, 30, 100])
        return chance.choice([0.5, -2.5, 9.75, 1e3, 100.0]) if kind == "f" else chance.random() < 0.5

    def fields() -> dict[str, Any]:
        return {kind: scalar(kind) for kind in "tnfb" if chance.random() < 0.9}

    lists = {
        "l": [scalar("t") for _ in range(chance.randrange(3))],
        "i": [scalar("n") for _ in range(chance.randrange(3))],
    }
    return fields() | lists | ({"o": fields()} if chance.random() < 0.9 else {})


def test_expressions_give_what_python_gives() -> None:
    assert len(FUNCTIONS + OF_NULLS) >= 60
    chance = random.Random(os.environ.get("SBNOTEBOOK_SEED", "45"))  # noqa: S311 - the same each time
    for number in range(EXPRESSIONS):
        bodies = [drawn_body(chance) for _ in range(12)]
        messages = [Message(message_id=str(n), body=json.dumps(body).encode()) for n, body in enumerate(bodies)]
        expression = drawn(chance, "b", 4)
        expected = [str(n) for n, body in enumerate(bodies) if expression.python(body) is True]
        found = [message.message_id for message in where(messages, expression.sql)]
        assert found == expected, f"{number}: {expression.sql} of {bodies}"
