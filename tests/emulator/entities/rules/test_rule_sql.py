from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.emulator.entities.rules.rule import MOST_CHARACTERS, SqlAction, compile_filter, sql_filter
from sbnotebook.emulator.entities.rules.subject import FilterError, RuleSubject
from sbnotebook.errors import ConfigurationError

WORDS = [
    "a", "sys", "user", ".", "=", "<>", "AND", "OR", "NOT", "LIKE", "ESCAPE", "IN", "IS", "NULL", "EXISTS", "(", ")",
    ",", "-", "+", "*", "/", "%", "'x'", "5", "1.5e3", "@p", "[b]", '"d"', ";", "SET", "p", "newid", "CASE", "SELECT",
    "::", "->", "{", "}", "--", "/*", "*/", "$", "#", "'", "[", "]", "\\", "?", "!", "|",
]  # fmt: skip


@pytest.mark.parametrize("name", ["order", "date", "case", "if", "any", "select", "from", "timestamp", "set", "é1"])
def test_words_of_other_sqls_are_names_of_properties(name: str) -> None:
    message = RuleSubject(b"")
    message.set(name, 1, system=False)
    assert sql_filter(f"{name} = 1").matches(message)


@pytest.mark.parametrize(
    ("expression", "name"), [("[unit price] > 1", "unit price"), ("[a]]b] > 1", "a]b"), ('"c""d" > 1', 'c"d')]
)
def test_delimited_names_hold_any_character(expression: str, name: str) -> None:
    message = RuleSubject(b"")
    message.set(name, 2, system=False)
    assert sql_filter(expression).matches(message)


@pytest.mark.parametrize(
    "expression",
    [
        "", ";", "a", "a b = 1", "a =", "a = 1 OR", "(a = 1", "a = 1)", "a = 1; b = 2", "a = 'x", "[a = 1", "a == 1",
        "a = 'x' 'y'", "a = N'x'", "_a = 1", "$a = 1", "{{a}} = 1", "a = ?", "a = :b", "a::int = 1", "a.b.c = 1",
        "a = 0x1F", "a = 1_000", "a = 1e", "a BETWEEN 1 AND 2", "a IN b", "a = (1, 2)", "a IN ((1, 2))", "*",
        "COUNT(*) = 1", "a || b = 'x'", "CASE WHEN a = 1 THEN 2 END = 2", "a IN (SELECT b FROM c)", "a = 1 -- b c",
        "a /* b */ = 1", "DISTINCT a", "sys.p('a') = 1", "a = 1 LIMIT 1", "a = DATE '2020-01-01'", "a[0] = 1",
        "a LIKE ANY ('b')", "a = '\ud800'", "SELECT 1", "a & 1 = 1", "~a = 1", "a = 1 XOR b = 2",
    ],
)  # fmt: skip
def test_sql_that_service_bus_does_not_have_is_refused(expression: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        sql_filter(expression)
    assert len(str(refused.value)) < 200
    assert "\n" not in str(refused.value)


def test_the_place_of_a_mistake_is_told() -> None:
    for expression, place in (("a = 1 AND", "column 7, near 'AND'"), ("aa = 1 a b", "column 8, near 'a'")):
        with pytest.raises(ConfigurationError, match=place):
            compile_filter(expression, {})


def test_the_length_is_limited() -> None:
    longest = "a = '" + "x" * (MOST_CHARACTERS - 6) + "'"
    compile_filter(longest, {})
    with pytest.raises(ConfigurationError, match="1024 characters, this one has 1025"):
        compile_filter(longest + " ", {})


@pytest.mark.parametrize("opened", ["(", "NOT(", "-(", "p(", "EXISTS(", "a IN ("])
def test_nesting_is_limited_and_never_overflows_the_stack(opened: str) -> None:
    with pytest.raises(ConfigurationError, match="nested deeper than 16"):
        compile_filter(opened * 100 + "a" + ")" * 100, {})


def test_prefixes_in_a_row_are_not_deep() -> None:
    subject = RuleSubject(b"")
    for count, even in ((240, True), (241, False)):
        assert compile_filter("NOT " * count + "1 = 1", {})(subject) is even
        assert compile_filter("-" * count + "1 = " + "-+" * count + "1", {})(subject) is True
        assert compile_filter("-" * count + "1 > 0", {})(subject) is even


@pytest.mark.parametrize("joined", [" AND ", " OR ", "+", "-", "*", "="])
def test_a_long_row_is_not_deep(joined: str) -> None:
    part = "a=1" if joined.isalpha() or " " in joined else "1"
    row = joined.join([part] * (900 // len(part + joined)))
    if joined == "=":
        with pytest.raises(ConfigurationError):
            sql_filter(row)
    else:
        assert not sql_filter(row if part == "a=1" else f"{row} = 7").matches(RuleSubject(b""))


@given(st.booleans(), st.lists(st.sampled_from(WORDS), max_size=25))
def test_nonsense_expressions_raise_only_our_own_errors(is_action: bool, words: list[str]) -> None:
    with contextlib.suppress(ConfigurationError, FilterError):
        expression = " ".join(words)
        if is_action:
            SqlAction(f"SET {expression}", {"p": 1}).apply(RuleSubject(b""))
        else:
            sql_filter(expression, {"p": 1}).matches(RuleSubject(b""))


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigurationError):
        assert compile_filter(text, {})


def test_a_long_mistake_is_quoted_up_to_40_characters() -> None:
    with pytest.raises(ConfigurationError, match=f"near '{'b' * 40}'"):
        compile_filter("a = 1 " + "b" * 41, {})


def test_the_nesting_counts_open_parentheses() -> None:
    compile_filter("(" * 16 + "1" + ")" * 16 + " = 1", {})
    compile_filter(" AND ".join(["(-a = 1)"] * 20), {})
    compile_filter(f"a = '{'(' * 20}'", {})
    with pytest.raises(ConfigurationError, match="nested deeper than 16"):
        compile_filter("(" * 17 + "1" + ")" * 17 + " = 1", {})
