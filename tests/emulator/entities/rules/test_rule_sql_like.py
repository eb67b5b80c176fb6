from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sbnotebook.amqp import AmqpValue
from sbnotebook.emulator.entities.rules.rule import MOST_PATTERN_CHARACTERS, compile_filter, like_test
from sbnotebook.emulator.entities.rules.subject import FilterError, RuleSubject
from sbnotebook.errors import ConfigurationError
from tests.chances import rounds
from tests.costs import steps

ESCAPE = "|"


def reference(pattern: str, text: str, escape: str) -> bool:
    """LIKE by its definition, try after try; fine for short texts only."""
    if not pattern:
        return not text
    first, rest = pattern[0], pattern[1:]
    if first == escape:
        literal, rest = (rest[0], rest[1:]) if rest else (first, "")
        return text[:1] == literal and reference(rest, text[1:], escape)
    if first == "%":
        return any(reference(rest, text[start:], escape) for start in range(len(text) + 1))
    return bool(text) and first in ("_", text[0]) and reference(rest, text[1:], escape)


@settings(max_examples=rounds(100, 1000))
@given(st.text("ab%_| ~", max_size=7), st.text("ab%_| ~", max_size=7), st.sampled_from(["", ESCAPE]))
@example("%a%b%", "aabb", "")
@example("_a", "aa", "")
@example("a|%", "a%", ESCAPE)
@example("a|", "a|", ESCAPE)
@example("%", "", "")
@example("a b", "a__b", "")
@example("~b", "b", ESCAPE)
@example("%a%b", "aa", "")
def test_like_is_what_its_definition_says(pattern: str, text: str, escape: str) -> None:
    assert like_test(pattern, escape)(text) is reference(pattern, text, escape)


@pytest.mark.parametrize("pattern", ["%a" * 500 + "%b", "a_" * 500 + "%", "%" * 1_000 + "b"])
def test_a_hostile_pattern_costs_as_much_as_the_text_is_long(pattern: str) -> None:
    hostile, harmless = like_test(pattern), like_test("a%b")
    text = "a" * 5_000
    assert not harmless(text)
    # Each character is one step of integers as wide as the pattern; backtracking would never end.
    assert steps(lambda: hostile(text)) < 10 * len(text)


def test_upper_and_lower_case_differ() -> None:
    assert not like_test("A%")("abc")


def test_any_character_counts_as_one() -> None:
    assert like_test("_\n_")("é\n\U0001f600")


@pytest.mark.parametrize("escape", ["", "ab", 1, True])
def test_an_escape_character_is_checked_at_once(escape: AmqpValue) -> None:
    with pytest.raises(ConfigurationError, match="one character"):
        compile_filter("'a' LIKE 'a' ESCAPE @escape", {"escape": escape})


def test_a_pattern_from_a_message_is_checked() -> None:
    test = compile_filter("'a' LIKE @pattern ESCAPE '|'", {"pattern": "a" * (MOST_PATTERN_CHARACTERS + 1)})
    with pytest.raises(FilterError, match="1024"):
        test(RuleSubject(b""))
    longest = compile_filter("'a' LIKE @pattern", {"pattern": "a" * MOST_PATTERN_CHARACTERS})
    assert longest(RuleSubject(b"")) is False
