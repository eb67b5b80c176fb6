"""Microsoft's emulator's ``Config.json``.

Source: Service Bus documentation, "Test locally with the Service Bus emulator"; the schema that its
installer comes with.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar, cast

from sbnotebook.amqp import AmqpValue
from sbnotebook.emulator.entities import RefusedError, Registry, Subscription, Topic
from sbnotebook.emulator.entities.options import (
    Options,
    QueueOptions,
    SubscriptionOptions,
    TopicOptions,
    options_of,
    read_options,
)
from sbnotebook.emulator.entities.rules import CORRELATION_PROPERTIES, CorrelationFilter, Rule, SqlAction, SqlFilter
from sbnotebook.errors import ConfigurationError, near_match

_O = TypeVar("_O", bound=Options)
_T = TypeVar("_T")
# A text, whole or cut off, and then a comment, or a comma that ends a list or an object.
_TEXT: Final = r'"[^"\\]*+(?:\\.?[^"\\]*+)*+(?:"|\Z)'
_COMMENT: Final = re.compile(rf"{_TEXT}|//[^\r\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_NOT_NEW_LINE: Final = re.compile(r"[^\r\n]")  # so that an error names the right line
_LAST_COMMA: Final = re.compile(rf"{_TEXT}|,(?=\s*[\]}}])", re.DOTALL)
_NAMESPACE: Final = ("Name", "Queues", "Topics")
_FILTERS: Final = {"Correlation": "CorrelationFilter", "Sql": "SqlFilter"}
_ANOTHER: Final = {"namespaceconfig": "Namespaces", "entities": "Queues", "subject": "Label", "sendto": "To"}
"""The meaning of names of other files and of the SDKs that resemble no name of this file."""
_SHORTEST_WINDOW: Final = ("DuplicateDetectionHistoryTimeWindow", "PT5S", "PT20S")
"""The shortest window of Microsoft's emulator, and of Service Bus."""


@dataclass(frozen=True, slots=True)
class SubscriptionConfig:
    """A subscription to create; without rules it gets every message."""

    options: SubscriptionOptions
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicConfig:
    options: TopicOptions
    subscriptions: dict[str, SubscriptionConfig] = field(default_factory=dict[str, SubscriptionConfig])


@dataclass(frozen=True, slots=True)
class Config:
    queues: dict[str, QueueOptions] = field(default_factory=dict[str, QueueOptions])
    topics: dict[str, TopicConfig] = field(default_factory=dict[str, TopicConfig])


def read_config(path: Path) -> Config:
    """Read the entities of all namespaces of a configuration file.

    A property that is left out has the default of Service Bus, not of Microsoft's emulator.
    """
    try:
        document = _parse(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"The configuration {path} cannot be read: {str(error).rstrip('.')}.") from None
    # Collect the entities of all namespaces.
    queues: list[dict[str, Any]] = []
    topics: list[dict[str, Any]] = []
    file = _object(document, "the file", ("UserConfig", "$schema"))
    if "UserConfig" not in file:
        raise ConfigurationError(f"The configuration {path} must have UserConfig, and in it Namespaces.")
    user = _object(file["UserConfig"], "UserConfig", ("Namespaces", "Logging"))
    _object(user.get("Logging"), "Logging", ("Type",))
    for namespace in _items(user, "Namespaces", _NAMESPACE):
        queues += _items(namespace, "Queues", ("Name", "Properties"))
        topics += _items(namespace, "Topics", ("Name", "Properties", "Subscriptions"))
    return Config(
        _by_name("queue", queues, lambda queue: _options(QueueOptions, queue)), _by_name("topic", topics, _topic)
    )


def apply_config(registry: Registry, config: Config, now: int) -> None:
    """Create the entities of a configuration, or update their options and rules. Messages stay."""
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


def _topic(item: dict[str, Any]) -> TopicConfig:
    subscriptions = _items(item, "Subscriptions", ("Name", "Properties", "Rules"))
    return TopicConfig(_options(TopicOptions, item), _by_name("subscription", subscriptions, _subscription))


def _subscription(item: dict[str, Any]) -> SubscriptionConfig:
    rules = _by_name("rule", _items(item, "Rules", ("Name", "Properties")), _rule)
    return SubscriptionConfig(_options(SubscriptionOptions, item), tuple(rules.values()))


def _rule(item: dict[str, Any]) -> Rule:
    name = _name(item)
    properties = _object(
        item.get("Properties"), f"Properties of the rule {name}", ("FilterType", *_FILTERS.values(), "Action")
    )
    action = _object(properties.get("Action"), f"Action of the rule {name}", ("SqlExpression",)).get("SqlExpression")
    try:
        return Rule(name, _filter(name, properties), SqlAction(str(action)) if action else None)
    except ConfigurationError as error:
        raise ConfigurationError(f"In the configuration, the rule {name}: {error}") from None


def _filter(name: str, properties: dict[str, Any]) -> CorrelationFilter | SqlFilter:
    kind = str(properties.get("FilterType"))
    if kind not in _FILTERS:
        raise ConfigurationError(f"FilterType of the rule {name} must be Correlation or Sql, not {kind[:40]!r}.")
    used = _FILTERS[kind]
    for other in _FILTERS.values():
        if other != used and properties.get(other):
            raise ConfigurationError(f"{other} of the rule {name} would be ignored: its FilterType is {kind}.")
    if not properties.get(used):
        raise ConfigurationError(f"{used} of the rule {name} is missing: its FilterType is {kind}.")
    where = f"{used} of the rule {name}"
    if kind == "Sql":
        return SqlFilter(str(_object(properties[used], where, ("SqlExpression",)).get("SqlExpression") or ""))
    item = _object(properties[used], where, (*CORRELATION_PROPERTIES, "Properties"))
    texts = {option: str(item[key]) for key, option in CORRELATION_PROPERTIES.items() if item.get(key) is not None}
    values = _object(item.get("Properties"), f"Properties of {where}")
    for key, value in values.items():
        if not isinstance(value, str | int | float):
            raise ConfigurationError(f"The property {key[:40]!r} must be a text, a number, true or false.")
    return CorrelationFilter(**texts, properties=cast("dict[str, AmqpValue]", values))


def _options(kind: type[_O], item: dict[str, Any]) -> _O:
    name = _name(item)
    properties = _object(item.get("Properties"), f"Properties of {name}", options_of(kind))
    texts = {key: _text(value) for key, value in properties.items()}
    window, least_there, least = _SHORTEST_WINDOW
    if texts.get(window) == least_there:
        texts[window] = least
    try:
        return read_options(kind, texts)
    except ConfigurationError as error:
        raise ConfigurationError(f"In the configuration, {name}: {error}") from None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _name(item: dict[str, Any]) -> str:
    name = item.get("Name")
    if not isinstance(name, str) or not name:
        raise ConfigurationError("In the configuration, each queue, topic, subscription and rule needs a Name.")
    return name[:300]


def _by_name(kind: str, items: list[dict[str, Any]], read: Callable[[dict[str, Any]], _T]) -> dict[str, _T]:
    found: dict[str, _T] = {}
    folded: set[str] = set()
    for item in items:
        name = _name(item)
        if name.casefold() in folded:
            raise ConfigurationError(f"The configuration has the {kind} {name[:60]!r} twice.")
        folded.add(name.casefold())
        found[name] = read(item)
    return found


def _items(parent: dict[str, Any], key: str, known: Iterable[str]) -> list[dict[str, Any]]:
    items: Any = parent.get(key) or []
    if not isinstance(items, list):
        raise ConfigurationError(f"In the configuration, {key} must be a list.")
    return [_object(item, f"an item of {key}", known, needed=True) for item in cast("list[Any]", items)]


def _object(value: Any, where: str, known: Iterable[str] | None = None, *, needed: bool = False) -> dict[str, Any]:
    """Return an object of the file, whose keys must be known; one that is missing or null is empty."""
    if value is None and not needed:
        return {}
    if not isinstance(value, dict):
        raise ConfigurationError(f"In the configuration, {where} must be an object.")
    item = cast("dict[str, Any]", value)
    if known is not None:
        names = list(known)
        for key in item:
            if key not in names:
                _refuse(key, names, where)
    return item


def _refuse(key: str, known: list[str], where: str) -> NoReturn:
    another = _ANOTHER.get(key.lower())
    near = another if another in known else near_match(key, known)
    advice = f"did you mean {near}?" if near else f"it knows {', '.join(known)}."
    raise ConfigurationError(f"In the configuration, {where} has an unknown name {key[:60]!r}: {advice}")


def _parse(content: bytes) -> Any:
    """Read JSON with comments and commas at the end, as .NET reads it for Microsoft's emulator."""
    text = content.decode(json.detect_encoding(content))
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError:
        text = _COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else _NOT_NEW_LINE.sub(" ", found[0]), text)
        text = _LAST_COMMA.sub(lambda found: found[0] if found[0][0] == '"' else " ", text)
        return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ConfigurationError(f"An object of the configuration has the name {twice[:60]!r} twice.")
    return found
