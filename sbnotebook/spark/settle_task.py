"""Settling deferred messages by the rows of a table, in the process that has the rows: most often a Spark worker.

``namespace.settle_frame`` and ``frame.write`` with ``operation=settle`` both settle here.
"""

from __future__ import annotations

import socket
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any, Final, Self

import anyio
import pyarrow as pa

from sbnotebook.client.portal import collecting_seldom, run
from sbnotebook.client.targets import NamespaceTarget
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import Complete, Decision, EntityAddress, Outcome, OutcomeStatus
from sbnotebook.settlement import Archive, AsyncNamespace, Connection, InFlight, Journal
from sbnotebook.spark.decisions import DecidedRow, decided_rows
from sbnotebook.spark.scrubbing import in_words, scrubbed
from sbnotebook.spark.shipping import Shipped
from sbnotebook.spark.task_context import attempt_number

MessageKey = tuple[EntityAddress, int]
"""An entity and the sequence number of a message in it."""

OUTCOMES: Final[pa.Schema] = pa.schema(
    [("entity", pa.string()), ("sequence_number", pa.int64())]
    + [(name, pa.string()) for name in ("decision", "status", "message_id", "condition", "description", "tracking_id")]
    + [("retryable", pa.bool_())]
)
"""The columns of outcomes."""

_ROWS_AT_ONCE: Final = 5_000
_ipc: Any = pa.ipc
_PAUSES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Seconds to wait for messages that a killed run before this one has locked; a lock lasts a minute by default."""
_TWO: Final = "Other rows decide otherwise on the same message: leave one row for each."


@dataclass(frozen=True)
class TaskStorage:
    """The journal and the archive that tasks write to, on the user's machine only; None on a cluster."""

    journal: Path | None = None
    archive: Path | None = None
    retention: timedelta = timedelta(days=7)
    max_bytes: int = 1024**3
    machine: str = field(default_factory=socket.gethostname)

    @classmethod
    def of(cls, journal: Journal, archive: Archive | None) -> Self:
        """Return the files of a journal and an archive of this process."""
        if archive is None:
            return cls(journal.path)
        return cls(journal.path, archive.path, archive.retention, archive.max_bytes)

    def namespace(self, connection: Connection) -> AsyncNamespace:
        """Return a namespace of this process."""
        if self.journal is None:
            return AsyncNamespace(connection, archive=None)
        if socket.gethostname() != self.machine:
            raise ConfigurationError(
                "Nothing was done: Spark runs on another machine than this Python, and its archive would be worth "
                "nothing. Write the frame to a durable place first, and say archived=False."
            )
        archive = self.archive and Archive(self.archive, retention=self.retention, max_bytes=self.max_bytes)
        return AsyncNamespace(connection, journal=Journal(self.journal), archive=archive)

    def require_archive(self, decisions: Iterable[Decision], otherwise: str) -> None:
        """Refuse to complete messages on a cluster, where nothing can archive them."""
        if self.journal is None and any(isinstance(decision, Complete) for decision in decisions):
            raise ConfigurationError(
                "Spark runs on a cluster, where an archive on a worker's disk is not durable, so completed "
                f"messages could not be sent back: write the messages to a durable place first, and {otherwise}."
            )


@dataclass(frozen=True)
class SettleTask(Shipped):
    """Settles deferred messages by the rows of one Spark task.

    It is pickled and sent to the workers, so it holds no connection.
    """

    target: NamespaceTarget
    max_in_flight: InFlight
    storage: TaskStorage
    entity: EntityAddress | None = None  # None: a column names it
    archived: bool = False
    is_repeated: bool = False
    """True if an earlier run may have locked messages. This run then waits for them."""

    def settle(self, batches: Iterable[pa.RecordBatch]) -> Generator[tuple[pa.RecordBatch, list[Outcome]]]:
        """Settle messages; yield some rows at a time, with an outcome for each."""
        with scrubbed(self.target.secrets), collecting_seldom():
            namespace = self.storage.namespace(self.target.connection())
            try:
                for batch in batches:
                    for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                        rows = batch.slice(start, _ROWS_AT_ONCE)
                        yield rows, self._settle_rows(namespace, rows)
            finally:
                run(namespace.close)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Settle messages and yield their outcomes, both :func:`packed`: a function for ``mapInArrow``.

        The outcomes have one more column, ``repeated``: whether Spark runs the task again.
        """
        repeated = attempt_number() > 0
        decided = chain.from_iterable(unpacked(batch).combine_chunks().to_batches() for batch in batches)
        for _, outcomes in self.settle(decided):
            yield from packed(outcome_table(outcomes, repeated=repeated), len(outcomes)).to_batches()

    def _settle_rows(self, namespace: AsyncNamespace, rows: pa.RecordBatch) -> list[Outcome]:
        """Settle some rows; return an outcome for each."""
        keys, decided = self._read(rows)
        if self.archived:
            self.storage.require_archive(decided.values(), 'give option("archive", false)')

        async def settle() -> dict[MessageKey, Outcome]:
            # Messages that a killed run has locked come back when their locks expire.
            found: dict[MessageKey, Outcome] = {}
            left = decided
            for pause in (0.0, *(_PAUSES if self.is_repeated else ())):
                await anyio.sleep(pause)
                found |= await settle_deferred_rows(
                    namespace, left, max_in_flight=self.max_in_flight, journalled=self.storage.journal is not None
                )
                left = {key: left[key] for key in left if namespace.is_locked_elsewhere(found[key])}
                if not left:
                    break
            return found

        found = run(settle)
        return [key if isinstance(key, Outcome) else found[key] for key in keys]

    def _read(self, rows: pa.RecordBatch) -> tuple[list[MessageKey | Outcome], dict[MessageKey, Decision]]:
        """Return the key of each row's message, or why the row cannot be carried out; and the decisions by key."""
        read = [*decided_rows(rows, self.entity, deferred=True)]
        # Find the messages with two decisions.
        decided: dict[MessageKey, Decision] = {}
        split: set[MessageKey] = set()
        for row in read:
            key = _key(row)
            if row.decision is not None and decided.setdefault(key, row.decision) != row.decision:
                split.add(key)
        # Give each row its message, or name its problem.
        keys: list[MessageKey | Outcome] = []
        for row in read:
            key = _key(row)
            problem = row.problem or (_TWO if key in split else None)
            why = Outcome(OutcomeStatus.FAILED, row.verb, key[0], row.sequence_number, description=problem)
            keys.append(key if problem is None else why)
        return keys, {key: decision for key, decision in decided.items() if key not in split}


def _key(row: DecidedRow) -> MessageKey:
    if row.entity is None:  # a plan has checked this before
        raise DecisionError(row.problem)
    return row.entity, row.sequence_number or 0


async def settle_deferred_rows(
    namespace: AsyncNamespace, decided: Mapping[MessageKey, Decision], *, max_in_flight: InFlight, journalled: bool
) -> dict[MessageKey, Outcome]:
    """Settle deferred messages by their numbers; return an outcome for each, even if an entity cannot be reached."""
    by_entity: dict[EntityAddress, dict[int, Decision]] = {}
    for (entity, number), decision in decided.items():
        by_entity.setdefault(entity, {})[number] = decision
    found: dict[MessageKey, Outcome] = {}
    for entity, decisions in by_entity.items():
        try:
            report: Iterable[Outcome] = await namespace.entity(entity).settle_deferred(
                decisions, max_in_flight=max_in_flight, journalled=journalled
            )
        except Exception as error:  # noqa: BLE001 (the outcomes of other entities must not be lost)
            why = f"Not attempted: {in_words(error)}"
            report = [
                Outcome(OutcomeStatus.SKIPPED, decision.verb, entity, number, description=why)
                for number, decision in decisions.items()
            ]
        found |= {(entity, outcome.sequence_number or 0): outcome for outcome in report}
    return found


def outcome_table(outcomes: Iterable[Outcome], *, repeated: bool | None = None) -> pa.Table:
    """Return outcomes as a table with the columns of :data:`OUTCOMES`."""
    listed = list(outcomes)
    columns: list[list[Any]] = [
        [str(outcome.entity) for outcome in listed],
        [outcome.sequence_number for outcome in listed],
        [outcome.verb for outcome in listed],
        [outcome.status.value for outcome in listed],
        *([getattr(outcome, name) for outcome in listed] for name in OUTCOMES.names[4:]),
    ]
    types: Any = OUTCOMES.types
    arrays: list[Any] = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=OUTCOMES)
    if repeated is None:
        return table
    return table.append_column("repeated", pa.array([repeated] * len(listed), pa.bool_()))


def packed(table: pa.Table, count: int) -> pa.Table:
    """Return rows as a table with one column of bytes, which Spark's Java hands on without reading them.

    Example:
        >>> unpacked(packed(pa.table({"n": [1, 2, 3]}), 2))["n"].to_pylist()
        [1, 2, 3]
    """
    cells: list[bytes] = []
    for batch in table.to_batches(max_chunksize=count):
        sink = pa.BufferOutputStream()
        with _ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        cells.append(sink.getvalue().to_pybytes())
    return pa.table({"rows": pa.array(cells, pa.binary())})


def unpacked(rows: pa.Table | pa.RecordBatch) -> pa.Table:
    """Return the rows that :func:`packed` packed."""
    untyped: Any = rows
    return pa.concat_tables(_ipc.open_stream(cell).read_all() for cell in untyped.column(0).to_pylist())


def outcomes_of(table: pa.Table) -> Iterable[Outcome]:
    """Yield the outcomes that :func:`outcome_table` wrote.

    Example:
        >>> done = Outcome(OutcomeStatus.SETTLED, "complete", EntityAddress("orders"), 7)
        >>> list(outcomes_of(outcome_table([done]))) == [done]
        True
    """
    columns: Any = [table.column(name).to_pylist() for name in OUTCOMES.names]
    for entity, number, verb, status, *rest in zip(*columns, strict=True):
        yield Outcome(OutcomeStatus(status), verb, EntityAddress.parse(entity), number, *rest)
