"""The rules of a topic's subscriptions, read from the service; evaluating them is the caller's part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.servicebus.management import CorrelationRuleFilter, FalseRuleFilter, SqlRuleFilter, TrueRuleFilter

from sbnotebook.model import EntityAddress
from sbnotebook.settlement.administration import explaining, name_of_target, queue_or_topic
from sbnotebook.settlement.connecting.connection import Connection

_FIELDS: Final = ("correlation_id", "message_id", "to", "reply_to", "session_id", "reply_to_session_id", "content_type")
"""Fields of a correlation filter that have the same name in a message; the other one is its subject."""


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


class MissingEntity(str):
    """The sentence that there is no such entity."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Route:
    """Where a queue or topic passes on its messages.

    Args:
        name: of the queue or topic.
        is_topic: whether it is a topic.
        subscriptions: of a topic.
        forwards_to: the entity to which a queue forwards.
    """

    name: str
    is_topic: bool
    subscriptions: tuple[PlacedRules, ...] = ()
    forwards_to: str | None = None


async def route_or_reason(connection: Connection, name: str) -> Route | str:
    """Return the route of an entity, or why it could not be read, in a clause.

    Args:
        connection: the namespace. Reading rules needs the right Manage.
        name: of a queue or topic.

    Source: "EntityStatus Enumeration" in Microsoft's reference, for disabled subscriptions.
    """
    try:
        async with connection.administration_client() as client, explaining(connection, EntityAddress(name)):
            found, is_topic = await queue_or_topic(client, name)
            if not is_topic:
                return Route(name, is_topic=False, forwards_to=_target(found))
            subscriptions: list[Any] = [each async for each in client.list_subscriptions(name)]
            placed = [
                PlacedRules(
                    EntityAddress(name, each.name),
                    tuple([described(rule) async for rule in client.list_rules(name, each.name)]),
                    str(getattr(each.status, "value", each.status)) != "Active",
                    _target(each),
                    each.dead_lettering_on_filter_evaluation_exceptions is not False,
                    bool(each.requires_session),
                )
                for each in subscriptions
            ]
        return Route(name, is_topic=True, subscriptions=tuple(placed))
    except ResourceNotFoundError as error:
        return MissingEntity(error)
    except (AzureError, OSError) as error:
        if getattr(error, "status_code", None) in (401, 403):
            return "reading the rules needs the right Manage"
        return "its rules could not be read"


def _target(described: Any) -> str | None:
    return name_of_target(described.forward_to) if described.forward_to else None


def described(rule: Any) -> RuleDescription:
    kept, changed = rule.filter, getattr(rule.action, "sql_expression", None)
    bare = RuleDescription(
        rule.name, None, action=changed or None, action_parameters=dict(getattr(rule.action, "parameters", None) or {})
    )
    match kept:
        case TrueRuleFilter():  # a SqlRuleFilter, too
            return replace(bare, kind="true")
        case FalseRuleFilter():
            return replace(bare, kind="false")
        case SqlRuleFilter():
            return replace(bare, kind="sql", expression=kept.sql_expression or "", parameters=kept.parameters or {})
        case CorrelationRuleFilter():
            fields = {name: getattr(kept, name) for name in _FIELDS} | {"subject": kept.label}
            texts = {name: value for name, value in fields.items() if value is not None}
            return replace(bare, kind="correlation", fields=texts, properties=kept.properties or {})
        case _:
            return bare
