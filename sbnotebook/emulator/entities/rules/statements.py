"""The statements of an action made ready: functions that change a message.

Source: Service Bus documentation, "Subscription rule SQL action syntax".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sqlglot import Token, TokenType, exp

from sbnotebook.emulator.entities.rules.evaluation import calculation, place
from sbnotebook.emulator.entities.rules.sql import tokenize, tree
from sbnotebook.emulator.entities.rules.subject import RuleSubject
from sbnotebook.errors import ConfigurationError
from sbnotebook.model.amqp import AmqpValue

__all__ = ["MOST_STATEMENTS", "Statement", "statements"]

MOST_STATEMENTS: Final = 32
"""Of one action. Source: Service Bus documentation, "Service Bus quotas", expressions per rule action."""

Statement = Callable[[RuleSubject], None]

_SET, _REMOVE = "SET", "REMOVE"
_SEPARATORS: Final = frozenset((TokenType.SEMICOLON, TokenType.COMMA))


def statements(expression: str, parameters: Mapping[str, AmqpValue]) -> tuple[Statement, ...]:
    """The functions that carry out an action, in order.

    Args:
        expression: the text of the action.
        parameters: the values of ``@name`` in it, by name with or without the sign.

    Raises:
        ConfigurationError: the expression cannot be read, or uses what Service Bus does not have.

    Example:
        >>> len(statements("SET color = 'red'; REMOVE size", {}))
        2
    """
    parts = _parts(tokenize(expression))
    if len(parts) > MOST_STATEMENTS:
        raise ConfigurationError(f"An action has at most {MOST_STATEMENTS} statements, this one has {len(parts)}.")
    return tuple(_statement(part, expression, parameters) for part in parts)


def _statement(words: list[Token], expression: str, parameters: Mapping[str, AmqpValue]) -> Statement:
    found = tree(words[1:], expression)
    if words[0].text.upper() == _REMOVE:
        system, name = place(found)
        return lambda subject: subject.remove(name, system=system)
    if not isinstance(found, exp.EQ):
        raise ConfigurationError("SET needs a property and a value: SET color = 'red'.")
    system, name = place(found.this)
    value = calculation(found.args["expression"], parameters)
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
