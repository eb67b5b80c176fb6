from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID
from xml.etree import ElementTree as ET

import pytest

from sbnotebook.amqp import AmqpValue, Described, Int, Long, Short, Symbol, Timestamp
from sbnotebook.emulator.entities.rules.rule import (
    FALSE_FILTER,
    TRUE_FILTER,
    Rule,
    SqlAction,
    correlation_filter,
    sql_filter,
)
from sbnotebook.emulator.service import descriptions
from sbnotebook.emulator.service.descriptions import describe_rule, read_default_rule, read_rule
from sbnotebook.errors import ConfigurationError

NAMESPACES = (
    'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" '
    'xmlns:i="http://www.w3.org/2001/XMLSchema-instance" xmlns:d="http://www.w3.org/2001/XMLSchema"'
)
VALUES: dict[str, AmqpValue] = {
    "text": "<str1>",
    "int": Int(-2),
    "long": Long(2**31 + 3),
    "short": Short(7),
    "boolean": False,
    "double": 2.5,
    "time": Timestamp.from_datetime(datetime(2020, 7, 5, 11, 12, 13)),  # noqa: DTZ001 - as the SDK sends it
    "span": Described(
        Symbol("com.microsoft:timespan"), Long(timedelta(days=1, hours=2) // timedelta(microseconds=1) * 10)
    ),
    "guid": UUID(int=5),
}


def described(content: str, kind: str = "RuleDescription") -> ET.Element:
    text = f"<content><{kind} {NAMESPACES}>{content}</{kind}></content>"
    return descriptions.read_description(f"<entry xmlns='http://www.w3.org/2005/Atom'>{text}</entry>".encode())


def values(content: str) -> str:
    return (
        '<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType>'
        f"{content}</KeyValueOfstringanyType></Properties></Filter>"
    )


@pytest.mark.parametrize(
    "rule",
    [
        Rule("r", TRUE_FILTER, None, 5),
        Rule("$Default", FALSE_FILTER, None, 5),
        Rule("r", sql_filter("a = @a AND b < 3", {"@a": Int(1)}), SqlAction("SET c = @c", {"@c": VALUES["time"]}), 5),
        Rule("r", correlation_filter(subject="a", to="b", properties=VALUES), SqlAction("REMOVE c"), 5),
        Rule(
            "r",
            correlation_filter(
                correlation_id="1",
                message_id="2",
                to="3",
                reply_to="4",
                subject="5",
                session_id="6",
                reply_to_session_id="7",
                content_type="8",
            ),
            None,
            5,
        ),
    ],
)
def test_a_rule_is_read_as_it_was_written(rule: Rule) -> None:
    body = descriptions.document(descriptions.entry("r", "http://h/r", 0, 0, describe_rule(rule)))
    again = read_rule(rule.name, descriptions.read_description(body), 5)
    assert again == rule
    kept = again.filter.values
    assert {name: type(value) for name, value in kept.items()} == {
        name: type(value) for name, value in rule.filter.values.items()
    }


def test_a_moment_that_no_calendar_has_is_a_number() -> None:
    rule = Rule("r", correlation_filter(properties={"time": Timestamp(2**60)}))
    again = read_rule("r", describe_rule(rule), 0)
    assert again.filter.values == {"time": Long(2**60)}


def test_a_rule_without_a_filter_matches_every_message() -> None:
    assert read_rule("r", described(""), 7) == Rule("r", TRUE_FILTER, None, 7)


def test_a_subscription_may_come_with_its_first_rule() -> None:
    assert read_default_rule(described("", "SubscriptionDescription"), 7) is None
    content = '<DefaultRuleDescription><Filter i:type="FalseFilter"/>{}</DefaultRuleDescription>'
    first = read_default_rule(described(content.format("<Name>mine</Name>"), "SubscriptionDescription"), 7)
    assert first == Rule("mine", FALSE_FILTER, None, 7)
    unnamed = read_default_rule(described(content.format(""), "SubscriptionDescription"), 7)
    assert unnamed == Rule("$Default", FALSE_FILTER, None, 7)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ('<Filter i:type="WildFilter"/>', "no filter 'WildFilter'"),
        ("<Filter/>", "no filter ''"),
        ('<Action i:type="Run"/>', "no action 'Run'"),
        ('<Filter i:type="SqlFilter"/>', None),
        ('<Filter i:type="CorrelationFilter"/>', "at least one"),
        (values('<Value i:type="d:int">1</Value>'), "needs? a Key"),
        (values("<Key>k</Key>"), "needs? a Key"),
        (values('<Key>k</Key><Value i:type="d:wild">1</Value>'), "'wild'"),
        (values("<Key>k</Key><Value>1</Value>"), "type ''"),
        (values('<Key>k</Key><Value i:type="d:int">2147483648</Value>'), "is not of the type int"),
        (values(f'<Key>k</Key><Value i:type="d:long">{"9" * 5_000}</Value>'), "is not of the type long"),
        (values('<Key>k</Key><Value i:type="d:int">x</Value>'), "is not of the type int"),
        (values('<Key>k</Key><Value i:type="d:boolean">x</Value>'), "is not of the type boolean"),
        (values('<Key>k</Key><Value i:type="d:dateTime">x</Value>'), "is not of the type dateTime"),
        (values('<Key>k</Key><Value i:type="d:duration">x</Value>'), "duration"),
        (values('<Key>k</Key><Value i:type="d:guid">x</Value>'), "is not of the type guid"),
    ],
)
def test_an_invalid_description_is_refused(content: str, match: str | None) -> None:
    with pytest.raises(ConfigurationError, match=match) as caught:
        read_rule("r", described(content), 0)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", ["", "a/b", "a?", "a#b", "a*", "x" * 51])
def test_invalid_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="not the name of a rule"):
        read_rule(name, described(""), 0)
