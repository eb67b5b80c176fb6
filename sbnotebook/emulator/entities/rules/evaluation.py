"""Expressions compiled: a tree becomes functions that are called for every message.

A predicate answers with True, False, or None for unknown. A comparison with a missing property is unknown. NOT leaves
unknown unchanged; AND and OR follow the tables of SQL.

Source: Service Bus documentation, "Subscription rule SQL filter syntax", "Property evaluation semantics".
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from uuid import uuid4

from sqlglot import Token, TokenType, exp

from sbnotebook.emulator.entities.rules.like import LikePattern
from sbnotebook.emulator.entities.rules.operands import (
    FilterError,
    Operand,
    combine,
    compare,
    negate,
    to_operand,
)
from sbnotebook.emulator.entities.rules.sql import parse_tokens, tokenize
from sbnotebook.emulator.entities.rules.subject import RuleSubject
from sbnotebook.errors import ConfigurationError
from sbnotebook.model.amqp import AmqpValue, Long

__all__ = [
    "MOST_STATEMENTS",
    "Calculation",
    "Predicate",
    "Statement",
    "compile_calculation",
    "compile_predicate",
    "compile_statements",
    "property_name",
]

Calculation = Callable[[RuleSubject], Operand]
Predicate = Callable[[RuleSubject], bool | None]
Statement = Callable[[RuleSubject], None]
Parameters = Mapping[str, AmqpValue]

MOST_STATEMENTS: Final = 32
"""Of one action. Source: Service Bus documentation, "Service Bus quotas", expressions per rule action."""
_SET, _REMOVE = "SET", "REMOVE"
_SEPARATORS: Final = frozenset((TokenType.SEMICOLON, TokenType.COMMA))
_TESTS: Final[dict[type[exp.Expr], Callable[[Any, Any], bool]]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}
_SYMBOLS: Final[dict[type[exp.Expr], str]] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_LARGEST: Final = 2**63 - 1


def compile_predicate(node: exp.Expr, parameters: Parameters) -> Predicate:
    """Return the function that tells whether a message fulfils a condition.

    Args:
        node: a checked tree.
        parameters: the values of ``@name`` in it, by name with or without the sign.

    Raises:
        ConfigurationError: the tree is not a condition, or a parameter has no value.
    """
    node = _unwrapped(node)
    if type(node) in _TESTS:
        return _comparison(node, parameters)
    compiler = _PREDICATES.get(type(node))
    if compiler is None:
        raise ConfigurationError("A condition is needed: compare a value alone with another, such as paid = TRUE.")
    return compiler(node, parameters)


def compile_calculation(node: exp.Expr, parameters: Parameters) -> Calculation:
    """Return the function that calculates a value from a message.

    Args:
        node: a checked tree.
        parameters: the values of ``@name`` in it, by name with or without the sign.

    Raises:
        ConfigurationError: the tree is not a value, or a parameter has no value.
    """
    node = _unwrapped(node)
    if type(node) in _SYMBOLS:
        return _chain(node, parameters)
    compiler = _CALCULATIONS.get(type(node))
    if compiler is None:
        raise ConfigurationError("A value is needed where the SQL expression has a condition or nothing.")
    return compiler(node, parameters)


def property_name(node: exp.Expr) -> tuple[bool, str]:
    """Return whether a name means a system property, and the name of the property.

    Raises:
        ConfigurationError: the tree is not the name of a property, or its scope is not sys or user.

    Example:
        >>> from sbnotebook.emulator.entities.rules.sql import parse
        >>> property_name(parse("sys.Label")), property_name(parse("user.[unit price]")), property_name(parse("color"))
        ((True, 'Label'), (False, 'unit price'), (False, 'color'))
    """
    if not isinstance(node, exp.Column) or not node.name:
        raise ConfigurationError("The name of a property is needed here, such as color or sys.Label.")
    scope = node.table.lower()
    if scope not in ("", "sys", "user"):
        raise ConfigurationError(f"The scope of a property is sys or user, not {node.table[:40]!r}.")
    return scope == "sys", node.name


def _unwrapped(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _operands(node: exp.Expr) -> list[exp.Expr]:
    """Return the operands of a chain of one operator, in which the tree is as deep as the chain is long."""
    kind, found = type(node), [node.args["expression"]]
    while type(node.this) is kind:
        node = node.this
        found.append(node.args["expression"])
    return [node.this, *reversed(found)]


def _all(node: exp.Expr, parameters: Parameters) -> Predicate:
    parts = [compile_predicate(each, parameters) for each in _operands(node)]

    def test(subject: RuleSubject) -> bool | None:
        answer: bool | None = True
        for part in parts:
            found = part(subject)
            if found is False:
                return False
            if found is None:
                answer = None
        return answer

    return test


def _any(node: exp.Expr, parameters: Parameters) -> Predicate:
    parts = [compile_predicate(each, parameters) for each in _operands(node)]

    def test(subject: RuleSubject) -> bool | None:
        answer: bool | None = False
        for part in parts:
            found = part(subject)
            if found:
                return True
            if found is None:
                answer = None
        return answer

    return test


def _not(node: exp.Expr, parameters: Parameters) -> Predicate:
    return _inverted(compile_predicate(node.this, parameters))


def _inverted(part: Predicate) -> Predicate:
    def test(subject: RuleSubject) -> bool | None:
        found = part(subject)
        return None if found is None else not found

    return test


def _comparison(node: exp.Expr, parameters: Parameters) -> Predicate:
    left, right = compile_calculation(node.this, parameters), compile_calculation(node.args["expression"], parameters)
    test = _TESTS[type(node)]
    return lambda subject: compare(test, left(subject), right(subject))


def _in(node: exp.Expr, parameters: Parameters) -> Predicate:
    left = compile_calculation(node.this, parameters)
    choices = [compile_calculation(each, parameters) for each in node.expressions]
    if not choices:
        raise ConfigurationError("IN needs at least one value in its parentheses.")

    def test(subject: RuleSubject) -> bool | None:
        value = left(subject)
        answers = [compare(operator.eq, value, choice(subject)) for choice in choices]
        return True if True in answers else None if None in answers else False

    return test


def _like(node: exp.Expr, parameters: Parameters) -> Predicate:
    escape: Calculation | None = None
    if isinstance(node, exp.Escape):
        escape = compile_calculation(node.args["expression"], parameters)
        node = node.this
        if not isinstance(node, exp.Like):
            raise ConfigurationError("ESCAPE belongs after the pattern of LIKE.")
    left, right = compile_calculation(node.this, parameters), compile_calculation(node.args["expression"], parameters)
    # Compile a constant pattern once, any other pattern for each message.
    constant = _constant_pattern(node, right, escape)

    def test(subject: RuleSubject) -> bool | None:
        value = left(subject)
        pattern = constant or _pattern(right(subject), escape and escape(subject), escaped=escape is not None)
        return pattern.matches(value) if pattern is not None and isinstance(value, str) else None

    return _inverted(test) if node.args.get("negate") else test


def _constant_pattern(node: exp.Expr, right: Calculation, escape: Calculation | None) -> LikePattern | None:
    """Return the pattern if it is the same for every message; None if it depends on the message."""
    found = node.parent.args["expression"] if isinstance(node.parent, exp.Escape) else None
    if not isinstance(node.args["expression"], exp.Literal) or not (found is None or isinstance(found, exp.Literal)):
        return None
    try:
        return _pattern(right(_NOTHING), escape and escape(_NOTHING), escaped=escape is not None)
    except FilterError as error:
        raise ConfigurationError(str(error)) from None


def _pattern(pattern: Operand, escape: Operand, *, escaped: bool) -> LikePattern | None:
    if pattern is None or (escaped and escape is None):
        return None
    if not isinstance(pattern, str) or not (escape is None or isinstance(escape, str)):
        raise FilterError("The pattern and the escape character of LIKE must be texts.")
    return LikePattern(pattern, escape)


def _is_null(node: exp.Expr, _parameters: Parameters) -> Predicate:
    if not isinstance(node.args["expression"], exp.Null):
        raise ConfigurationError("IS goes with NULL or NOT NULL only.")
    value = _property(node.this, {})
    return lambda subject: value(subject) is None


def _exists(node: exp.Expr, _parameters: Parameters) -> Predicate:
    if node.name.lower() != "exists" or len(node.expressions) != 1:
        raise ConfigurationError(f"There is no condition {node.name[:40]!r}: EXISTS(property) is the only one.")
    system, name = property_name(node.expressions[0])
    return lambda subject: subject.exists(name, system=system)


def _property(node: exp.Expr, _parameters: Parameters) -> Calculation:
    system, name = property_name(node)
    if system:
        return lambda subject: subject.system(name)
    return lambda subject: subject.user(name)


def _constant(value: Operand) -> Calculation:
    return lambda _subject: value


def _literal(node: exp.Expr, _parameters: Parameters) -> Calculation:
    if node.is_string:
        return _constant(node.name)
    return _constant(_number(node.name))


def _number(digits: str) -> Operand:
    if not digits.isdigit():
        return float(digits)
    if int(digits) > _LARGEST:
        raise ConfigurationError(f"The number {digits[:40]} does not fit into a long: write it with a decimal point.")
    return Long(digits)


def _negative(node: exp.Expr, parameters: Parameters) -> Calculation:
    if isinstance(node.this, exp.Literal) and node.this.name == str(_LARGEST + 1):
        return _constant(Long(-_LARGEST - 1))
    value = compile_calculation(node.this, parameters)
    return lambda subject: negate(value(subject))


def _parameter(node: exp.Expr, parameters: Parameters) -> Calculation:
    wanted = node.name.lower()
    for name, value in parameters.items():
        if name.removeprefix("@").lower() == wanted:
            return _constant(to_operand(value))
    raise ConfigurationError(f"The SQL expression needs a value for the parameter @{node.name}.")


def _function(node: exp.Expr, parameters: Parameters) -> Calculation:
    name, count = node.name.lower(), len(node.expressions)
    if name == "newid" and count == 0:
        return lambda _subject: uuid4()
    if name in ("p", "property") and count == 1:
        return partial(_named, compile_calculation(node.expressions[0], parameters))
    raise ConfigurationError(
        f"There is no function {node.name[:40]!r} that gives a value: use newid(), property(name) or p(name)."
    )


def _named(name: Calculation, subject: RuleSubject) -> Operand:
    found = name(subject)
    if found is None:
        return None
    if not isinstance(found, str):
        raise FilterError("The name in property(name) must be a text.")
    scope, _, rest = found.partition(".")
    if rest and scope.lower() == "sys":
        return subject.system(rest)
    return subject.user(rest if rest and scope.lower() == "user" else found)


_Compiler = Callable[[exp.Expr, Parameters], Any]
_PREDICATES: Final[dict[type[exp.Expr], _Compiler]] = {
    exp.And: _all,
    exp.Or: _any,
    exp.Not: _not,
    exp.In: _in,
    exp.Like: _like,
    exp.Escape: _like,
    exp.Is: _is_null,
    exp.Anonymous: _exists,
}
_CALCULATIONS: Final[dict[type[exp.Expr], _Compiler]] = {
    exp.Column: _property,
    exp.Literal: _literal,
    exp.Boolean: lambda node, _: _constant(bool(node.this)),
    exp.Null: lambda _node, _: _constant(None),
    exp.Neg: _negative,
    exp.Parameter: _parameter,
    exp.Anonymous: _function,
}
_NOTHING: Final = RuleSubject(b"")


def _chain(node: exp.Expr, parameters: Parameters) -> Calculation:
    """Compile a row of operators in a loop, because the tree is as deep as the row is long."""
    steps: list[tuple[str, Calculation]] = []
    while type(node) in _SYMBOLS:
        steps.append((_SYMBOLS[type(node)], compile_calculation(node.args["expression"], parameters)))
        node = node.this
    first = compile_calculation(node, parameters)
    steps.reverse()

    def calculate(subject: RuleSubject) -> Operand:
        value = first(subject)
        for symbol, right in steps:
            value = combine(symbol, value, right(subject))
        return value

    return calculate


def compile_statements(expression: str, parameters: Mapping[str, AmqpValue]) -> tuple[Statement, ...]:
    """Return the functions that carry out an action, in order.

    Args:
        expression: the text of the action.
        parameters: the values of ``@name`` in it, by name with or without the sign.

    Raises:
        ConfigurationError: the expression cannot be read, or uses what Service Bus does not have.

    Example:
        >>> len(compile_statements("SET color = 'red'; REMOVE size", {}))
        2
    """
    parts = _parts(tokenize(expression))
    if len(parts) > MOST_STATEMENTS:
        raise ConfigurationError(f"An action has at most {MOST_STATEMENTS} statements, this one has {len(parts)}.")
    return tuple(_statement(part, expression, parameters) for part in parts)


def _statement(words: list[Token], expression: str, parameters: Mapping[str, AmqpValue]) -> Statement:
    found = parse_tokens(words[1:], expression)
    if words[0].text.upper() == _REMOVE:
        system, name = property_name(found)
        return lambda subject: subject.remove(name, system=system)
    if not isinstance(found, exp.EQ):
        raise ConfigurationError("SET needs a property and a value: SET color = 'red'.")
    system, name = property_name(found.this)
    value = compile_calculation(found.args["expression"], parameters)
    return lambda subject: subject.set(name, value(subject), system=system)


def _parts(words: list[Token]) -> list[list[Token]]:
    """Return the words of each statement, SET or REMOVE first, without the separator at the end."""
    parts: list[list[Token]] = []
    after_dot = False
    for word in words:
        # After a dot, SET and REMOVE are names of properties.
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
