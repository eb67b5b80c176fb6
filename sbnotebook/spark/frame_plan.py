"""A plan to settle messages by the rows of a Spark frame, each with its decision.

This process settles them. It receives deferred messages by their numbers, many at once, and all others in their order,
with :meth:`sbnotebook.client.Entity.pick`. The writer with ``operation=settle`` settles in the tasks of Spark instead.

The rows are in a file with their outcomes, so that no memory grows with them. It is SQLite's own temporary file: only
your user can read it, and it ends with the plan or the process. It takes about 100 bytes for each message, and its
folder is the one that ``SQLITE_TMPDIR`` or ``TMPDIR`` names.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, reduce
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sbnotebook.client.async_entity import AsyncEntity
from sbnotebook.client.entity import Entity
from sbnotebook.client.portal import progress_bar, run
from sbnotebook.client.verbs import ShownAsPreview
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import Abandon, Complete, DeadLetter, Decision, EntityAddress, Outcome, OutcomeStatus, Report
from sbnotebook.model.decision import AUTO
from sbnotebook.settlement import ApplyOnce, AsyncNamespace, InFlight, Limits, Plan, Preview
from sbnotebook.spark.schema import arrow_schema_for
from sbnotebook.spark.scrubbing import in_words
from sbnotebook.spark.settle_writer import COLUMNS, DecidedRow, check_schema, decided_rows, decision_of, skipped

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

_BY_NUMBER: Final = (Complete.verb, DeadLetter.verb, Abandon.verb)
_NOT_DEFERRED: Final = (OutcomeStatus.NOT_FOUND, OutcomeStatus.SKIPPED)
_PASSES: Final = 100
_PARTITIONS: Final = 8
_ROWS: Final = 10_000
"""Rows that are in memory at once as objects of Python."""
_TOO_MANY: Final = (
    f"Not attempted: it is not deferred, and there are more than {_PASSES} different decisions, each of which would "
    "take a search from the head of the entity: defer the messages first, with defer_all."
)
_PAGES: Final = 10
"""Pages of so many rows that make a table."""
_NAMED: Final = 3
_DECISIONS: Final = pa.schema(
    [
        pa.field("entity", pa.string()),
        *[pa.field(name, pa.int64() if name == "sequence_number" else pa.string()) for name in COLUMNS[:4]],
    ]
)
"""The columns of decisions."""
_OUTCOMES: Final[pa.Schema] = pa.schema(
    [("entity", pa.string()), ("sequence_number", pa.int64())]
    + [(name, pa.string()) for name in ("decision", "status", "message_id", "condition", "description", "tracking_id")]
    + [("retryable", pa.bool_())]
)
"""The columns of outcomes."""
_CREATE: Final = """
    CREATE TABLE messages (
        entity TEXT COLLATE NOCASE, sequence_number INTEGER, decision TEXT, reason TEXT, description TEXT,
        split INTEGER DEFAULT 0, verb TEXT, status TEXT, message_id TEXT, condition TEXT, said TEXT,
        tracking_id TEXT, retryable INTEGER, PRIMARY KEY (entity, sequence_number)
    ) WITHOUT ROWID
"""
_ADD: Final = """
    INSERT INTO messages (entity, sequence_number, decision, reason, description) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (entity, sequence_number) DO UPDATE SET split = split OR
        (decision, reason, description) IS NOT (excluded.decision, excluded.reason, excluded.description)
"""
_COUNT: Final = """
    SELECT entity, decision, count(*) FROM messages GROUP BY entity, decision ORDER BY entity, min(sequence_number)
"""
_END: Final = """
    UPDATE messages SET verb = ?, status = ?, message_id = ?, condition = ?, said = ?, tracking_id = ?, retryable = ?
    WHERE entity = ? AND sequence_number = ?
"""
_ROW: Final = "SELECT entity, sequence_number, decision, reason, description FROM messages"
_OUTCOME: Final = """
    SELECT entity, sequence_number, verb, status, message_id, condition, said, tracking_id, retryable FROM messages
    WHERE status IS NOT NULL
"""
_IN_ORDER: Final = "ORDER BY entity, sequence_number"
_pa: Any = pa


class FramePlan(ShownAsPreview):
    """Decisions of a Spark frame, read and checked. ``namespace.plan_settle_frame`` makes one; :meth:`apply` settles.

    The frame is computed once, when you make the plan: a preview shows exactly what :meth:`apply` carries out. Its rows
    are in a temporary file, and deferred messages are settled 10,000 at a time, so that the memory of Python does not
    grow with them. Of messages that are not deferred, it holds the numbers and the outcomes.

    Args:
        namespace: of the messages.
        frame: a row for each message: see :mod:`sbnotebook.spark.settle_writer`.
        entity: of all messages; None where a column says it.
        archived: False to complete messages for good; otherwise ``namespace.undo`` can send them back.

    Raises:
        ConfigurationError: a column is missing or has another type.
        DecisionError: rows have no decision, or one that is not possible, or a message has two; says which.
    """

    def __init__(
        self,
        namespace: AsyncNamespace,
        frame: DataFrame,
        *,
        entity: str | EntityAddress | None = None,
        archived: bool = True,
    ) -> None:
        only = EntityAddress.parse(entity) if entity is not None else None
        if frame.isStreaming:
            raise ConfigurationError(
                "A stream is settled by frame.writeStream with the option operation=settle, or within foreachBatch."
            )
        read = [field for field in frame.schema.fields if field.name.lower() in COLUMNS]
        check_schema(arrow_schema_for(StructType(read)), only)  # before Spark computes anything
        self._namespace = namespace
        self._once = ApplyOnce()
        self._spark: SparkSession = frame.sparkSession
        self._archived = archived and namespace.archive is not None
        self._rows = _read(frame.select(*[field.name for field in read]), only)
        for address in self.entities:  # an entity that cannot be reached fails here, before any is settled
            Entity(AsyncEntity(namespace.entity(address))).peek(1, show_progress=False)

    @property
    def entities(self) -> tuple[EntityAddress, ...]:
        """Return the entities of the messages."""
        return tuple(dict.fromkeys(entity for entity, _ in self.counts))

    @property
    def counts(self) -> dict[tuple[EntityAddress, str], int]:
        """Return how many messages there are of each entity and decision."""
        return {(EntityAddress.parse(entity), verb): count for entity, verb, count in self._rows.counts()}

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas frame with a row for each message: its entity, sequence number and decision."""
        untyped: Any = pa.concat_tables([_DECISIONS.empty_table(), *self._rows.decisions()])
        return untyped.to_pandas()

    def preview(self) -> Preview:
        """Return what applying would do, without doing it."""
        parts = [f"{verb} {count:,} of {entity}" for (entity, verb), count in self.counts.items()]
        sentences = [
            f"settle {len(self):,} messages{self._namespace.in_plans}{': ' if parts else ''}{', '.join(parts)}."
        ]
        if repeated := self._rows.repeated:
            sentences.append(f"{repeated:,} rows say what another one says.")
        if any(verb == Complete.verb for _, verb in self.counts):
            kept = "kept in the archive, and undo sends them back" if self._archived else "removed for good"
            sentences.append(f"Completed messages are {kept}.")
        if cost := Plan.operations("settle", count=len(self)):
            sentences.append(cost)
        return Preview(" ".join(sentences), ())

    def apply(self, *, max_in_flight: InFlight = AUTO, show_progress: bool = True) -> DataFrame:
        """Carry the decisions out.

        Args:
            max_in_flight: settlements that wait for their answer at once.
            show_progress: False for no bar.

        Returns:
            An outcome for each message, in a fixed frame: reading it twice settles nothing twice.

        Raises:
            DecisionError: the plan was applied already; nothing was done.
            ReadOnlyError: the namespace is read-only.
        """
        Limits(max_in_flight)
        self._namespace.connection.require_writing()
        self._once.begin()
        try:
            self._settle_deferred(max_in_flight, show_progress=show_progress)
            self._pick_others(max_in_flight, show_progress=show_progress)
        except BaseException as error:
            error.__dict__["report"] = Report(chain.from_iterable(map(_outcomes_of, self._rows.outcomes())))
            raise
        frames = [self._spark.createDataFrame(table) for table in self._rows.outcomes()]
        # Spark Connect takes no empty table.
        return (
            reduce(lambda first, more: first.union(more), frames)
            if frames
            else self._spark.createDataFrame([], from_arrow_schema(_OUTCOMES))
        )

    def _settle_deferred(self, max_in_flight: InFlight, *, show_progress: bool) -> None:
        """Settle the messages that are deferred by their numbers, and leave the others without an outcome."""
        with progress_bar("settle", len(self), shown=show_progress) as advance:
            for entity, decided in self._rows.decided(*_BY_NUMBER):
                outcomes = self._attempted(entity, decided, partial(self._by_number, entity, decided, max_in_flight))
                self._rows.end(outcome for outcome in outcomes if outcome.status not in _NOT_DEFERRED)
                if advance is not None:
                    advance(len(decided))

    def _by_number(
        self, entity: EntityAddress, decided: Mapping[int, Decision], max_in_flight: InFlight
    ) -> Iterable[Outcome]:
        settle = self._namespace.entity(entity).settle_deferred
        return run(settle, decided, max_in_flight=max_in_flight, archived=self._archived)

    def _pick_others(self, max_in_flight: InFlight, *, show_progress: bool) -> None:
        """Settle the other messages, decision by decision; keep their outcomes as they come."""
        groups: dict[tuple[EntityAddress, Decision], list[int]] = {}
        for entity, number, decision in self._rows.open():
            groups.setdefault((entity, decision), []).append(number)
        # Each decision takes a pass from the head of its entity.
        for place, ((entity, decision), numbers) in enumerate(sorted(groups.items(), key=lambda each: -len(each[1]))):
            decided = dict.fromkeys(numbers, decision)
            pick = partial(self._picked, entity, numbers, decision, max_in_flight, show_progress)
            is_one_more = place < _PASSES
            self._rows.end(
                self._attempted(entity, decided, pick) if is_one_more else skipped(entity, decided, _TOO_MANY)
            )

    def _picked(
        self,
        entity: EntityAddress,
        numbers: Iterable[int],
        decision: Decision,
        max_in_flight: InFlight,
        show_progress: bool,
    ) -> Iterable[Outcome]:
        place = Entity(AsyncEntity(self._namespace.entity(entity)))
        plan = place.pick(numbers, decision, archived=self._archived, show_progress=show_progress)
        return plan.apply(max_in_flight=max_in_flight, show_progress=show_progress)

    def _attempted(
        self, entity: EntityAddress, decided: Mapping[int, Decision], attempt: Callable[[], Iterable[Outcome]]
    ) -> list[Outcome]:
        """Return the outcomes of an attempt, also of one that fails: those of other messages must not be lost."""
        try:
            return [*attempt()]
        except BaseException as error:
            report: Report = error.__dict__.get("report") or Report()
            if not isinstance(error, Exception):
                self._rows.end(report)
                raise
            ended = {outcome.sequence_number for outcome in report}
            left = {number: decision for number, decision in decided.items() if number not in ended}
            return [*report, *skipped(entity, left, f"Not attempted: {in_words(error)}")]

    def __len__(self) -> int:
        return len(self._rows)


def outcomes_in(frame: DataFrame) -> Iterable[Outcome]:
    """Return the outcomes in a frame that :meth:`FramePlan.apply` returned."""
    return _outcomes_of(frame.toArrow())


def _read(frame: DataFrame, entity: EntityAddress | None) -> FrameRows:
    """Compute a frame; return its rows, each message once. Raise if a row cannot be carried out."""
    schema = arrow_schema_for(frame.schema)
    rows = FrameRows()
    # The shuffle computes all partitions at once, and Spark joins or splits the new ones to about 64 MB each; the
    # iterator takes these one after the other. With the 200 that are the default, each task would write 200 files.
    found = frame.hint("rebalance", _PARTITIONS).toLocalIterator(prefetchPartitions=True)
    while page := [*islice(found, _ROWS)]:
        columns: Any = zip(*page, strict=True)
        arrays: Any = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
        rows.add(decided_rows(pa.Table.from_arrays(arrays, schema=schema), entity))
    rows.check()
    return rows


class FrameRows:
    """Messages with their decisions, each once, in the order of entities and numbers; and with their outcomes."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("", check_same_thread=False)
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute(_CREATE)
        self._wrong: list[str] = []
        self._wrong_count = 0
        self._read = 0

    def add(self, rows: Iterable[DecidedRow]) -> None:
        """Add rows."""
        self._file.executemany(_ADD, self._right(rows))

    def _right(self, rows: Iterable[DecidedRow]) -> Iterator[tuple[str | int | None, ...]]:
        """Yield rows for the file, and count those with a problem."""
        for row in rows:
            self._read += 1
            if row.decision is None:
                self._wrong_count += 1
                if self._wrong_count <= _NAMED:
                    self._wrong.append(f"#{row.sequence_number}: {row.problem}")
                continue
            said = (
                (row.decision.reason, row.decision.description)
                if isinstance(row.decision, DeadLetter)
                else (None, None)
            )
            yield str(row.entity), row.sequence_number, row.verb, *said

    def check(self) -> None:
        """Refuse rows that cannot be carried out."""
        if self._wrong_count:
            raise DecisionError(
                f"{self._wrong_count:,} of {self._read:,} rows cannot be carried out, so nothing was done. "
                f"{' '.join(self._wrong)}"
            )
        split = self._file.execute("SELECT count(*) FROM messages WHERE split").fetchone()[0]
        if split:
            found = self._file.execute("SELECT sequence_number, entity FROM messages WHERE split LIMIT ?", [_NAMED])
            shown = ", ".join(f"#{number} of {entity}" for number, entity in found)
            raise DecisionError(
                f"{split:,} messages have more than one decision, so nothing was done ({shown}): "
                "leave one row for each."
            )

    @property
    def repeated(self) -> int:
        """Return how many rows say what another one says."""
        return self._read - len(self)

    def counts(self) -> list[tuple[str, str, int]]:
        """Return how many messages there are of each entity and decision."""
        return self._file.execute(_COUNT).fetchall()

    def decisions(self) -> Iterator[pa.Table]:
        """Yield the decisions, some at a time."""
        return self._tables(_ROW, _DECISIONS)

    def decided(self, *verbs: str) -> Iterator[tuple[EntityAddress, dict[int, Decision]]]:
        """Yield the decisions with these verbs by number, of one entity and some at a time."""
        # The rows may get outcomes meanwhile, which moves none of them.
        found = self._file.execute(f"{_ROW} WHERE decision IN ({', '.join('?' * len(verbs))}) {_IN_ORDER}", verbs)
        while rows := found.fetchmany(_ROWS):
            for entity, some in groupby(rows, lambda row: row[0].lower()):
                yield EntityAddress.parse(entity), {number: decision_of(*said) for _, number, *said in some}

    def open(self) -> Iterator[tuple[EntityAddress, int, Decision]]:
        """Yield the entity, the number and the decision of each message that has no outcome."""
        for entity, number, *decided in self._file.execute(f"{_ROW} WHERE status IS NULL {_IN_ORDER}"):
            yield EntityAddress.parse(entity), number, decision_of(*decided)

    def end(self, outcomes: Iterable[Outcome]) -> None:
        """Keep outcomes."""
        self._file.executemany(
            _END,
            (
                (
                    *(each.verb, each.status.value, each.message_id, each.condition, each.description),
                    *(each.tracking_id, each.retryable, str(each.entity), each.sequence_number),
                )
                for each in outcomes
            ),
        )

    def outcomes(self) -> Iterator[pa.Table]:
        """Yield the outcomes, some at a time."""
        return self._tables(_OUTCOME, _OUTCOMES)

    def _tables(self, query: str, schema: pa.Schema) -> Iterator[pa.Table]:
        found = self._file.execute(f"{query} {_IN_ORDER}")
        while pages := [_page(rows, schema) for _ in range(_PAGES) if (rows := found.fetchmany(_ROWS))]:
            yield _pa.Table.from_batches(pages)

    def __len__(self) -> int:
        return self._file.execute("SELECT count(*) FROM messages").fetchone()[0]


def _page(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    # SQLite has whole numbers for booleans.
    arrays = [_pa.array(column).cast(kind) for column, kind in zip(zip(*rows, strict=True), schema.types, strict=True)]
    return _pa.record_batch(arrays, schema=schema)


def _outcomes_of(table: pa.Table) -> Iterable[Outcome]:
    columns: Any = [table.column(name).to_pylist() for name in _OUTCOMES.names]
    for entity, number, verb, status, *rest in zip(*columns, strict=True):
        yield Outcome(OutcomeStatus(status), verb, EntityAddress.parse(entity), number, *rest)
