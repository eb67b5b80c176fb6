"""Settling deferred messages by the rows of a frame, in the tasks of Spark."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

import anyio
import pyarrow as pa

from sbnotebook.client.portal import run
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Complete, Decision, Outcome, OutcomeStatus
from sbnotebook.settlement import Archive, AsyncNamespace, Journal
from sbnotebook.spark.decisions import check_schema, decided_rows, skipped
from sbnotebook.spark.failed_rows import FailureFile
from sbnotebook.spark.options import WriteOptions
from sbnotebook.spark.schema import arrow_schema_for
from sbnotebook.spark.scrubbing import in_words
from sbnotebook.spark.task_context import attempt_number, in_flight_of_task, is_local
from sbnotebook.spark.task_writer import TaskResult, TaskWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_Settle = Callable[[Mapping[int, Decision]], Awaitable[Iterable[Outcome]]]
_ROWS_AT_ONCE: Final = 5_000
_PAUSES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Seconds to wait for messages that a killed run before this one has locked; a lock lasts a minute by default."""
_TWO: Final = "Other rows decide otherwise on the same message: leave one row for each."


class SettleWriter(TaskWriter):
    """Completes, dead-letters or abandons deferred messages: see :mod:`sbnotebook.spark.decisions` for the columns.

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
