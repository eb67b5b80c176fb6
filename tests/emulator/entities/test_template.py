from __future__ import annotations

import copy
import json
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import pytest

from sbnotebook.amqp import ULong
from sbnotebook.emulator.entities import QueueOptions, Registry, SubscriptionOptions, TopicOptions
from sbnotebook.emulator.entities.options import AuthorizationRule, Claim
from sbnotebook.emulator.entities.rules import CorrelationFilter, FalseFilter, Rule, SqlAction, SqlFilter, TrueFilter
from sbnotebook.emulator.entities.template import create_from, template_of
from sbnotebook.errors import ConfigurationError

RULES = [
    Rule("big", SqlFilter("size > @least", {"@least": ULong(5)}), SqlAction("SET kind = 'big'")),
    Rule("one", CorrelationFilter(subject="a", properties={"n": 1})),
    Rule("no", FalseFilter()),
    Rule("yes", TrueFilter()),
]


def filled(registry: Registry) -> Registry:
    registry.create_queue("target")
    topic = registry.create_topic("topic", TopicOptions(requires_duplicate_detection=True))
    registry.create_queue("Source", QueueOptions(5_000, 3, requires_session=True, enable_partitioning=True))
    registry.create_queue("chained", QueueOptions(forward_to="sb://localhost:1/target", default_time_to_live=9_000))
    registry.create_subscription(topic, "some", SubscriptionOptions(forward_dead_letters_to="target"), rules=RULES)
    registry.create_subscription(topic, "all")
    return registry


def test_entities_are_created_again_with_options_and_rules(registry: Registry) -> None:
    template = template_of(filled(registry))
    again = Registry(registry.tier)
    create_from(again, json.loads(json.dumps(template)), 7)
    assert [each["path"] for each in template_of(again)] == [
        *("target", "topic", "Source", "chained", "topic/Subscriptions/some", "topic/Subscriptions/all")
    ]
    assert template_of(again) == template
    source, some = again.find_queue("source"), again.find_subscription("topic", "some")
    chained = again.find_queue("chained")
    assert source is not None
    assert chained is not None
    assert chained.options.forward_to == "target"
    assert some is not None
    assert (source.options.lock_duration, source.options.max_delivery_count, source.is_partitioned) == (5_000, 3, True)
    assert source.sessions is not None
    assert some.rules == sorted(RULES, key=attrgetter("name"))


def test_keys_and_what_ends_an_entity_are_left_out(registry: Registry) -> None:
    rule = AuthorizationRule("key", "secret", "secret", frozenset({Claim.SEND}))
    registry.create_queue("q", QueueOptions(authorization_rules=(rule,), auto_delete_on_idle=300_000))
    template = template_of(registry)
    assert "secret" not in json.dumps(template)
    template[0]["options"] |= {"authorization_rules": [{"key_name": "mine"}], "auto_delete_on_idle": 300_000}
    again = Registry(registry.tier)
    create_from(again, template, 0)
    assert again.queues[0].options == QueueOptions()


def wrong_queue(**options: Any) -> Callable[[list[Any]], object]:
    return lambda template: template[0]["options"].update(options)


WRONG: list[tuple[Callable[[list[Any]], object], str]] = [
    (lambda template: template.append(None), "TypeError"),
    (lambda template: template.append("queue"), "TypeError"),
    (lambda template: template[0].pop("kind"), "KeyError"),
    (lambda template: template[0].update(kind="bus"), "no entities of the kind 'bus'"),
    (lambda template: template[0].update(kind="subscription"), "no entities of the kind 'subscription'"),
    (lambda template: template[0].update(kind="zoo"), "no entities of the kind 'zoo'"),
    (lambda template: template[4].update(kind="bus"), "no entities of the kind 'bus'"),
    (lambda template: template[4].update(kind="zoo"), "no entities of the kind 'zoo'"),
    (lambda template: template[0].update(kind="x" * 61), f"no entities of the kind '{'x' * 60}'"),
    (lambda template: template[0].update(path=7), "TypeError|AttributeError|address"),
    (lambda template: template[0].update(path="a/$dlq"), "cannot be the name"),
    (lambda template: template.append(template[0]), "already an entity"),
    (lambda template: template.insert(0, template[-1]), "no topic 'topic'"),
    (wrong_queue(lock_duration="long"), "LockDuration: 'long' is not a duration"),
    (wrong_queue(max_delivery_count=1.5), "MaxDeliveryCount is of the wrong type"),
    (wrong_queue(max_delivery_count=0), "MaxDeliveryCount must be"),
    (wrong_queue(requires_session=1), "RequiresSession is of the wrong type"),
    (wrong_queue(forward_to=["x"]), "ForwardTo is of the wrong type"),
    (lambda template: template[0].update(options=[]), "Error"),
    (lambda template: template[4].update(rules=None), "TypeError"),
    (lambda template: template[4]["rules"][0].update(name=7), "wrong type"),
    (lambda template: template[4]["rules"][0]["filter"].update(type="python"), "KeyError"),
    (lambda template: template[4]["rules"][0]["filter"].update(expression="import os"), "An entity cannot"),
    (lambda template: template[4]["rules"][0]["filter"].update(expression=["1"]), "wrong type"),
    (lambda template: template[4]["rules"][0]["filter"].update(parameters={"@least": "zz"}), "ValueError"),
    (lambda template: template[4]["rules"][1]["filter"].update(subject=5), "wrong type"),
]


@pytest.mark.parametrize(("change", "why"), WRONG, ids=range(len(WRONG)))
def test_template_of_a_stranger_is_refused_in_a_sentence(
    registry: Registry, change: Callable[[list[Any]], object], why: str
) -> None:
    template = copy.deepcopy(template_of(filled(registry)))
    change(template)
    with pytest.raises(ConfigurationError, match=why) as refusal:
        create_from(Registry(registry.tier), template, 0)
    assert str(refusal.value).startswith("An entity cannot be created: ")
    assert "\n" not in str(refusal.value)
