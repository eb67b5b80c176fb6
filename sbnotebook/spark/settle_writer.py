"""Settling deferred messages by the rows of a frame, checked first, in the tasks of Spark.

====================  =============================================================================================
sequence_number       of the message
decision              ``complete``, ``dead_letter``, ``abandon``, ``defer`` or ``resubmit``, in any spelling
reason, description   of a dead letter; other decisions have none
entity                of the message, as in the message columns; without this column, one entity for all rows
====================  =============================================================================================
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import anyio
import pyarrow as pa

from sbnotebook.client.portal import run
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
from sbnotebook.settlement import Archive, AsyncNamespace, Journal, check_decision
from sbnotebook.spark.failed_rows import FailureFile
from sbnotebook.spark.options import WriteOptions
from sbnotebook.spark.schema import arrow_schema_for
from sbnotebook.spark.scrubbing import in_words
from sbnotebook.spark.task_context import attempt_number, in_flight_of_task, is_local
from sbnotebook.spark.task_writer import TaskResult, TaskWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

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


_Settle = Callable[[Mapping[int, Decision]], Awaitable[Iterable[Outcome]]]
_ROWS_AT_ONCE: Final = 5_000
_PAUSES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Seconds to wait for messages that a killed run before this one has locked; a lock lasts a minute by default."""
_TWO: Final = "Other rows decide otherwise on the same message: leave one row for each."


class SettleWriter(TaskWriter):
    """Completes, dead-letters or abandons deferred messages: see :mod:`sbnotebook.spark.settle_writer` for the columns.

    A task or a micro-batch that Spark repeats finds messages gone that its first run settled. They are counted, and are
    not failures.
    """

    DONE: ClassVar = "{count} messages of {entity} were settled"
    MAY: ClassVar = "they may be settled"

    @staticmethod
    def check(schema: StructType, options: WriteOptions) -> None:
        """Refuse a column that is missing or has another type."""
        check_schema(arrow_schema_for(schema), options.entity)

    def carry_out(self, batches: Iterator[pa.RecordBatch], result: TaskResult, file: FailureFile | None) -> None:
        """Settle by the rows of one task."""
        is_repeated = self.is_stream or attempt_number() > 0
        namespace = self._namespace()
        settle = partial(
            namespace.entity(self.options.entity).settle_deferred,
            max_in_flight=in_flight_of_task(self.options),
            journalled=is_local(),
        )
        try:
            for batch in batches:
                for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                    rows = batch.slice(start, _ROWS_AT_ONCE)
                    outcomes = self._outcomes(settle, rows, _PAUSES if is_repeated else ())
                    failed: list[int] = []
                    for row, outcome in enumerate(outcomes):
                        if outcome.ok:
                            result.done += 1
                        elif is_repeated and AsyncNamespace.is_gone(outcome):
                            result.gone += 1
                        else:
                            result.fail(outcome)
                            failed.append(row)
                    if failed and file is not None:
                        file.add(rows.take(pa.array(failed)), [outcomes[row] for row in failed])
        finally:
            run(namespace.close)

    def _namespace(self) -> AsyncNamespace:
        """Return a namespace with the user's own journal and archive, where the task runs on the user's machine."""
        connection = self.options.namespace.connection()
        if not is_local():
            return AsyncNamespace(connection, archive=None)
        journal = Journal()
        return AsyncNamespace(
            connection, journal=journal, archive=Archive.of(self.options.archived, journal.path.parent)
        )

    def _outcomes(self, settle: _Settle, rows: pa.RecordBatch, pauses: tuple[float, ...]) -> list[Outcome]:
        """Settle some rows; return an outcome for each."""
        entity = self.options.entity
        read = [*decided_rows(rows, entity, deferred=True)]
        # Find the messages with two decisions.
        decided: dict[int, Decision] = {}
        split: set[int] = set()
        for row in read:
            number = row.sequence_number or 0
            if row.decision is not None and decided.setdefault(number, row.decision) != row.decision:
                split.add(number)
        whole = {number: decision for number, decision in decided.items() if number not in split}
        if self.options.archived and not is_local() and any(isinstance(each, Complete) for each in whole.values()):
            raise ConfigurationError(
                "Spark runs on a cluster, where an archive on a worker's disk is not durable, and could not send "
                "completed messages back. Write the messages to a durable place first, and give "
                'option("archive", false).'
            )
        found = run(self._settled, settle, whole, pauses)
        outcomes: list[Outcome] = []
        for row in read:
            problem = row.problem or (_TWO if row.sequence_number in split else None)
            failed = Outcome(OutcomeStatus.FAILED, row.verb, entity, row.sequence_number, description=problem)
            outcomes.append(failed if problem is not None else found[row.sequence_number or 0])
        return outcomes

    async def _settled(
        self, settle: _Settle, decided: Mapping[int, Decision], pauses: tuple[float, ...]
    ) -> dict[int, Outcome]:
        """Settle deferred messages by their numbers; return an outcome for each."""
        found, left = dict[int, Outcome](), decided
        # Messages that a killed run has locked come back when their locks expire.
        for pause in (0.0, *pauses):
            await anyio.sleep(pause)
            try:
                report = await settle(left)
            except Exception as error:  # noqa: BLE001 (of these rows; the others continue)
                report = skipped(self.options.entity, left, f"Not attempted: {in_words(error)}")
            found |= {outcome.sequence_number or 0: outcome for outcome in report}
            left = {number: left[number] for number in left if AsyncNamespace.is_locked_elsewhere(found[number])}
            if not left:
                break
        return found
