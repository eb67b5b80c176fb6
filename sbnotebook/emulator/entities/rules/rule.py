"""Rules of subscriptions: a filter that takes messages, and an action that changes the copies.

Sources: Service Bus documentation, "Topic filters and actions" and "Subscription rule SQL action syntax".
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sbnotebook.amqp import AmqpValue
from sbnotebook.emulator.entities.rules.sql import compile_action, compile_filter
from sbnotebook.emulator.entities.rules.subject import RuleSubject, compare, to_operand
from sbnotebook.errors import ConfigurationError

DEFAULT_RULE: Final = "$Default"
CORRELATION_PROPERTIES: Final = {
    "CorrelationId": "correlation_id",
    "MessageId": "message_id",
    "To": "to",
    "ReplyTo": "reply_to",
    "Label": "subject",
    "SessionId": "session_id",
    "ReplyToSessionId": "reply_to_session_id",
    "ContentType": "content_type",
}

_MAX_NAME: Final = 50
_NO_NAME: Final = frozenset("@?#*/\\")
_EXPRESSION: Final = "SqlExpression"


@dataclass(frozen=True, slots=True)
class Filter:
    """Takes messages: all, none, those that fulfil a condition, or those whose properties equal the given ones.

    Source: Service Bus documentation, "Topic filters and actions", "Correlation filters"; "Set
    subscription filters", which says that the last equals a SQL filter with ``=`` and ``AND``.
    """

    kind: str  # True, False, Sql or Correlation
    texts: Mapping[str, str]  # by their names in Service Bus
    values: Mapping[str, AmqpValue]  # parameters, or properties
    matches: Callable[[RuleSubject], bool] = field(repr=False, compare=False)


TRUE_FILTER: Final = Filter("True", {_EXPRESSION: "1=1"}, {}, lambda _subject: True)
FALSE_FILTER: Final = Filter("False", {_EXPRESSION: "1=0"}, {}, lambda _subject: False)


def sql_filter(expression: str, parameters: Mapping[str, AmqpValue] | None = None) -> Filter:
    test = compile_filter(expression, parameters or {})
    return Filter("Sql", {_EXPRESSION: expression}, parameters or {}, lambda subject: test(subject) is True)


def correlation_filter(properties: Mapping[str, AmqpValue] | None = None, **fields: str | None) -> Filter:
    """Return the filter that compares these fields, by their names in a message, and application properties."""
    texts = {name: text for name, own in CORRELATION_PROPERTIES.items() if (text := fields.get(own)) is not None}
    user = [(name, to_operand(value)) for name, value in (properties or {}).items()]
    if not texts and not user:
        raise ConfigurationError("A correlation filter needs at least one property to compare.")

    def matches(subject: RuleSubject) -> bool:
        return all(subject.system(name) == text for name, text in texts.items()) and all(
            compare(operator.eq, subject.user(name), value) for name, value in user
        )

    return Filter("Correlation", texts, properties or {}, matches)


def filter_of(kind: str, texts: Mapping[str, str | None], values: Mapping[str, AmqpValue]) -> Filter:
    match kind:
        case "True" | "False":
            return TRUE_FILTER if kind == "True" else FALSE_FILTER
        case "Sql":
            return sql_filter(texts.get(_EXPRESSION) or "", values)
        case "Correlation":
            return correlation_filter(values, **{own: texts.get(name) for name, own in CORRELATION_PROPERTIES.items()})
        case _:
            raise ConfigurationError(
                f"There is no filter {kind[:40]!r}: use SqlFilter, CorrelationFilter, TrueFilter, FalseFilter."
            )


@dataclass(frozen=True, slots=True)
class SqlAction:
    """Sets and removes properties of a message: ``SET property = value``, ``REMOVE property``."""

    expression: str
    parameters: Mapping[str, AmqpValue] = field(default_factory=dict[str, AmqpValue])
    _statements: tuple[Callable[[RuleSubject], None], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_statements", compile_action(self.expression, self.parameters))

    def apply(self, subject: RuleSubject) -> None:
        for statement in self._statements:
            statement(subject)


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    filter: Filter
    action: SqlAction | None = None  # None if the rule makes no copy of its own
    created_time: int = 0  # ms
    # Parts of its description that are given back as they were written, by their places in it
    texts: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)

    def __post_init__(self) -> None:
        if not 0 < len(self.name) <= _MAX_NAME or not _NO_NAME.isdisjoint(self.name):
            raise ConfigurationError(
                f"{self.name[:60]!r} is not the name of a rule: 1 to {_MAX_NAME} characters without @?#*/\\."
            )

    def copy(self, subject: RuleSubject) -> bytes:
        """Return the rule's own copy of a message, with the action carried out and the property ``RuleName``."""
        changed = RuleSubject(
            subject.payload, enqueued_time=subject.enqueued_time, sequence_number=subject.sequence_number
        )
        if self.action is not None:
            self.action.apply(changed)
        changed.set("RuleName", self.name, system=False)
        return changed.payload
