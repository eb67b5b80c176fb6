from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any, cast

import pytest

from sbnotebook.amqp import ULong
from sbnotebook.emulator.config import Wanted, apply_config, config_of, config_to_json, read_config
from sbnotebook.emulator.entities.options import (
    AuthorizationRule,
    Claim,
    QueueOptions,
    SubscriptionOptions,
    TopicOptions,
)
from sbnotebook.emulator.entities.queue import Queue, Subscription
from sbnotebook.emulator.entities.registry import Changes, Registry
from sbnotebook.emulator.entities.rules.rule import (
    FALSE_FILTER,
    TRUE_FILTER,
    Rule,
    SqlAction,
    correlation_filter,
    sql_filter,
)
from sbnotebook.errors import ConfigurationError

# Says all that the schema of Microsoft's emulator knows.
DOCUMENT: dict[str, Any] = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {
                        "Name": "bills",
                        "Properties": {
                            "DeadLetteringOnMessageExpiration": True,
                            "DefaultMessageTimeToLive": "PT30M",
                            "DuplicateDetectionHistoryTimeWindow": "PT40S",
                            "ForwardDeadLetteredMessagesTo": "plain",
                            "ForwardTo": "",
                            "LockDuration": "PT2M",
                            "MaxDeliveryCount": 4,
                            "RequiresDuplicateDetection": True,
                            "RequiresSession": True,
                        },
                    },
                    {"Name": "plain"},
                ],
                "Topics": [
                    {
                        "Name": "team/events",
                        "Properties": {
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "RequiresDuplicateDetection": False,
                        },
                        "Subscriptions": [
                            {
                                "Name": "audit",
                                "Properties": {
                                    "DeadLetteringOnMessageExpiration": False,
                                    "DefaultMessageTimeToLive": "PT1H",
                                    "LockDuration": "PT1M",
                                    "MaxDeliveryCount": 3,
                                    "ForwardDeadLetteredMessagesTo": "",
                                    "ForwardTo": "plain",
                                    "RequiresSession": False,
                                },
                                "Rules": [
                                    {
                                        "Name": "system",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {
                                                "ContentType": "text/plain",
                                                "CorrelationId": "c",
                                                "Label": "l",
                                                "MessageId": "m",
                                                "ReplyTo": "r",
                                                "ReplyToSessionId": "rs",
                                                "SessionId": "s",
                                                "To": "t",
                                            },
                                        },
                                    },
                                    {
                                        "Name": "own",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {"Properties": {"color": "red", "size": 3}},
                                        },
                                    },
                                    {
                                        "Name": "sql",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {"SqlExpression": "sys.MessageId = '1' AND color = 'red'"},
                                            "Action": {"SqlExpression": "SET sys.To = 'Entity'"},
                                        },
                                    },
                                ],
                            },
                            {"Name": "all"},
                        ],
                    }
                ],
            },
            {"Name": "another", "Queues": [{"Name": "more"}]},
        ],
        "Logging": {"Type": "File"},
    }
}
RULES = (
    Rule(
        "system",
        correlation_filter(
            content_type="text/plain",
            correlation_id="c",
            subject="l",
            message_id="m",
            reply_to="r",
            reply_to_session_id="rs",
            session_id="s",
            to="t",
        ),
    ),
    Rule("own", correlation_filter(properties={"color": "red", "size": 3})),
    Rule("sql", sql_filter("sys.MessageId = '1' AND color = 'red'"), SqlAction("SET sys.To = 'Entity'")),
)


def written(tmp_path: Path, document: object) -> Path:
    path = tmp_path / "Config.json"
    path.write_text(json.dumps(document))
    return path


def test_every_property_of_the_schema_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = read_config(written(tmp_path, DOCUMENT))
    assert not caplog.messages
    bills = QueueOptions(
        lock_duration=120_000,
        max_delivery_count=4,
        requires_session=True,
        default_time_to_live=1_800_000,
        dead_letter_on_expiration=True,
        requires_duplicate_detection=True,
        duplicate_detection_window=40_000,
        forward_dead_letters_to="plain",
    )
    topic = TopicOptions(default_time_to_live=3_600_000, duplicate_detection_window=20_000)
    audit = SubscriptionOptions(default_time_to_live=3_600_000, max_delivery_count=3, forward_to="plain")
    assert config == [
        Wanted(QueueOptions, "bills", bills),
        Wanted(QueueOptions, "plain", QueueOptions()),
        Wanted(QueueOptions, "more", QueueOptions()),
        Wanted(TopicOptions, "team/events", topic),
        Wanted(SubscriptionOptions, "audit", audit, RULES, "team/events"),
        Wanted(SubscriptionOptions, "all", SubscriptionOptions(), (), "team/events"),
    ]


@pytest.mark.parametrize(
    ("namespace", "match"),
    [
        ({"Queues": [{"Name": "q", "Properties": {"LockDuration": "1 minute"}}]}, "q: LockDuration.*not a duration"),
        ({"Queues": [{"Name": "q", "Properties": {"MaxDeliveryCount": 0}}]}, "q: MaxDeliveryCount"),
        ({"Queues": [{"Name": "q", "Properties": {"MaxDeliveryCount": [1]}}]}, "q: MaxDeliveryCount"),
        ({"Queues": [{"Name": "q", "Properties": {"RequiresSession": "perhaps"}}]}, "q: RequiresSession"),
        ({"Queues": [{"Name": "q", "Properties": None}]}, None),
        ({"Queues": [{"Name": "q", "Properties": "x"}]}, "must be an object"),
        ({"Queues": cast("Any", {})}, None),
        ({"Queues": "x"}, "Queues must be a list"),
        ({"Queues": ["x"]}, "must be an object"),
        ({"Queues": [cast("Any", {})]}, "needs a Name"),
        ({"Queues": [{"Name": ["q"]}]}, "needs a Name"),
        ({"Queues": [{"Name": "q"}, {"Name": "Q"}]}, "the queue 'Q' twice"),
        ({"Topics": [{"Name": "t", "Subscriptions": [{"Name": "s"}, {"Name": "s"}]}]}, "the subscription 's' twice"),
        ("x", "must be an object"),
        ({"Topics": [{"Name": "t", "Subscriptions": 5}]}, "Subscriptions must be a list"),
    ],
)
def test_an_invalid_value_is_refused_with_its_name(tmp_path: Path, namespace: object, match: str | None) -> None:
    path = written(tmp_path, {"UserConfig": {"Namespaces": [namespace]}})
    if match is None:
        read_config(path)
        return
    with pytest.raises(ConfigurationError, match=match):
        read_config(path)


def renamed(part: Any, before: str, after: str) -> Any:
    """The document with one name changed, wherever it is."""
    return json.loads(json.dumps(part).replace(f'"{before}":', f'"{after}":'))


NAMES = sorted({*re.findall(r'"(\w+)":', json.dumps(DOCUMENT))} - {"color", "size"})


def misspelt(name: str) -> str:
    return name.replace("e", "") + "x"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", [str.lower, str.upper, misspelt])
def test_an_unknown_name_anywhere_is_refused_with_the_near_match(
    tmp_path: Path, name: str, change: Callable[[str], str]
) -> None:
    document = renamed(DOCUMENT, name, change(name))
    with pytest.raises(ConfigurationError) as refused:
        read_config(written(tmp_path, document))
    assert f"unknown name {change(name)!r}: did you mean " in str(refused.value)
    if change in (str.lower, str.upper):
        assert str(refused.value).endswith(f"did you mean {name}?")


@pytest.mark.parametrize(
    ("place", "name", "meant"),
    [
        ("UserConfig", "NamespaceConfig", "did you mean Namespaces?"),
        ("Namespaces", "Entities", "did you mean Queues?"),  # azure-service-bus-emulator-installer issue 102
        ("Subscriptions", "Rule", "did you mean Rules?"),
        ("CorrelationFilter", "Subject", "did you mean Label?"),
        ("CorrelationFilter", "SendTo", "did you mean To?"),
        ("Queues", "Zebra", "it knows Name, Properties."),
        ("SqlFilter", "Zebra", "it knows SqlExpression, Parameters."),
        ("Logging", "Level", "it knows Type."),
    ],
)
def test_a_name_of_another_file_beside_a_right_one_is_refused(
    tmp_path: Path, place: str, name: str, meant: str
) -> None:
    before = json.dumps(DOCUMENT)
    text = re.sub(rf'("{place}": \[?{{)', rf'\1"{name}": [], ', before)
    assert text != before
    with pytest.raises(ConfigurationError, match=re.escape(meant)):
        read_config(written(tmp_path, json.loads(text)))


@pytest.mark.parametrize(
    "text",
    [
        '{"UserConfig": {"Namespaces": [{"Queues": [{"Name": "q"}], "Queues": []}]}}',
        '{"UserConfig": {}, "UserConfig": {}}',
    ],
)
def test_a_name_that_is_there_twice_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "Config.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="twice"):
        read_config(path)


COMMENTED = r"""// The emulator's own "Config".
{
  /* Two lines, with "UserConfig": [1,]
     and a star * / inside. */
  "UserConfig": { // {"Namespaces": []}
    "Namespaces": [{
      "Name": "sbemulatorns", "Queues": [
        {"Name": "slash//queue", "Properties": {"UserMetadata": "a \" // b /* c */ ,] \\",}},/**/
        // {"Name": "off"},
      ], // the end
    },],
    "Logging": {"Type": "File" , /* , */ }//
  , }
}
/* and no end"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_comments_and_last_commas_are_read_as_dotnet_reads_them(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "Config.json"
    path.write_text(COMMENTED, encoding=encoding)
    (queue,) = read_config(path)
    assert (queue.name, queue.options) == ("slash//queue", QueueOptions(user_metadata='a " // b /* c */ ,] \\'))


@pytest.mark.parametrize("tail", ['"', "/*", "//", ",", "/", '{"a": 1,,}', "[,]"])
def test_what_is_no_json_after_all_is_refused_at_its_line(tmp_path: Path, tail: str) -> None:
    path = tmp_path / "Config.json"
    path.write_text('// one\n/* two\n*/{"UserConfig": ' + tail)
    with pytest.raises(ConfigurationError, match=r"cannot be read: .*line [34]"):
        read_config(path)


@pytest.mark.parametrize("ending", ["", "// end"])
def test_a_file_of_10_mb_is_read_within_its_budget(tmp_path: Path, ending: str) -> None:
    note = "n" * 120
    queues = [{"Name": f"q{number}", "Properties": {"UserMetadata": note}} for number in range(60_000)]
    path = tmp_path / "Config.json"
    path.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Queues": queues}]}}) + ending)
    assert path.stat().st_size > 10_000_000
    begun = process_time()
    assert len(read_config(path)) == 60_000
    assert process_time() - begun < 15


@pytest.mark.parametrize("part", ["/*", "//\n", ",", '"', "[", "{", '"\\', " ,", "/", '{"":'])
def test_megabytes_of_nonsense_are_refused_within_their_budget(tmp_path: Path, part: str) -> None:
    path = tmp_path / "Config.json"
    path.write_text((part * 2_000_000)[:2_000_000])
    begun = process_time()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_config(path)
    assert process_time() - begun < 15


def test_the_shortest_window_of_microsofts_emulator_is_read(tmp_path: Path) -> None:
    queue = {"Name": "q", "Properties": {"DuplicateDetectionHistoryTimeWindow": "PT5S"}}
    path = written(tmp_path, {"UserConfig": {"Namespaces": [{"Queues": [queue]}]}})
    assert read_config(path) == [Wanted(QueueOptions, "q", QueueOptions(duplicate_detection_window="20s"))]


@pytest.mark.parametrize("document", [{}, {"$schema": "x"}])
def test_a_file_without_the_outermost_name_is_no_configuration(tmp_path: Path, document: object) -> None:
    with pytest.raises(ConfigurationError, match="must have UserConfig"):
        read_config(written(tmp_path, document))


def with_rule(properties: dict[str, Any]) -> dict[str, Any]:
    """A configuration with one rule."""
    subscription = {"Name": "s", "Rules": [{"Name": "r", "Properties": properties}]}
    return {"UserConfig": {"Namespaces": [{"Topics": [{"Name": "t", "Subscriptions": [subscription]}]}]}}


@pytest.mark.parametrize(
    ("properties", "match"),
    [
        ({"FilterType": "Wild"}, "FilterType of the rule r"),
        ({"FilterType": "Sql"}, "SqlFilter of the rule r"),
        ({"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a ="}}, "rule r"),
        ({"FilterType": "Correlation"}, "CorrelationFilter of the rule r"),
        (
            {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a = 1"}, "CorrelationFilter": {"To": "x"}},
            "CorrelationFilter of the rule r would be ignored",
        ),
        ({"FilterType": "Correlation", "CorrelationFilter": {}}, "rule r"),
        ({"FilterType": "Correlation", "CorrelationFilter": {"Properties": {"a": None}}}, "rule r.*'a'"),
        ({"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a = 1"}, "Action": {"SqlExpression": "GO"}}, "rule r"),
    ],
)
def test_an_invalid_rule_is_refused_with_its_name(tmp_path: Path, properties: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        read_config(written(tmp_path, with_rule(properties)))


@pytest.mark.parametrize("text", [None, "{", "[" * 100_000, "\xff"])
def test_an_unreadable_file_is_reported_in_one_sentence(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "Config.json"
    if text is not None:
        path.write_text(text, encoding="latin-1")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_config(path)


def test_existing_entities_get_the_options_and_rules_of_the_file(tmp_path: Path) -> None:
    registry, config = Registry(), read_config(written(tmp_path, DOCUMENT))
    registry.create_queue("PLAIN", QueueOptions(max_delivery_count=3))
    registry.create_queue("other")
    topic = registry.create_topic("team/events")
    before = registry.create_subscription(topic, "audit", rules=[Rule("old", TRUE_FILTER), Rule("SQL", TRUE_FILTER)])
    apply_config(registry, config, 5)
    assert [queue.path for queue in registry.queues] == ["bills", "more", "other", "PLAIN"]
    plain, bills = registry.find("plain"), registry.find("bills")
    assert isinstance(plain, Queue)
    assert plain.options == QueueOptions()
    assert isinstance(bills, Queue)
    assert (bills.options, bills.created_time) == (config[0].options, 5)
    assert topic.options == config[3].options
    assert registry.find("team/events/subscriptions/audit") is before
    assert before.rules == sorted(RULES, key=lambda rule: rule.name)
    everything = topic.find_subscription("all")
    assert everything is not None
    assert [rule.filter for rule in everything.rules] == [TRUE_FILTER]


def queue(name: str, **options: Any) -> Wanted:
    return Wanted(QueueOptions, name, QueueOptions(**options))


@pytest.mark.parametrize(
    ("config", "target"),
    [
        ([queue("q", forward_dead_letters_to="late"), queue("late")], None),
        ([queue("q", forward_to="late"), Wanted(TopicOptions, "late")], None),
        ([queue("q", forward_to="missing")], "missing"),
        (
            [
                Wanted(TopicOptions, "t"),
                Wanted(SubscriptionOptions, "s", SubscriptionOptions(forward_to="missing"), topic="t"),
            ],
            "missing",
        ),
    ],
)
def test_targets_of_forwarding_exist_in_the_end(config: list[Wanted], target: str | None) -> None:
    if target is None:
        apply_config(Registry(), config, 0)
        return
    with pytest.raises(ConfigurationError, match=f"destination entity does not exist: '{target}'"):
        apply_config(Registry(), config, 0)


def test_the_same_file_again_changes_nothing(tmp_path: Path) -> None:
    registry, config = Registry(), read_config(written(tmp_path, DOCUMENT))
    apply_config(registry, config, 5)
    assert registry.changes
    registry.changes = Changes()
    apply_config(registry, config, 6)
    assert not registry.changes


def test_a_topic_cannot_have_the_name_of_a_queue() -> None:
    registry = Registry()
    registry.create_queue("orders")
    with pytest.raises(ConfigurationError, match="already an entity"):
        apply_config(registry, [Wanted(TopicOptions, "Orders", TopicOptions())], 0)


TYPED = (
    Rule("big", sql_filter("size > @least", {"@least": ULong(5)}), SqlAction("SET kind = 'big'")),
    Rule("no", FALSE_FILTER),
    Rule("one", correlation_filter(subject="a", properties={"n": 1, "huge": float("inf"), "yes": True})),
    Rule("yes", TRUE_FILTER),
)


def test_entities_are_the_same_after_their_configuration_was_read() -> None:
    before, after = Registry(), Registry()
    apply_config(before, config_of(DOCUMENT), 5)
    keys = (AuthorizationRule("key", "secret", "secret", frozenset({Claim.SEND})),)
    before.create_queue("chained", QueueOptions(forward_to="sb://localhost:1/plain", authorization_rules=keys))
    topic = before.create_topic("typed", TopicOptions(user_metadata="secret", enable_partitioning=True))
    before.create_subscription(topic, "rules", SubscriptionOptions(auto_delete_on_idle="5m"), rules=TYPED)
    before.create_subscription(topic, "none", rules=[])
    text = json.dumps(config_to_json(before))
    assert "secret" not in text
    apply_config(after, config_of(json.loads(text)), 7)
    assert config_to_json(after) == json.loads(text)
    rules, none = after.find("typed/subscriptions/rules"), after.find("typed/subscriptions/none")
    assert isinstance(rules, Subscription)
    assert (tuple(rules.rules), rules.options) == (TYPED, SubscriptionOptions())
    assert isinstance(none, Subscription)
    assert [rule.filter for rule in none.rules] == [FALSE_FILTER]
    chained = after.find("chained")
    assert isinstance(chained, Queue)
    assert chained.options == QueueOptions(forward_to="plain")


@pytest.mark.parametrize("value", ["zz", "", 5, None, "a1ff"])
def test_digits_that_are_no_value_are_refused(value: object) -> None:
    properties = {"FilterType": "Correlation", "CorrelationFilter": {"Properties": {"a": {"amqp": value}}}}
    with pytest.raises(ConfigurationError, match="'a' has no AMQP value"):
        config_of(with_rule(properties))
