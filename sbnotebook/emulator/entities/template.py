"""A template: the entities of a namespace as plain values, without their messages, from which they can be made again.

It leaves out keys, sizes, user metadata, automatic deletion and the status of an entity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final, TypeVar

from sbnotebook.emulator.entities.options import (
    Options,
    QueueOptions,
    SubscriptionOptions,
    TopicOptions,
    forwarding_target,
    options_from_json,
)
from sbnotebook.emulator.entities.registry import AnyEntity, Registry
from sbnotebook.emulator.entities.rules import Rule
from sbnotebook.emulator.entities.topic import Subscription, Topic
from sbnotebook.errors import ConfigurationError, SbNotebookError
from sbnotebook.model.address import EntityAddress

_O = TypeVar("_O", bound=Options)
_LEFT_OUT: Final = frozenset(("authorization_rules", "auto_delete_on_idle", "max_size_mb", "status", "user_metadata"))
_TARGETS: Final = ("forward_to", "forward_dead_letters_to")
_MALFORMED: Final = (SbNotebookError, AttributeError, KeyError, OverflowError, TypeError, ValueError)
"""The errors of a template that was not made by ``template_of``."""


def template_of(registry: Registry) -> list[dict[str, Any]]:
    """Return the entities with their options and rules as plain JSON values, in the order of their creation."""
    topics = registry.topics
    entities: list[AnyEntity] = [*registry.queues, *topics, *(each for topic in topics for each in topic.subscriptions)]
    return [_described(entity) for entity in sorted(entities, key=attrgetter("record.entity_id"))]


def create_from(registry: Registry, template: Sequence[Any], now: int) -> None:
    for each in template:
        try:
            _create(registry, each, now)
        except _MALFORMED as error:
            reason = (
                str(error)[:200] if isinstance(error, SbNotebookError) else f"{type(error).__name__} in its options"
            )
            raise ConfigurationError(f"An entity cannot be created: {reason.rstrip('.')}.") from None


def _described(entity: AnyEntity) -> dict[str, Any]:
    options = {
        each.name: getattr(entity.options, each.name) for each in fields(entity.options) if each.name not in _LEFT_OUT
    }
    for name in _TARGETS:
        if options.get(name):  # the name alone: the address is that of this emulator
            options[name] = forwarding_target(options[name])
    described: dict[str, Any] = {"kind": entity.record.kind, "path": entity.path, "options": options}
    if isinstance(entity, Subscription):
        described["rules"] = [_described_rule(rule) for rule in entity.rules]
    return described


def _described_rule(rule: Rule) -> dict[str, Any]:
    plain = rule.to_json()
    return {name: plain[name] for name in ("name", "filter", "action")}


def _create(registry: Registry, described: Mapping[str, Any], now: int) -> None:
    kind, path, options = described["kind"], described["path"], described["options"]
    address = EntityAddress.parse(path)
    if kind == "queue":
        registry.create_queue(path, _options(QueueOptions, options), now=now)
    elif kind == "topic":
        registry.create_topic(path, _options(TopicOptions, options), now=now)
    elif kind == "subscription" and address.subscription is not None:
        topic = registry.find(address.name)
        if not isinstance(topic, Topic):
            raise ConfigurationError(f"There is no topic {address.name[:60]!r}")
        rules = [_rule(each) for each in described["rules"]]
        registry.create_subscription(
            topic, address.subscription, _options(SubscriptionOptions, options), now=now, rules=rules
        )
    else:
        raise ConfigurationError(f"There are no entities of the kind {str(kind)[:60]!r}")


def _options(kind: type[_O], plain: Mapping[str, Any]) -> _O:
    return options_from_json(kind, {name: value for name, value in plain.items() if name not in _LEFT_OUT})


def _rule(plain: Mapping[str, Any]) -> Rule:
    parts: list[Any] = [plain["name"], *plain["filter"].values(), *(plain["action"] or {}).values()]
    if not all(isinstance(part, str | dict | None) for part in parts):
        raise ConfigurationError("a rule has a value of the wrong type")
    return Rule.from_json({**plain, "created_time": 0, "texts": {}})
