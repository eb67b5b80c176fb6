"""What one task of a write does with ``operation=settle``: carry out the decision in each row on a deferred message."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import anyio
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from sbnotebook.client.decisions import conflicts, decision_of, read_decisions
from sbnotebook.client.portal import run
from sbnotebook.client.scrubbing import scrubbed
from sbnotebook.client.settling_rows import Place, settle_deferred_rows
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import Complete, Decision, EntityAddress, MessageState, Outcome, OutcomeStatus, PeekedMessage
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.deferring.deferred import check_decision_of_deferred
from sbnotebook.settlement.picking.pick import GONE
from sbnotebook.settlement.picking.standing import standing
from sbnotebook.spark.arrow_types import arrow_schema
from sbnotebook.spark.failed_rows import OUTCOME_COLUMNS, FailureFile, FailuresFolder
from sbnotebook.spark.in_flight import in_flight_of_task
from sbnotebook.spark.options import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["SettleTask", "SettledRows"]

_ROWS_AT_ONCE: Final = 5_000
_MAX_VERB: Final = 40
_PAUSES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Seconds to wait for what a run before this one, which was killed, has locked; a lock lasts a minute by default."""
_HELD: Final = "It is deferred, and another receiver holds it: try again later."
_TWO: Final = "Other rows decide otherwise on the same message: leave one row for each."
_WHY: Final = {
    MessageState.ACTIVE: "It is not deferred: defer it first, or settle it with namespace.settle_frame.",
    MessageState.SCHEDULED: "It is scheduled, and nobody gets it before its time: cancel it instead.",
    MessageState.DEFERRED: _HELD,
}


@dataclass
class SettledRows(WriterCommitMessage):
    """What one task did.

    Args:
        settled: rows that were carried out.
        gone: rows whose messages were not there any more when a task or a micro-batch was repeated.
        failed: all others.
        first_failure: why the first of these was not carried out.
        kept: whether the rows that failed are in ``failuresPath``.
    """

    settled: int = 0
    gone: int = 0
    failed: int = 0
    first_failure: str | None = None
    kept: bool = False


@dataclass(frozen=True)
class SettleTask:
    """Settles by the rows of one task. It is pickled and sent to the workers, so it holds no connection.

    Args:
        options: where and how.
        failures: where rows that failed are written, None when they fail the job.
        is_stream: whether the same rows may come again in another run, when many of their messages are gone.
    """

    options: WriteOptions
    failures: FailuresFolder | None
    is_stream: bool

    @classmethod
    def prepared(cls, options: WriteOptions, schema: StructType, *, is_stream: bool) -> SettleTask:
        """The task of a write, all of which was looked at that can be before anything is settled; on the driver.

        Raises:
            ConfigurationError: a column is missing or has another type, or ``failuresPath`` cannot be written.
        """
        with scrubbed(options.namespace.secrets):
            arrow: Any = arrow_schema(schema)
            read_decisions(pa.Table.from_batches([], arrow), options.entity)
        if options.failures_path is None:
            return cls(options, None, is_stream)
        folder = FailuresFolder(options.failures_path, is_stream)
        with scrubbed(folder.secrets):
            folder.prepare(schema)
        return cls(options, folder, is_stream)

    def run(self, batches: Iterator[pa.RecordBatch]) -> SettledRows:
        """Settle the rows; those that fail are counted, and fail the job when all tasks have ended.

        Raises:
            ConfigurationError: what is completed could not be archived, or the options cannot be met; nothing was done.
        """
        secrets = self.options.namespace.secrets + (self.failures.secrets if self.failures else ())
        with scrubbed(secrets):
            at_once, journalled = in_flight_of_task(self.options), _is_local()
            file = self.failures.file() if self.failures else None
            rows = _Rows(self.options, file, is_repeated=self.is_stream or _attempt() > 0)
            namespace = AsyncNamespace(self.options.namespace.connection(), archive=self.options.archived)
            try:
                for batch in batches:
                    own = batch.drop_columns([name for name in OUTCOME_COLUMNS if name in batch.schema.names])
                    for start in range(0, own.num_rows, _ROWS_AT_ONCE):
                        rows.settle(namespace, own.slice(start, _ROWS_AT_ONCE), at_once, journalled=journalled)
                if file is not None:
                    file.finish()
            except BaseException:
                if file is not None:
                    file.discard()
                raise
            finally:
                run(namespace.close)
        return rows.result


@dataclass(slots=True)
class _Rows:
    """The rows of a task, and how they ended."""

    options: WriteOptions
    file: FailureFile | None
    is_repeated: bool
    result: SettledRows = field(default_factory=SettledRows)

    def settle(self, namespace: AsyncNamespace, batch: pa.RecordBatch, at_once: int, *, journalled: bool) -> None:
        """Settle some rows, and count them."""
        own, decided = self._read(batch)
        if self.options.archived and not journalled and any(isinstance(each, Complete) for each in decided.values()):
            raise ConfigurationError(
                "Spark runs on a cluster, where an archive on a worker's disk is worth nothing, so what is completed "
                'could not be sent back: write the messages to a durable place, and then give option("archive", false).'
            )

        async def settle() -> dict[Place, Outcome]:
            found: dict[Place, Outcome] = {}
            left = decided
            for pause in (0.0, *(_PAUSES if self.is_repeated else ())):
                await anyio.sleep(pause)
                some = await settle_deferred_rows(namespace, left, max_in_flight=at_once, journalled=journalled)
                found |= some | await _explained(namespace, some)
                left = {place: left[place] for place in left if found[place].description == _HELD}
                if not left:
                    break
            return found

        found = run(settle)
        outcomes = [each if isinstance(each, Outcome) else found[each] for each in own]
        self.result.settled += sum(outcome.ok for outcome in outcomes)
        failed = [row for row, outcome in enumerate(outcomes) if not outcome.ok and not self._is_gone(outcome)]
        self.result.gone += sum(self._is_gone(outcome) for outcome in outcomes)
        self._fail(batch, failed, outcomes)

    def _is_gone(self, outcome: Outcome) -> bool:
        return self.is_repeated and outcome.status is OutcomeStatus.NOT_FOUND and outcome.description == GONE

    def _fail(self, batch: pa.RecordBatch, failed: Sequence[int], outcomes: Sequence[Outcome]) -> None:
        self.result.failed += len(failed)
        self.result.kept = self.file is not None
        if failed and self.result.first_failure is None:
            first = outcomes[failed[0]]
            self.result.first_failure = f"#{first.sequence_number}: {first.status}: {first.description}"
        if failed and self.file is not None:
            self.file.add(batch.take(pa.array(failed)), [outcomes[row] for row in failed])

    def _read(self, batch: pa.RecordBatch) -> tuple[list[Place | Outcome], dict[Place, Decision]]:
        """For each row its message, or why it cannot be carried out; and what is decided on the messages."""
        entity = self.options.entity
        read = read_decisions(pa.Table.from_batches([batch]), entity)
        split = set(conflicts(read).column("sequence_number").to_pylist())
        own: list[Place | Outcome] = []
        decided: dict[Place, Decision] = {}
        for row in read.to_pylist():
            number: int = row["sequence_number"]
            problem = row["problem"] or (_TWO if number in split else None)
            try:
                if problem is None:
                    decision = decision_of(row["decision"], row["reason"], row["description"])
                    check_decision_of_deferred(decision, entity)
                    decided[entity, number] = decision
            except DecisionError as error:
                problem = str(error)
            failed = Outcome(OutcomeStatus.FAILED, row["decision"][:_MAX_VERB], entity, number, description=problem)
            own.append((entity, number) if problem is None else failed)
        return own, decided


async def _explained(namespace: AsyncNamespace, found: Mapping[Place, Outcome]) -> dict[Place, Outcome]:
    """Of messages that could not be had, why."""
    absent: dict[EntityAddress, list[int]] = {}
    for (entity, number), outcome in found.items():
        if outcome.status is OutcomeStatus.NOT_FOUND:
            absent.setdefault(entity, []).append(number)
    said: dict[Place, Outcome] = {}
    for entity, numbers in absent.items():
        with contextlib.suppress(Exception):  # what was settled must not be lost for a word of explanation
            there = await standing(namespace.entity(entity), numbers)
            for number in numbers:
                said[entity, number] = replace(found[entity, number], description=_why(there.get(number)))
    return said


def _why(message: PeekedMessage | None) -> str:
    return GONE if message is None else _WHY[message.state]


def _is_local() -> bool:
    """Whether this worker is on the user's machine, whose journal and archive it writes."""
    context = TaskContext.get()
    properties: Mapping[str, str] = context.__dict__.get("_localProperties") or {} if context is not None else {}
    return properties.get("spark.master", "").startswith("local")


def _attempt() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()
