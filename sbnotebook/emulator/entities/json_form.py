"""Options and rules as JSON: as in the ``Config.json`` of Microsoft's emulator, and so in the store and in copies, too.

Source: Service Bus documentation, "Test locally with the Service Bus emulator"; the schema that its
installer comes with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from math import isfinite
from typing import Any, Final, TypeVar, cast

from sbnotebook.amqp import AmqpValue, decode_exactly, encode
from sbnotebook.emulator.entities.options import (
    AuthorizationRule,
    Claim,
    DestinationOptions,
    Options,
    options_of,
    read_options,
    texts_of,
)
from sbnotebook.emulator.entities.rules.rule import CORRELATION_PROPERTIES, Filter, Rule, SqlAction, filter_of
from sbnotebook.errors import AmqpDecodeError, ConfigurationError, near_match

_O = TypeVar("_O", bound=Options)
_PARTS: Final = {
    "Sql": ("SqlFilter", "Parameters", ("SqlExpression", "Parameters")),
    "Correlation": ("CorrelationFilter", "Properties", (*CORRELATION_PROPERTIES, "Properties")),
    "True": (None, "", ()),
    "False": (None, "", ()),
}
"""By the type of a filter: the name of its part, of the values in it, and of all that it can have."""
# The meaning of names of other files and of the SDKs that resemble no name of this file
_ANOTHER: Final = {"namespaceconfig": "Namespaces", "entities": "Queues", "subject": "Label", "sendto": "To"}
_AMQP: Final = "amqp"  # The name of the digits of a value whose AMQP type JSON does not have


def as_object(value: Any, where: str, known: Iterable[str] | None = None, *, needed: bool = False) -> dict[str, Any]:
    """Return an object of the file, whose keys must be known; one that is missing or null is empty."""
    if value is None and not needed:
        return {}
    if not isinstance(value, dict):
        raise ConfigurationError(f"In the configuration, {where} must be an object.")
    item = cast("dict[str, Any]", value)
    names = list(item if known is None else known)
    for key in item:
        if key not in names:
            another = _ANOTHER.get(key.lower())
            near = another if another in names else near_match(key, names)
            advice = f"did you mean {near}?" if near else f"it knows {', '.join(names)}."
            raise ConfigurationError(f"In the configuration, {where} has an unknown name {key[:60]!r}: {advice}")
    return item


def name_of(item: Mapping[str, Any]) -> str:
    name = item.get("Name")
    if not isinstance(name, str) or not name:
        raise ConfigurationError("In the configuration, each queue, topic, subscription and rule needs a Name.")
    return name[:300]


def options_to_json(options: Options) -> dict[str, Any]:
    """Return options by their names in Service Bus: numbers, true, false, and its texts."""
    values = {name: getattr(options, option.attribute) for name, option in options_of(type(options)).items()}
    texts = texts_of(options)
    return {name: values[name] if text == str(values[name]).lower() else text for name, text in texts.items()}


def options_from_json(kind: type[_O], item: Mapping[str, Any]) -> _O:
    """Read the options of an entity; one that is left out has the default of Service Bus."""
    name = name_of(item)
    properties = as_object(item.get("Properties"), f"Properties of {name}", options_of(kind))
    texts = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in properties.items()
        if value is not None
    }
    if texts.get("DuplicateDetectionHistoryTimeWindow") == "PT5S":
        # The shortest window of Microsoft's emulator becomes that of Service Bus.
        texts["DuplicateDetectionHistoryTimeWindow"] = "PT20S"
    try:
        return read_options(kind, texts)
    except ConfigurationError as error:
        raise ConfigurationError(f"In the configuration, {name}: {error}") from None


def stored(options: Options, rules: Iterable[Rule]) -> dict[str, Any]:
    """Return what the store keeps of an entity: also its keys, and what only an answer needs of a rule."""
    keys = options.authorization_rules if isinstance(options, DestinationOptions) else ()
    return {
        "Properties": options_to_json(options),
        "Keys": [asdict(key) | {"claims": sorted(key.claims)} for key in keys],
        "Rules": [rule_to_json(rule) | {"CreatedAt": rule.created_time, "Texts": dict(rule.texts)} for rule in rules],
    }


def stored_options(kind: type[_O], path: str, description: Mapping[str, Any]) -> _O:
    options = options_from_json(kind, {"Name": path, **description})
    keys = [AuthorizationRule(**key | {"claims": frozenset(map(Claim, key["claims"]))}) for key in description["Keys"]]
    return replace(options, authorization_rules=tuple(keys)) if keys else options


def stored_rules(description: Mapping[str, Any]) -> list[Rule]:
    rules = description["Rules"]
    return [replace(rule_from_json(each), created_time=each["CreatedAt"], texts=each["Texts"]) for each in rules]


def rule_to_json(rule: Rule) -> dict[str, Any]:
    part, of_values, _ = _PARTS[rule.filter.kind]
    properties: dict[str, Any] = {"FilterType": rule.filter.kind}
    if part is not None:
        properties[part] = {**rule.filter.texts, **_given(of_values, rule.filter.values)}
    if rule.action is not None:
        action = {"SqlExpression": rule.action.expression, **_given("Parameters", rule.action.parameters)}
        properties["Action"] = action
    return {"Name": rule.name, "Properties": properties}


def _given(name: str, values: Mapping[str, AmqpValue]) -> dict[str, Any]:
    return {name: {key: _json_value(value) for key, value in values.items()}} if values else {}


def _json_value(value: AmqpValue) -> Any:
    is_plain = type(value) in (bool, int, str) or (type(value) is float and isfinite(value))
    return value if is_plain else {_AMQP: encode(value).hex()}


def rule_from_json(item: Mapping[str, Any]) -> Rule:
    name = name_of(item)
    known = ("FilterType", "CorrelationFilter", "SqlFilter", "Action")
    properties = as_object(item.get("Properties"), f"Properties of the rule {name}", known)
    where = f"Action of the rule {name}"
    action = as_object(properties.get("Action"), where, ("SqlExpression", "Parameters"))
    expression = action.get("SqlExpression")
    try:
        parameters = _values(action.get("Parameters"), f"Parameters of the {where}")
        return Rule(name, _filter(name, properties), SqlAction(str(expression), parameters) if expression else None)
    except ConfigurationError as error:
        raise ConfigurationError(f"In the configuration, the rule {name}: {error}") from None


def _filter(name: str, properties: Mapping[str, Any]) -> Filter:
    kind = str(properties.get("FilterType"))
    if kind not in _PARTS:
        raise ConfigurationError(f"FilterType of the rule {name} must be Correlation or Sql, not {kind[:40]!r}.")
    used, of_values, known = _PARTS[kind]
    for other, *_ in _PARTS.values():
        if other != used and other is not None and properties.get(other):
            raise ConfigurationError(f"{other} of the rule {name} would be ignored: its FilterType is {kind}.")
    if used is None:
        return filter_of(kind, {}, {})
    if not properties.get(used):
        raise ConfigurationError(f"{used} of the rule {name} is missing: its FilterType is {kind}.")
    item = as_object(properties[used], where := f"{used} of the rule {name}", known)
    texts = {key: str(value) for key, value in item.items() if key != of_values and value is not None}
    return filter_of(kind, texts, _values(item.get(of_values), f"{of_values} of {where}"))


def _values(given: Any, where: str) -> dict[str, AmqpValue]:
    return {key: _value(key, value) for key, value in as_object(given, where).items()}


def _value(key: str, value: Any) -> AmqpValue:
    if isinstance(value, dict) and set(cast("dict[str, Any]", value)) == {_AMQP}:
        try:
            return decode_exactly(bytes.fromhex(cast("dict[str, Any]", value)[_AMQP]))
        except (AmqpDecodeError, TypeError, ValueError):
            raise ConfigurationError(f"The property {key[:40]!r} has no AMQP value.") from None
    if not isinstance(value, str | int | float):
        raise ConfigurationError(f"The property {key[:40]!r} must be a text, a number, true or false.")
    return value
