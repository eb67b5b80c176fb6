"""Create entities of one namespace in another one, with the same options and rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from azure.core.exceptions import ResourceNotFoundError

from sbnotebook.model import EntityAddress
from sbnotebook.settlement.administration import client_of, explaining, name_of
from sbnotebook.settlement.connecting.administration_clients import AsyncServiceBusAdministrationClient
from sbnotebook.settlement.connecting.connection import Connection

__all__ = ["replicate"]

_BOTH: Final = (
    "default_message_time_to_live",
    "duplicate_detection_history_time_window",
    "enable_partitioning",
    "max_message_size_in_kilobytes",
    "requires_duplicate_detection",
)
_RECEIVING: Final = (
    "dead_lettering_on_message_expiration",
    "default_message_time_to_live",
    "lock_duration",
    "max_delivery_count",
    "requires_session",
)
_FILTERED: Final = ("dead_lettering_on_filter_evaluation_exceptions",)
_TARGETS: Final = ("forward_to", "forward_dead_lettered_messages_to")
_DEFAULT_RULE: Final = "$Default"


async def replicate(source: Connection, target: Connection, names: Iterable[str]) -> None:
    """Create queues and topics of a namespace in an empty one, with their subscriptions, rules and forwarding targets.

    Keys, metadata, the size of the entity and its automatic deletion are left out. The source only answers questions.

    Args:
        source: the namespace that has them.
        target: the namespace that gets them.
        names: of queues and topics.

    Raises:
        azure.core.exceptions.ResourceNotFoundError: the source has no such entity.
        azure.core.exceptions.AzureError: a request failed; it needs the right Manage on the source.
    """
    async with client_of(source) as asked, client_of(target) as told:
        made: set[str] = set()
        for name in names:
            async with explaining(source, EntityAddress(name)):
                await _replicate(asked, told, name, made)


async def _replicate(
    asked: AsyncServiceBusAdministrationClient,
    told: AsyncServiceBusAdministrationClient,
    name: str,
    made: set[str],
) -> None:
    """Create one queue or topic; the entities to which it forwards come first."""
    if name.casefold() in made:
        return
    made.add(name.casefold())
    try:
        queue: Any = await asked.get_queue(name)
    except (ResourceNotFoundError, AttributeError):  # the SDK looks for a queue's description in a topic's
        topic: Any = await asked.get_topic(name)
        await told.create_topic(name, **_options(topic, _BOTH))
        for subscription in [each async for each in asked.list_subscriptions(name)]:
            await _forwarding(asked, told, subscription, made)
            options = _options(subscription, (*_RECEIVING, *_FILTERED, *_TARGETS))
            await told.create_subscription(name, subscription.name, **options)
            await _rules(asked, told, name, subscription.name)
        return
    await _forwarding(asked, told, queue, made)
    await told.create_queue(name, **_options(queue, dict.fromkeys((*_BOTH, *_RECEIVING, *_TARGETS))))


async def _forwarding(
    asked: AsyncServiceBusAdministrationClient,
    told: AsyncServiceBusAdministrationClient,
    place: Any,
    made: set[str],
) -> None:
    for option in _TARGETS:
        if target := getattr(place, option):
            await _replicate(asked, told, name_of(target), made)


async def _rules(
    asked: AsyncServiceBusAdministrationClient, told: AsyncServiceBusAdministrationClient, topic: str, subscription: str
) -> None:
    rules: list[Any] = [rule async for rule in asked.list_rules(topic, subscription)]
    await told.delete_rule(topic, subscription, _DEFAULT_RULE)
    for rule in rules:
        action = rule.action if getattr(rule.action, "sql_expression", None) else None
        await told.create_rule(topic, subscription, rule.name, filter=rule.filter, action=action)


def _options(properties: Any, names: Iterable[str]) -> dict[str, Any]:
    found = {name: getattr(properties, name) for name in names}
    found |= {name: name_of(found[name]) for name in _TARGETS if found.get(name)}
    return {name: value for name, value in found.items() if value is not None}
