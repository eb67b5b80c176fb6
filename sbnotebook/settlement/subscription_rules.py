"""The rules of a topic's subscriptions, read from the service; evaluating them is the caller's part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.servicebus.management import CorrelationRuleFilter, FalseRuleFilter, SqlRuleFilter, TrueRuleFilter

from sbnotebook.model import EntityAddress
from sbnotebook.model.routes import PlacedRules, Route, RuleDescription
from sbnotebook.settlement.administration import explaining, name_of_target, queue_or_topic
from sbnotebook.settlement.connecting.connection import Connection

_FIELDS: Final = ("correlation_id", "message_id", "to", "reply_to", "session_id", "reply_to_session_id", "content_type")
"""Fields of a correlation filter that have the same name in a message; the other one is its subject."""


async def route_of(connection: Connection, name: str) -> Route:
    """Return the route of an entity, or one that says why it could not be read.

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
        return Route(name, is_topic=False, unknown=str(error), is_missing=True)
    except (AzureError, OSError) as error:
        is_refused = getattr(error, "status_code", None) in (401, 403)
        why = "reading the rules needs the right Manage" if is_refused else "its rules could not be read"
        return Route(name, is_topic=False, unknown=why)


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
