"""The entities and rules of a namespace as Microsoft's emulator's ``Config.json``, without keys.

Source: Service Bus documentation, "Test locally with the Service Bus emulator".
Its "Overview of the Azure Service Bus emulator" has the limits of 50 queues and topics, of 50 subscriptions of a topic,
and of 1 hour, under "Usage quotas". ServiceBus-Emulator/Schema/Config-schema.json in
Azure/azure-service-bus-emulator-installer has the name of the namespace, and MaxDeliveryCount up to 10.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from sbnotebook.model.routes import RuleDescription
from sbnotebook.settlement.administration import explaining, name_of_target
from sbnotebook.settlement.connecting.connection import Connection
from sbnotebook.settlement.subscription_rules import described

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
_RECEIVING: Final = (
    "dead_lettering_on_message_expiration",
    "default_message_time_to_live",
    "forward_dead_lettered_messages_to",
    "forward_to",
    "lock_duration",
    "max_delivery_count",
    "requires_session",
)
_DEFAULT_RULE: Final = "$Default"
_PARAMETER: Final = re.compile(r"'(?:[^']|'')*+(?:'|\Z)|\"[^\"]*+(?:\"|\Z)|\[[^\]]*+(?:\]|\Z)|@\w+")


async def namespace_config(connection: Connection) -> tuple[dict[str, Any], list[str]]:
    """Return the entities and rules of a namespace as a ``Config.json``, and what it leaves out or readers refuse."""
    notes: list[str] = []
    async with connection.administration_client() as client, explaining(connection):
        queues = [_entity(each, (*_COMMON, *_RECEIVING), notes) async for each in client.list_queues()]
        topics: list[dict[str, Any]] = []
        for topic in [each async for each in client.list_topics()]:
            found: list[dict[str, Any]] = []
            for each in [one async for one in client.list_subscriptions(topic.name)]:
                rules = [described(rule) async for rule in client.list_rules(topic.name, each.name)]
                place = f"{topic.name}/subscriptions/{each.name}"
                found.append(_entity(each, _RECEIVING, notes, place) | _rules(rules, place, notes))
            if len(found) > _MOST:
                notes.append(
                    f"{topic.name} has {len(found):,} subscriptions; Microsoft's emulator has {_MOST} at most."
                )
            topics.append(_entity(topic, _COMMON, notes) | {"Subscriptions": found})
    if len(queues) + len(topics) > _MOST:
        count = len(queues) + len(topics)
        notes.append(f"There are {count:,} queues and topics; Microsoft's emulator has {_MOST} at most.")
    namespace = {"Name": _NAME, "Queues": queues, "Topics": topics}
    return {"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "File"}}}, notes


def _entity(found: Any, names: Iterable[str], notes: list[str], place: str | None = None) -> dict[str, Any]:
    place = place or str(found.name)
    properties = {
        _in_config(name): written
        for name in names
        if (written := _written(getattr(found, name, None), name)) is not None
    }
    if not properties.get("RequiresDuplicateDetection"):
        properties.pop("DuplicateDetectionHistoryTimeWindow", None)
    life = found.default_message_time_to_live
    if life is not None and _LONGEST_LIFE < life < _FOREVER:
        notes.append(f"{place}: messages live for over 1 hour, the most in Microsoft's emulator.")
    if properties.get("MaxDeliveryCount", 0) > _MOST_DELIVERIES:
        notes.append(f"{place}: MaxDeliveryCount is over {_MOST_DELIVERIES}, the most in Microsoft's emulator.")
    if getattr(found, "enable_partitioning", None):
        notes.append(f"{place} has partitions, which Config.json cannot say.")
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


def _rules(rules: list[RuleDescription], place: str, notes: list[str]) -> dict[str, Any]:
    only_default = [(rule.name, rule.kind, rule.action) for rule in rules] == [(_DEFAULT_RULE, "true", None)]
    if only_default:
        return {}
    # Without any rule, the readers of the file add one that takes all messages.
    written = [_rule(rule, f"The rule {rule.name} of {place}", notes) for rule in rules]
    return {"Rules": [rule for rule in written if rule is not None] or [_sql("none", "1=0")]}


def _rule(rule: RuleDescription, what: str, notes: list[str]) -> dict[str, Any] | None:
    try:
        written = _filter(rule)
        if rule.action is not None:
            action = {"SqlExpression": _inlined(rule.action, rule.action_parameters)}
            written["Properties"]["Action"] = action
    except ValueError as error:
        notes.append(f"{what} is left out: {error}.")
        return None
    return written


def _filter(rule: RuleDescription) -> dict[str, Any]:
    match rule.kind:
        case "true":
            return _sql(rule.name, "1=1")
        case "false":
            return _sql(rule.name, "1=0")
        case "sql":
            return _sql(rule.name, _inlined(rule.expression, rule.parameters))
        case "correlation":
            if strange := [name for name, value in rule.properties.items() if not isinstance(value, str | int | float)]:
                raise ValueError(f"Config.json has no type for its property {strange[0][:60]!r}")
            system: dict[str, Any] = {_in_config(name): text for name, text in rule.fields.items()}
            own = {"Properties": dict(rule.properties)} if rule.properties else {}
            return {
                "Name": rule.name,
                "Properties": {"FilterType": "Correlation", "CorrelationFilter": system | own},
            }
        case _:
            raise ValueError("its filter is of an unknown kind")


def _sql(name: str, expression: str) -> dict[str, Any]:
    return {"Name": name, "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": expression}}}


def _inlined(expression: str, parameters: Mapping[str, Any]) -> str:
    """Return an expression with its parameters as literals, which the file has no place for."""
    known = {name.lstrip("@").casefold(): value for name, value in parameters.items()}

    def literal(found: re.Match[str]) -> str:
        name = found[0]
        if not name.startswith("@") or name[1:].casefold() not in known:
            return name
        return _literal(known[name[1:].casefold()], name)

    return _PARAMETER.sub(literal, expression)


def _literal(value: Any, name: str) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        doubled = value.replace("'", "''")
        return f"'{doubled}'"
    raise ValueError(f"its parameter {name[:60]} has no literal in SQL")
