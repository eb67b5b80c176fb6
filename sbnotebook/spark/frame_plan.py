"""A plan to settle messages by the rows of a Spark frame, each with its decision.

Deferred messages can be received by sequence number, so the tasks settle them in parallel on the executors. The driver
settles all others in their order, with :meth:`sbnotebook.client.Entity.pick`.

The rows are in a file with their outcomes, so that no memory grows with them. It is SQLite's own temporary file: only
your user can read it, and it ends with the plan or the process. It takes about 100 bytes for each message, and its
folder is the one that ``SQLITE_TMPDIR`` or ``TMPDIR`` names.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pac
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sbnotebook.client.async_entity import AsyncEntity
from sbnotebook.client.entity import Entity
from sbnotebook.client.targets import NamespaceTarget
from sbnotebook.client.verbs import ShownAsPreview
from sbnotebook.errors import ConfigurationError, DecisionError, SbNotebookError
from sbnotebook.model import Abandon, Complete, DeadLetter, Decision, EntityAddress, Outcome, OutcomeStatus, Report
from sbnotebook.model.decision import AUTO
from sbnotebook.settlement import ApplyOnce, AsyncNamespace, InFlight, Limits, Preview
from sbnotebook.spark.decisions import COLUMNS, DecidedRow, check_schema, decided_rows, decision_of
from sbnotebook.spark.schema import arrow_schema_for
from sbnotebook.spark.scrubbing import in_words, scrubbed
from sbnotebook.spark.settle_task import (
    OUTCOMES,
    MessageKey,
    SettleTask,
    TaskStorage,
    outcome_table,
    outcomes_of,
    packed,
    unpacked,
)
from sbnotebook.spark.task_context import speculates

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

_ON_EXECUTORS: Final = (Complete.verb, DeadLetter.verb, Abandon.verb)
_FROM_DRIVER: Final = (OutcomeStatus.NOT_FOUND.value, OutcomeStatus.SKIPPED.value)
_PASSES: Final = 100
_PARTITIONS: Final = 8
_ROWS: Final = 10_000
"""Rows that are in memory at once as objects of Python."""
_CELL: Final = 250
"""Rows that stay together, so that each task of a small plan has as many."""
_TOO_MANY: Final = (
    f"Not attempted: it is not deferred, and there are more than {_PASSES} different decisions, each of which would "
    "take a search from the head of the entity: defer the messages first, with defer_all."
)
_REPEATED: Final = "It is not there any more: Spark ran its task twice, and the first run may have settled it."
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
_CREATE: Final = """
    CREATE TABLE messages (
        entity TEXT COLLATE NOCASE, sequence_number INTEGER, decision TEXT, reason TEXT, description TEXT,
        split INTEGER DEFAULT 0, verb TEXT, status TEXT, message_id TEXT, condition TEXT, said TEXT,
        tracking_id TEXT, retryable INTEGER, repeated INTEGER, PRIMARY KEY (entity, sequence_number)
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
    UPDATE messages SET verb = ?, status = ?, message_id = ?, condition = ?, said = ?, tracking_id = ?, retryable = ?,
        repeated = ?
    WHERE entity = ? AND sequence_number = ?
"""
_ROW: Final = "SELECT entity, sequence_number, decision, reason, description FROM messages WHERE"
_OUTCOME: Final = """
    SELECT entity, sequence_number, verb, status, message_id, condition, said, tracking_id, retryable FROM messages
    WHERE status IS NOT NULL
"""
_pa: Any = pa
_pc: Any = pac


class FramePlan(ShownAsPreview):
    """Decisions of a Spark frame, read and checked. ``namespace.plan_settle_frame`` makes one; :meth:`apply` settles.

    The frame is computed once, when you make the plan: a preview shows exactly what :meth:`apply` carries out. Its rows
    are in a temporary file of the driver, and the tasks settle 100,000 at a time, so the driver's Python does not grow
    with them. For messages that the driver settles, it holds the numbers and the outcomes.

    Args:
        namespace: of the messages.
        frame: a row for each message: see :mod:`sbnotebook.spark.decisions`.
        entity: of all messages; None where a column says it.
        archived: False to complete messages for good; otherwise ``namespace.undo`` can send them back.

    Raises:
        ConfigurationError: a column is missing or has another type, there is no archive that outlives the cluster, or
            ``spark.speculation`` is on.
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
        if speculates({name: _setting(self._spark, name) for name in ("spark.master", "spark.speculation")}):
            raise ConfigurationError(
                "spark.speculation is on, so Spark may run a task twice at once, and one run would report messages as "
                "gone that the other has settled: switch it off."
            )
        self._archived = archived and namespace.archive is not None
        archive = namespace.archive if self._archived else None
        is_local = _setting(self._spark, "spark.master").startswith("local")
        self._storage = TaskStorage.of(namespace.journal, archive) if is_local else TaskStorage()
        self._rows = _read(frame.select(*[field.name for field in read]), only)
        if self._archived:
            self._storage.require_archive((decision_of(verb) for _, verb in self.counts), "say archived=False")
        for address in self.entities:  # an entity that cannot be reached fails here, and not in every task
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
        verbs = {verb for _, verb in self.counts}
        untyped: Any = pa.concat_tables([_DECISIONS.empty_table(), *self._rows.decisions(*verbs)])
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
        if cost := self._namespace.costs.operations("settle", count=len(self)):
            sentences.append(cost)
        return Preview(" ".join(sentences), ())

    def apply(self, *, max_in_flight: InFlight = AUTO, show_progress: bool = True) -> DataFrame:
        """Carry the decisions out.

        Args:
            max_in_flight: settlements of each task that wait for their answer at once.
            show_progress: False for no bar while the driver settles what the tasks could not.

        Returns:
            An outcome for each message, in a fixed frame: reading it twice settles nothing twice.

        Raises:
            DecisionError: the plan was applied already; nothing was done.
            ReadOnlyError: the namespace is read-only.
            SbNotebookError: the Spark job failed, and it is not known what its tasks had settled by then.
        """
        Limits(max_in_flight)
        self._namespace.connection.require_writing()
        self._once.begin()
        rows = self._rows
        rows.begin()
        try:
            # The tasks settle deferred messages, and leave all that they do not find to the driver.
            for decided in rows.decisions(*_ON_EXECUTORS):
                rows.end(self._on_executors(decided, max_in_flight))
            self._from_driver(rows, max_in_flight, show_progress=show_progress)
        except BaseException as error:
            error.__dict__["report"] = Report(chain.from_iterable(map(outcomes_of, rows.outcomes())))
            raise
        frames = [self._spark.createDataFrame(table) for table in rows.outcomes()]
        # Spark Connect takes no empty table.
        return (
            reduce(lambda first, more: first.union(more), frames)
            if frames
            else self._spark.createDataFrame([], from_arrow_schema(OUTCOMES))
        )

    def _on_executors(self, rows: pa.Table, max_in_flight: InFlight) -> pa.Table:
        """Return the outcomes of the tasks; the status is null where the driver has to look."""
        target = NamespaceTarget.of(self._namespace.connection)
        settle = SettleTask(target, max_in_flight, self._storage)
        try:
            with scrubbed(target.secrets):
                decided = self._spark.createDataFrame(packed(rows, _CELL))
                done = unpacked(decided.mapInArrow(settle, decided.schema).toArrow())
        except SbNotebookError as error:
            raise SbNotebookError(
                f"The Spark job failed, and it is unknown which of the {rows.num_rows:,} messages its tasks had "
                f"settled: settle the same frame again, which finds out and continues. {error}"
            ) from None
        left = _pc.is_in(done["status"], pa.array(_FROM_DRIVER))
        return done.set_column(done.schema.get_field_index("status"), "status", _pc.if_else(left, None, done["status"]))

    def _from_driver(self, rows: FrameRows, max_in_flight: InFlight, *, show_progress: bool) -> None:
        """Settle messages that are not deferred, decision by decision; keep their outcomes as they come."""
        groups: dict[tuple[EntityAddress, Decision], list[int]] = {}
        for entity, number, decision in rows.open():
            groups.setdefault((entity, decision), []).append(number)
        # A task that ran twice may have settled, in its first run, what the driver does not find.
        repeated = rows.repeated_places()

        def end(outcomes: Iterable[Outcome]) -> None:
            rows.end(outcome_table((_judged(outcome, repeated) for outcome in outcomes), repeated=False))

        # Each decision takes a pass from the head of its entity.
        largest_first = sorted(groups.items(), key=lambda group: -len(group[1]))
        for (entity, decision), numbers in largest_first[:_PASSES]:
            try:
                place = Entity(AsyncEntity(self._namespace.entity(entity)))
                plan = place.pick(numbers, decision, archived=self._archived, show_progress=show_progress)
                end(plan.apply(max_in_flight=max_in_flight, show_progress=show_progress))
            except BaseException as error:
                report: Report = error.__dict__.get("report") or Report()
                end(report)
                if not isinstance(error, Exception):
                    raise
                # The outcomes of the others must not be lost.
                ended = {outcome.sequence_number for outcome in report}
                left = [number for number in numbers if number not in ended]
                end(_skipped(entity, decision, left, f"Not attempted: {in_words(error)}"))
        for (entity, decision), numbers in largest_first[_PASSES:]:
            end(_skipped(entity, decision, numbers, _TOO_MANY))

    def __len__(self) -> int:
        return len(self._rows)


def outcomes_in(frame: DataFrame) -> Iterable[Outcome]:
    """Return the outcomes in a frame that :meth:`FramePlan.apply` returned."""
    return outcomes_of(frame.toArrow())


def _setting(spark: SparkSession, name: str) -> str:
    try:
        value: Any = spark.conf.get(name, None)
    except Exception:  # noqa: BLE001 (Databricks' serverless compute, a cluster, does not tell)
        return ""
    return str(value or "")


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


def _skipped(entity: EntityAddress, decision: Decision, numbers: Sequence[int], why: str) -> list[Outcome]:
    return [Outcome(OutcomeStatus.SKIPPED, decision.verb, entity, number, description=why) for number in numbers]


def _judged(outcome: Outcome, repeated: Container[tuple[EntityAddress, int | None]]) -> Outcome:
    """Return an outcome of the driver; unconfirmed where the first run of a task may have settled the message."""
    if AsyncNamespace.is_gone(outcome) and (outcome.entity, outcome.sequence_number) in repeated:
        return replace(outcome, status=OutcomeStatus.UNCONFIRMED, description=_REPEATED)
    return outcome


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

    def decisions(self, *verbs: str) -> Iterator[pa.Table]:
        """Yield the decisions with these verbs, some at a time."""
        marks = ", ".join("?" * len(verbs))
        return self._tables(f"{_ROW} decision IN ({marks})", verbs, _DECISIONS)

    def open(self) -> Iterator[tuple[EntityAddress, int, Decision]]:
        """Yield the entity, the number and the decision of each message that has no outcome."""
        for entity, number, *decided in self._file.execute(f"{_ROW} status IS NULL ORDER BY entity, sequence_number"):
            yield EntityAddress.parse(entity), number, decision_of(*decided)

    def begin(self) -> None:
        """Forget the outcomes."""
        self._file.execute("UPDATE messages SET status = NULL, repeated = 0")

    def end(self, outcomes: pa.Table) -> None:
        """Keep outcomes."""
        for batch in outcomes.to_batches(max_chunksize=_ROWS):
            columns: Any = [batch.column(place).to_pylist() for place in range(batch.num_columns)]
            entities, numbers, *others = columns
            self._file.executemany(_END, zip(*others, entities, numbers, strict=True))

    def repeated_places(self) -> set[MessageKey]:
        """Return the messages that a repeated task looked for."""
        found = self._file.execute("SELECT entity, sequence_number FROM messages WHERE repeated")
        return {(EntityAddress.parse(entity), number) for entity, number in found}

    def outcomes(self) -> Iterator[pa.Table]:
        """Yield the outcomes, some at a time."""
        return self._tables(_OUTCOME, (), OUTCOMES)

    def _tables(self, query: str, values: tuple[str, ...], schema: pa.Schema) -> Iterator[pa.Table]:
        # The rows may get outcomes meanwhile, which moves none of them.
        found = self._file.execute(f"{query} ORDER BY entity, sequence_number", values)
        while pages := [_page(rows, schema) for _ in range(_PAGES) if (rows := found.fetchmany(_ROWS))]:
            yield _pa.Table.from_batches(pages)

    def __len__(self) -> int:
        return self._file.execute("SELECT count(*) FROM messages").fetchone()[0]


def _page(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    # SQLite has whole numbers for booleans.
    arrays = [_pa.array(column).cast(kind) for column, kind in zip(zip(*rows, strict=True), schema.types, strict=True)]
    return _pa.record_batch(arrays, schema=schema)
