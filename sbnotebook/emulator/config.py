"""Microsoft's emulator's ``Config.json``: the entities of a namespace, without their messages.

Source: Service Bus documentation, "Test locally with the Service Bus emulator"; the schema that its
installer comes with.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from sbnotebook.emulator.entities.json_form import (
    as_object,
    name_of,
    options_from_json,
    options_to_json,
    rule_from_json,
    rule_to_json,
)
from sbnotebook.emulator.entities.options import (
    Options,
    QueueOptions,
    SubscriptionOptions,
    TopicOptions,
    forwarding_target,
)
from sbnotebook.emulator.entities.queue import Subscription
from sbnotebook.emulator.entities.refusals import RefusedError
from sbnotebook.emulator.entities.registry import AnyEntity, Registry
from sbnotebook.emulator.entities.rules.rule import FALSE_FILTER, Rule
from sbnotebook.errors import ConfigurationError


class Wanted(NamedTuple):
    """An entity that is to be there. Without options it stays as it is; without rules it gets every message."""

    kind: type[Options]
    name: str
    options: Options | None = None
    rules: tuple[Rule, ...] = ()
    topic: str = ""  # of a subscription


# A text, whole or cut off, and then a comment, or a comma that ends a list or an object.
_TEXT: Final = r'"[^"\\]*+(?:\\.?[^"\\]*+)*+(?:"|\Z)'
_COMMENT: Final = r"//[^\r\n]*+|/\*.*?(?:\*/|\Z)"
_LEFT_AWAY: Final = re.compile(rf"{_TEXT}|{_COMMENT}|,(?=(?:\s|{_COMMENT})*+[\]}}])", re.DOTALL)
_NOT_NEW_LINE: Final = re.compile(r"[^\r\n]")  # so that an error names the right line
_ITEM: Final = ("Name", "Properties")
_LEFT_OUT: Final = ("AutoDeleteOnIdle", "MaxSizeInMegabytes", "Status", "UserMetadata")


def read_config(path: Path) -> list[Wanted]:
    """Read the entities of all namespaces of a configuration file.

    A property that is left out has the default of Service Bus, not of Microsoft's emulator.
    """
    try:
        document = _parse(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"The configuration {path} cannot be read: {str(error).rstrip('.')}.") from None
    return config_of(document)


def config_of(document: Any) -> list[Wanted]:
    """Read the entities of a configuration, which a stranger may have written."""
    file = as_object(document, "the file", ("UserConfig", "$schema"))
    if "UserConfig" not in file:
        raise ConfigurationError("The configuration must have UserConfig, and in it Namespaces.")
    user = as_object(file["UserConfig"], "UserConfig", ("Namespaces", "Logging"))
    as_object(user.get("Logging"), "Logging", ("Type",))
    namespaces = _items(user, "Namespaces", ("Name", "Queues", "Topics"))
    # All queues, then all topics, each with its subscriptions.
    queues = [each for namespace in namespaces for each in _items(namespace, "Queues", _ITEM)]
    topics = [each for namespace in namespaces for each in _items(namespace, "Topics", (*_ITEM, "Subscriptions"))]
    wanted = [_wanted(QueueOptions, queue) for queue in _once("queue", queues)]
    for topic in _once("topic", topics):
        wanted.append(_wanted(TopicOptions, topic))
        for each in _once("subscription", _items(topic, "Subscriptions", (*_ITEM, "Rules"))):
            rules = tuple(rule_from_json(rule) for rule in _once("rule", _items(each, "Rules", _ITEM)))
            wanted.append(_wanted(SubscriptionOptions, each)._replace(rules=rules, topic=name_of(topic)))
    return wanted


def _wanted(kind: type[Options], item: dict[str, Any]) -> Wanted:
    return Wanted(kind, name_of(item), options_from_json(kind, item))


def config_to_json(registry: Registry) -> dict[str, Any]:
    """Return the configuration of all entities, without keys, sizes, metadata, automatic deletion and status."""
    topics = [
        _item(topic.path, topic.options)
        | {
            "Subscriptions": [
                # Without rules a subscription gets nothing, and in this file everything.
                _item(each.name, each.options)
                | {"Rules": list(map(rule_to_json, each.rules or [Rule("none", FALSE_FILTER)]))}
                for each in topic.subscriptions
            ]
        }
        for topic in registry.topics
    ]
    queues = [_item(queue.path, queue.options) for queue in registry.queues]
    return {"UserConfig": {"Namespaces": [{"Name": "sbnotebook", "Queues": queues, "Topics": topics}]}}


def _item(name: str, options: Options) -> dict[str, Any]:
    properties = {
        # The name of a target alone: the address is that of this emulator.
        key: forwarding_target(value) if key.startswith("Forward") else value
        for key, value in options_to_json(options).items()
        if key not in _LEFT_OUT
    }
    return {"Name": name, "Properties": properties}


def apply_config(registry: Registry, config: Iterable[Wanted], now: int) -> None:
    """Create the entities of a configuration, or update their options and rules. Messages stay."""
    config = list(config)
    try:
        for wanted in config:
            _apply(registry, wanted, now)
        # The order of entities is free: check where they forward to once all are made.
        registry.check_targets(*(wanted.options for wanted in config if wanted.options is not None))
    except RefusedError as error:
        raise ConfigurationError(f"The configuration cannot be applied: {error}") from None


def _apply(registry: Registry, wanted: Wanted, now: int) -> None:
    options: Any = wanted.options or wanted.kind()
    topic = registry.find_topic(wanted.topic)
    found = registry.find(wanted.name) if topic is None else topic.find_subscription(wanted.name)
    if topic is not None and found is None:
        registry.create_subscription(topic, wanted.name, options, now=now, rules=wanted.rules or None)
    elif not isinstance(found, AnyEntity) or type(found.options) is not wanted.kind:
        registry.create(wanted.name, options, now=now)
    elif wanted.options is not None and found.options != wanted.options:
        registry.update(found, wanted.options, now=now)
    if isinstance(found, Subscription) and wanted.rules:
        _apply_rules(registry, found, wanted.rules, now)


def _apply_rules(registry: Registry, subscription: Subscription, rules: Iterable[Rule], now: int) -> None:
    for rule in rules:
        before = subscription.find_rule(rule.name)
        if before is None or replace(before, created_time=rule.created_time) != rule:
            registry.put_rule(subscription, rule, now=now)
    for name in {rule.name.casefold() for rule in subscription.rules} - {rule.name.casefold() for rule in rules}:
        registry.remove_rule(subscription, name, now=now)


def _once(kind: str, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = Counter(name_of(item).casefold() for item in items)
    for item in reversed(items):
        if names[name_of(item).casefold()] > 1:
            raise ConfigurationError(f"The configuration has the {kind} {name_of(item)[:60]!r} twice.")
    return items


def _items(parent: dict[str, Any], key: str, known: Iterable[str]) -> list[dict[str, Any]]:
    items: Any = parent.get(key) or []
    if not isinstance(items, list):
        raise ConfigurationError(f"In the configuration, {key} must be a list.")
    return [as_object(item, f"an item of {key}", known, needed=True) for item in cast("list[Any]", items)]


def _parse(content: bytes) -> Any:
    """Read JSON with comments and commas at the end, as .NET reads it for Microsoft's emulator."""
    text = content.decode(json.detect_encoding(content))
    text = _LEFT_AWAY.sub(lambda found: found[0] if found[0][0] == '"' else _NOT_NEW_LINE.sub(" ", found[0]), text)
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ConfigurationError(f"An object of the configuration has the name {twice[:60]!r} twice.")
    return found
