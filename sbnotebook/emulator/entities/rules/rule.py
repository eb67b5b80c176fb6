"""Rules of subscriptions: a filter that takes messages, and an action that changes the copies.

Sources: Service Bus documentation, "Topic filters and actions" and "Subscription rule SQL action syntax".
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sbnotebook.amqp import AmqpValue
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
_EXPRESSION: Final = "SqlExpression"


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
        given = ((name.replace("_", ""), getattr(self, name)) for name in CORRELATION_PROPERTIES.values())
        object.__setattr__(self, "_system", tuple(item for item in given if item[1] is not None))
        object.__setattr__(self, "_user", tuple((name, to_operand(value)) for name, value in self.properties.items()))
        if not self._system and not self._user:
            raise ConfigurationError("A correlation filter needs at least one property to compare.")

    def matches(self, subject: RuleSubject) -> bool:
        """Tell whether the filter takes a message."""
        return all(subject.system(name) == value for name, value in self._system) and all(
            compare(operator.eq, subject.user(name), value) for name, value in self._user
        )


Filter = TrueFilter | FalseFilter | SqlFilter | CorrelationFilter


def parts_of(filter_: Filter) -> tuple[str, dict[str, str], Mapping[str, AmqpValue]]:
    """Return the kind of a filter, its texts by their names in Service Bus, and its properties or parameters."""
    match filter_:
        case TrueFilter():
            return "True", {_EXPRESSION: "1=1"}, {}
        case FalseFilter():
            return "False", {_EXPRESSION: "1=0"}, {}
        case SqlFilter():
            return "Sql", {_EXPRESSION: filter_.expression}, filter_.parameters
        case CorrelationFilter():
            texts = {name: getattr(filter_, field) for name, field in CORRELATION_PROPERTIES.items()}
            return "Correlation", {name: text for name, text in texts.items() if text is not None}, filter_.properties


def filter_of(kind: str, texts: Mapping[str, str | None], values: Mapping[str, AmqpValue]) -> Filter:
    """Return the filter of these parts, as ``parts_of`` names them."""
    match kind:
        case "True":
            return TrueFilter()
        case "False":
            return FalseFilter()
        case "Sql":
            return SqlFilter(texts.get(_EXPRESSION) or "", values)
        case "Correlation":
            return CorrelationFilter(
                **{field: texts.get(name) for name, field in CORRELATION_PROPERTIES.items()}, properties=values
            )
        case _:
            raise ConfigurationError(
                f"There is no filter {kind[:40]!r}: use SqlFilter, CorrelationFilter, TrueFilter, FalseFilter."
            )


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
