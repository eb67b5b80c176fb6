"""Decisions in the rows of a table, one for each message, read and checked before anything is settled.

====================  =============================================================================================
sequence_number       of the message
decision              ``complete``, ``dead_letter``, ``abandon``, ``defer`` or ``resubmit``, in any spelling
reason, description   of a dead letter; other decisions have none
entity                of the message, as in the message columns; without this column, one entity for all rows
====================  =============================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pac

from sbnotebook.errors import ConfigurationError, DecisionError, InvalidEntityAddressError
from sbnotebook.model import Abandon, Complete, DeadLetter, Decision, Defer, EntityAddress, Resubmit
from sbnotebook.settlement import check_decision

COLUMNS: Final = ("sequence_number", "decision", "reason", "description", "entity")
"""The columns that are read."""

_SCHEMA: Final = pa.schema(
    [
        pa.field("entity", pa.string()),
        pa.field("sequence_number", pa.int64()),
        pa.field("decision", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("description", pa.string()),
        pa.field("problem", pa.string()),
    ]
)
_BY_VERB: Final[dict[str, Decision]] = {
    decision.verb: decision for decision in (Complete(), DeadLetter(), Abandon(), Defer(), Resubmit())
}
_BY_WORD: Final = {verb.replace("-", ""): verb for verb in _BY_VERB}
_VERBS: Final = ", ".join(_BY_VERB)
_SHOWN: Final = 60
_pc: Any = pac


def check_columns(names: Sequence[str], entity: EntityAddress | None) -> None:
    """Refuse a table that lacks a column."""
    there = [name.lower() for name in names]
    needed = COLUMNS[:2] if entity is not None else (*COLUMNS[:2], "entity")
    missing = [name for name in needed if name not in there]
    if missing:
        hint = ' (or say entity="orders/$dlq" for all rows)' if "entity" in missing else ""
        raise ConfigurationError(
            f"To settle from a frame it needs a column {' and a column '.join(missing)}{hint}: one row for each "
            f"message, whose decision is {_VERBS}."
        )
    twice = [name for name in COLUMNS if there.count(name) > 1]
    if twice:
        raise ConfigurationError(f"The frame has the column {twice[0]} twice: keep one of the two.")


def read_decisions(table: pa.Table, entity: EntityAddress | None) -> pa.Table:
    """Return decisions in one form, with addresses and verbs as sbnotebook writes them.

    Example:
        >>> rows = pa.table({"sequence_number": [7, 8], "decision": ["Dead_Letter", "delete"], "reason": ["Bad", None]})
        >>> read = read_decisions(rows, EntityAddress("orders"))
        >>> read["decision"].to_pylist(), read["problem"].to_pylist()[0]
        (['dead-letter', 'delete'], None)
        >>> read["problem"].to_pylist()[1]
        "'delete' is not a decision: complete, dead-letter, abandon, defer, resubmit."
    """
    check_columns(table.column_names, entity)
    # Convert each column, and collect its faults.
    columns = {name.lower(): table.column(place) for place, name in enumerate(table.column_names)}
    numbers = _numbers(columns["sequence_number"])
    decisions, no_decision = _mapped(_text(columns, "decision", table.num_rows), _verb)
    entities, no_entity = _mapped(_text(columns, "entity", table.num_rows), _EntityNames(entity).name)
    # Only a dead letter has a reason and a description.
    dead_letter = _pc.fill_null(_pc.equal(decisions, DeadLetter.verb), False)
    reasons, descriptions = (
        _pc.if_else(dead_letter, _text(columns, name, table.num_rows), pa.scalar(None, pa.string()))
        for name in ("reason", "description")
    )
    # The first problem of a row is the one that is shown.
    no_number = _pc.if_else(
        _pc.fill_null(_pc.greater(numbers, 0), False),
        pa.scalar(None, pa.string()),
        "It has no sequence number.",
    )
    both = _pc.binary_join_element_wise(entities, decisions, "\n")
    _, impossible = _mapped(both, _check_both)
    problems = _pc.coalesce(no_number, no_decision, no_entity, impossible)
    arrays: list[Any] = [entities, numbers, decisions, reasons, descriptions, problems]
    return pa.Table.from_arrays(arrays, schema=_SCHEMA)


def conflicts(read: pa.Table) -> pa.Table:
    """Return the entity and sequence_number of messages with more than one decision."""
    places = ["entity", "sequence_number"]
    once: Any = read.group_by([*places, "decision", "reason", "description"], use_threads=False).aggregate([])
    counted: Any = once.group_by(places, use_threads=False).aggregate([([], "count_all")])
    return counted.filter(_pc.greater(counted["count_all"], 1)).select(places)


def decisions_in(read: pa.Table | pa.RecordBatch) -> Iterator[tuple[EntityAddress, int, Decision]]:
    """Yield the entity, the number and the decision of each message."""
    places: dict[str, EntityAddress] = {}
    columns: Any = [read.column(name).to_pylist() for name in ("entity", *COLUMNS[:4])]
    for entity, number, verb, reason, description in zip(*columns, strict=True):
        place = places.get(entity) or places.setdefault(entity, EntityAddress.parse(entity))
        yield place, number, decision_of(verb, reason, description)


def decision_of(verb: str, reason: str | None = None, description: str | None = None) -> Decision:
    """Return the decision of a row.

    Example:
        >>> decision_of("DeadLetter", "Bad")
        DeadLetter(reason='Bad', description=None)
    """
    known = _BY_WORD.get("".join(letter for letter in verb.lower() if letter.isalpha()))
    if known is None:
        said = f"{verb[:_SHOWN]!r} is not a decision" if verb.strip() else "There is no decision"
        raise DecisionError(f"{said}: {_VERBS}.")
    return DeadLetter(reason, description) if known == DeadLetter.verb else _BY_VERB[known]


def _verb(word: str) -> str:
    return decision_of(word).verb


class _EntityNames:
    """One name for each entity, in any spelling that its rows have."""

    def __init__(self, entity: EntityAddress | None) -> None:
        self._only = entity
        self._seen: dict[EntityAddress, str] = {}

    def name(self, text: str) -> str:
        """Return the name of the entity of a row, whose own text may be empty."""
        if text and self._only is not None and EntityAddress.parse(text) != self._only:
            raise DecisionError(f"It is in {text[:_SHOWN]!r}, and not in {self._only}.")
        if not text and self._only is None:
            raise DecisionError("It has no entity.")
        address = self._only or EntityAddress.parse(text)
        return self._seen.setdefault(address, str(address))


def _check_both(joined: str) -> str:
    entity, _, verb = joined.partition("\n")
    if verb in _BY_VERB:
        check_decision(_BY_VERB[verb], EntityAddress.parse(entity))
    return joined


def _mapped(column: Any, of: Callable[[str], str]) -> tuple[Any, Any]:
    """Return the result of a function for each text of a column, and its refusals; call it once for each text."""
    encoded = _pc.fill_null(column, "").dictionary_encode()
    values: list[str] = []
    problems: list[str | None] = []
    for text in encoded.dictionary.to_pylist():
        try:
            values.append(of(text))
            problems.append(None)
        except (DecisionError, InvalidEntityAddressError) as error:
            values.append(text)
            problems.append(str(error))
    made, refused = (pa.array(each, pa.string()).take(encoded.indices) for each in (values, problems))
    return made, refused


def _numbers(column: Any) -> Any:
    if not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise ConfigurationError(f"The column sequence_number holds whole numbers (bigint), not {column.type}.")
    try:
        return column.cast(pa.int64()).combine_chunks()
    except pa.ArrowInvalid:
        raise ConfigurationError(
            "The column sequence_number holds numbers that are none: they are too large."
        ) from None


def _text(columns: dict[str, Any], name: str, count: int) -> Any:
    column = columns.get(name)
    if column is None:
        return pa.nulls(count, pa.string())
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
        raise ConfigurationError(f"The column {name} holds texts, not {kind}.")
    return column.cast(pa.string()).combine_chunks()
