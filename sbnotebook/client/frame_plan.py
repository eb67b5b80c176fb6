"""A plan to settle messages by the rows of a Spark frame, each with its decision.

Deferred messages can be received by sequence number, so the tasks settle them in parallel on the executors. The driver
settles all others in their order, with :meth:`sbnotebook.client.Entity.pick`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pac

from sbnotebook.analysis import tables
from sbnotebook.client.decisions import (
    COLUMNS,
    check_columns,
    conflicts,
    decision_of,
    decisions_in,
    read_decisions,
)
from sbnotebook.client.entity import Entity
from sbnotebook.client.scrubbing import in_words, scrubbed
from sbnotebook.client.settle_task import OUTCOMES, SettleTask, TaskStorage, outcome_table, outcomes_of
from sbnotebook.client.targets import NamespaceTarget
from sbnotebook.errors import ConfigurationError, DecisionError, SbNotebookError
from sbnotebook.model import Abandon, Complete, DeadLetter, Decision, EntityAddress, Outcome, OutcomeStatus, Report
from sbnotebook.settlement.actions.reach import GONE
from sbnotebook.settlement.costs import Cost
from sbnotebook.settlement.namespace import AsyncNamespace
from sbnotebook.settlement.pace import AUTO, InFlight
from sbnotebook.settlement.plan import Limits, Preview

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FramePlan", "outcomes_in"]

_ON_EXECUTORS: Final = (Complete.verb, DeadLetter.verb, Abandon.verb)
_FROM_DRIVER: Final = (OutcomeStatus.NOT_FOUND.value, OutcomeStatus.SKIPPED.value)
_COLUMNS: Final = (
    "entity string, sequence_number bigint, decision string, status string, message_id string, condition string, "
    "description string, tracking_id string, retryable boolean"
)
_PASSES: Final = 100
_NAMED: Final = 3
_TOO_MANY: Final = (
    f"Not attempted: it is not deferred, and there are more than {_PASSES} different decisions, each of which would "
    "take a search from the head of the entity: defer the messages first, with defer_all."
)
_REPEATED: Final = "It is not there any more: Spark ran its task twice, and the first run may have settled it."
_pc: Any = pac


class FramePlan:
    """Decisions of a Spark frame, read and checked. ``namespace.plan_settle_frame`` makes one; :meth:`apply` settles.

    The frame is computed once, when you make the plan: a preview shows exactly what :meth:`apply` carries out.

    Args:
        namespace: of the messages.
        frame: a row for each message: see :mod:`sbnotebook.client.decisions`.
        entity: of all messages; None where a column says it.
        archived: False to complete messages for good; otherwise ``namespace.undo`` can send them back.

    Raises:
        ConfigurationError: a column is missing or has another type, or there is no archive that outlives the cluster.
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
        check_columns(frame.columns, only)
        self._namespace = namespace
        self._spark: SparkSession = frame.sparkSession
        self._archived = archived and namespace.archive is not None
        archive = namespace.archive if self._archived else None
        self._storage = TaskStorage.of(namespace.journal, archive) if _is_local(self._spark) else TaskStorage()
        rows = frame.select(*[name for name in frame.columns if name.lower() in COLUMNS]).toArrow()
        self._decisions = _checked(read_decisions(rows, only))
        self._repeated = rows.num_rows - len(self)
        if self._archived:
            self._storage.require_archive((decision_of(verb) for _, verb in self.counts), "say archived=False")
        for address in self.entities:  # an entity that cannot be reached fails here, and not in every task
            Entity(namespace.entity(address)).peek(1, show_progress=False)

    @property
    def entities(self) -> tuple[EntityAddress, ...]:
        """Return the entities of the messages."""
        return tuple(EntityAddress.parse(name) for name in _pc.unique(self._decisions["entity"]).to_pylist())

    @property
    def counts(self) -> dict[tuple[EntityAddress, str], int]:
        """Return how many messages there are of each entity and decision."""
        columns: Any = [self._decisions.column(name).to_pylist() for name in ("entity", "decision")]
        counted: Counter[tuple[str, str]] = Counter(zip(*columns, strict=True))
        return {(EntityAddress.parse(entity), verb): count for (entity, verb), count in counted.items()}

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas frame with a row for each message: its entity, sequence number and decision."""
        untyped: Any = self._decisions
        return untyped.to_pandas()

    def preview(self) -> Preview:
        """Return what applying would do, without doing it."""
        parts = [f"{verb} {count:,} of {entity}" for (entity, verb), count in self.counts.items()]
        sentences = [f"settle {len(self):,} messages{': ' if parts else ''}{', '.join(parts)}."]
        if self._repeated:
            sentences.append(f"{self._repeated:,} rows say what another one says.")
        if any(verb == Complete.verb for _, verb in self.counts):
            kept = "kept in the archive, and undo sends them back" if self._archived else "removed for good"
            sentences.append(f"Completed messages are {kept}.")
        if cost := Cost().sentence((), len(self)):
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
            ReadOnlyError: the namespace is read-only.
            SbNotebookError: the Spark job failed, and it is not known what its tasks had settled by then.
        """
        Limits(max_in_flight)
        self._namespace.connection.require_writing()
        rows = self._decisions
        # The tasks settle deferred messages, and leave all that they do not find to the driver.
        on_executors = _pc.is_in(rows["decision"], pa.array(_ON_EXECUTORS))
        done = self._on_executors(rows.filter(on_executors), max_in_flight)
        not_found = _pc.is_in(done["status"], pa.array(_FROM_DRIVER))
        known = done.filter(_pc.invert(not_found))
        left = _concatenated(rows.filter(_pc.invert(on_executors)), _rows_of(rows, done.filter(not_found)))
        # A task that ran twice may have settled, in its first run, what the driver does not find.
        repeated = set(_places(done.filter(done["repeated"])))
        outcomes: list[Outcome] = []
        try:
            self._from_driver(left, outcomes, max_in_flight, show_progress=show_progress)
        except BaseException as error:
            error.__dict__["report"] = Report(outcomes_of(known)) + Report(outcomes)
            raise
        found = outcome_table(_judged(outcome, repeated) for outcome in outcomes)
        table: Any = pa.concat_tables([known.select(OUTCOMES.names), found])
        if not table.num_rows:  # Spark Connect takes no empty table
            return self._spark.createDataFrame([], _COLUMNS)
        return self._spark.createDataFrame(table.sort_by([("entity", "ascending"), ("sequence_number", "ascending")]))

    def _on_executors(self, rows: pa.Table, max_in_flight: InFlight) -> pa.Table:
        connection = self._namespace.connection
        target = NamespaceTarget(connection.host if connection.parsed is None else connection.parsed.text)
        settle = SettleTask(target, max_in_flight, self._storage)
        if not rows.num_rows:
            return outcome_table((), repeated=False)
        try:
            with scrubbed(target.secrets):
                return self._spark.createDataFrame(rows).mapInArrow(settle, f"{_COLUMNS}, repeated boolean").toArrow()
        except SbNotebookError as error:
            raise SbNotebookError(
                f"The Spark job failed, and it is unknown which of the {rows.num_rows:,} messages its tasks had "
                f"settled: settle the same frame again, which finds out and continues. {error}"
            ) from None

    def _from_driver(
        self, rows: pa.Table, outcomes: list[Outcome], max_in_flight: InFlight, *, show_progress: bool
    ) -> None:
        """Settle messages that are not deferred, decision by decision; add their outcomes as they come."""
        groups: dict[tuple[EntityAddress, Decision], list[int]] = {}
        for entity, number, decision in decisions_in(rows):
            groups.setdefault((entity, decision), []).append(number)
        # Each decision takes a pass from the head of its entity.
        largest_first = sorted(groups.items(), key=lambda group: -len(group[1]))
        for (entity, decision), numbers in largest_first[:_PASSES]:
            try:
                place = Entity(self._namespace.entity(entity))
                plan = place.pick(numbers, decision, archived=self._archived, show_progress=show_progress)
                outcomes += plan.apply(max_in_flight=max_in_flight, show_progress=show_progress)
            except Exception as error:  # noqa: BLE001 (the outcomes of the others must not be lost)
                report: Report = error.__dict__.get("report") or Report()
                ended = {outcome.sequence_number for outcome in report}
                left = [number for number in numbers if number not in ended]
                outcomes += [*report, *_skipped(entity, decision, left, f"Not attempted: {in_words(error)}")]
        for (entity, decision), numbers in largest_first[_PASSES:]:
            outcomes += _skipped(entity, decision, numbers, _TOO_MANY)

    def __len__(self) -> int:
        return self._decisions.num_rows

    def __repr__(self) -> str:
        return tables.preview_text(self.preview())

    def _repr_html_(self) -> str:
        return tables.preview_html(self.preview())


def outcomes_in(given: Iterable[Outcome] | DataFrame | None) -> Iterable[Outcome] | None:
    """Return outcomes, also those in a frame that :meth:`FramePlan.apply` returned."""
    frame: Any = given
    return outcomes_of(frame.toArrow()) if hasattr(frame, "toArrow") else frame


def _is_local(spark: SparkSession) -> bool:
    try:
        master: Any = spark.conf.get("spark.master", None)
    except Exception:  # noqa: BLE001 (Databricks' serverless compute, a cluster, does not tell)
        return False
    return str(master or "").startswith("local")


def _checked(read: pa.Table) -> pa.Table:
    """Return the rows in the order of their numbers, each message once; raise where a row cannot be carried out."""
    wrong: Any = read.filter(_pc.is_valid(read["problem"]))
    if wrong.num_rows:
        shown = [f"#{row['sequence_number']}: {row['problem']}" for row in wrong.slice(0, _NAMED).to_pylist()]
        raise DecisionError(
            f"{wrong.num_rows:,} of {read.num_rows:,} rows cannot be carried out, so nothing was done. "
            f"{' '.join(shown)}"
        )
    twice = conflicts(read)
    if twice.num_rows:
        shown = [f"#{row['sequence_number']} of {row['entity']}" for row in twice.slice(0, _NAMED).to_pylist()]
        raise DecisionError(
            f"{twice.num_rows:,} messages have more than one decision, so nothing was done ({', '.join(shown)}): "
            "leave one row for each."
        )
    once: Any = read.group_by(read.column_names, use_threads=False).aggregate([])
    return once.select(["entity", *COLUMNS[:4]]).sort_by([("entity", "ascending"), ("sequence_number", "ascending")])


def _places(outcomes: pa.Table) -> list[tuple[str, int]]:
    columns: Any = [outcomes.column(name).to_pylist() for name in ("entity", "sequence_number")]
    return list(zip(*columns, strict=True))


def _rows_of(rows: pa.Table, outcomes: pa.Table) -> pa.Table:
    """Return the rows of some outcomes."""
    keys = ["entity", "sequence_number"]
    return rows.join(outcomes.select(keys), keys, join_type="left semi")


def _concatenated(first: pa.Table, second: pa.Table) -> pa.Table:
    return pa.concat_tables([first, second.select(first.column_names)])


def _skipped(entity: EntityAddress, decision: Decision, numbers: Sequence[int], why: str) -> list[Outcome]:
    return [Outcome(OutcomeStatus.SKIPPED, decision.verb, entity, number, description=why) for number in numbers]


def _judged(outcome: Outcome, repeated: Container[tuple[str, int | None]]) -> Outcome:
    """Return an outcome of the driver; unconfirmed where the first run of a task may have settled the message."""
    place = str(outcome.entity), outcome.sequence_number
    if outcome.status is OutcomeStatus.NOT_FOUND and outcome.description == GONE and place in repeated:
        return replace(outcome, status=OutcomeStatus.UNCONFIRMED, description=_REPEATED)
    return outcome
