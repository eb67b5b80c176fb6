"""Settling deferred messages by the rows of a table, in the process that has the rows: most often a worker of Spark."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from sbnotebook.client.scrubbing import in_words
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Decision, EntityAddress, Outcome, OutcomeStatus
from sbnotebook.settlement import Archive, AsyncNamespace, Connection, Journal

__all__ = ["OUTCOMES", "NoMachine", "OneMachine", "Place", "outcome_table", "outcomes_of", "settle_deferred_rows"]

Place = tuple[EntityAddress, int]
"""Where a message stands: an entity and a sequence number."""

OUTCOMES: Final = pa.schema(
    [
        pa.field("entity", pa.string()),
        pa.field("sequence_number", pa.int64()),
        pa.field("decision", pa.string()),
        pa.field("status", pa.string()),
        pa.field("message_id", pa.string()),
        pa.field("condition", pa.string()),
        pa.field("description", pa.string()),
        pa.field("tracking_id", pa.string()),
        pa.field("retryable", pa.bool_()),
    ]
)
"""The columns of outcomes."""


@dataclass(frozen=True)
class OneMachine:
    """All processes run on the user's machine, and share its journal and its archive. It can be pickled.

    Args:
        journal: the journal's file.
        archive: the archive's file, None where nothing is archived.
        retention: of the archive.
        max_bytes: of the archive.
        name: of the machine.
    """

    journal: Path
    archive: Path | None
    retention: timedelta = timedelta(days=7)
    max_bytes: int = 1024**3
    name: str = field(default_factory=socket.gethostname)
    journalled: bool = field(default=True, init=False)

    @classmethod
    def of(cls, namespace: AsyncNamespace, *, archived: bool) -> OneMachine:
        """Where a namespace of this process writes down what it does.

        Args:
            namespace: which one.
            archived: False where nothing is to be archived, even so.
        """
        archive = namespace.archive if archived else None
        if archive is None:
            return cls(namespace.journal.path, None)
        return cls(namespace.journal.path, archive.path, archive.retention, archive.max_bytes)

    def namespace(self, connection: Connection) -> AsyncNamespace:
        """A namespace of this process.

        Raises:
            ConfigurationError: it runs on another machine.
        """
        if socket.gethostname() != self.name:
            raise ConfigurationError(
                "Nothing was done: Spark runs on another machine than this Python, and its archive would be worth "
                "nothing. Write the frame to a durable place first, and say archived=False."
            )
        archive = self.archive and Archive(self.archive, retention=self.retention, max_bytes=self.max_bytes)
        return AsyncNamespace(connection, journal=Journal(self.journal), archive=archive)


@dataclass(frozen=True)
class NoMachine:
    """The processes run anywhere: nothing is written down where they are."""

    journalled: bool = field(default=False, init=False)

    def namespace(self, connection: Connection) -> AsyncNamespace:
        """A namespace of this process."""
        return AsyncNamespace(connection, archive=None)


async def settle_deferred_rows(
    namespace: AsyncNamespace, decided: Mapping[Place, Decision], *, max_in_flight: int, journalled: bool
) -> dict[Place, Outcome]:
    """Settle deferred messages by their numbers; an outcome for each, whatever goes wrong.

    Args:
        namespace: where.
        decided: what is to be done with which message: complete, dead-letter or abandon.
        max_in_flight: settlements that wait for their answer at once.
        journalled: False where this machine's journal is not to know of it.
    """
    by_entity: dict[EntityAddress, dict[int, Decision]] = {}
    for (entity, number), decision in decided.items():
        by_entity.setdefault(entity, {})[number] = decision
    found: dict[Place, Outcome] = {}
    for entity, decisions in by_entity.items():
        try:
            report: Iterable[Outcome] = await namespace.entity(entity).settle_deferred(
                decisions, max_in_flight=max_in_flight, journalled=journalled
            )
        except Exception as error:  # noqa: BLE001 (what was settled of other entities must not be lost)
            why = f"Not attempted: {in_words(error)}"
            report = [
                Outcome(OutcomeStatus.SKIPPED, decision.verb, entity, number, description=why)
                for number, decision in decisions.items()
            ]
        found |= {(entity, outcome.sequence_number or 0): outcome for outcome in report}
    return found


def outcome_table(outcomes: Iterable[Outcome]) -> pa.Table:
    """Outcomes as a table with the columns of :data:`OUTCOMES`."""
    told = list(outcomes)
    columns: list[list[Any]] = [
        [str(outcome.entity) for outcome in told],
        [outcome.sequence_number for outcome in told],
        [outcome.verb for outcome in told],
        [outcome.status.value for outcome in told],
        *([getattr(outcome, name) for outcome in told] for name in OUTCOMES.names[4:]),
    ]
    types: Any = OUTCOMES.types
    arrays: list[Any] = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=OUTCOMES)


def outcomes_of(table: pa.Table) -> Iterable[Outcome]:
    """The outcomes that :func:`outcome_table` wrote.

    Example:
        >>> done = Outcome(OutcomeStatus.SETTLED, "complete", EntityAddress("orders"), 7)
        >>> list(outcomes_of(outcome_table([done]))) == [done]
        True
    """
    columns: Any = [table.column(name).to_pylist() for name in OUTCOMES.names]
    for entity, number, verb, status, *said in zip(*columns, strict=True):
        yield Outcome(OutcomeStatus(status), verb, EntityAddress.parse(entity), number, *said)
