from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import UUID

import pytest

from sbnotebook.amqp import AmqpValue, Int, Long, Timestamp
from sbnotebook.emulator.entities.json_form import rule_from_json, rule_to_json, stored, stored_rules
from sbnotebook.emulator.entities.options import SubscriptionOptions
from sbnotebook.emulator.entities.rules.rule import (
    FALSE_FILTER,
    TRUE_FILTER,
    Rule,
    SqlAction,
    correlation_filter,
    sql_filter,
)
from sbnotebook.emulator.entities.rules.subject import RuleSubject
from tests.emulator.entities.conftest import encoded
from tests.emulator.entities.rules.conftest import subject

VALUES: dict[str, AmqpValue] = {
    "@text": "a", "@int": Int(1), "@long": Long(1), "@double": 1.0, "@bool": True, "@null": None,
    "@when": Timestamp(5), "@id": UUID(int=1), "@bytes": b"a",
}  # fmt: skip
RULES = [
    Rule("$Default", TRUE_FILTER),
    Rule("none", FALSE_FILTER, created_time=5),
    Rule("sql", sql_filter("a = @int", VALUES), SqlAction("SET a = @long; REMOVE b", VALUES), 7),
    Rule("correlated", correlation_filter(correlation_id="c", subject="", properties=VALUES), SqlAction("REMOVE b")),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_comes_back_from_json_as_it_was(rule: Rule) -> None:
    back = stored_rules(json.loads(json.dumps(stored(SubscriptionOptions(), [rule]))))[0]
    assert back == rule
    if back.filter.kind == "Sql":
        assert [type(value) for value in back.filter.values.values()] == [type(value) for value in VALUES.values()]


def test_a_datetime_is_kept_as_a_timestamp() -> None:
    rule = Rule("dated", correlation_filter(properties={"when": datetime(2024, 5, 6, tzinfo=UTC)}))
    back = rule_from_json(rule_to_json(rule))
    assert back.filter.values == {"when": Timestamp(1_714_953_600_000)}


def test_an_action_changes_the_copy_and_not_the_message() -> None:
    message = subject({"size": Int(4)})
    before = message.payload
    copy = RuleSubject(Rule("half", TRUE_FILTER, SqlAction("SET size = size / 2")).copy(message))
    assert (copy.user("size"), copy.user("RuleName")) == (2, "half")
    assert (message.payload, message.user("size")) == (before, 4)


def test_an_action_knows_when_the_topic_took_the_message() -> None:
    message = RuleSubject(encoded(), enqueued_time=9, sequence_number=3)
    action = SqlAction("SET taken = sys.EnqueuedTimeUtc; SET number = sys.SequenceNumber")
    copy = RuleSubject(Rule("a", TRUE_FILTER, action).copy(message))
    assert (copy.user("taken"), copy.user("number")) == (Timestamp(9), 3)
