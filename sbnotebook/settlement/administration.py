"""The entities and rules of a namespace: list, create, delete and replicate them, and write them as ``Config.json``.

Source: Service Bus documentation, "Test locally with the Service Bus emulator".
Its "Overview of the Azure Service Bus emulator" has the limits of 50 queues and topics, of 50 subscriptions of a topic,
and of 1 hour, under "Usage quotas". ServiceBus-Emulator/Schema/Config-schema.json in
Azure/azure-service-bus-emulator-installer has the name of the namespace, and MaxDeliveryCount up to 10.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterable, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from azure.core.exceptions import (
    AzureError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
)
from azure.servicebus.management import CorrelationRuleFilter, FalseRuleFilter, SqlRuleFilter, TrueRuleFilter

from sbnotebook.model import EntityAddress, SubQueue
from sbnotebook.model.connection_strings import scrub
from sbnotebook.model.routes import PlacedRules, Route, RuleDescription
from sbnotebook.settlement.connecting.connection import Connection
from sbnotebook.settlement.connecting.failures import unreachable
from sbnotebook.settlement.requests import in_parallel

if TYPE_CHECKING:
    from azure.servicebus.aio.management import ServiceBusAdministrationClient

_NO_RIGHT: Final = (401, 403)
_AT_ONCE: Final = 8
"""Management operations that wait for their answers at once."""
_DETAIL: Final = re.compile(r"<Detail>([^<]*)")
_NOISE: Final = re.compile(r"(?i)^SubCode=\d+\. ?| ?(?:SubCode=\d+\.|To know more visit|TrackingId).*")
_BOTH: Final = (
    "default_message_time_to_live",
    "duplicate_detection_history_time_window",
    "enable_partitioning",
    "max_message_size_in_kilobytes",
    "requires_duplicate_detection",
)
"""Options that replicas of queues and of topics keep; the next ones are those of queues and subscriptions."""
_RECEIVING: Final = (
    "dead_lettering_on_message_expiration",
    "default_message_time_to_live",
    "lock_duration",
    "max_delivery_count",
    "requires_session",
)
_TARGETS: Final = ("forward_to", "forward_dead_lettered_messages_to")
_DEFAULT_RULE: Final = "$Default"
_COUNTS: Final = {
    "active": "active_message_count",
    "scheduled": "scheduled_message_count",
    "dead_letter": "dead_letter_message_count",
    "transfer_dead_letter": "transfer_dead_letter_message_count",
}


@dataclass(frozen=True, slots=True, repr=False)
class EntityCounts:
    """The number of messages in one entity, by their state.

    Args:
        address: the queue, topic or subscription.
        kind: queue, topic or subscription.
        active: messages that can be received, deferred ones counted with them.
        scheduled: messages that become active later.
        dead_letter: messages in the dead-letter queue.
        transfer_dead_letter: messages in the transfer dead-letter queue.
        size_bytes: the size of the entity; None where the service does not say.
    """

    address: EntityAddress
    kind: str
    active: int = 0
    scheduled: int = 0
    dead_letter: int = 0
    transfer_dead_letter: int = 0
    size_bytes: int | None = None

    def count_in(self, sub_queue: SubQueue | None) -> int:
        """Return the messages in a sub-queue, or the active ones of the entity itself."""
        return {None: self.active, SubQueue.DEAD_LETTER: self.dead_letter}.get(sub_queue, self.transfer_dead_letter)

    def __repr__(self) -> str:
        counts = {
            "active": self.active,
            "scheduled": self.scheduled,
            "dead-lettered": self.dead_letter,
            "in the transfer dead-letter queue": self.transfer_dead_letter,
        }
        said = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "empty"
        return f"<EntityCounts {self.kind} {self.address}: {said}>"


@dataclass(frozen=True, slots=True)
class DestinationDescription:
    is_topic: bool
    duplicate_window: timedelta | None
    places: tuple[EntityAddress, ...]
    forwards_to: tuple[EntityAddress, ...]
    keeps: timedelta | None = None


async def describe(connection: Connection, name: str) -> DestinationDescription:
    async with connection.administration_client() as client, explaining(connection, EntityAddress(name)):
        found, is_topic = await queue_or_topic(client, name)
        places, addresses = [found], [EntityAddress(name)]
        if is_topic:
            places = [subscription async for subscription in client.list_subscriptions(name)]
            addresses = [EntityAddress(name, subscription.name) for subscription in places]
    targets = [each for place in places for each in (place.forward_to, place.forward_dead_lettered_messages_to)]
    by_id = found.requires_duplicate_detection and not found.enable_partitioning
    window = found.duplicate_detection_history_time_window if by_id else None
    dropped = [place for place in places if not place.dead_lettering_on_message_expiration]
    lives: list[Any] = [place.default_message_time_to_live for place in (found, *dropped)]
    return DestinationDescription(
        is_topic,
        window,
        tuple(addresses),
        tuple(EntityAddress(name_of_target(target)) for target in targets if target),
        min(lives) if dropped else None,
    )


async def takes_all(connection: Connection, subscription: EntityAddress) -> bool:
    """Return whether a subscription gets all messages of its topic, because one of its rules is true for all."""
    async with connection.administration_client() as client, explaining(connection, subscription):
        rules = client.list_rules(subscription.name, subscription.subscription or "")
        return any([isinstance(rule.filter, TrueRuleFilter) async for rule in rules])


async def properties_of(connection: Connection, address: EntityAddress) -> Any:
    """Return what the SDK describes of a queue, topic or subscription."""
    async with connection.administration_client() as client, explaining(connection, address):
        if address.subscription is not None:
            return await client.get_subscription(address.name, address.subscription)
        found, _ = await queue_or_topic(client, address.name)
        return found


async def queue_or_topic(client: ServiceBusAdministrationClient, name: str) -> tuple[Any, bool]:
    try:
        return await client.get_queue(name), False
    except (ResourceNotFoundError, AttributeError):  # the SDK looks for a queue's description in a topic's
        return await client.get_topic(name), True


def name_of_target(target: str) -> str:
    """Return the name of the entity to which another one forwards."""
    # The service returns the address of the entity, such as sb://NAMESPACE/NAME.
    return urlsplit(target).path.strip("/") if "://" in target else target


async def list_entities(connection: Connection, topics: Collection[str] | None = None) -> list[EntityCounts]:
    """List queues, then topics each with its subscriptions, by name; topics at the same time.

    The service throttles management operations, so do not call it often. A hundred queues take one operation, and so
    do a hundred topics and a hundred subscriptions of a topic.
    Source: Service Bus documentation, "Message counters" and "Throttling operations".
    """
    wanted = None if topics is None else {name.casefold() for name in topics}
    async with connection.administration_client() as client, explaining(connection):

        async def with_subscriptions(topic: EntityCounts) -> list[EntityCounts]:
            name = topic.address.name
            if wanted is not None and name.casefold() not in wanted:
                return [topic]
            found = client.list_subscriptions_runtime_properties(name)
            own = [_counts_of("subscription", EntityAddress(name, each.name), each) async for each in found]
            return [topic, *own]

        asked = ("queue", client.list_queues_runtime_properties()), ("topic", client.list_topics_runtime_properties())
        queues, all_topics = await in_parallel(lambda each: _listed(*each), asked, _AT_ONCE)
        found = await in_parallel(with_subscriptions, all_topics, _AT_ONCE)
        return [*queues, *chain.from_iterable(found)]


async def _listed(kind: str, found: AsyncIterable[Any]) -> list[EntityCounts]:
    counts = [_counts_of(kind, EntityAddress(each.name), each) async for each in found]
    return sorted(counts, key=lambda each: each.address.path.casefold())


async def counts_of(connection: Connection, addresses: Iterable[EntityAddress]) -> list[EntityCounts]:
    """Return the counts of queues and subscriptions, in the given order; each takes a management operation."""
    found: list[EntityCounts] = []
    async with connection.administration_client() as client:
        for address in addresses:
            async with explaining(connection, address):
                if address.subscription is None:
                    counts: Any = await client.get_queue_runtime_properties(address.name)
                    kind, at = "queue", EntityAddress(counts.name)
                else:
                    counts = await client.get_subscription_runtime_properties(address.name, address.subscription)
                    kind, at = "subscription", EntityAddress(address.name, counts.name)
                found.append(_counts_of(kind, at, counts))
    return found


async def tier_of(connection: Connection) -> str:
    """Return the tier of a namespace: Basic, Standard or Premium.

    Args:
        connection: the namespace.

    Raises:
        azure.core.exceptions.AzureError: the tier could not be read; that needs the right Manage.
    """
    async with connection.administration_client() as client, explaining(connection):
        return str((await client.get_namespace_properties()).messaging_sku)


@asynccontextmanager
async def changing(
    connection: Connection, address: EntityAddress, parent: EntityAddress | None = None
) -> AsyncGenerator[ServiceBusAdministrationClient]:
    connection.require_writing()
    async with connection.administration_client() as client, explaining(connection, address, parent=parent):
        yield client


@asynccontextmanager
async def explaining(
    connection: Connection, address: EntityAddress | None = None, *, parent: EntityAddress | None = None
) -> AsyncGenerator[None]:
    """Raise the SDK's errors, whose texts have the service's XML, with a sentence that says what to do."""
    try:
        yield
        connection.has_answered = True
    except AzureError as error:
        raise await _explained(error, connection, address, parent) from None


async def _explained(
    error: AzureError, connection: Connection, address: EntityAddress | None, parent: EntityAddress | None = None
) -> AzureError:
    words = await _words(error, connection, address, parent)
    clear = type(error)(message=words or f"{connection.host} refused the request: {_detail(error)}.")
    if isinstance(clear, HttpResponseError):
        clear.status_code, clear.reason = getattr(error, "status_code", None), getattr(error, "reason", None)
    return clear


async def _words(
    error: AzureError, connection: Connection, address: EntityAddress | None, parent: EntityAddress | None
) -> str | None:
    """Return why it failed and what to do, in a sentence; None for a rare error."""
    if address is not None and isinstance(error, ResourceNotFoundError):
        return await connection.missing(parent or address)
    if address is not None and isinstance(error, ResourceExistsError):
        kind = "queue or topic" if address.subscription is None else "subscription"
        there = f"There is a {kind} {str(address)!r} in {connection.host} already"
        return f"{there}: use it, or choose another name."
    if getattr(error, "status_code", None) in _NO_RIGHT:
        return (
            f"{connection.host} does not let this connection list or change its entities: that needs the right Manage, "
            "or the role Azure Service Bus Data Owner."
        )
    if isinstance(error, ServiceRequestError):
        return unreachable(connection.host, str(error), is_emulator=connection.is_emulator)
    return None


def _detail(error: AzureError) -> str:
    """Return the service's own words, which are in XML, in one line."""
    text = str(error)
    found = _DETAIL.search(text)
    return scrub(_NOISE.sub("", " ".join((found[1] if found else text.partition("\n")[0]).split())).rstrip(". "), 500)


def _counts_of(kind: str, address: EntityAddress, counts: Any) -> EntityCounts:
    """Return what the SDK says of one entity; each kind has some of the counts only."""
    numbers = {ours: getattr(counts, theirs, 0) for ours, theirs in _COUNTS.items()}
    return EntityCounts(address, kind, **numbers, size_bytes=getattr(counts, "size_in_bytes", None))


async def replicate_entities(source: Connection, target: Connection, names: Iterable[str]) -> None:
    """Create queues and topics of a namespace in an empty one, with their subscriptions, rules and forwarding targets.

    Keys, metadata, the size of the entity and its automatic deletion are left out. The source only answers questions.

    Args:
        source: the namespace to copy from.
        target: an empty namespace.
        names: of queues and topics.
    """
    async with source.administration_client() as asked, target.administration_client() as told:
        made: set[str] = set()
        for name in names:
            async with explaining(source, EntityAddress(name)):
                await _replicate(asked, told, name, made)


async def _replicate(
    asked: ServiceBusAdministrationClient,
    told: ServiceBusAdministrationClient,
    name: str,
    made: set[str],
) -> None:
    """Create one queue or topic; the entities to which it forwards come first."""
    if name.casefold() in made:
        return
    made.add(name.casefold())
    found, is_topic = await queue_or_topic(asked, name)
    places: list[Any] = [found]
    if is_topic:
        await told.create_topic(name, **_options(found, _BOTH))
        places = [each async for each in asked.list_subscriptions(name)]
    for target in [getattr(place, option) for place in places for option in _TARGETS]:
        if target:
            await _replicate(asked, told, name_of_target(target), made)
    if not is_topic:
        await told.create_queue(name, **_options(found, {*_BOTH, *_RECEIVING, *_TARGETS}))
        return
    for each in places:
        await told.create_subscription(
            name,
            each.name,
            **_options(each, (*_RECEIVING, *_TARGETS, "dead_lettering_on_filter_evaluation_exceptions")),
        )
        await told.delete_rule(name, each.name, _DEFAULT_RULE)
        rules: list[Any] = [rule async for rule in asked.list_rules(name, each.name)]
        for rule in rules:
            action = rule.action if getattr(rule.action, "sql_expression", None) else None
            await told.create_rule(name, each.name, rule.name, filter=rule.filter, action=action)


def _options(properties: Any, names: Iterable[str]) -> dict[str, Any]:
    found = {name: getattr(properties, name) for name in names}
    found |= {name: name_of_target(found[name]) for name in _TARGETS if found.get(name)}
    return {name: value for name, value in found.items() if value is not None}


_FIELDS: Final = ("correlation_id", "message_id", "to", "reply_to", "session_id", "reply_to_session_id", "content_type")
"""Fields of a correlation filter that have the same name in a message; the other one is its subject."""
# The first two are SqlRuleFilters, too.
_KINDS: Final = {
    "true": TrueRuleFilter,
    "false": FalseRuleFilter,
    "sql": SqlRuleFilter,
    "correlation": CorrelationRuleFilter,
}


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
            placed = [await _placed_rules(client, name, each) for each in subscriptions]
        return Route(name, is_topic=True, subscriptions=tuple(placed))
    except ResourceNotFoundError as error:
        return Route(name, is_topic=False, unknown=str(error), is_missing=True)
    except (AzureError, OSError) as error:
        is_refused = getattr(error, "status_code", None) in _NO_RIGHT
        why = "reading the rules needs the right Manage" if is_refused else "its rules could not be read"
        return Route(name, is_topic=False, unknown=why)


async def _placed_rules(client: ServiceBusAdministrationClient, topic: str, subscription: Any) -> PlacedRules:
    return PlacedRules(
        EntityAddress(topic, subscription.name),
        tuple([described(rule) async for rule in client.list_rules(topic, subscription.name)]),
        str(getattr(subscription.status, "value", subscription.status)) != "Active",
        _target(subscription),
        subscription.dead_lettering_on_filter_evaluation_exceptions is not False,
        bool(subscription.requires_session),
    )


def _target(described: Any) -> str | None:
    return name_of_target(described.forward_to) if described.forward_to else None


def described(rule: Any) -> RuleDescription:
    kept, action = rule.filter, rule.action
    fields = {name: getattr(kept, name, None) for name in _FIELDS} | {"subject": getattr(kept, "label", None)}
    return RuleDescription(
        rule.name,
        next((kind for kind, of in _KINDS.items() if isinstance(kept, of)), None),
        getattr(kept, "sql_expression", None) or "",
        getattr(kept, "parameters", None) or {},
        {name: value for name, value in fields.items() if value is not None},
        getattr(kept, "properties", None) or {},
        getattr(action, "sql_expression", None) or None,
        dict(getattr(action, "parameters", None) or {}),
    )


_NAME: Final = "sbemulatorns"
"""The only name that Microsoft's emulator takes for a namespace."""
_MOST, _MOST_DELIVERIES, _LONGEST_LIFE = 50, 10, timedelta(hours=1)
"""Limits of Microsoft's emulator: entities, and subscriptions of a topic; deliveries; life."""
_FOREVER: Final = timedelta(days=10_675_199)
_COMMON: Final = (
    "default_message_time_to_live",
    "duplicate_detection_history_time_window",
    "requires_duplicate_detection",
)
_SETTINGS: Final = tuple(sorted((*_RECEIVING, *_TARGETS)))


async def namespace_config(connection: Connection) -> tuple[dict[str, Any], list[str]]:
    """Return the entities and rules of a namespace as a ``Config.json``, and what it leaves out or readers refuse."""
    notes: list[str] = []
    async with connection.administration_client() as client, explaining(connection):
        queues = [_entity(each, (*_COMMON, *_SETTINGS), notes) async for each in client.list_queues()]
        topics: list[dict[str, Any]] = []
        for topic in [each async for each in client.list_topics()]:
            subscriptions = [each async for each in client.list_subscriptions(topic.name)]
            found = [await _subscription(client, topic.name, each, notes) for each in subscriptions]
            topics.append(_entity(topic, _COMMON, notes) | {"Subscriptions": found})
    counts = {"There are {:,} queues and topics": len(queues) + len(topics)}
    counts |= {f"{topic['Name']} has {{:,}} subscriptions": len(topic["Subscriptions"]) for topic in topics}
    most = f"; Microsoft's emulator has {_MOST} at most."
    notes += [said.format(count) + most for said, count in counts.items() if count > _MOST]
    namespace = {"Name": _NAME, "Queues": queues, "Topics": topics}
    return {"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "File"}}}, notes


async def _subscription(
    client: ServiceBusAdministrationClient, topic: str, found: Any, notes: list[str]
) -> dict[str, Any]:
    rules = [described(rule) async for rule in client.list_rules(topic, found.name)]
    place = f"{topic}/subscriptions/{found.name}"
    return _entity(found, _SETTINGS, notes, place) | _rules_in_config(rules, place, notes)


def _entity(found: Any, names: Iterable[str], notes: list[str], place: str | None = None) -> dict[str, Any]:
    place = place or str(found.name)
    written = {_in_config(name): _written(getattr(found, name, None), name) for name in names}
    properties = {name: value for name, value in written.items() if value is not None}
    if not properties.get("RequiresDuplicateDetection"):
        properties.pop("DuplicateDetectionHistoryTimeWindow", None)
    life = found.default_message_time_to_live
    has_too_many = properties.get("MaxDeliveryCount", 0) > _MOST_DELIVERIES
    faults = {
        ": messages live for over 1 hour, the most in Microsoft's emulator": life and _LONGEST_LIFE < life < _FOREVER,
        f": MaxDeliveryCount is over {_MOST_DELIVERIES}, the most in Microsoft's emulator": has_too_many,
        " has partitions, which Config.json cannot say": getattr(found, "enable_partitioning", None),
    }
    notes += [f"{place}{fault}." for fault, is_so in faults.items() if is_so]
    return {"Name": found.name, "Properties": properties}


def _in_config(name: str) -> str:
    return "Label" if name == "subject" else name.title().replace("_", "")


def _written(value: Any, name: str) -> Any:
    if isinstance(value, timedelta):
        if value >= _FOREVER:
            return None
        return f"P{value.days}DT{value.seconds}S" if value.days else f"PT{value.total_seconds():g}S"
    if name.startswith("forward"):
        return name_of_target(value or "") or None
    return value


def _rules_in_config(rules: list[RuleDescription], place: str, notes: list[str]) -> dict[str, Any]:
    if [(rule.name, rule.kind, rule.action) for rule in rules] == [(_DEFAULT_RULE, "true", None)]:
        return {}
    written = [rule for rule in (_rule(each, place, notes) for each in rules) if rule is not None]
    # Without any rule, the readers of the file add one that takes all messages.
    return {"Rules": written or [_rule(RuleDescription("none", "false"), place, notes)]}


def _rule(rule: RuleDescription, place: str, notes: list[str]) -> dict[str, Any] | None:
    strange = [name for name, value in rule.properties.items() if not isinstance(value, str | int | float)]
    faults = {
        "its filter is of an unknown kind": rule.kind is None,
        "Config.json has no place for its parameters": rule.parameters or rule.action_parameters,
        f"Config.json has no type for its property {[*strange, ''][0][:60]!r}": strange,
    }
    if why := next((why for why, is_so in faults.items() if is_so), None):
        notes.append(f"The rule {rule.name} of {place} is left out: {why}.")
        return None
    action = {} if rule.action is None else {"Action": {"SqlExpression": rule.action}}
    return {"Name": rule.name, "Properties": _filter(rule) | action}


def _filter(rule: RuleDescription) -> dict[str, Any]:
    if rule.kind == "correlation":
        system: dict[str, Any] = {_in_config(name): text for name, text in rule.fields.items()}
        own = {"Properties": dict(rule.properties)} if rule.properties else {}
        return {"FilterType": "Correlation", "CorrelationFilter": system | own}
    expression = {"true": "1=1", "false": "1=0"}.get(rule.kind or "", rule.expression)
    return {"FilterType": "Sql", "SqlFilter": {"SqlExpression": expression}}
