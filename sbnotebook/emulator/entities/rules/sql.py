"""The SQL of rules as a tree, which holds nothing that Service Bus does not have.

sqlglot reads the text with a dialect that knows the words and signs of Service Bus only, so that
``order``, ``date`` or ``case`` are names of properties like any other. What it can still read and
Service Bus cannot is refused node by node.

Source: Service Bus documentation, "Subscription rule SQL filter syntax" and "Subscription rule SQL
action syntax".
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

from sqlglot import Parser, Token, Tokenizer, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError, TokenError

from sbnotebook.errors import ConfigurationError

__all__ = ["MOST_CHARACTERS", "MOST_NESTED", "parse", "parse_tokens", "tokenize"]

MOST_CHARACTERS: Final = 1_024
"""Of the expression of a filter or an action. Source: Service Bus documentation, "Service Bus quotas"."""
MOST_NESTED: Final = 16
"""Parentheses, NOT and signs inside of each other; sqlglot calls itself for each of them."""

_REGULAR_IDENTIFIER: Final = re.compile(r"[^\W\d_]\w*")
_NUMBER: Final = re.compile(r"(?:[0-9]++(?:\.[0-9]++)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?|[0-9]++\.", re.ASCII)
_PREFIXES: Final = frozenset((TokenType.NOT, TokenType.DASH, TokenType.PLUS))

_BINARY: Final = frozenset(("this", "expression"))
_ALLOWED: Final[dict[type[exp.Expr], frozenset[str]]] = {
    **dict.fromkeys((exp.And, exp.Or, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Is, exp.Escape), _BINARY),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod), _BINARY),
    **dict.fromkeys((exp.Not, exp.Neg, exp.Paren, exp.Boolean, exp.Null, exp.Parameter, exp.Var), frozenset(("this",))),
    exp.Like: _BINARY | {"negate"},
    exp.In: frozenset(("this", "expressions")),
    exp.Anonymous: frozenset(("this", "expressions")),
    exp.Column: frozenset(("this", "table")),
    exp.Identifier: frozenset(("this", "quoted")),
    exp.Literal: frozenset(("this", "is_string")),
}
"""What an expression may be made of: the kinds of nodes, and the parts that each may have."""


class _ServiceBusSql(Dialect):
    class Tokenizer(Tokenizer):
        IDENTIFIERS: ClassVar = ['"', ("[", "]")]
        COMMENTS: ClassVar = []
        KEYWORDS: ClassVar = {
            **{word: TokenType[word] for word in ("AND", "OR", "NOT", "IN", "IS", "LIKE", "ESCAPE")},
            **{word: TokenType[word] for word in ("NULL", "TRUE", "FALSE")},
            "<>": TokenType.NEQ,
            "!=": TokenType.NEQ,
            "<=": TokenType.LTE,
            ">=": TokenType.GTE,
        }
        SINGLE_TOKENS: ClassVar = {
            sign: kind for sign, kind in Tokenizer.SINGLE_TOKENS.items() if sign in "()+-*/%=<>.,;@'\""
        }

    class Parser(Parser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {}
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {}


_DIALECT: Final = _ServiceBusSql()


def parse(expression: str) -> exp.Expr:
    """Return the tree of a filter's expression.

    Raises:
        ConfigurationError: it is too long, is nested too deep, cannot be read, or uses what Service
            Bus does not have.

    Example:
        >>> parse("quantity > 5").key
        'gt'
    """
    return parse_tokens(tokenize(expression), expression)


def tokenize(expression: str) -> list[Token]:
    """Return the words and signs of an expression, once its size is checked.

    Raises:
        ConfigurationError: it is too long or nested too deep, or a text or a name in it does not end.
    """
    if len(expression) > MOST_CHARACTERS:
        raise ConfigurationError(
            f"A SQL expression has at most {MOST_CHARACTERS} characters, this one has {len(expression)}."
        )
    try:
        expression.encode()
        words = _DIALECT.tokenize(expression)
    except UnicodeEncodeError:
        raise ConfigurationError("The SQL expression has half of a surrogate pair, which is not a character.") from None
    except TokenError:
        raise ConfigurationError("The SQL expression cannot be read: a text or a name in it has no end.") from None
    # Count open parentheses, and prefixes in a row: sqlglot calls itself for each of them.
    depth = run = 0
    for word in words:
        run = run + 1 if word.token_type in _PREFIXES else 0
        depth += (word.token_type == TokenType.L_PAREN) - (word.token_type == TokenType.R_PAREN)
        if depth + run > MOST_NESTED:
            raise ConfigurationError(f"The SQL expression is nested deeper than {MOST_NESTED}: take it apart.")
    return words


def parse_tokens(words: list[Token], expression: str) -> exp.Expr:
    """Return the checked tree of one expression.

    Args:
        words: the tokens of it, which may be a part of what :func:`tokenize` returned.
        expression: the whole text.

    Raises:
        ConfigurationError: it cannot be read, or uses what Service Bus does not have.
    """
    reader = _ServiceBusSql.Parser(error_level=ErrorLevel.IMMEDIATE, dialect=_DIALECT)
    try:
        trees = reader.parse(words, expression)
    except ParseError as error:
        word = str(error.errors[0]["highlight"])
        column = int(error.errors[0]["col"] or 0) - len(word) + 1
        raise ConfigurationError(f"The SQL expression cannot be read at column {column}, near {word[:40]!r}.") from None
    root = trees[0] if len(trees) == 1 else None
    if root is None:
        raise ConfigurationError("A SQL expression is needed, and only one.")
    for node in root.walk():
        _check(node)
    return root


def _check(node: exp.Expr) -> None:
    allowed = _ALLOWED.get(type(node))
    if allowed is None or not {name for name, value in node.args.items() if value} <= allowed:
        raise ConfigurationError(f"The SQL expression has a part that Service Bus does not have: {node.key}.")
    if (
        isinstance(node, exp.Identifier)
        and not node.args.get("quoted")
        and not _REGULAR_IDENTIFIER.fullmatch(node.name)
    ):
        raise ConfigurationError(f"The name {node.name!r} must be in square brackets: [{node.name}].")
    if isinstance(node, exp.Literal) and not node.is_string and not _NUMBER.fullmatch(node.name):
        raise ConfigurationError(f"{node.name!r} is not a number.")
