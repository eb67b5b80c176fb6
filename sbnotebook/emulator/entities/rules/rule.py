"""A rule of a subscription: a filter, and an action on what it takes.

Source: Service Bus documentation, "Topic filters and actions".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from sbnotebook.emulator.entities.rules.action import SqlAction
from sbnotebook.emulator.entities.rules.filters import CorrelationFilter, FalseFilter, Filter, SqlFilter, TrueFilter
from sbnotebook.emulator.entities.rules.subject import RuleSubject
from sbnotebook.model.amqp import AmqpValue, decode_exactly, encode

__all__ = ["DEFAULT_RULE", "Rule"]

DEFAULT_RULE: Final = "$Default"
"""The name of the rule that a new subscription has."""

_RULE_NAME: Final = "RuleName"
_TYPES: Final[dict[str, type[Filter]]] = {
    "true": TrueFilter,
    "false": FalseFilter,
    "sql": SqlFilter,
    "correlation": CorrelationFilter,
}
_TYPED: Final = frozenset(("parameters", "properties"))
_NAMES: Final = {kind: name for name, kind in _TYPES.items()}


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a subscription.

    Attributes:
        name: its name in the subscription.
        filter: which messages it takes.
        action: what it changes in its copy of them; None if the rule makes no copy of its own.
        created_time: ms since 1970-01-01 UTC.

    Example:
        >>> rule = Rule("big", SqlFilter("size > @least", {"@least": 5}), SqlAction("REMOVE size"))
        >>> Rule.from_json(rule.to_json()) == rule
        True
    """

    name: str
    filter: Filter
    action: SqlAction | None = None
    created_time: int = 0

    def copy(self, subject: RuleSubject) -> bytes:
        """The rule's own copy of a message, with the action carried out and the property ``RuleName``.

        Args:
            subject: a message that the filter takes; it stays as it is.

        Raises:
            FilterError: the action cannot be carried out on this message.
        """
        changed = RuleSubject(
            subject.payload, enqueued_time=subject.enqueued_time, sequence_number=subject.sequence_number
        )
        if self.action is not None:
            self.action.apply(changed)
        changed.set(_RULE_NAME, self.name, system=False)
        return changed.payload

    def to_json(self) -> dict[str, Any]:
        """The rule in what JSON has; values of AMQP stand as the hexadecimal digits of their encoding."""
        return {
            "name": self.name,
            "created_time": self.created_time,
            "filter": {"type": _NAMES[type(self.filter)], **_to_json(self.filter)},
            "action": None if self.action is None else _to_json(self.action),
        }

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Rule:
        """The rule that :meth:`to_json` wrote.

        Raises:
            ConfigurationError: an expression in it cannot be read.
        """
        settings = _from_json(document["filter"])
        action = document["action"]
        return Rule(
            document["name"],
            _TYPES[settings.pop("type")](**settings),
            None if action is None else SqlAction(**_from_json(action)),
            document["created_time"],
        )


def _to_json(part: Filter | SqlAction) -> dict[str, Any]:
    given = {each.name: getattr(part, each.name) for each in fields(part) if each.init}
    return {name: _hex(value) if name in _TYPED else value for name, value in given.items()}


def _from_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _values(value) if name in _TYPED else value for name, value in settings.items()}


def _hex(values: Mapping[str, AmqpValue]) -> dict[str, str]:
    return {name: encode(value).hex() for name, value in values.items()}


def _values(digits: Mapping[str, str]) -> dict[str, AmqpValue]:
    return {name: decode_exactly(bytes.fromhex(value)) for name, value in digits.items()}
