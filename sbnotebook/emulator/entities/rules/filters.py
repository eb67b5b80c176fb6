"""The filters of rules: which messages of its topic a subscription takes.

Source: Service Bus documentation, "Topic filters and actions".
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from sbnotebook.emulator.entities.rules.operands import Operand, compared, operand
from sbnotebook.emulator.entities.rules.subject import RuleSubject
from sbnotebook.errors import ConfigurationError
from sbnotebook.model.amqp import AmqpValue

__all__ = ["CorrelationFilter", "FalseFilter", "Filter", "SqlFilter", "TrueFilter"]


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
        # Here, because sqlglot takes a while to import, and most emulators have no SQL.
        from sbnotebook.emulator.entities.rules.evaluation import predicate
        from sbnotebook.emulator.entities.rules.sql import parse

        object.__setattr__(self, "_test", predicate(parse(self.expression), self.parameters))

    def matches(self, subject: RuleSubject) -> bool:
        """Tell whether the filter takes a message; not if the answer is unknown.

        Raises:
            FilterError: the expression cannot be evaluated on this message.
        """
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
            they are the same; numbers are equal whatever their types.

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
        object.__setattr__(self, "_user", tuple((name, operand(value)) for name, value in self.properties.items()))
        if not self._system and not self._user:
            raise ConfigurationError("A correlation filter needs at least one property to compare.")

    def matches(self, subject: RuleSubject) -> bool:
        """Tell whether the filter takes a message.

        Raises:
            FilterError: the message cannot be read.
        """
        return all(subject.system(name) == value for name, value in self._system) and all(
            compared(operator.eq, subject.user(name), value) for name, value in self._user
        )


_SYSTEM_FIELDS: Final = tuple(
    each.name for each in fields(CorrelationFilter) if each.init and each.name != "properties"
)

Filter = TrueFilter | FalseFilter | SqlFilter | CorrelationFilter
