"""Entities and rules as Service Bus describes them over HTTP, in the order of its schema.

Source: Service Bus REST documentation, "Queue description", "Topic description", "Subscription description" and
"Rule description"; what a namespace answered, as recorded for the tests of Azure's SDKs (azure-sdk-for-net,
SessionRecords of ServiceBusManagementClientLiveTests; azure-sdk-for-python, tests/recordings).

ATOM is the envelope of every description. Hostile documents are refused.

Source: Service Bus REST documentation, "Entities"; RFC 4287; what a namespace answered, as recorded for the tests of
Azure's SDKs (azure-sdk-for-net, SessionRecords of ServiceBusManagementClientLiveTests).
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeVar
from uuid import UUID, uuid4
from xml.etree import ElementTree as ET

from sbnotebook.amqp import AmqpValue, Described, Int, Long, Short, Symbol, Timestamp
from sbnotebook.emulator.entities.box import Counts, ReceivingEntity
from sbnotebook.emulator.entities.options import (
    FOREVER,
    AuthorizationRule,
    Claim,
    DestinationOptions,
    Options,
    Tier,
    format_duration,
    parse_duration,
    read_options,
    texts_of,
)
from sbnotebook.emulator.entities.queue import Queue, Subscription, Topic
from sbnotebook.emulator.entities.registry import AnyEntity
from sbnotebook.emulator.entities.rules.rule import (
    DEFAULT_RULE,
    TRUE_FILTER,
    Filter,
    Rule,
    SqlAction,
    filter_of,
)
from sbnotebook.errors import ConfigurationError

ATOM: Final = "{http://www.w3.org/2005/Atom}"
SERVICE_BUS: Final = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"
SCHEMA_INSTANCE: Final = "{http://www.w3.org/2001/XMLSchema-instance}"


def read_description(body: bytes) -> ET.Element:
    if b"<!DOCTYPE" in body:
        raise ConfigurationError("The body must not have a document type (DOCTYPE): leave it out.")
    try:
        text = body.decode("utf-8-sig")
        content = ET.fromstring(text).find(f"{ATOM}content")  # noqa: S314 - no document type, no entities
    except (ET.ParseError, ValueError) as problem:
        raise ConfigurationError(f"The body is not an ATOM entry: {problem}.") from None
    if content is None or not len(content):
        raise ConfigurationError("The body is not an ATOM entry with a description as its content.")
    # Names without their namespace, as ``node`` writes them.
    for part in content[0].iter():
        part.tag = part.tag.removeprefix(SERVICE_BUS)
        part.set(_TYPE, part.get(f"{SCHEMA_INSTANCE}type", ""))
    return content[0]


def entry(
    title: str,
    address: str,
    created_time: int | None,
    updated_time: int,
    description: ET.Element,
    author: str | None = None,
) -> ET.Element:
    """Return an entity or rule by its name and URL; the author is the namespace, None for subscriptions and rules."""
    return node(
        "entry",
        node("id", address),
        node("title", title, type="text"),
        None if created_time is None else node("published", atom_time(created_time, whole=True)),
        node("updated", atom_time(updated_time, whole=True)),
        None if author is None else node("author", node("name", author)),
        node("link", rel="self", href=address),
        node("content", description, type="application/xml"),
    )


def feed(title: str, address: str, now: int, entries: Iterable[ET.Element], next_page: str | None) -> ET.Element:
    return node(
        "feed",
        node("title", title, type="text"),
        node("id", address),
        node("updated", atom_time(now, whole=True)),
        node("link", rel="self", href=address),
        # Clients look for the second link.
        None if next_page is None else node("link", rel="next", href=next_page),
        *entries,
    )


def missing(now: int) -> ET.Element:
    """Return the feed that Service Bus answers with where no entity is; ``now`` is in ms.

    Source: azure-sdk-for-net, ThrowsIfEntityDoesNotExistAsync.json.
    """
    return node(
        "feed",
        node("title", "Publicly Listed Services", type="text"),
        node("subtitle", "This is the list of publicly-listed services currently available.", type="text"),
        node("id", f"uuid:{uuid4()};id=1"),
        node("updated", atom_time(now, whole=True)),
        node("generator", "Service Bus 1.1"),
    )


def error(code: int, detail: str) -> bytes:
    return ET.tostring(node("Error", node("Code", str(code)), node("Detail", detail)), encoding="utf-8")


def document(root: ET.Element) -> bytes:
    """Return an entry or feed as a document. No tag has a prefix, which ElementTree would write for a namespace.

    Some clients read names with their prefixes, not namespaces: @azure/service-bus for JavaScript looks for ``entry``.
    """
    root.set("xmlns", ATOM[1:-1])
    return ET.tostring(root, encoding="utf-8")


def node(tag: str, *content: ET.Element | str | None, **attributes: str) -> ET.Element:
    """Return an element with elements or a text in it. Characters that XML does not allow are replaced."""
    element = ET.Element(tag, attributes)
    for each in content:
        if isinstance(each, str):
            element.text = _NOT_ALLOWED.sub("\ufffd", each)
        elif each is not None:
            element.append(each)
    return element


def _nodes(**texts: str) -> list[ET.Element]:
    return [node(name, text) for name, text in texts.items()]


def _description(tag: str, *content: ET.Element) -> ET.Element:
    return node(tag, *content, **{"xmlns": SERVICE_BUS[1:-1], "xmlns:i": SCHEMA_INSTANCE[1:-1]})


def atom_time(milliseconds: int, *, whole: bool = False) -> str:
    """Return a time (ms) as Service Bus writes it, in whole seconds or with the digits that it needs."""
    seconds, rest = divmod(milliseconds, 1000)
    digits = "" if whole or not rest else f".{rest:03}".rstrip("0")
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}{digits}Z"


_NOT_ALLOWED: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, section 2.2
_FILTER_COUNTS_SINCE: Final = "2024-05"
_LARGE_MESSAGES_SINCE: Final = "2021-05"
_MIN_MESSAGE_SIZE: Final = 1024  # Kilobytes (Service Bus documentation, "Large messages support")
_MAX_KEYS: Final = 12
_MAX_KEY: Final = 256
_KEYS: Final = ("PrimaryKey", "SecondaryKey")
_ORDERS: Final = {
    "queue": [
        "LockDuration", "MaxSizeInMegabytes", "RequiresDuplicateDetection", "RequiresSession",
        "DefaultMessageTimeToLive", "DeadLetteringOnMessageExpiration", "DuplicateDetectionHistoryTimeWindow",
        "MaxDeliveryCount", "EnableBatchedOperations", "SizeInBytes", "MessageCount", "IsAnonymousAccessible",
        "AuthorizationRules", "Status", "ForwardTo", "UserMetadata", "CreatedAt", "UpdatedAt", "AccessedAt",
        "SupportOrdering", "CountDetails", "AutoDeleteOnIdle", "EnablePartitioning", "EntityAvailabilityStatus",
        "ForwardDeadLetteredMessagesTo", "EnableExpress", "MaxMessageSizeInKilobytes",
    ],
    "topic": [
        "DefaultMessageTimeToLive", "MaxSizeInMegabytes", "RequiresDuplicateDetection",
        "DuplicateDetectionHistoryTimeWindow", "EnableBatchedOperations", "SizeInBytes",
        "FilteringMessagesBeforePublishing", "IsAnonymousAccessible", "AuthorizationRules", "Status", "UserMetadata",
        "CreatedAt", "UpdatedAt", "AccessedAt", "SupportOrdering", "CountDetails", "SubscriptionCount",
        "SqlFilterCount", "CorrelationFilterCount", "AutoDeleteOnIdle", "EnablePartitioning",
        "EntityAvailabilityStatus", "EnableSubscriptionPartitioning", "EnableExpress", "MaxMessageSizeInKilobytes",
    ],
    "subscription": [
        "LockDuration", "RequiresSession", "DefaultMessageTimeToLive", "DeadLetteringOnMessageExpiration",
        "DeadLetteringOnFilterEvaluationExceptions", "MessageCount", "MaxDeliveryCount", "EnableBatchedOperations",
        "Status", "ForwardTo", "CreatedAt", "UpdatedAt", "AccessedAt", "CountDetails", "UserMetadata",
        "ForwardDeadLetteredMessagesTo", "AutoDeleteOnIdle", "EntityAvailabilityStatus", "IsClientAffine",
    ],
}  # fmt: skip
_NEVER: Final = "0001-01-01T00:00:00"  # The first moment of .NET, for entities that were never used
_PREPROCESSING: Final = "RequiresPreprocessing"
_TYPE: Final = "i:type"
_DOTNET: Final = "http://schemas.microsoft.com/2003/10/Serialization/"
_KINDS: Final = {f"{kind}Filter": kind for kind in ("True", "False", "Sql", "Correlation")}
# The element with the values, by the type of the filter or action
_VALUES: Final = {"SqlFilter": "Parameters", "SqlRuleAction": "Parameters", "CorrelationFilter": "Properties"}
_MAX_DIGITS: Final = 20
_TICKS: Final = 10_000  # of 100 ns in a millisecond
_TIMESPAN: Final = Symbol("com.microsoft:timespan")
_O = TypeVar("_O", bound=Options)


def describe_entity(
    entity: AnyEntity,
    namespace: str,
    tier: Tier,
    version: str,
    *,
    is_write: bool = False,
    sent: ET.Element | None = None,
) -> ET.Element:
    """Return the description of an entity; that of a write is with the times that were sent."""
    texts = texts_of(entity.options) | _state_texts(entity, version, is_write=is_write)
    # An address is given back as it was sent: azure-sdk-for-java, createQueueWithForwarding.
    for name in ("ForwardTo", "ForwardDeadLetteredMessagesTo"):
        if name in texts and "://" not in texts[name]:
            texts[name] = f"sb://{namespace}/{texts[name]}"
    # The SDK for Python writes the longest time in microseconds, and gets it back so: azure-sdk-for-python, recordings
    # of test_async_mgmt_queue_update_success.
    for part in () if sent is None else sent:
        text = (part.text or "").strip()
        if texts.get(part.tag) == FOREVER and text.startswith(FOREVER[:-5]):
            texts[part.tag] = text
    # Older versions do not know of the size limit.
    if version >= _LARGE_MESSAGES_SINCE:
        texts.setdefault("MaxMessageSizeInKilobytes", _message_size_text(tier))
    else:
        texts.pop("MaxMessageSizeInKilobytes", None)
    parts = {part.tag: part for part in _nodes(**texts)}
    keys = getattr(entity.options, "authorization_rules", ())
    parts["AuthorizationRules"] = node("AuthorizationRules", *(_key_node(key, entity.updated_time) for key in keys))
    if not is_write:
        parts["CountDetails"] = _counts_node(entity)
    # Clients depend on the order of the schema.
    return _description(
        f"{entity.kind.title()}Description", *(parts[name] for name in _ORDERS[entity.kind] if name in parts)
    )


def describe_namespace(name: str, tier: Tier, created_time: int) -> ET.Element:
    time, units = atom_time(created_time), {"MessagingUnits": "1"} if tier is Tier.PREMIUM else {}
    texts = {"CreatedTime": time, "MessagingSKU": tier.value, **units, "ModifiedTime": time}
    return _description("NamespaceInfo", *_nodes(**texts, Name=name, NamespaceType="Messaging"))


def read_entity(kind: type[_O], description: ET.Element, known: _O | None, tier: Tier, version: str, now: int) -> _O:
    texts = {element.tag: (element.text or "").strip() for element in description}
    if "MaxMessageSizeInKilobytes" in texts and version < _LARGE_MESSAGES_SINCE:
        raise ConfigurationError(f"MaxMessageSizeInKilobytes needs api-version {_LARGE_MESSAGES_SINCE} or later.")
    # A client sends back the limit that it has read.
    if tier is not Tier.PREMIUM and texts.pop("MaxMessageSizeInKilobytes", "") not in ("", _message_size_text(tier)):
        raise ConfigurationError(
            "SubCode=40000. Bad Request. MaxMessageSizeInKilobytes can be set in the tier Premium only."
        )
    options = read_options(kind, texts, known)
    size = getattr(options, "max_message_size_kb", None)
    if size is not None and size < _MIN_MESSAGE_SIZE:
        raise ConfigurationError(f"MaxMessageSizeInKilobytes must be at least {_MIN_MESSAGE_SIZE}.")
    rules = description.find("AuthorizationRules")
    if rules is None or not isinstance(options, DestinationOptions):
        return options
    if len(rules) > _MAX_KEYS:
        raise ConfigurationError(f"An entity has at most {_MAX_KEYS} authorization rules.")
    return replace(options, authorization_rules=tuple(_read_key(rule, known, now) for rule in rules))


def describe_rule(rule: Rule) -> ET.Element:
    action = node("Action", **{_TYPE: "EmptyRuleAction"})
    if rule.action is not None:
        action = _part("Action", "SqlRuleAction", {"SqlExpression": rule.action.expression}, rule.action.parameters)
    filter_ = _part("Filter", f"{rule.filter.kind}Filter", rule.filter.texts, rule.filter.values)
    texts = _nodes(CreatedAt=atom_time(rule.created_time), Name=rule.name)
    root = _description("RuleDescription", filter_, action, *texts)
    for part in (filter_, action):
        if part.tag in rule.texts:
            part.insert(2, node(_PREPROCESSING))  # between the compatibility level and the parameters
    for place, element in _kept_texts(root):
        element.text = rule.texts.get(place, element.text)
    return root


def read_rule(name: str, description: ET.Element, now: int) -> Rule:
    texts = {place: element.text or "" for place, element in _kept_texts(description)}
    return Rule(name, _read_filter(description.find("Filter")), _read_action(description.find("Action")), now, texts)


def read_default_rule(subscription: ET.Element, now: int) -> Rule | None:
    description = subscription.find("DefaultRuleDescription")
    if description is None:
        return None
    return read_rule(description.findtext("Name") or DEFAULT_RULE, description, now)


def _kept_texts(rule: ET.Element) -> Iterator[tuple[str, ET.Element]]:
    """Yield what Service Bus gives back as it was written, with its place: times, and RequiresPreprocessing."""
    for part in rule:
        flag = part.find(_PREPROCESSING)
        if flag is not None:
            yield part.tag, flag
        for pair in part.iter("KeyValueOfstringanyType"):
            value = pair.find("Value")
            if value is not None and _type_of(value) == "dateTime":
                yield f"{part.tag}/{pair.findtext('Key')}", value


def _read_key(rule: ET.Element, known: Options | None, now: int) -> AuthorizationRule:
    texts: Mapping[str, str] = {part.tag: (part.text or "").strip() for part in rule}
    try:
        claims = frozenset(Claim((right.text or "").strip()) for right in rule.iterfind("Rights/*"))
    except ValueError:
        raise ConfigurationError(f"Rights of an authorization rule must be of {', '.join(Claim)}.") from None
    # Check the limits, and generate missing keys.
    if not texts.get("KeyName") or not claims:
        raise ConfigurationError("An authorization rule needs a KeyName and Rights.")
    if any(len(texts.get(name, "")) > _MAX_KEY for name in ("KeyName", *_KEYS)):
        raise ConfigurationError(f"The name and the keys of an authorization rule have at most {_MAX_KEY} characters.")
    created = {each.key_name: each.created_time for each in getattr(known, "authorization_rules", ())}
    primary, secondary = (texts.get(name) or base64.b64encode(secrets.token_bytes(32)).decode() for name in _KEYS)
    return AuthorizationRule(texts["KeyName"], primary, secondary, claims, created.get(texts["KeyName"], now))


def _message_size_text(tier: Tier) -> str:
    return str(tier.quotas.max_message_size // 1024)


def _state_texts(entity: AnyEntity, version: str, *, is_write: bool) -> dict[str, str]:
    texts = {
        "SizeInBytes": str(entity.total_size),
        "IsAnonymousAccessible": "false",
        "CreatedAt": atom_time(entity.created_time),
        "UpdatedAt": atom_time(entity.updated_time),
        "EntityAvailabilityStatus": "Available",
    }
    if isinstance(entity, Subscription):
        # Of a subscription that is not used, the time of its creation is shown to those who read it.
        accessed = _NEVER if is_write else atom_time(entity.accessed_time or entity.created_time)
        texts |= {"IsClientAffine": "false", "AccessedAt": accessed}
    elif not is_write:
        texts["AccessedAt"] = f"{_NEVER}Z" if entity.accessed_time is None else atom_time(entity.accessed_time)
    if isinstance(entity, Queue):
        # Messages of a queue with partitions come in the order of each partition.
        texts["SupportOrdering"] = str(not entity.is_partitioned).lower()
    if isinstance(entity, ReceivingEntity):
        return texts | {"MessageCount": str(sum(_counts(entity).values()))}
    texts["EnableSubscriptionPartitioning"] = "false"
    if not is_write:
        texts["SubscriptionCount"] = str(len(entity.subscriptions))
    if not is_write and version >= _FILTER_COUNTS_SINCE:
        kinds = [rule.filter.kind for subscription in entity.subscriptions for rule in subscription.rules]
        correlations = kinds.count("Correlation")
        texts |= {"SqlFilterCount": str(len(kinds) - correlations), "CorrelationFilterCount": str(correlations)}
    return texts


def _counts(entity: AnyEntity) -> dict[str, int]:
    counts = Counts(0, 0, 0, entity.scheduled_count, 0) if isinstance(entity, Topic) else entity.counts
    return {
        # Deferred messages are counted as active ones.
        "ActiveMessageCount": counts.active + counts.deferred,
        "DeadLetterMessageCount": counts.dead_letter,
        "ScheduledMessageCount": counts.scheduled,
        # Messages are forwarded at once: none ever waits for it.
        "TransferMessageCount": 0,
        "TransferDeadLetterMessageCount": counts.transfer_dead_letter,
    }


def _counts_node(entity: AnyEntity) -> ET.Element:
    counts = (node(f"d2p1:{name}", str(number)) for name, number in _counts(entity).items())
    schema = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
    return node("CountDetails", *counts, **{"xmlns:d2p1": schema})


def _key_node(rule: AuthorizationRule, modified_time: int) -> ET.Element:
    claims = (Claim.MANAGE, Claim.SEND, Claim.LISTEN)  # in the order in which Service Bus writes them
    return node(
        "AuthorizationRule",
        *_nodes(ClaimType="SharedAccessKey", ClaimValue="None"),
        node("Rights", *(node("AccessRights", claim) for claim in claims if claim in rule.claims)),
        *_nodes(
            CreatedTime=atom_time(rule.created_time),
            ModifiedTime=atom_time(max(modified_time, rule.created_time)),
            KeyName=rule.key_name,
            PrimaryKey=rule.primary_key,
            SecondaryKey=rule.secondary_key,
        ),
        **{_TYPE: "SharedAccessAuthorizationRule"},
    )


def _read_filter(element: ET.Element | None) -> Filter:
    if element is None:
        return TRUE_FILTER
    kind, texts = _type_of(element), {part.tag: part.text or "" for part in element}
    texts["SqlExpression"] = texts.get("SqlExpression", "").strip()
    return filter_of(_KINDS.get(kind, kind), texts, _read_values(element))


def _read_action(element: ET.Element | None) -> SqlAction | None:
    if element is None or _type_of(element) == "EmptyRuleAction":
        return None
    if _type_of(element) != "SqlRuleAction":
        raise ConfigurationError(f"There is no action {_type_of(element)[:40]!r}: use SqlRuleAction.")
    return SqlAction((element.findtext("SqlExpression") or "").strip(), _read_values(element))


def _read_values(element: ET.Element) -> dict[str, AmqpValue]:
    values: dict[str, AmqpValue] = {}
    for pair in element.iterfind(f"{_VALUES.get(_type_of(element), 'None')}/*"):
        key, value = pair.findtext("Key"), pair.find("Value")
        if not key or value is None:
            raise ConfigurationError("Each property or parameter of a rule needs a Key and a Value.")
        values[key] = _value(key, _type_of(value), value.text or "")
    return values


def _type_of(element: ET.Element) -> str:
    # Its prefix stands for the schema's own types, or for those of .NET.
    return element.get(_TYPE, "").rpartition(":")[2]


def _value(key: str, kind: str, text: str) -> AmqpValue:
    if kind == "string":
        return text
    if kind not in _READ:
        raise ConfigurationError(f"{key[:40]!r} has the type {kind[:40]!r}: use string, {', '.join(_READ)}.")
    try:
        return _READ[kind](text.strip())
    except (ValueError, KeyError, OverflowError):
        raise ConfigurationError(f"{key[:40]!r}: {text[:40]!r} is not of the type {kind}.") from None


def _integer(bits: int, kind: Callable[[str], AmqpValue], text: str) -> AmqpValue:
    if len(text) > _MAX_DIGITS or not -(1 << bits - 1) <= int(text) < 1 << bits - 1:
        raise ValueError(text)
    return kind(text)


_READ: Final[dict[str, Callable[[str], AmqpValue]]] = {
    "int": partial(_integer, 32, Int),
    "long": partial(_integer, 64, Long),
    "short": partial(_integer, 16, Short),
    "boolean": lambda text: {"true": True, "1": True, "false": False, "0": False}[text.lower()],
    "double": float,
    "dateTime": lambda text: Timestamp.from_datetime(datetime.fromisoformat(text)),
    "duration": lambda text: Described(_TIMESPAN, Long(parse_duration(text) * _TICKS)),
    "guid": UUID,
}


def _part(tag: str, kind: str, texts: Mapping[str, str], values: Mapping[str, AmqpValue]) -> ET.Element:
    part = node(tag, *_nodes(**texts), **{_TYPE: kind})
    if "SqlExpression" in texts:
        part.append(node("CompatibilityLevel", "20"))
    if values or kind.startswith("Sql"):
        part.append(node(_VALUES[kind], *(_pair(key, *_typed_text(value)) for key, value in values.items())))
    return part


def _pair(key: str, kind: str, text: str) -> ET.Element:
    schema = _DOTNET if kind in ("guid", "duration") else "http://www.w3.org/2001/XMLSchema"
    value = node("Value", text, **{"xmlns:d6p1": schema, _TYPE: f"d6p1:{kind}"})
    return node("KeyValueOfstringanyType", node("Key", key), value)


def _typed_text(value: AmqpValue) -> tuple[str, str]:
    # The order counts: a bool and a timestamp are ints, too.
    match value:
        case bool():
            return "boolean", str(value).lower()
        case Timestamp():
            try:
                # Without a zone, as the SDK sends it: it is UTC.
                return "dateTime", value.to_datetime().replace(tzinfo=None).isoformat()
            except OverflowError:  # AMQP has moments outside the years 1 to 9999.
                return "long", str(int(value))
        case Short():
            return "short", str(int(value))
        case int():
            is_long = isinstance(value, Long) or not -(1 << 31) <= value < 1 << 31
            return "long" if is_long else "int", str(int(value))
        case float():
            return "double", repr(float(value))
        case Described(descriptor, ticks) if descriptor == _TIMESPAN and isinstance(ticks, int):
            return "duration", format_duration(ticks // _TICKS)
        case _:
            return "guid" if isinstance(value, UUID) else "string", str(value)
