"""Routes: the destinations of the messages of a queue or topic, by forwarding and by the rules of subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sbnotebook.model.address import EntityAddress


@dataclass(frozen=True, slots=True)
class RuleDescription:
    """One rule as the service describes it.

    Args:
        name: of the rule.
        kind: ``true``, ``false``, ``sql`` or ``correlation``; None for one that is not known.
        expression: of a SQL filter.
        parameters: of the expression.
        fields: system properties that a correlation filter compares, by their names in a message.
        properties: application properties that a correlation filter compares.
        action: the SQL expression that changes the copies; None for none.
        action_parameters: of this expression.
    """

    name: str
    kind: str | None
    expression: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    fields: Mapping[str, str] = field(default_factory=dict[str, str])
    properties: Mapping[str, Any] = field(default_factory=dict[str, Any])
    action: str | None = None
    action_parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class PlacedRules:
    """A subscription and its rules.

    Args:
        address: of the subscription.
        rules: by name.
        is_disabled: whether its consumers receive nothing; Service Bus copies messages into it nevertheless.
        forwards_to: the queue or topic to which it forwards; None for none.
        keeps_failures: whether a message on which a rule cannot be evaluated is dead-lettered; otherwise it is dropped.
        in_sessions: whether a message without a session id is dead-lettered there, not received.
    """

    address: EntityAddress
    rules: tuple[RuleDescription, ...]
    is_disabled: bool = False
    forwards_to: str | None = None
    keeps_failures: bool = True
    in_sessions: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """The destinations of the messages of a queue or topic.

    Args:
        name: of the queue or topic.
        is_topic: whether it is a topic.
        subscriptions: of a topic.
        forwards_to: the entity to which a queue forwards.
        unknown: why it could not be read; None where it was.
        is_missing: whether there is no such entity, which ``unknown`` says in a sentence.
    """

    name: str
    is_topic: bool
    subscriptions: tuple[PlacedRules, ...] = ()
    forwards_to: str | None = None
    unknown: str | None = None
    is_missing: bool = False
