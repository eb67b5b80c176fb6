"""Rules of subscriptions: a filter that takes messages, and an action that changes the copies.

Sources: Service Bus documentation, "Topic filters and actions" and "Subscription rule SQL action syntax".
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from sbnotebook.amqp import AmqpValue, decode_exactly, encode
from sbnotebook.emulator.entities.rules.operands import Operand, compare, to_operand
from sbnotebook.emulator.entities.rules.sql import compile_action, compile_filter
from sbnotebook.emulator.entities.rules.subject import RuleSubject
from sbnotebook.errors import ConfigurationError

DEFAULT_RULE: Final = "$Default"
"""The name of the rule that a new subscription has."""
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
"""The properties of a message that a correlation filter compares, by their names in Service Bus."""

_RULE_NAME: Final = "RuleName"
_MAX_NAME: Final = 50
_NO_NAME: Final = frozenset("@?#*/\\")
_TYPED: Final = frozenset(("parameters", "properties"))


@dataclass(frozen=True, slots=True)
class TrueFilter:
    """Takes every message."""

    def matches(self, _subject: RuleSubject) -> bool:
        """Tell whether the filter takes a message: always."""
        return True


@dataclass(frozen=True, slots=True)
class FalseFilter:
    """Takes no message."""

    def matches(self, _subject: RuleSubject) -> bool:
        """Tell whether the filter takes a message: never."""
        return False


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """Takes the messages that fulfil a condition on their properties.

    Attributes:
        expression: the condition, of at most 1,024 characters.
        parameters: the values of ``@name`` in it, by name with or without the sign.

    Raises:
        ConfigurationError: the expression cannot be read, or uses what Service Bus does not have.

    Example:
        >>> red = RuleSubject(bytes.fromhex("005374c10d02a105636f6c6f72a103726564005375a000"))
        >>> SqlFilter("color IN ('red', 'blue') AND sys.Label IS NULL").matches(red)
        True
        >>> SqlFilter("size > 3").matches(red), SqlFilter("NOT size > 3").matches(red)
        (False, False)
    """

    expression: str
    parameters: Mapping[str, AmqpValue] = field(default_factory=dict[str, AmqpValue])
    _test: Callable[[RuleSubject], bool | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_test", compile_filter(self.expression, self.parameters))

    def matches(self, subject: RuleSubject) -> bool:
        """Tell whether the filter takes a message; not if the answer is unknown."""
        return self._test(subject) is True


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrelationFilter:
    """Takes the messages whose properties equal the given ones, all of them.

    Attributes:
        correlation_id: None leaves this and each of the others out.
        message_id: of the message.
        to: its address.
        reply_to: the address for replies.
        subject: also called label.
        session_id: of the message.
        reply_to_session_id: of replies.
        content_type: of the body.
        properties: application properties by name. Texts are equal in upper and lower case only if
            they are the same; numbers of different types can be equal.

    Raises:
        ConfigurationError: nothing is given.

    Source: Service Bus documentation, "Topic filters and actions", "Correlation filters"; "Set
    subscription filters", which says that the filter equals a SQL filter with ``=`` and ``AND``.
    """

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    subject: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Mapping[str, AmqpValue] = field(default_factory=dict[str, AmqpValue])
    _system: tuple[tuple[str, str], ...] = field(init=False, repr=False, compare=False)
    _user: tuple[tuple[str, Operand], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given = ((name.replace("_", ""), getattr(self, name)) for name in _SYSTEM_FIELDS)
        object.__setattr__(self, "_system", tuple(item for item in given if item[1] is not None))
        object.__setattr__(self, "_user", tuple((name, to_operand(value)) for name, value in self.properties.items()))
        if not self._system and not self._user:
            raise ConfigurationError("A correlation filter needs at least one property to compare.")

    def matches(self, subject: RuleSubject) -> bool:
        """Tell whether the filter takes a message."""
        return all(subject.system(name) == value for name, value in self._system) and all(
            compare(operator.eq, subject.user(name), value) for name, value in self._user
        )


_SYSTEM_FIELDS: Final = tuple(
    each.name for each in fields(CorrelationFilter) if each.init and each.name != "properties"
)

Filter = TrueFilter | FalseFilter | SqlFilter | CorrelationFilter
_TYPES: Final[dict[str, type[Filter]]] = {
    "true": TrueFilter,
    "false": FalseFilter,
    "sql": SqlFilter,
    "correlation": CorrelationFilter,
}
_NAMES: Final = {kind: name for name, kind in _TYPES.items()}


@dataclass(frozen=True, slots=True)
class SqlAction:
    """Sets and removes properties of a message.

    Attributes:
        expression: ``SET property = value`` and ``REMOVE property``, one after the other, with or
            without semicolons; at most 1,024 characters and 32 statements.
        parameters: the values of ``@name`` in it, by name with or without the sign.

    Raises:
        ConfigurationError: the expression cannot be read, or uses what Service Bus does not have.

    Example:
        >>> subject = RuleSubject(bytes.fromhex("005375a000"))
        >>> SqlAction("SET quantity = 7 / 2; SET sys.Label = 'half'").apply(subject)
        >>> subject.user("quantity"), subject.system("Label")
        (3, 'half')
    """

    expression: str
    parameters: Mapping[str, AmqpValue] = field(default_factory=dict[str, AmqpValue])
    _statements: tuple[Callable[[RuleSubject], None], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_statements", compile_action(self.expression, self.parameters))

    def apply(self, subject: RuleSubject) -> None:
        """Carry out the statements in order; each sees what those before it did."""
        for statement in self._statements:
            statement(subject)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a subscription.

    Attributes:
        name: its name in the subscription.
        filter: decides which messages the rule takes.
        action: changes the copies; None if the rule makes no copy of its own.
        created_time: ms since 1970-01-01 UTC.
        texts: parts of its description that are given back as they were written, by their places in it.

    Raises:
        ConfigurationError: it cannot have this name, by any way in which it is made.

    Example:
        >>> rule = Rule("big", SqlFilter("size > @least", {"@least": 5}), SqlAction("REMOVE size"))
        >>> Rule.from_json(rule.to_json()) == rule
        True
    """

    name: str
    filter: Filter
    action: SqlAction | None = None
    created_time: int = 0
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
        changed.set(_RULE_NAME, self.name, system=False)
        return changed.payload

    def to_json(self) -> dict[str, Any]:
        """Return the rule as plain values; AMQP values become the hexadecimal digits of their encoding."""
        return {
            "name": self.name,
            "created_time": self.created_time,
            "filter": {"type": _NAMES[type(self.filter)], **_to_json(self.filter)},
            "action": None if self.action is None else _to_json(self.action),
            "texts": dict(self.texts),
        }

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Rule:
        """Return the rule that :meth:`to_json` wrote."""
        settings = _from_json(document["filter"])
        action = document["action"]
        return Rule(
            document["name"],
            _TYPES[settings.pop("type")](**settings),
            None if action is None else SqlAction(**_from_json(action)),
            document["created_time"],
            document.get("texts", {}),
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
