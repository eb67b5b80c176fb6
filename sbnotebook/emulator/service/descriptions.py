"""Queues, topics and subscriptions as Service Bus describes them over HTTP, in the order of its schema.

Source: Service Bus REST documentation, "Queue description", "Topic description" and
"Subscription description".
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Final, TypeVar
from xml.etree import ElementTree as ET

from sbnotebook.emulator.entities import AnyEntity, Subscription, Tier, Topic
from sbnotebook.emulator.entities.options import AuthorizationRule, Claim, Options, QueueOptions, TopicOptions
from sbnotebook.emulator.entities.rules import CorrelationFilter
from sbnotebook.emulator.service.atom import SCHEMA_INSTANCE, SERVICE_BUS, add_text, time_text
from sbnotebook.emulator.service.properties import PROPERTIES, read_properties
from sbnotebook.errors import ConfigurationError

__all__ = ["describe_entity", "describe_namespace", "read_entity"]

_COUNTS: Final = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
_FILTER_COUNTS_SINCE: Final = "2024-05"
_LARGE_MESSAGES_SINCE: Final = "2021-05"
_MAX_KEYS: Final = 12
_MAX_KEY: Final = 256
_ADDRESSES: Final = ("ForwardTo", "ForwardDeadLetteredMessagesTo")
_QUEUE: Final = [
    "LockDuration",
    "MaxSizeInMegabytes",
    "RequiresDuplicateDetection",
    "RequiresSession",
    "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration",
    "DuplicateDetectionHistoryTimeWindow",
    "MaxDeliveryCount",
    "EnableBatchedOperations",
    "SizeInBytes",
    "MessageCount",
    "IsAnonymousAccessible",
    "AuthorizationRules",
    "Status",
    "ForwardTo",
    "UserMetadata",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "SupportOrdering",
    "CountDetails",
    "AutoDeleteOnIdle",
    "EnablePartitioning",
    "EntityAvailabilityStatus",
    "ForwardDeadLetteredMessagesTo",
    "EnableExpress",
    "MaxMessageSizeInKilobytes",
]
_TOPIC: Final = [
    "DefaultMessageTimeToLive",
    "MaxSizeInMegabytes",
    "RequiresDuplicateDetection",
    "DuplicateDetectionHistoryTimeWindow",
    "EnableBatchedOperations",
    "SizeInBytes",
    "FilteringMessagesBeforePublishing",
    "IsAnonymousAccessible",
    "AuthorizationRules",
    "Status",
    "UserMetadata",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "SupportOrdering",
    "CountDetails",
    "SubscriptionCount",
    "SqlFilterCount",
    "CorrelationFilterCount",
    "AutoDeleteOnIdle",
    "EnablePartitioning",
    "EntityAvailabilityStatus",
    "EnableSubscriptionPartitioning",
    "EnableExpress",
    "MaxMessageSizeInKilobytes",
]
_SUBSCRIPTION: Final = [
    "LockDuration",
    "RequiresSession",
    "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration",
    "DeadLetteringOnFilterEvaluationExceptions",
    "MessageCount",
    "MaxDeliveryCount",
    "EnableBatchedOperations",
    "Status",
    "ForwardTo",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "CountDetails",
    "UserMetadata",
    "ForwardDeadLetteredMessagesTo",
    "AutoDeleteOnIdle",
    "EntityAvailabilityStatus",
]
_O = TypeVar("_O", bound=Options)


def describe_entity(entity: AnyEntity, namespace: str, tier: Tier, version: str) -> ET.Element:
    """The description of an entity.

    Args:
        entity: the entity.
        namespace: the host by which the client reaches it: what is forwarded to has an absolute address.
        tier: only Premium says how large messages can be.
        version: the version of the interface that the client speaks, such as ``2021-05``.
    """
    kind, order = _kind(entity)
    root = ET.Element(f"{SERVICE_BUS}{kind}Description")
    texts = _option_texts(entity.options, namespace) | _state_texts(entity, version)
    if tier is Tier.PREMIUM and version >= _LARGE_MESSAGES_SINCE:
        texts.setdefault("MaxMessageSizeInKilobytes", str(tier.quotas.max_message_size // 1024))
    else:
        texts.pop("MaxMessageSizeInKilobytes", None)
    for name in order:
        if name == "AuthorizationRules":
            _add_keys(root, entity.options)
        elif name == "CountDetails":
            _add_counts(root, entity)
        elif name in texts:
            add_text(root, SERVICE_BUS + name, texts[name])
    return root


def describe_namespace(name: str, sku: str, created_time: int) -> ET.Element:
    """The description of the namespace; ``sku`` is its tier, ``created_time`` is in ms."""
    root = ET.Element(f"{SERVICE_BUS}NamespaceInfo")
    for key, value in (
        ("Alias", ""),
        ("CreatedTime", time_text(created_time)),
        ("MessagingSKU", sku),
        ("MessagingUnits", "1" if sku == "Premium" else "0"),
        ("ModifiedTime", time_text(created_time)),
        ("Name", name),
        ("NamespaceType", "Messaging"),
    ):
        add_text(root, SERVICE_BUS + key, value)
    return root


def read_entity(kind: type[_O], description: ET.Element, known: _O | None, version: str) -> _O:
    """Read the options in a description.

    Args:
        kind: the options of a queue, a topic or a subscription.
        description: what is not said has its default, what is unknown is passed over.
        known: the options of an entity that is there already; None for a new one.
        version: the version of the interface that the client speaks.

    Raises:
        ConfigurationError: something cannot be read, is out of its range, or cannot be changed any more.
    """
    texts = {element.tag.removeprefix(SERVICE_BUS): (element.text or "").strip() for element in description}
    if "MaxMessageSizeInKilobytes" in texts and version < _LARGE_MESSAGES_SINCE:
        raise ConfigurationError(f"MaxMessageSizeInKilobytes needs api-version {_LARGE_MESSAGES_SINCE} or later.")
    options = read_properties(kind, texts, known)
    rules = description.find(f"{SERVICE_BUS}AuthorizationRules")
    if rules is None or not isinstance(options, QueueOptions | TopicOptions):
        return options
    if len(rules) > _MAX_KEYS:
        raise ConfigurationError(f"An entity has at most {_MAX_KEYS} authorization rules.")
    return replace(options, authorization_rules=tuple(_read_key(rule) for rule in rules))


def _read_key(rule: ET.Element) -> AuthorizationRule:
    texts: Mapping[str, str] = {part.tag.removeprefix(SERVICE_BUS): (part.text or "").strip() for part in rule}
    rights = rule.find(f"{SERVICE_BUS}Rights")
    try:
        claims = frozenset(Claim((right.text or "").strip()) for right in (rights if rights is not None else ()))
    except ValueError:
        raise ConfigurationError(f"Rights of an authorization rule must be of {', '.join(Claim)}.") from None
    if not texts.get("KeyName") or not claims:
        raise ConfigurationError("An authorization rule needs a KeyName and Rights.")
    if any(len(texts.get(name, "")) > _MAX_KEY for name in ("KeyName", "PrimaryKey", "SecondaryKey")):
        raise ConfigurationError(f"The name and the keys of an authorization rule have at most {_MAX_KEY} characters.")
    return AuthorizationRule(
        texts["KeyName"], texts.get("PrimaryKey") or _new_key(), texts.get("SecondaryKey") or _new_key(), claims
    )


def _new_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def _kind(entity: AnyEntity) -> tuple[str, list[str]]:
    if isinstance(entity, Topic):
        return "Topic", _TOPIC
    return ("Subscription", _SUBSCRIPTION) if isinstance(entity, Subscription) else ("Queue", _QUEUE)


def _option_texts(options: Options, namespace: str) -> dict[str, str]:
    known = {field.name for field in fields(options)}
    written = {
        name: item.write(getattr(options, item.option)) for name, item in PROPERTIES.items() if item.option in known
    }
    texts = {name: text for name, text in written.items() if text is not None}
    for name in _ADDRESSES:
        if name in texts:
            texts[name] = f"https://{namespace}/{texts[name]}"
    return texts


def _state_texts(entity: AnyEntity, version: str) -> dict[str, str]:
    texts = {
        "SizeInBytes": str(entity.total_size),
        "IsAnonymousAccessible": "false",
        "CreatedAt": time_text(entity.created_time),
        "UpdatedAt": time_text(entity.updated_time),
        "AccessedAt": time_text(entity.accessed_time),
        "EntityAvailabilityStatus": "Available",
    }
    if not isinstance(entity, Topic):
        return texts | {"MessageCount": str(sum(_counts(entity).values()))}
    texts |= {"SubscriptionCount": str(len(entity.subscriptions)), "EnableSubscriptionPartitioning": "false"}
    if version >= _FILTER_COUNTS_SINCE:
        filters = [rule.filter for subscription in entity.subscriptions for rule in subscription.rules]
        correlations = sum(isinstance(each, CorrelationFilter) for each in filters)
        texts |= {"SqlFilterCount": str(len(filters) - correlations), "CorrelationFilterCount": str(correlations)}
    return texts


def _counts(entity: AnyEntity) -> dict[str, int]:
    if isinstance(entity, Topic):
        active, dead, scheduled, transfer_dead = 0, 0, entity.scheduled_count, 0
    else:
        counts = entity.counts
        # Deferred messages are counted as active ones.
        active, dead = counts.active + counts.deferred, counts.dead_letter
        scheduled, transfer_dead = counts.scheduled, counts.transfer_dead_letter
    return {
        "ActiveMessageCount": active,
        "DeadLetterMessageCount": dead,
        "ScheduledMessageCount": scheduled,
        # Messages are forwarded at once: none ever waits for it.
        "TransferMessageCount": 0,
        "TransferDeadLetterMessageCount": transfer_dead,
    }


def _add_counts(parent: ET.Element, entity: AnyEntity) -> None:
    details = ET.SubElement(parent, f"{SERVICE_BUS}CountDetails")
    details.set("xmlns:d2p1", _COUNTS)
    for name, number in _counts(entity).items():
        add_text(details, f"d2p1:{name}", str(number))


def _add_keys(parent: ET.Element, options: Options) -> None:
    rules = ET.SubElement(parent, f"{SERVICE_BUS}AuthorizationRules")
    for rule in options.authorization_rules if isinstance(options, QueueOptions | TopicOptions) else ():
        element = ET.SubElement(rules, f"{SERVICE_BUS}AuthorizationRule")
        element.set(f"{SCHEMA_INSTANCE}type", "SharedAccessAuthorizationRule")
        add_text(element, f"{SERVICE_BUS}ClaimType", "SharedAccessKey")
        add_text(element, f"{SERVICE_BUS}ClaimValue", "None")
        rights = ET.SubElement(element, f"{SERVICE_BUS}Rights")
        for claim in sorted(rule.claims):
            add_text(rights, f"{SERVICE_BUS}AccessRights", claim)
        for name, text in (
            ("CreatedTime", time_text(rule.created_time)),
            ("ModifiedTime", time_text(rule.created_time)),
            ("KeyName", rule.key_name),
            ("PrimaryKey", rule.primary_key),
            ("SecondaryKey", rule.secondary_key),
        ):
            add_text(element, SERVICE_BUS + name, text)
