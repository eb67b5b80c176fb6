from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlglot import exp, parse_one

from sbnotebook.amqp import AmqpValue, Described, Int, Long, Symbol, Timestamp
from sbnotebook.emulator.entities.rules.rule import compile_action, compile_filter
from sbnotebook.emulator.entities.rules.subject import FilterError, RuleSubject
from sbnotebook.errors import ConfigurationError
from tests.emulator.entities.rules.conftest import subject

T, F, U = True, False, None
Table = dict[tuple[bool | None, bool | None], bool | None]
Condition = tuple[str, bool | None]

# As they are printed in the documentation, row by row.
AND: Table = {(T, T): T, (T, F): F, (T, U): U, (F, T): F, (F, F): F, (F, U): F, (U, T): U, (U, F): F, (U, U): U}
OR: Table = {(T, T): T, (T, F): T, (T, U): T, (F, T): T, (F, F): F, (F, U): U, (U, T): T, (U, F): U, (U, U): U}
NOT: dict[bool | None, bool | None] = {T: F, F: T, U: U}
LEAVES: dict[str, bool | None] = {"1 = 1": T, "1 = 2": F, "nothing = 1": U}


def evaluated(expression: str, subject: RuleSubject, parameters: dict[str, AmqpValue] | None = None) -> bool | None:
    return compile_filter(expression, parameters or {})(subject)


def join(table: Table, word: str) -> Callable[[Condition, Condition], Condition]:
    def joined(left: Condition, right: Condition) -> Condition:
        return f"({left[0]}) {word} ({right[0]})", table[left[1], right[1]]

    return joined


def negate(part: Condition) -> Condition:
    return f"NOT ({part[0]})", NOT[part[1]]


conditions: st.SearchStrategy[Condition] = st.recursive(
    st.sampled_from(list(LEAVES.items())),
    lambda parts: st.one_of(
        st.builds(join(AND, "AND"), parts, parts), st.builds(join(OR, "OR"), parts, parts), st.builds(negate, parts)
    ),
    max_leaves=6,
)


@given(conditions)
def test_the_three_values_follow_the_documented_tables(condition: Condition) -> None:
    expression, expected = condition
    assert evaluated(expression, RuleSubject(b"")) is expected


@given(st.lists(st.sampled_from(list(LEAVES)), min_size=2, max_size=9), st.data())
def test_and_binds_closer_than_or(leaves: list[str], data: st.DataObject) -> None:
    words = [data.draw(st.sampled_from(["AND", "OR"])) for _ in leaves[1:]]
    rows: list[list[str]] = [[leaves[0]]]
    for word, leaf in zip(words, leaves[1:], strict=True):
        rows[-1].append(leaf) if word == "AND" else rows.append([leaf])
    answer: bool | None = F
    for row in rows:
        part: bool | None = T
        for leaf in row:
            part = AND[part, LEAVES[leaf]]
        answer = OR[answer, part]
    expression = leaves[0] + "".join(f" {word} {leaf}" for word, leaf in zip(words, leaves[1:], strict=True))
    assert evaluated(expression, RuleSubject(b"")) is answer


def grouped(node: exp.Expr) -> str:
    """An expression with parentheses around each of its parts, as sqlglot reads it."""
    if isinstance(node, exp.Paren):
        return grouped(node.this)
    if isinstance(node, exp.Not):
        return f"(NOT {grouped(node.this)})"
    if isinstance(node, exp.In):
        return f"({grouped(node.this)} IN ({', '.join(map(grouped, node.expressions))}))"
    if isinstance(node, exp.Binary):
        sign = node.sql().removeprefix(node.this.sql()).removesuffix(node.expression.sql())
        return f"({grouped(node.this)}{sign}{grouped(node.expression)})"
    return node.sql()


def joined(parts: st.SearchStrategy[str], *signs: str) -> st.SearchStrategy[str]:
    """Parts with signs between, some in parentheses."""
    part = st.one_of(parts, parts.map("({})".format))
    return st.tuples(part, st.lists(st.tuples(st.sampled_from(signs), part), max_size=3)).map(
        lambda row: " ".join([row[0], *(f"{sign} {each}" for sign, each in row[1])])
    )


values = joined(st.sampled_from(["a", "b", "1", "2", "-1", "nothing"]), "+", "-", "*")
tests = st.one_of(
    st.tuples(values, st.sampled_from(["=", "<>", "<", ">="]), values).map(" ".join),
    st.tuples(values, st.sampled_from(["IN", "NOT IN"]), values.map("({}, 2)".format)).map(" ".join),
    st.just("nothing IS NULL"),
)
expressions = joined(st.one_of(tests, tests.map("NOT {}".format)), "AND", "OR")


@given(expressions)
def test_an_expression_is_read_as_sqlglot_reads_it(expression: str) -> None:
    message = RuleSubject(b"")
    for name, value in (("a", 1), ("b", 3)):
        message.set(name, Long(value), system=False)
    assert evaluated(expression, message) is evaluated(grouped(parse_one(expression)), message)


NO_TIME = Described(Symbol("com.microsoft:timespan"), Long(0))
PROPERTIES: dict[str, AmqpValue] = {
    "color": "red", "size": Int(5), "price": 2.5, "paid": True, "empty": None, "when": Timestamp(1_000),
    "Two Words": "x", "id": UUID(int=7), "name": "color", "percent": "100%", "pattern": "r_d", "scoped": "sys.Label",
    "order.id": "o", "zone.id": "z", "sys": "s", "user": "u",
}  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("color = 'red'", T), ("COLOR = 'red'", T), ("user.color = 'red'", T), ("User.Color = 'red'", T),
        ("color = 'Red'", F), ("color <> 'red'", F), ("color != 'blue'", T), ("color < 'reed'", T),
        ("size > 4", T), ("size >= 5 and size <= 5", T), ("size < 5.5", T), ("size = 5.0", T), ("size = '5'", U),
        ("NOT size = '5'", U), ("price * 2 = size", T), ("size / 2 = 2", T), ("size % 2 = 1", T), ("-size = -5", T),
        ("size - 1 - 1 = 3", T), ("2 + 3 * size = 17", T), ("(2 + 3) * size = 25", T), ("7 / 2 * 2 = 6", T),
        ("size - -1 = 6", T), ("+size = 5", T), ("paid = TRUE", T), ("paid = false", F), ("paid > FALSE", U),
        ("[two words] = 'x'", T), ('"Two Words" = \'x\'', T), ("size = @n", T), ("size = @N", T),
        ("when = @moment", T), ("when - @moment = @zero", T), ("id = @id", T), ("color = @missing_value", U),
        ("nothing = 1", U), ("NOT nothing = 1", U), ("nothing <> 1", U), ("nothing + 1 = 1", U), ("-nothing = 1", U),
        ("empty = NULL", U), ("nothing = nothing", U),
        ("nothing IS NULL", T), ("empty IS NULL", T), ("color IS NULL", F), ("nothing IS NOT NULL", F),
        ("color IS NOT NULL", T), ("sys.Label IS NULL", F), ("sys.To IS NULL", T),
        ("EXISTS(color)", T), ("exists(COLOR)", T), ("EXISTS(nothing)", F), ("NOT EXISTS(nothing)", T),
        ("EXISTS(empty)", T), ("EXISTS(sys.Label)", T), ("EXISTS(sys.To)", F), ("EXISTS(user.color)", T),
        ("color IN ('blue', 'red')", T), ("color IN ('blue')", F), ("color NOT IN ('blue')", T),
        ("color NOT IN ('red', nothing)", F), ("color IN ('red', nothing)", T), ("color IN ('blue', nothing)", U),
        ("color NOT IN ('blue', nothing)", U), ("nothing IN ('a')", U), ("nothing NOT IN ('a')", U),
        ("size IN (1 + 4, 9)", T), ("size IN ('5')", U),
        ("color LIKE 'r%'", T), ("color NOT LIKE 'r%'", F), ("color LIKE 'r'", F), ("color LIKE pattern", T),
        ("nothing LIKE 'r%'", U), ("nothing NOT LIKE 'r%'", U), ("color LIKE nothing", U), ("size LIKE '5'", U),
        ("percent LIKE '100\\%' ESCAPE '\\'", T), ("color LIKE 'r\\%' ESCAPE '\\'", F),
        ("percent NOT LIKE '100|%' ESCAPE '|'", F), ("percent LIKE '100|%' ESCAPE @bar", T),
        ("color LIKE 'r%' ESCAPE @missing_value", U), ("color LIKE @pattern", T),
        ("p('color') = 'red'", T), ("property(name) = 'red'", T), ("P('sys.label') = 'greeting'", T),
        ("p('order.id') = 'o'", T), ("p('zone.id') = 'z'", T), ("p('sys') = 's'", T), ("p('user') = 'u'", T),
        ("p(scoped) = 'greeting'", T), ("p('user.' + name) = 'red'", T), ("p(nothing) = 'red'", U),
        ("newid() <> newid()", T), ("newid() = newid()", F),
        ("sys.Label = 'greeting'", T), ("SYS.label LIKE 'greet%'", T), ("sys.Subject = 'greeting'", T),
        ("sys.MessageId = 'm1'", T), ("color = 'it''s'", F), ("1 = 1", T), ("1=2 OR 1=1", T),
        ("-9223372036854775808 < 0", T), ("1.5e3 = 1500", T), (".5 = 0.5", T),
        ("color = 'red' AND size = 5 OR nothing = 1", T), ("NOT color = 'red' OR paid = TRUE", T),
    ],
)  # fmt: skip
def test_an_expression_is_true_false_or_unknown(expression: str, expected: bool | None) -> None:
    parameters: dict[str, AmqpValue] = {
        "@n": Long(5), "moment": Timestamp(1_000), "@zero": NO_TIME, "id": UUID(int=7), "missing_value": None,
        "bar": "|", "@pattern": "re_",
    }  # fmt: skip
    message = subject(PROPERTIES, label="greeting", message_id="m1")
    assert evaluated(expression, message, parameters) is expected


@pytest.mark.parametrize(
    "expression",
    [
        "sys.Nonsense = 1", "EXISTS(sys.Nonsense)", "sys.Nonsense IS NULL", "size / 0 = 1", "color - 1 = 1",
        "p(size) = 1", "p('sys.Nonsense') = 1", "color LIKE size", "color * 2 = 'x'",
    ],
)  # fmt: skip
def test_a_filter_that_fails_raises_filter_error(expression: str) -> None:
    with pytest.raises(FilterError):
        evaluated(expression, subject(PROPERTIES), {})


@pytest.mark.parametrize(
    "expression",
    [
        "color", "TRUE", "NOT paid", "paid AND size = 5", "size = (color = 'red')", "size = 5 = TRUE", "size < 5 < 6",
        "5 IS NULL", "p('color') IS NULL", "color IS TRUE", "color IS color", "EXISTS('color')", "EXISTS()",
        "EXISTS(color, size)", "nothing(color)", "defined(color)", "nothing(color) = 1", "newid(1) = 1",
        "lower() = 1", "p() = 1", "p(color, size) = 1", "color IN ()",
        "other.color = 1", "color = @unknown", "size = 9223372036854775808", "color LIKE 'a' ESCAPE 'ab'",
        "color = 'a' ESCAPE 'b'", "size IN (size = 5)", "color LIKE (color = 'a')",
        "color LIKE 'a' ESCAPE color",
    ],
)  # fmt: skip
def test_an_expression_without_a_condition_is_refused(expression: str) -> None:
    with pytest.raises(ConfigurationError):
        compile_filter(expression, {})


def calculated(expression: str) -> object:
    message = RuleSubject(b"")
    (statement,) = compile_action(f"SET found = {expression}", {})
    statement(message)
    return message.user("found")


def test_a_new_id_is_a_uuid() -> None:
    assert isinstance(calculated("newid()"), UUID)


def test_integers_are_longs_and_others_doubles() -> None:
    texts = ("7", "7.0", "-7", "70e-1", "-95", "9223372036854775807", "-9223372036854775808")
    values = [calculated(text) for text in texts]
    assert [(type(value), value) for value in values] == [
        *((Long, 7), (float, 7.0), (Long, -7), (float, 7.0), (Long, -95), (Long, 2**63 - 1), (Long, -(2**63)))
    ]


def test_an_even_number_of_signs_is_still_signs() -> None:
    assert calculated("- + - - - 5") == 5
    for expression, refusal in (("--'a'", "cannot be applied"), ("--9223372036854775808", "too large for its type")):
        with pytest.raises(FilterError, match=refusal):
            calculated(expression)
    assert str(calculated("-0.0")) == "-0.0"


@pytest.mark.parametrize("number", ["9223372036854775808", "+9223372036854775808", "1 - 9223372036854775808"])
def test_only_a_sign_of_its_own_makes_the_smallest_long(number: str) -> None:
    with pytest.raises(ConfigurationError, match="does not fit into a long"):
        calculated(number)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), st.integers(-3, 3), st.integers(-3, 3))
def test_comparisons_compare(sign: str, left: int, right: int) -> None:
    expected = {"=": left == right, "<>": left != right, "<": left < right, "<=": left <= right, ">": left > right}
    found = evaluated(f"a {sign} b", subject({"a": Int(left), "b": Long(right)}))
    assert found is expected.get(sign, left >= right)
