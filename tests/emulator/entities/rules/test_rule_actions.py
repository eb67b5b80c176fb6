from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.amqp import AmqpValue, Described, Int, Long, Timestamp, ULong, encode
from sbnotebook.amqp.sections import APPLICATION_PROPERTIES, DATA, FOOTER, PROPERTIES, SEQUENCE, VALUE
from sbnotebook.emulator.entities.rules.rule import SqlAction
from sbnotebook.emulator.entities.rules.subject import FilterError, RuleSubject
from tests.emulator.entities.rules.conftest import subject


def test_the_documented_example() -> None:
    message = subject({"quantity": Int(11), "priority": "high"}, correlation_id="high")
    SqlAction("SET quantity = quantity / 2; REMOVE priority;SET sys.CorrelationId = 'low';").apply(message)
    assert (message.user("quantity"), type(message.user("quantity"))) == (5, Int)
    assert not message.exists("priority", system=False)
    assert message.system("CorrelationId") == "low"


def test_a_statement_sees_what_those_before_it_did() -> None:
    message = subject({"a": Int(1)})
    SqlAction("SET a = a + 1 SET b = a * 10 REMOVE a").apply(message)
    assert (message.user("b"), message.exists("a", system=False)) == (20, False)


def test_values_come_from_parameters_functions_and_the_system() -> None:
    message = subject({}, label="greeting", message_id="m")
    action = SqlAction(
        "SET when = @when; SET [a label] = sys.Label + '!'; SET sys.MessageId = newid()", {"@when": Timestamp(5)}
    )
    action.apply(message)
    assert (message.user("when"), message.user("a label")) == (Timestamp(5), "greeting!")
    assert message.system("MessageId") != "m"


def test_a_missing_property_makes_a_null_and_no_error() -> None:
    message = subject({"a": Int(1)})
    SqlAction("SET a = nothing + 1; REMOVE nothing").apply(message)
    assert (message.user("a"), message.exists("a", system=False)) == (None, True)


@pytest.mark.parametrize(
    "expression", ["SET sys.Nonsense = 1", "REMOVE sys.Size", "SET a = b / 0", "SET sys.TimeToLive = 5"]
)
def test_an_action_that_fails_raises_filter_error(expression: str) -> None:
    with pytest.raises(FilterError):
        SqlAction(expression).apply(subject({"b": Int(1)}))


def test_a_text_cannot_be_doubled_without_end() -> None:
    with pytest.raises(FilterError, match="32768"):
        SqlAction("SET a = a + a;" * 32).apply(subject({"a": "x" * 100}))


Sections = list[tuple[int, AmqpValue]]

BODIES: list[Sections] = [
    [(DATA, b"one")],
    [(DATA, b""), (DATA, bytes(range(256)) * 3)],
    [(VALUE, {"a": Long(1)})],
    [(SEQUENCE, [1, "two"]), (FOOTER, {})],
    [],
]


@given(
    st.sampled_from(BODIES),
    st.dictionaries(
        st.sampled_from("abc"), st.one_of(st.text(max_size=3), st.binary(max_size=3), st.floats()), max_size=3
    ),
    st.lists(
        st.sampled_from(["SET a = 'x'", "SET d = b", "REMOVE c", "SET sys.Label = 'l'", "REMOVE sys.To"]), min_size=1
    ),
)
def test_the_body_and_what_is_not_named_stay_byte_for_byte(
    body: Sections, properties: dict[str, AmqpValue], statements: list[str]
) -> None:
    parts: Sections = [(PROPERTIES, ["id", None, "to"]), (APPLICATION_PROPERTIES, properties)]
    head, tail = (b"".join(encode(Described(ULong(code), value)) for code, value in each) for each in (parts, body))
    message = RuleSubject(head + tail)
    SqlAction(";".join(statements[:32])).apply(message)
    assert message.payload.endswith(tail)
    if "b" in properties:
        assert encode("b") + encode(properties["b"]) in message.payload
    assert message.system("MessageId") == "id"


def test_a_new_integer_is_a_long() -> None:
    message = subject()
    SqlAction("SET a = 5").apply(message)
    assert type(message.user("a")) is Long
