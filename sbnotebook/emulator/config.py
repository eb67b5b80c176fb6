"""Microsoft's emulator's ``Config.json``.

Source: Service Bus documentation, "Test locally with the Service Bus emulator"; the schema that its
installer comes with.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from sbnotebook.emulator.entities import RefusedError, Registry, Subscription, Topic
from sbnotebook.emulator.entities.options import Options, QueueOptions, SubscriptionOptions, TopicOptions
from sbnotebook.emulator.entities.rules import CorrelationFilter, Rule, SqlAction, SqlFilter
from sbnotebook.emulator.service.properties import CORRELATION_PROPERTIES, PROPERTIES, read_properties
from sbnotebook.errors import ConfigurationError
from sbnotebook.model.amqp import AmqpValue

__all__ = ["Config", "SubscriptionConfig", "TopicConfig", "apply_config", "read_config"]

_LOGGER: Final = logging.getLogger(__name__)
_O = TypeVar("_O", bound=Options)


@dataclass(frozen=True, slots=True)
class SubscriptionConfig:
    """A subscription to create; without rules it gets every message."""

    options: SubscriptionOptions
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic to create, with its subscriptions by name."""

    options: TopicOptions
    subscriptions: dict[str, SubscriptionConfig] = field(default_factory=dict[str, SubscriptionConfig])


@dataclass(frozen=True, slots=True)
class Config:
    """Entities to create, by name."""

    queues: dict[str, QueueOptions] = field(default_factory=dict[str, QueueOptions])
    topics: dict[str, TopicConfig] = field(default_factory=dict[str, TopicConfig])


def read_config(path: Path) -> Config:
    """Read the entities of all namespaces of a configuration file.

    A property that is left out has the default of Service Bus, not of Microsoft's emulator.

    Args:
        path: the file.

    Raises:
        ConfigurationError: the file cannot be read, or its content is not valid.
    """
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"The configuration {path} cannot be read: {error}.") from None
    # Collect the entities of all namespaces.
    config = Config()
    if "UserConfig" not in _object(document, "the file"):
        raise ConfigurationError(f"The configuration {path} must have UserConfig, and in it Namespaces.")
    for namespace in _items(document["UserConfig"], "Namespaces"):
        for queue in _items(namespace, "Queues"):
            config.queues[_name(queue)] = _options(QueueOptions, queue)
        for topic in _items(namespace, "Topics"):
            subscriptions = {_name(each): _subscription(each) for each in _items(topic, "Subscriptions")}
            config.topics[_name(topic)] = TopicConfig(_options(TopicOptions, topic), subscriptions)
    return config


def apply_config(registry: Registry, config: Config, now: int) -> None:
    """Create the entities of a configuration, or update their options and rules. Messages stay.

    Args:
        registry: the entities.
        config: the entities to create or update; others stay as they are.
        now: ms.

    Raises:
        ConfigurationError: an entity cannot be created or updated.
        EmulatorError: a queue has the name of a topic, or a topic that of a queue.
    """
    try:
        _apply_queues(registry, config, now)
        _apply_topics(registry, config, now)
        # The order of entities is free: check where they forward to once all are made.
        registry.check_targets(*config.queues.values())
        for topic in config.topics.values():
            registry.check_targets(*(each.options for each in topic.subscriptions.values()))
    except RefusedError as error:
        raise ConfigurationError(f"The configuration cannot be applied: {error}") from None


def _apply_queues(registry: Registry, config: Config, now: int) -> None:
    for name, options in config.queues.items():
        queue = registry.find_queue(name)
        if queue is None:
            registry.create_queue(name, options, now=now)
        elif queue.options != options:
            registry.update(queue, options, now=now)


def _apply_topics(registry: Registry, config: Config, now: int) -> None:
    for name, wanted in config.topics.items():
        topic = registry.find_topic(name)
        if topic is None:
            topic = registry.create_topic(name, wanted.options, now=now)
        elif topic.options != wanted.options:
            registry.update(topic, wanted.options, now=now)
        for each, subscription in wanted.subscriptions.items():
            _apply_subscription(registry, topic, each, subscription, now)


def _apply_subscription(registry: Registry, topic: Topic, name: str, wanted: SubscriptionConfig, now: int) -> None:
    found = registry.find_subscription(topic.path, name)
    rules = list(wanted.rules)
    if found is None:
        registry.create_subscription(topic, name, wanted.options, now=now, rules=rules or None)
        return
    if found.options != wanted.options:
        registry.update(found, wanted.options, now=now)
    if rules:
        _apply_rules(registry, found, rules, now)


def _apply_rules(registry: Registry, subscription: Subscription, rules: list[Rule], now: int) -> None:
    for rule in rules:
        before = subscription.find_rule(rule.name)
        if before is None or replace(before, created_time=rule.created_time) != rule:
            registry.put_rule(subscription, rule, now=now)
    names = {rule.name.casefold() for rule in rules}
    for rule in subscription.rules:
        if rule.name.casefold() not in names:
            registry.remove_rule(subscription, rule.name, now=now)


def _subscription(item: dict[str, Any]) -> SubscriptionConfig:
    rules = tuple(_rule(each) for each in _items(item, "Rules"))
    return SubscriptionConfig(_options(SubscriptionOptions, item), rules)


def _rule(item: dict[str, Any]) -> Rule:
    name = _name(item)
    properties = _object(item.get("Properties") or {}, f"Properties of the rule {name}")
    action = _object(properties.get("Action") or {}, f"Action of the rule {name}").get("SqlExpression")
    try:
        return Rule(name, _filter(name, properties), SqlAction(str(action)) if action else None)
    except ConfigurationError as error:
        raise ConfigurationError(f"In the configuration, the rule {name}: {error}") from None


def _filter(name: str, properties: dict[str, Any]) -> CorrelationFilter | SqlFilter:
    kind = str(properties.get("FilterType"))
    if kind == "Correlation":
        return _correlation(_object(properties.get("CorrelationFilter"), f"CorrelationFilter of the rule {name}"))
    if kind == "Sql":
        sql = _object(properties.get("SqlFilter"), f"SqlFilter of the rule {name}")
        return SqlFilter(str(sql.get("SqlExpression") or ""))
    raise ConfigurationError(f"FilterType of the rule {name} must be Correlation or Sql, not {kind[:40]!r}.")


def _correlation(item: dict[str, Any]) -> CorrelationFilter:
    texts = {option: str(item[key]) for key, option in CORRELATION_PROPERTIES.items() if item.get(key) is not None}
    properties = _object(item.get("Properties") or {}, "Properties of a CorrelationFilter")
    for key, value in properties.items():
        if not isinstance(value, str | int | float):
            raise ConfigurationError(f"The property {key[:40]!r} must be a text, a number, true or false.")
    return CorrelationFilter(**texts, properties=cast("dict[str, AmqpValue]", properties))


def _options(kind: type[_O], item: dict[str, Any]) -> _O:
    name = _name(item)
    properties = _object(item.get("Properties") or {}, f"Properties of {name}")
    options = {each.name for each in fields(kind)}
    for key in properties:
        if key not in PROPERTIES or PROPERTIES[key].option not in options:
            _LOGGER.warning(
                "In the configuration, %.60r: there is no property %.60r, so it changes nothing.", name, key
            )
    try:
        return read_properties(kind, {key: _text(value) for key, value in properties.items()})
    except ConfigurationError as error:
        raise ConfigurationError(f"In the configuration, {name}: {error}") from None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _name(item: dict[str, Any]) -> str:
    return str(item.get("Name", ""))[:300]


def _items(parent: Any, key: str) -> list[dict[str, Any]]:
    items: Any = _object(parent or {}, f"what holds {key}").get(key) or []
    if not isinstance(items, list):
        raise ConfigurationError(f"{key} must be a list.")
    return [_object(item, f"an item of {key}") for item in cast("list[Any]", items)]


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"In the configuration, {what} must be an object.")
    return cast("dict[str, Any]", value)
