"""Rules of subscriptions: a filter that takes messages, and an action that changes the copies.

Their SQL is read word by word and compiled at once to functions that are called for every message. A condition answers
with True, False, or None for unknown. A comparison with a missing property is unknown. NOT leaves unknown unchanged;
AND and OR follow the tables of SQL.

Sources: Service Bus documentation, "Topic filters and actions", "Subscription rule SQL filter syntax", with "Property
evaluation semantics", and "Subscription rule SQL action syntax".
"""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial, reduce
from itertools import accumulate
from typing import Any, Final, NamedTuple, NoReturn
from uuid import uuid4

from sbnotebook.amqp import AmqpValue, Long
from sbnotebook.emulator.entities.rules.subject import (
    FilterError,
    Operand,
    RuleSubject,
    combine,
    compare,
    negate,
    to_operand,
)
from sbnotebook.errors import ConfigurationError

MOST_CHARACTERS: Final = 1_024
"""Of the expression of a filter or an action. Source: Service Bus documentation, "Service Bus quotas"."""
MOST_STATEMENTS: Final = 32
"""Of one action. Source: Service Bus documentation, "Service Bus quotas", expressions per rule action."""
MOST_NESTED: Final = 16
"""Parentheses inside of each other; the reader calls itself for each of them."""
MOST_PATTERN_CHARACTERS: Final = 1_024
"""Of a pattern of LIKE that comes from a property; one in the expression cannot be longer than that."""

Calculation = Callable[[RuleSubject], Operand]
Predicate = Callable[[RuleSubject], bool | None]
Statement = Callable[[RuleSubject], None]
Parameters = Mapping[str, AmqpValue]

_WORD: Final = re.compile(
    r"""
    (?P<space>\s++)
    | (?P<text>'(?:[^'\ud800-\udfff]|'')*+')  # without halves of surrogate pairs
    | (?P<quoted>\[(?:[^\]\ud800-\udfff]|\]\])*+\]|"(?:[^"\ud800-\udfff]|"")*+")
    | (?P<number>(?:(?:[0-9]++(?:\.[0-9]++)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?|[0-9]++\.)(?![\w.]))
    | (?P<parameter>@\w++)
    | (?P<name>[^\W\d]\w*+)
    | (?P<sign><>|!=|<=|>=|[-+*/%=<>().,;])
    | (?P<nothing>.)
    """,
    re.VERBOSE,
)
_KEYWORDS: Final = frozenset(("AND", "OR", "NOT", "IN", "IS", "LIKE", "ESCAPE", "NULL", "TRUE", "FALSE"))
_TESTS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CONSTANTS: Final[dict[str, Operand]] = {"NULL": None, "TRUE": True, "FALSE": False}
_LARGEST: Final = 2**63 - 1
_SHOWN: Final = 40


def compile_filter(expression: str, parameters: Parameters) -> Predicate:
    reader = _Reader(expression, parameters)
    found = _condition(reader.read_any())
    if not reader.is_at_end:
        reader.refuse()
    return found


def compile_action(expression: str, parameters: Parameters) -> tuple[Statement, ...]:
    reader = _Reader(expression, parameters)
    found: list[Statement] = []
    while not found or not reader.is_at_end:
        found.append(reader.read_statement())
    if len(found) > MOST_STATEMENTS:
        raise ConfigurationError(f"An action has at most {MOST_STATEMENTS} statements, this one has {len(found)}.")
    return tuple(found)


class _Word(NamedTuple):
    kind: str
    """A kind of `_WORD`, ``keyword``, or ``end``."""
    text: str
    """As written; a text and a quoted name without their quotes, a keyword in upper case."""
    column: int


@dataclass(frozen=True, slots=True)
class _Part:
    test: Predicate | None = None
    calculate: Calculation | None = None
    name: tuple[bool, str] | None = None
    """Of a property: whether it is a system property, and its name."""


def _need(what: str, refusal: str, part: _Part) -> Any:
    found = getattr(part, what)
    if found is None:
        raise ConfigurationError(refusal)
    return found


_condition: Final[Callable[[_Part], Predicate]] = partial(
    _need, "test", "A condition is needed: compare a value alone with another, such as paid = TRUE."
)
_value: Final[Callable[[_Part], Calculation]] = partial(
    _need, "calculate", "A value is needed where the SQL expression has a condition."
)
_name: Final[Callable[[_Part], tuple[bool, str]]] = partial(
    _need, "name", "The name of a property is needed here, such as color or sys.Label."
)


class _Reader:
    """Reads one expression; each method reads what its name says, and what binds closer."""

    def __init__(self, expression: str, parameters: Parameters) -> None:
        self._words = _words(expression)
        self._parameters = {name.removeprefix("@").lower(): value for name, value in parameters.items()}
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._words[self._at].kind == "end"

    def read_statement(self) -> Statement:
        kind, verb, _ = self._words[self._at]
        self._at += 1
        is_set = verb.upper() == "SET"
        if kind != "name" or not (is_set or verb.upper() == "REMOVE"):
            raise ConfigurationError("Each statement of an action starts with SET or REMOVE.")
        system, name = _name(self._read_property())
        if is_set and not self._take("="):
            raise ConfigurationError("SET needs a property and a value: SET color = 'red'.")
        value = _value(self._read_sum()) if is_set else None
        self._take_one(";,")
        if value is None:
            return lambda subject: subject.remove(name, system=system)
        return lambda subject: subject.set(name, value(subject), system=system)

    def read_any(self) -> _Part:
        return self._read_row("OR", self._read_and, decides=True)

    def _read_and(self) -> _Part:
        return self._read_row("AND", self._read_not, decides=False)

    def _read_row(self, keyword: str, read: Callable[[], _Part], *, decides: bool) -> _Part:
        parts = [read()]
        while self._take(keyword):
            parts.append(read())
        if len(parts) == 1:
            return parts[0]
        tests = [*map(_condition, parts)]
        return _Part(test=partial(_decided, tests, decides))

    def _read_not(self) -> _Part:
        inversions = [*iter(lambda: self._take("NOT"), False)]
        part = self._read_test()
        if not inversions:
            return part
        test = _condition(part)
        return _Part(test=_inverted(test) if len(inversions) % 2 else test)

    def _read_test(self) -> _Part:
        left = self._read_sum()
        if sign := self._take_one(_TESTS):
            compared, first, second = _TESTS[sign], _value(left), _value(self._read_sum())
            return _Part(test=lambda subject: compare(compared, first(subject), second(subject)))
        if self._take("IS"):
            inverted = self._take("NOT")
            self._require("NULL")
            system, name = _name(left)
            read = RuleSubject.system if system else RuleSubject.user
            return _Part(test=lambda subject: (read(subject, name) is None) is not inverted)
        inverted = self._take("NOT")
        if self._take("IN"):
            test = self._read_in(_value(left))
        elif self._take("LIKE"):
            test = self._read_like(_value(left))
        elif inverted:
            self.refuse()
        else:
            return left
        return _Part(test=_inverted(test) if inverted else test)

    def _read_in(self, left: Calculation) -> Predicate:
        choices = [_value(part) for part in self._read_list()]
        if not choices:
            raise ConfigurationError("IN needs at least one value in its parentheses.")

        def test(subject: RuleSubject) -> bool | None:
            value = left(subject)
            answers = [compare(operator.eq, value, choice(subject)) for choice in choices]
            return True if True in answers else None if None in answers else False

        return test

    def _read_like(self, left: Calculation) -> Predicate:
        right, escape = _value(self._read_sum()), ""
        if self._take("ESCAPE"):
            if self._words[self._at].kind not in ("text", "parameter"):
                self.refuse()
            escape = _value(self._read_operand())(RuleSubject(b""))
            if escape is not None and (not isinstance(escape, str) or len(escape) != 1):
                raise ConfigurationError("The escape character of LIKE must be one character.")
        compiled = lru_cache(maxsize=8)(partial(like_test, escape=escape or ""))

        def test(subject: RuleSubject) -> bool | None:
            value, pattern = left(subject), right(subject)
            if pattern is None or escape is None:
                return None
            if not isinstance(pattern, str) or len(pattern) > MOST_PATTERN_CHARACTERS:
                raise FilterError(
                    f"The pattern of LIKE must be a text of at most {MOST_PATTERN_CHARACTERS} characters."
                )
            return compiled(pattern)(value) if isinstance(value, str) else None

        return test

    def _read_sum(self) -> _Part:
        return self._read_chain("+-", self._read_product)

    def _read_product(self) -> _Part:
        return self._read_chain("*/%", self._read_signed)

    def _read_chain(self, signs: str, read: Callable[[], _Part]) -> _Part:
        first = read()
        steps: list[tuple[str, Calculation]] = []
        while sign := self._take_one(signs):
            steps.append((sign, _value(read())))
        return _Part(calculate=_combined(_value(first), steps)) if steps else first

    def _read_signed(self) -> _Part:
        signs = [*iter(lambda: self._take_one("+-"), "")]
        # The smallest long has no opposite among the longs.
        part = self._read_operand(_LARGEST + (signs[-1:] == ["-"]))
        if not signs:
            return part
        # Even two signs refuse a text. A further pair of signs changes nothing.
        value, count = _value(part), signs.count("-")
        turns = range(min(count, 2 - count % 2))
        return _Part(calculate=lambda subject: reduce(lambda found, _: negate(found), turns, value(subject)))

    def _read_operand(self, largest: int = _LARGEST) -> _Part:
        match self._words[self._at]:
            case ("name", _, _) if self._words[self._at + 1][:2] == ("sign", "("):
                return self._read_function()
            case ("name" | "quoted", _, _):
                return self._read_property()
            case ("sign", "(", _):
                self._at += 1
                inner = self.read_any()
                self._require(")")
                return replace(inner, name=None)
            case ("text", value, _):
                constant: Operand = value
            case ("number", digits, _):
                constant = _number(digits, largest)
            case ("parameter", name, _):
                constant = self._parameter(name[1:])
            case ("keyword", ("NULL" | "TRUE" | "FALSE") as name, _):
                constant = _CONSTANTS[name]
            case _:
                self.refuse()
        self._at += 1
        return _Part(calculate=lambda _subject: constant)

    def _read_property(self) -> _Part:
        scope, name = "", self._read_name()
        if self._take("."):
            scope, name = name, self._read_name()
        if scope.lower() not in ("", "sys", "user"):
            raise ConfigurationError(f"The scope of a property is sys or user, not {scope[:_SHOWN]!r}.")
        system = scope.lower() == "sys"
        read = RuleSubject.system if system else RuleSubject.user
        return _Part(calculate=lambda subject: read(subject, name), name=(system, name))

    def _read_name(self) -> str:
        word = self._words[self._at]
        is_scoped = self._at and self._words[self._at - 1].text == "."
        if word.kind not in ("name", "quoted") and not (word.kind == "keyword" and is_scoped):
            self.refuse()
        self._at += 1
        if word.kind == "name" and word.text.startswith("_"):
            raise ConfigurationError(f"The name {word.text!r} must be in square brackets: [{word.text}].")
        return word.text

    def _read_function(self) -> _Part:
        name = self._read_name()
        arguments = self._read_list()
        match name.lower(), len(arguments):
            case "exists", 1:
                system, wanted = _name(arguments[0])
                return _Part(test=lambda subject: subject.exists(wanted, system=system))
            case "newid", 0:
                return _Part(calculate=lambda _subject: uuid4())
            case (("p" | "property"), 1):
                return _Part(calculate=_named(_value(arguments[0])))
            case _:
                raise ConfigurationError(
                    f"There is no function {name[:_SHOWN]!r} with {len(arguments)} arguments: "
                    "use newid(), property(name), p(name) or EXISTS(property)."
                )

    def _read_list(self) -> list[_Part]:
        self._require("(")
        found: list[_Part] = []
        while not self._take(")"):
            if found:
                self._require(",")
            found.append(self.read_any())
        return found

    def _parameter(self, name: str) -> Operand:
        if name.lower() not in self._parameters:
            raise ConfigurationError(f"The SQL expression needs a value for the parameter @{name[:_SHOWN]}.")
        return to_operand(self._parameters[name.lower()])

    def _take(self, text: str) -> bool:
        word = self._words[self._at]
        found = word.kind in ("keyword", "sign") and word.text == text
        self._at += found
        return found

    def _take_one(self, texts: Iterable[str]) -> str:
        return next((text for text in texts if self._take(text)), "")

    def _require(self, text: str) -> None:
        if not self._take(text):
            self.refuse()

    def refuse(self) -> NoReturn:
        if len(self._words) == 1:
            raise ConfigurationError("A SQL expression is needed.")
        word = self._words[self._at - self.is_at_end]
        raise ConfigurationError(
            f"The SQL expression cannot be read at column {word.column}, near {word.text[:_SHOWN]!r}."
        )


def _words(expression: str) -> list[_Word]:
    if len(expression) > MOST_CHARACTERS:
        raise ConfigurationError(
            f"A SQL expression has at most {MOST_CHARACTERS} characters, this one has {len(expression)}."
        )
    words: list[_Word] = []
    for found in _WORD.finditer(expression):
        kind, text, column = str(found.lastgroup), found[0], found.start() + 1
        if kind in ("text", "quoted"):
            text = text[1:-1].replace({"[": "]]", '"': '""', "'": "''"}[text[0]], {"[": "]"}.get(text[0], text[0]))
        elif kind == "name" and text.upper() in _KEYWORDS:
            kind, text = "keyword", text.upper()
        if kind != "space":
            words.append(_Word(kind, text, column))
    depths = accumulate({"(": 1, ")": -1}.get(word.text, 0) for word in words if word.kind == "sign")
    if max(depths, default=0) > MOST_NESTED:
        raise ConfigurationError(f"The SQL expression is nested deeper than {MOST_NESTED}: take it apart.")
    return [*words, _Word("end", "", len(expression) + 1)]


def _number(digits: str, largest: int) -> Operand:
    if not digits.isdigit():
        return float(digits)
    if int(digits) > largest:
        raise ConfigurationError(
            f"The number {digits[:_SHOWN]} does not fit into a long: write it with a decimal point."
        )
    return Long(digits)


def _decided(parts: Sequence[Predicate], decides: bool, subject: RuleSubject) -> bool | None:
    """Join conditions: the first that answers `decides` is the answer of all."""
    answer: bool | None = not decides
    for part in parts:
        found = part(subject)
        if found is decides:
            return decides
        if found is None:
            answer = None
    return answer


def _inverted(part: Predicate) -> Predicate:
    def test(subject: RuleSubject) -> bool | None:
        found = part(subject)
        return None if found is None else not found

    return test


def _combined(first: Calculation, steps: Sequence[tuple[str, Calculation]]) -> Calculation:
    def calculate(subject: RuleSubject) -> Operand:
        value = first(subject)
        for sign, right in steps:
            value = combine(sign, value, right(subject))
        return value

    return calculate


def _named(name: Calculation) -> Calculation:
    def calculate(subject: RuleSubject) -> Operand:
        found = name(subject)
        if found is None:
            return None
        if not isinstance(found, str):
            raise FilterError("The name in property(name) must be a text.")
        scope, _, rest = found.partition(".")
        if rest and scope.lower() == "sys":
            return subject.system(rest)
        return subject.user(rest if rest and scope.lower() == "user" else found)

    return calculate


def like_test(pattern: str, escape: str = "") -> Callable[[str], bool]:
    """Return the function that tells whether a whole text is like a pattern; upper and lower case differ.

    Each bit of an integer is one place in the pattern that may have been reached. A character of the
    text moves all of them at once, so the cost grows with the length of the text and not with what
    the pattern could be matched to in how many ways.

    Source: Service Bus documentation, "Subscription rule SQL filter syntax", "pattern" and "escape_char".
    """
    literals: defaultdict[str, int] = defaultdict(int)
    loops, others, place = 0, 0, 1
    characters = iter(pattern)
    for character in characters:
        if character == "%" and character != escape:
            loops |= place
            continue
        if character == escape:
            literals[next(characters, character)] |= place  # a last one is meant itself
        elif character == "_":
            others |= place
        else:
            literals[character] |= place
        place <<= 1
    moves = {character: others | bits for character, bits in literals.items()}

    def matches(text: str) -> bool:
        reached = 1
        for character in text:
            reached = ((reached & moves.get(character, others)) << 1) | (reached & loops)
            if not reached:
                return False
        return bool(reached & place)

    return matches


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
