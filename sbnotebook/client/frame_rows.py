"""The rows of a plan to settle by a Spark frame, with their outcomes, in a file: no memory grows with them.

The file is SQLite's own temporary file: only your user can read it, and it ends with the plan or the process. It takes
about 100 bytes for each message, and its folder is the one that ``SQLITE_TMPDIR`` or ``TMPDIR`` names.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pac

from sbnotebook.client.decisions import COLUMNS
from sbnotebook.client.settle_task import OUTCOMES
from sbnotebook.errors import DecisionError

__all__ = ["DECISIONS", "FrameRows"]

_ROWS: Final = 10_000
"""Rows that are in memory at once as objects of Python."""
_PAGES: Final = 10
"""Pages of so many rows that make a table."""
_NAMED: Final = 3
DECISIONS: Final = pa.schema(
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
_BEHIND: Final = "(entity, sequence_number) > (?, ?) ORDER BY entity, sequence_number LIMIT ?"
_ROW: Final = "SELECT entity, sequence_number, decision, reason, description FROM messages WHERE"
_OUTCOME: Final = """
    SELECT entity, sequence_number, verb, status, message_id, condition, said, tracking_id, retryable FROM messages
    WHERE status IS NOT NULL AND
"""
_pc: Any = pac
_pa: Any = pa


class FrameRows:
    """Messages with their decisions, each once, in the order of entities and numbers; and with their outcomes."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("", check_same_thread=False)
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute(_CREATE)
        self._names: dict[str, str] = {}
        self._wrong: list[str] = []
        self._wrong_count = 0
        self._read = 0

    def add(self, read: pa.Table) -> None:
        """Add rows.

        Args:
            read: the result of :func:`sbnotebook.client.decisions.read_decisions`.
        """
        self._read += read.num_rows
        wrong: Any = read.filter(_pc.is_valid(read["problem"]))
        self._wrong_count += wrong.num_rows
        shown = wrong.slice(0, _NAMED - len(self._wrong)).to_pylist()
        self._wrong += [f"#{row['sequence_number']}: {row['problem']}" for row in shown]
        right: Any = read.filter(_pc.is_null(read["problem"]))
        for batch in right.to_batches(max_chunksize=_ROWS):
            columns: Any = [batch.column(name).to_pylist() for name in DECISIONS.names]
            entities, *others = columns
            named = [self._names.setdefault(entity.lower(), entity) for entity in entities]
            self._file.executemany(_ADD, zip(named, *others, strict=True))

    def check(self) -> None:
        """Refuse rows that cannot be carried out.

        Raises:
            DecisionError: rows have a problem, or a message has two decisions.
        """
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
        return self._tables(f"{_ROW} decision IN ({marks}) AND", verbs, DECISIONS)

    def open(self) -> Iterator[pa.Table]:
        """Yield the decisions that have no outcome, some at a time."""
        return self._tables(f"{_ROW} status IS NULL AND", (), DECISIONS)

    def begin(self) -> None:
        """Forget the outcomes."""
        self._file.execute("UPDATE messages SET status = NULL, repeated = 0")

    def end(self, outcomes: pa.Table) -> None:
        """Keep outcomes.

        Args:
            outcomes: the result of :func:`sbnotebook.client.settle_task.outcome_table`, with ``repeated``. A status is
                null where the message has no outcome yet.
        """
        for batch in outcomes.to_batches(max_chunksize=_ROWS):
            columns: Any = [batch.column(place).to_pylist() for place in range(batch.num_columns)]
            entities, numbers, *others = columns
            self._file.executemany(_END, zip(*others, entities, numbers, strict=True))

    def repeated_places(self) -> set[tuple[str, int]]:
        """Return the entities, in lower case, and numbers of the messages that a repeated task looked for."""
        return set(self._file.execute("SELECT lower(entity), sequence_number FROM messages WHERE repeated"))

    def outcomes(self) -> Iterator[pa.Table]:
        """Yield the outcomes, some at a time."""
        return self._tables(_OUTCOME, (), OUTCOMES)

    def _tables(self, query: str, values: tuple[str, ...], schema: pa.Schema) -> Iterator[pa.Table]:
        pages = self._pages(query + " " + _BEHIND, values, schema)
        while batches := [*islice(pages, _PAGES)]:
            yield pa.Table.from_batches(batches)

    def _pages(self, query: str, values: tuple[str, ...], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        last: tuple[str, int] = ("", 0)
        while rows := self._file.execute(query, (*values, *last, _ROWS)).fetchall():
            columns: Any = zip(*rows, strict=True)
            # SQLite has whole numbers for booleans.
            arrays = [_pa.array(column).cast(kind) for column, kind in zip(columns, schema.types, strict=True)]
            yield _pa.record_batch(arrays, schema=schema)
            last = rows[-1][:2]

    def __len__(self) -> int:
        return self._file.execute("SELECT count(*) FROM messages").fetchone()[0]
