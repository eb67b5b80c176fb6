from __future__ import annotations

import pytest

from sbnotebook.emulator.entities.rules.rule import MOST_STATEMENTS, compile_action
from sbnotebook.emulator.entities.rules.subject import RuleSubject
from sbnotebook.errors import ConfigurationError


@pytest.mark.parametrize("separator", ["; ", " ", ", ", ";\n"])
@pytest.mark.parametrize("last", ["", ";"])
def test_separators_between_statements_are_free(separator: str, last: str) -> None:
    message = RuleSubject(b"")
    for statement in compile_action(separator.join(["set A = 1", "SET user.b = 2", "Remove a"]) + last, {}):
        statement(message)
    assert (message.user("a"), message.user("b")) == (None, 2)


def test_properties_may_be_named_after_the_words_of_an_action() -> None:
    message = RuleSubject(b"")
    for statement in compile_action("SET user.set = 1; SET [remove] = user.set + 1; REMOVE user.set", {}):
        statement(message)
    assert (message.user("set"), message.user("remove")) == (None, 2)


@pytest.mark.parametrize(
    "expression",
    [
        "", ";", "a = 1", "; SET a = 1", "SET", "SET a", "SET a =", "SET a > 1", "SET a = 1 = 2", "SET a = (b = 2)",
        "SET a = b AND c", "SET 'a' = 1", "SET a = 1, b = 2", "SET other.a = 1", "SET p('a') = 1", "REMOVE",
        "REMOVE 'a'", "REMOVE a, b", "REMOVE a = 1", "REMOVE other.a", "SET a = b LIKE 'c'", "SET a = EXISTS(b)",
        "SET a = @b", "SET a = 1;;SET b = x y", "UPDATE a SET b = 1", "SET a = 'x",
    ],
)  # fmt: skip
def test_an_invalid_statement_is_refused(expression: str) -> None:
    with pytest.raises(ConfigurationError):
        compile_action(expression, {})


def test_the_number_of_statements_is_limited() -> None:
    assert len(compile_action("SET a=1;" * MOST_STATEMENTS, {})) == MOST_STATEMENTS
    with pytest.raises(ConfigurationError, match="at most 32 statements, this one has 33"):
        compile_action("SET a=1;" * (MOST_STATEMENTS + 1), {})


def test_the_length_is_limited() -> None:
    with pytest.raises(ConfigurationError, match="1024"):
        compile_action("SET a = '" + "x" * 1_024 + "'", {})
