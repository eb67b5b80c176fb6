"""What is asked of a subscription about its rules, as the SDKs of other languages do over AMQP.

Source: Service Bus documentation, "AMQP 1.0 in Azure Service Bus request-response-based operations",
"Rule operations"; the codes are those of Azure's SDKs for .NET and JavaScript.
"""

from __future__ import annotations

from typing import Any, Final, cast

from sbnotebook.emulator.entities import Refusal, RefusedError, Subscription
from sbnotebook.emulator.entities.rules import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from sbnotebook.emulator.service.broker import Broker
from sbnotebook.emulator.service.conditions import Condition
from sbnotebook.emulator.service.operations import Operation, done, failure, nothing
from sbnotebook.emulator.service.requests import Reply
from sbnotebook.model.amqp import AmqpValue, Described, Int, Timestamp, ULong

__all__ = ["rule_operations"]

# The codes of filters have one zero less than the others: the service and its SDKs are like that.
_RULE_DESCRIPTION: Final = ULong(0x0000013700000004)
_EMPTY_ACTION: Final = ULong(0x0000013700000005)
_SQL_ACTION: Final = ULong(0x0000013700000006)
_SQL_FILTER: Final = ULong(0x000001370000006)
_TRUE_FILTER: Final = ULong(0x000001370000007)
_FALSE_FILTER: Final = ULong(0x000001370000008)
_CORRELATION_FILTER: Final = ULong(0x000001370000009)

_COMPATIBILITY_LEVEL: Final = Int(20)
_MAX_RULES: Final = 1000
"""Rules in one answer."""
_MAX_NAME: Final = 50
"""Characters of a rule's name (Service Bus documentation, "Service Bus quotas")."""
_FILTERS: Final = ("sql-filter", "correlation-filter", "true-filter", "false-filter")
_CORRELATION_FIELDS: Final = {
    "correlation-id": "correlation_id",
    "message-id": "message_id",
    "to": "to",
    "reply-to": "reply_to",
    "label": "subject",
    "session-id": "session_id",
    "reply-to-session-id": "reply_to_session_id",
    "content-type": "content_type",
}
"""Their names in a request, and ours; in the order in which an answer lists them."""


def rule_operations(broker: Broker, subscription: Subscription) -> dict[str, Operation]:
    """The operations of a subscription on its rules."""
    node = _Rules(broker, subscription)
    return {
        "com.microsoft:add-rule": node.add,
        "com.microsoft:remove-rule": node.remove,
        "com.microsoft:enumerate-rules": node.enumerate,
    }


class _Rules:
    def __init__(self, broker: Broker, subscription: Subscription) -> None:
        self._broker = broker
        self._subscription = subscription

    def add(self, body: dict[str, Any], now: int) -> Reply:
        name, description = _name(body), _map(body["rule-description"], "rule-description")
        if self._subscription.find_rule(name) is not None:
            text = f"The subscription '{self._subscription.path}' already has a rule '{name}'."
            return failure(Condition.ENTITY_ALREADY_EXISTS, text)
        action = description.get("sql-rule-action")
        rule = Rule(
            name,
            _read_filter(description),
            None if action is None else SqlAction(_expression(action, "sql-rule-action")),
            now,
        )
        self._broker.registry.put_rule(self._subscription, rule, now=now)
        return done(None)

    def remove(self, body: dict[str, Any], now: int) -> Reply:
        name = _name(body)
        if self._subscription.find_rule(name) is None:
            text = f"The messaging entity '{self._subscription.path}|{name}' could not be found: it has no such rule."
            return failure(Condition.NOT_FOUND, text)
        self._broker.registry.remove_rule(self._subscription, name, now=now)
        return done(None)

    def enumerate(self, body: dict[str, Any], now: int) -> Reply:
        del now
        skip, top = int(body["skip"]), int(body["top"])
        if skip < 0 or top < 0:
            raise RefusedError(Refusal.BAD_ARGUMENT, "skip and top must not be negative.")
        page = self._subscription.rules[skip : skip + min(top, _MAX_RULES)]
        rules: list[AmqpValue] = [{"rule-description": _written(rule)} for rule in page]
        return done({"rules": rules}) if rules else nothing()


def _name(body: dict[str, Any]) -> str:
    name: object = body["rule-name"]
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
        raise RefusedError(Refusal.BAD_ARGUMENT, f"rule-name must be a text of 1 to {_MAX_NAME} characters.")
    return name


def _map(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RefusedError(Refusal.BAD_ARGUMENT, f"{name} must be a map.")
    return cast("dict[str, Any]", value)


def _expression(value: object, name: str) -> str:
    expression = _map(value, name).get("expression")
    if not isinstance(expression, str):
        raise RefusedError(Refusal.BAD_ARGUMENT, f"{name} needs an expression, which must be a text.")
    return expression


def _read_filter(description: dict[str, Any]) -> Filter:
    given = [name for name in _FILTERS if description.get(name) is not None]
    if len(given) != 1:
        raise RefusedError(Refusal.BAD_ARGUMENT, f"A rule-description needs one of {', '.join(_FILTERS)}.")
    match given[0]:
        case "sql-filter":
            return SqlFilter(_expression(description["sql-filter"], "sql-filter"))
        case "correlation-filter":
            return _read_correlation(_map(description["correlation-filter"], "correlation-filter"))
        case "true-filter":
            return TrueFilter()
        case _:
            return FalseFilter()


def _read_correlation(given: dict[str, Any]) -> CorrelationFilter:
    fields = {ours: given.get(name) for name, ours in _CORRELATION_FIELDS.items()}
    for name, value in fields.items():
        if not (value is None or isinstance(value, str)):
            raise RefusedError(Refusal.BAD_ARGUMENT, f"{name} of a correlation filter must be a text.")
    properties = _map(given.get("properties") or {}, "properties")
    if not all(isinstance(name, str) for name in cast("dict[object, Any]", properties)):
        raise RefusedError(Refusal.BAD_ARGUMENT, "The names of properties must be texts.")
    return CorrelationFilter(**fields, properties=properties)


def _written(rule: Rule) -> Described:
    action = Described(_EMPTY_ACTION, [])
    if rule.action is not None:
        action = Described(_SQL_ACTION, [rule.action.expression, _COMPATIBILITY_LEVEL])
    return Described(_RULE_DESCRIPTION, [_written_filter(rule.filter), action, rule.name, Timestamp(rule.created_time)])


def _written_filter(filter_: Filter) -> Described:
    match filter_:
        case TrueFilter():
            return Described(_TRUE_FILTER, [])
        case FalseFilter():
            return Described(_FALSE_FILTER, [])
        case SqlFilter():
            return Described(_SQL_FILTER, [filter_.expression, _COMPATIBILITY_LEVEL])
        case CorrelationFilter():
            fields: list[AmqpValue] = [getattr(filter_, ours) for ours in _CORRELATION_FIELDS.values()]
            return Described(_CORRELATION_FILTER, [*fields, dict(filter_.properties)])
