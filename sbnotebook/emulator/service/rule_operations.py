"""The operations of a subscription's management node on its rules.

Source: Service Bus documentation, "AMQP 1.0 in Azure Service Bus request-response-based operations". The codes of rules
are those of Azure's SDKs for .NET and JavaScript.
"""

from __future__ import annotations

import re
from typing import Any, Final, cast

from sbnotebook.amqp import AmqpValue, Described, Int, Timestamp, ULong
from sbnotebook.emulator.entities.refusals import Condition, RefusedError
from sbnotebook.emulator.entities.rules.rule import (
    CORRELATION_PROPERTIES,
    Filter,
    Rule,
    SqlAction,
    filter_of,
    sql_filter,
)
from sbnotebook.emulator.service.requests import Call, Reply, done, nothing

# The codes of filters have one zero less than the others, in Service Bus and its SDKs.
_RULE_DESCRIPTION: Final = ULong(0x0000013700000004)
_EMPTY_ACTION: Final = ULong(0x0000013700000005)
_SQL_ACTION: Final = ULong(0x0000013700000006)
_FILTERS: Final = {
    "Sql": ULong(0x000001370000006),
    "True": ULong(0x000001370000007),
    "False": ULong(0x000001370000008),
    "Correlation": ULong(0x000001370000009),
}

_COMPATIBILITY_LEVEL: Final = Int(20)
_MAX_NAME: Final = 50  # Characters of a rule's name (Service Bus documentation, "Service Bus quotas")
_KINDS: Final = {f"{kind.lower()}-filter": kind for kind in ("Sql", "Correlation", "True", "False")}
# The names in a request, such as ``reply-to``, by the properties of a filter
_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")
_CORRELATION: Final = {name: _WORD.sub("-", name).lower() for name in CORRELATION_PROPERTIES}


def add(call: Call) -> Reply:
    name, description = _name(call.body), _map(call.body["rule-description"], "rule-description")
    if call.entity.find_rule(name) is not None:
        text = f"The subscription '{call.entity.path}' already has a rule '{name}'."
        raise RefusedError(Condition.ENTITY_ALREADY_EXISTS, text)
    given = description.get("sql-rule-action")
    action = None if given is None else SqlAction(_expression(given, "sql-rule-action"))
    rule = Rule(name, _read_filter(description), action, call.now)
    call.broker.registry.put_rule(call.entity, rule, now=call.now)
    return done(None)


def remove(call: Call) -> Reply:
    name = _name(call.body)
    if call.entity.find_rule(name) is None:
        text = f"The messaging entity '{call.entity.path}|{name}' could not be found: it has no such rule."
        raise RefusedError(Condition.NOT_FOUND, text)
    call.broker.registry.remove_rule(call.entity, name, now=call.now)
    return done(None)


def enumerate_rules(call: Call) -> Reply:
    rules: list[AmqpValue] = [{"rule-description": _written(rule)} for rule in call.entity.rules[call.page]]
    return done({"rules": rules}) if rules else nothing()


def _name(body: dict[str, Any]) -> str:
    name: object = body["rule-name"]
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
        raise RefusedError(Condition.ARGUMENT_ERROR, f"rule-name must be a text of 1 to {_MAX_NAME} characters.")
    return name


def _map(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RefusedError(Condition.ARGUMENT_ERROR, f"{name} must be a map.")
    return cast("dict[str, Any]", value)


def _expression(value: object, name: str) -> str:
    expression = _map(value, name).get("expression")
    if not isinstance(expression, str):
        raise RefusedError(Condition.ARGUMENT_ERROR, f"{name} needs an expression, which must be a text.")
    return expression


def _read_filter(description: dict[str, Any]) -> Filter:
    given = [name for name in _KINDS if description.get(name) is not None]
    if len(given) != 1:
        raise RefusedError(Condition.ARGUMENT_ERROR, f"A rule-description needs one of {', '.join(_KINDS)}.")
    name, parts = given[0], description[given[0]]
    if name == "sql-filter":
        return sql_filter(_expression(parts, name))
    if name != "correlation-filter":
        return filter_of(_KINDS[name], {}, {})
    # The texts and the properties of a correlation filter.
    parts = _map(parts, name)
    texts = {key: parts.get(theirs) for key, theirs in _CORRELATION.items()}
    for key, value in texts.items():
        if not (value is None or isinstance(value, str)):
            raise RefusedError(Condition.ARGUMENT_ERROR, f"{key} of a correlation filter must be a text.")
    properties = _map(parts.get("properties") or {}, "properties")
    if not all(isinstance(key, str) for key in cast("dict[object, Any]", properties)):
        raise RefusedError(Condition.ARGUMENT_ERROR, "The names of properties must be texts.")
    return filter_of(_KINDS[name], texts, properties)


def _written(rule: Rule) -> Described:
    action = Described(_EMPTY_ACTION, [])
    if rule.action is not None:
        action = Described(_SQL_ACTION, [rule.action.expression, _COMPATIBILITY_LEVEL])
    taken = rule.filter
    parts: list[AmqpValue] = []
    if taken.kind == "Sql":
        parts = [taken.texts["SqlExpression"], _COMPATIBILITY_LEVEL]
    elif taken.kind == "Correlation":
        parts = [*(taken.texts.get(name) for name in _CORRELATION), dict(taken.values)]
    written = Described(_FILTERS[taken.kind], parts)
    return Described(_RULE_DESCRIPTION, [written, action, rule.name, Timestamp(rule.created_time)])
