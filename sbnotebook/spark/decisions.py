"""Decisions in the rows of a table, one for each message, read and checked before anything is settled.

====================  =============================================================================================
sequence_number       of the message
decision              ``complete``, ``dead_letter``, ``abandon``, ``defer`` or ``resubmit``, in any spelling
reason, description   of a dead letter; other decisions have none
entity                of the message, as in the message columns; without this column, one entity for all rows
====================  =============================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sbnotebook.errors import ConfigurationError, DecisionError, InvalidEntityAddressError
from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    Decision,
    Defer,
    EntityAddress,
    Outcome,
    OutcomeStatus,
    Resubmit,
)
from sbnotebook.settlement import check_decision

COLUMNS: Final = ("sequence_number", "decision", "reason", "description", "entity")
"""The columns that are read."""

_BY_VERB: Final[dict[str, Decision]] = {
    decision.verb: decision for decision in (Complete(), DeadLetter(), Abandon(), Defer(), Resubmit())
}
_BY_WORD: Final = {verb.replace("-", ""): verb for verb in _BY_VERB}
_VERBS: Final = ", ".join(_BY_VERB)
_SHOWN: Final = 60


class DecidedRow(NamedTuple):
    """A row of a table: a decision on a message, or the problem with it."""

    entity: EntityAddress | None
    sequence_number: int | None
    verb: str
    decision: Decision | None
    problem: str | None = None


def check_schema(schema: pa.Schema, entity: EntityAddress | None) -> None:
    """Refuse a table that lacks a column, or has one of another type."""
    there = [name.lower() for name in schema.names]
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
    types: Any = pa.types
    for name, kind in zip(there, schema.types, strict=True):
        if name == COLUMNS[0] and not (types.is_integer(kind) or types.is_null(kind)):
            raise ConfigurationError(f"The column {name} holds whole numbers (bigint), not {kind}.")
        is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_null(kind)
        if name in COLUMNS[1:] and not is_text:
            raise ConfigurationError(f"The column {name} holds texts, not {kind}.")


def decided_rows(
    table: pa.Table | pa.RecordBatch, entity: EntityAddress | None, *, deferred: bool = False
) -> Iterator[DecidedRow]:
    """Yield the rows of a table; for deferred messages, some decisions are a problem.

    Example:
        >>> rows = pa.table({"sequence_number": [7, 8], "decision": ["Dead_Letter", "delete"], "reason": ["Bad", None]})
        >>> first, second = decided_rows(rows, EntityAddress("orders"))
        >>> first.decision, second.problem
        (DeadLetter(reason='Bad', description=None), "'delete' is not a decision: complete, dead-letter, ...")
    """
    check_schema(table.schema, entity)
    untyped: Any = table
    columns = {name.lower(): untyped.column(place) for place, name in enumerate(table.schema.names)}
    values = (columns[name].to_pylist() if name in columns else [None] * table.num_rows for name in COLUMNS)
    read = cache(partial(_read, entity, deferred))  # most rows have the texts of another one
    for number, *texts in zip(*values, strict=True):
        row = read(*texts)._replace(sequence_number=number)
        has_number = number is not None and number > 0
        yield row if has_number else row._replace(decision=None, problem="It has no sequence number.")


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


def skipped(entity: EntityAddress, decided: Mapping[int, Decision], why: str) -> list[Outcome]:
    """Return outcomes of messages that were not attempted."""
    return [
        Outcome(OutcomeStatus.SKIPPED, decision.verb, entity, number, description=why)
        for number, decision in decided.items()
    ]


def _read(only: EntityAddress | None, is_deferred: bool, *texts: str | None) -> DecidedRow:
    """Read a row without its number."""
    verb, reason, description, place = texts
    entity = only
    try:
        decision = decision_of(verb or "", reason, description)
        entity = _entity(place, only)
        check_decision(decision, entity, deferred=is_deferred)
    except (DecisionError, InvalidEntityAddressError) as error:
        return DecidedRow(entity, None, (verb or "")[:_SHOWN], None, str(error))
    return DecidedRow(entity, None, decision.verb, decision)


def _entity(text: str | None, only: EntityAddress | None) -> EntityAddress:
    entity = EntityAddress.parse(text) if text else only
    if entity is None:
        raise DecisionError("It has no entity.")
    if only is not None and entity != only:
        raise DecisionError(f"It is in {(text or '')[:_SHOWN]!r}, and not in {only}.")
    return entity
