"""The action of a rule: what it changes in the copies of messages that its subscription gets.

Source: Service Bus documentation, "Subscription rule SQL action syntax".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sqlglot import Token, TokenType, exp

from sbnotebook.emulator.entities.rules.evaluation import calculation, place
from sbnotebook.emulator.entities.rules.sql import tokenize, tree
from sbnotebook.emulator.entities.rules.subject import RuleSubject
from sbnotebook.errors import ConfigurationError
from sbnotebook.model.amqp import AmqpValue

__all__ = ["MOST_STATEMENTS", "SqlAction"]

MOST_STATEMENTS: Final = 32
"""Of one action. Source: Service Bus documentation, "Service Bus quotas", expressions per rule action."""

_SET, _REMOVE = "SET", "REMOVE"
_SEPARATORS: Final = frozenset((TokenType.SEMICOLON, TokenType.COMMA))
_Statement = Callable[[RuleSubject], None]


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
    _statements: tuple[_Statement, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = _parts(tokenize(self.expression))
        if len(parts) > MOST_STATEMENTS:
            raise ConfigurationError(f"An action has at most {MOST_STATEMENTS} statements, this one has {len(parts)}.")
        object.__setattr__(self, "_statements", tuple(self._statement(part) for part in parts))

    def apply(self, subject: RuleSubject) -> None:
        """Carry out the statements in order; each sees what those before it did.

        Raises:
            FilterError: a statement cannot be carried out on this message, which may be changed in part.
        """
        for statement in self._statements:
            statement(subject)

    def _statement(self, words: list[Token]) -> _Statement:
        found = tree(words[1:], self.expression)
        if words[0].text.upper() == _REMOVE:
            system, name = place(found)
            return lambda subject: subject.remove(name, system=system)
        if not isinstance(found, exp.EQ):
            raise ConfigurationError("SET needs a property and a value: SET color = 'red'.")
        system, name = place(found.this)
        value = calculation(found.args["expression"], self.parameters)
        return lambda subject: subject.set(name, value(subject), system=system)


def _parts(words: list[Token]) -> list[list[Token]]:
    """The words of each statement, SET or REMOVE first, without what separates it from the next."""
    parts: list[list[Token]] = []
    after_dot = False
    for word in words:
        if word.token_type == TokenType.VAR and word.text.upper() in (_SET, _REMOVE) and not after_dot:
            parts.append([word])
        elif parts:
            parts[-1].append(word)
        else:
            break
        after_dot = word.token_type == TokenType.DOT
    if not parts:
        raise ConfigurationError("An action starts with SET or REMOVE.")
    return [part[:-1] if part[-1].token_type in _SEPARATORS else part for part in parts]
