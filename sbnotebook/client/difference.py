"""Two messages side by side: only what differs. Messages are hostile input: limits hold for their comparison."""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import islice
from typing import Any, Final, NamedTuple, cast

from sbnotebook.analysis import tables
from sbnotebook.analysis.json_columns import NOT_JSON, json_value
from sbnotebook.analysis.tables import ShownRows, Table
from sbnotebook.client.async_entity import AsyncEntity
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Message, PeekedMessage
from sbnotebook.model.json_text import without_repeats
from sbnotebook.model.property_text import property_type
from sbnotebook.model.schema import COLUMNS

MOST_DIFFERENCES: Final = 500
"""Differences that are returned; the last one says that there are more."""
_APART: Final = frozenset(
    {
        *("entity", "sequence_number", "enqueued_sequence_number", "enqueued_time", "expires_at", "locked_until"),
        "message_id",
        *("body", "body_text", "application_properties", "application_property_types", "extras"),
    }
)
"""Columns that differ for any two messages, or that are compared by their parts."""
_MOST_VALUES: Final = 50_000
_MOST_LINES: Final = 500
_MOST_CHARACTERS: Final = 100_000
_MORE: Final = "(more)"
_MISSING: Final = object()


class Difference(NamedTuple):
    """A part of a message that is not the same in another one."""

    field: str
    one: str | None
    other: str | None


def differences_of(one: Message, other: Message) -> list[Difference]:
    """Return what differs between two messages, besides their places, ids and times.

    Bodies are compared value by value where both are JSON, line by line where both are text, and as bytes otherwise.
    """
    found = [*islice(_all(one, other), MOST_DIFFERENCES + 1)]
    return found if len(found) <= MOST_DIFFERENCES else [*found[:-1], Difference(_MORE, None, None)]


def _all(one: Message, other: Message) -> Iterator[Difference]:
    for column in COLUMNS:
        if column.name not in _APART:
            yield from _one(column.name, _text(column.read(one)), _text(column.read(other)))
    for part in ("application_properties", "extras"):
        mine, theirs = dict(getattr(one, part)), dict(getattr(other, part))
        for name in dict.fromkeys([*mine, *theirs]):
            yield from _typed(f"{part}.{name}", mine.get(name, _MISSING), theirs.get(name, _MISSING))
    if one.body != other.body or one.body_type != other.body_type:
        yield from _bodies(one, other)


def _one(name: str, one: str | None, other: str | None) -> Iterator[Difference]:
    if one != other:
        yield Difference(name, one, other)


def _typed(name: str, one: Any, other: Any) -> Iterator[Difference]:
    """Compare two AMQP values, and show their types where only these differ."""
    texts = [None if value is _MISSING else "null" if value is None else str(value) for value in (one, other)]
    if texts[0] == texts[1] is not None and property_type(one) != property_type(other):
        texts = [f"{text} ({property_type(value)})" for text, value in zip(texts, (one, other), strict=True)]
    yield from _one(name, *texts)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _bodies(one: Message, other: Message) -> Iterator[Difference]:
    texts = one.body_text, other.body_text
    mine, theirs = (json_value(text, without_repeats) for text in texts)
    is_shown = False
    if mine is not NOT_JSON and theirs is not NOT_JSON:
        yield from _values(mine, theirs)
        is_shown = texts[0] != texts[1]  # the same JSON may be written in other ways
    elif texts[0] is not None and texts[1] is not None:
        for each in _lines(texts[0], texts[1]):
            is_shown = True
            yield each
    # Bytes without a text, other line ends, or the same text in another encoding.
    if one.body != other.body and not is_shown:
        pairs = enumerate(zip(one.body, other.body, strict=False))
        place = next((n for n, (mine, theirs) in pairs if mine != theirs), min(len(one.body), len(other.body)))
        yield Difference("body", _described(one.body, place), _described(other.body, place))


def _values(one: Any, other: Any) -> Iterator[Difference]:
    """Compare two values of JSON, with a stack of our own: they may be nested deeply."""
    waiting: list[tuple[str, Any, Any]] = [("body_json", one, other)]
    for _ in range(_MOST_VALUES):
        if not waiting:
            return
        path, mine, theirs = waiting.pop()
        first, second = _parts(mine), _parts(theirs)
        if first is not None and second is not None and type(mine) is type(theirs):
            names = reversed(dict.fromkeys([*first, *second]))
            waiting += [(path + name, first.get(name, _MISSING), second.get(name, _MISSING)) for name in names]
        else:
            yield from _one(path, _json(mine), _json(theirs))
    yield Difference(_MORE, None, None)


def _parts(value: Any) -> dict[str, Any] | None:
    if isinstance(value, dict):
        return {f".{name}": part for name, part in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return {f"[{place}]": part for place, part in enumerate(cast("list[Any]", value))}
    return None


def _json(value: Any) -> str | None:
    if value is _MISSING:
        return None
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "(nested too deeply)"


def _lines(one: str, other: str) -> Iterator[Difference]:
    """Compare two texts line by line; long ones up to a limit, because the time grows faster than their length."""
    mine, theirs = (text[:_MOST_CHARACTERS].splitlines()[:_MOST_LINES] for text in (one, other))
    for kind, start, end, first, last in SequenceMatcher(None, mine, theirs).get_opcodes():
        if kind != "equal":
            removed, added = "\n".join(mine[start:end]), "\n".join(theirs[first:last])
            yield Difference(f"body_text line {start + 1:,}", removed or None, added or None)
    if len(one) > _MOST_CHARACTERS or len(other) > _MOST_CHARACTERS or max(map(len, (mine, theirs))) == _MOST_LINES:
        yield Difference(_MORE, None, None)


def _described(body: bytes, place: int) -> str:
    shown = body[place : place + 16].hex(" ") or "the end"
    return f"{len(body):,} bytes, from {shown}" if not place else f"{len(body):,} bytes, at {place:,}: {shown}"


# ---------------------------------------------------------------- two messages of entities


class MessageDifference(ShownRows[Difference]):
    """The differences of two messages. Shown as a table in a notebook and as text elsewhere.

    Args:
        one: a message.
        other: another one.
    """

    _one_line = False
    _fields = Difference._fields

    def __init__(self, one: PeekedMessage, other: PeekedMessage) -> None:
        self.one = one
        self.other = other
        super().__init__(differences_of(one, other))

    @property
    def summary(self) -> str:
        """Return which messages are compared, and how many differences they have, in a sentence."""
        count = f"{len(self):,} difference{'s' if len(self) != 1 else ''}" if self else "no difference"
        return f"{_name(self.one)} and {_name(self.other)} have {count} besides their places, ids and times."

    @property
    def headers(self) -> list[str]:
        """Return the headers of a table of the differences."""
        return ["field", _name(self.one), _name(self.other)]

    def rows(self, most: int) -> list[list[Any]]:
        """Return a row for each of the first differences, cut to what differs; None where a value is missing.

        Args:
            most: the number of rows.
        """
        return [
            [*each]
            if each.one is None or each.other is None
            else [each.field, *tables.around_difference(each.one, each.other)]
            for each in self[:most]
        ]

    def _table(self, most: int) -> Table:
        return self.headers, self.rows(most), self.summary


async def message_of(entity: AsyncEntity, number: int) -> PeekedMessage:
    found = await entity.peek(1, from_sequence_number=number, to_sequence_number=number, show_progress=False)
    if not found:
        raise ConfigurationError(
            f"There is no message {number} in {entity.address}: it was removed, or has another number. "
            f"%sb_peek {entity.address} lists the numbers."
        )
    return found[0]


async def last_good(entity: AsyncEntity, place: AsyncEntity, letter: PeekedMessage) -> PeekedMessage:
    """Return the last message with the subject of a dead letter that was neither dead-lettered nor resubmitted."""
    if entity.address.sub_queue is None:
        raise ConfigurationError(f"{entity.address} is not a dead-letter queue: give the numbers of two messages.")
    quoted = (letter.subject or "").replace("'", "''")
    same = "subject is null" if letter.subject is None else f"subject = '{quoted}'"
    found = await place.peek(where=f"{same} and resubmit_count = 0 and dead_letter_reason is null", show_progress=False)
    if not found:
        what = "without a subject" if letter.subject is None else f"with the subject {letter.subject[:60]!r}"
        raise ConfigurationError(
            f"There is no message {what} in {place.address} to compare with: give the numbers of two messages."
        )
    return found[-1]


def _name(message: PeekedMessage) -> str:
    return f"{message.entity} #{message.sequence_number}"
