"""Sending the rows of a frame as messages; the driver checks its columns before anything is sent."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from threading import Lock
from typing import ClassVar, Final

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VarcharType,
)

from sbnotebook.analysis.frames import in_slices, rows_to_send
from sbnotebook.client.portal import run
from sbnotebook.errors import ConfigurationError, near_match
from sbnotebook.model import EntityAddress, Message, Outcome, OutcomeStatus, Report, Tally
from sbnotebook.model.schema import COLUMNS, SENT_COLUMNS, ColumnType
from sbnotebook.settlement import EncodedRows, Limits
from sbnotebook.spark.failed_rows import OUTCOME_COLUMNS, FailureFile
from sbnotebook.spark.options import WriteOptions
from sbnotebook.spark.schema import arrow_schema_for
from sbnotebook.spark.task_context import in_flight_of_task, warm_namespace
from sbnotebook.spark.task_writer import TaskResult, TaskWriter

_UNSENDABLE: Final = "amqp:encode-error"
_DESCRIPTION: Final = 500
_TEXT: Final = (StringType, CharType, VarcharType)
_VALUES: Final = (*_TEXT, BooleanType, IntegralType, FloatType, DoubleType, BinaryType, TimestampType)
_BODIES: Final = ("body", "body_text")
_HOLDS: Final[dict[ColumnType, tuple[str, tuple[type[DataType], ...]]]] = {
    ColumnType.STRING: ("a string", _TEXT),
    ColumnType.INT: ("a whole number", (IntegralType,)),
    ColumnType.LONG: ("a whole number", (IntegralType,)),
    ColumnType.TIMESTAMP: ("a timestamp", (TimestampType,)),
    ColumnType.BINARY: ("binary", (BinaryType,)),
    ColumnType.STRING_MAP: ("a map of strings to strings", _TEXT),
}
_MAPS: Final = frozenset(column.name for column in COLUMNS if column.type is ColumnType.STRING_MAP)
_KINDS: Final = {column.name: _HOLDS[column.type] for column in COLUMNS} | {
    "body": ("binary or a string", (*_TEXT, BinaryType)),
    "application_properties": (
        "a map of strings to strings, numbers, booleans, timestamps or binary values",
        _VALUES,
    ),
}
"""The content of a column, in words, and its types; those of the values of a map."""
_KAFKA: Final = frozenset(
    ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers", "includeHeaders")
)
"""Source: Spark's documentation, "Structured Streaming + Kafka Integration Guide"."""
_SHOWN: Final = 80
_ALIKE: Final = 0.85
_FIRST: Final = attrgetter("first")


class SendWriter(TaskWriter):
    """Sends each row as a message: see :func:`sbnotebook.analysis.frames.messages_from` for how it becomes one.

    A message that was sent cannot be taken back. A task or a micro-batch that Spark repeats sends its rows again, with
    the same message ids where the frame has a column ``message_id``, so that duplicate detection recognises them.
    Without ``failuresPath``, the first failure ends a task.
    """

    DONE: ClassVar = "{count} messages were sent to {entity}"
    MAY: ClassVar = "they may have arrived"
    REST: ClassVar = "; the other rows of the tasks that failed were not sent"

    @staticmethod
    def check(schema: StructType, options: WriteOptions) -> None:
        """Refuse columns that cannot be sent."""
        del options
        check_sent_columns(schema)

    def carry_out(self, batches: Iterator[pa.RecordBatch], result: TaskResult, file: FailureFile | None) -> None:
        """Send the rows of one task."""
        options, max_in_flight = self.options, in_flight_of_task(self.options)
        rows = _RowsOnTheirWay(options.entity, result, file)
        with warm_namespace(options.namespace) as namespace:

            async def send() -> Report:
                entity = namespace.entity(options.entity)
                namespace.pool(options.entity).doubt()  # since the task before, the queue may have been made anew
                plan = entity.plan_send(lambda: rows.messages(batches), batch_size=options.batch_size, tally=rows)
                return await plan.apply(Limits(max_in_flight, options.rate))

            run(send)
        rows.write_failed()


@dataclass(slots=True, eq=False)
class _Part:
    """Rows of which some have no outcome yet."""

    first: int
    rows: pa.RecordBatch
    open: int


class _RowsOnTheirWay(Tally):
    """The rows of a task, each kept until its outcome is known.

    One thread pulls rows, and another one notes outcomes. The first writes the rows that failed, where that delays
    no transfer.
    """

    def __init__(self, address: EntityAddress, result: TaskResult, file: FailureFile | None) -> None:
        super().__init__()
        self._address = address
        self._result = result
        self._file = file
        self._parts: list[_Part] = []
        self._failed: deque[tuple[pa.RecordBatch, Outcome]] = deque()
        self._pulled = 0
        self._lock = Lock()

    # ------------------------------------------------------------------ in the thread that pulls

    def messages(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Message | EncodedRows]:
        """Yield what the rows become."""
        for batch in batches:
            for rows in in_slices(batch):
                yield from self._begin(rows)
                self.write_failed()
                if self._result.failed and self._file is None:
                    return  # the job fails: nothing more is sent for this task

    def _begin(self, rows: pa.RecordBatch) -> Sequence[Message | EncodedRows]:
        made = rows_to_send(rows)
        if isinstance(made, EncodedRows):
            self._expect(rows)
            return [made]
        messages = [message for message in made if isinstance(message, Message)]
        if len(messages) < len(made):
            for row, error in enumerate(made):
                if isinstance(error, ConfigurationError):
                    self._fail(rows.slice(row, 1), self._refusal(error))
            rows = rows.filter(pa.array([isinstance(message, Message) for message in made]))
        if messages:
            self._expect(rows)
        return messages

    def _expect(self, rows: pa.RecordBatch) -> None:
        self._parts.append(_Part(self._pulled, rows, rows.num_rows))
        self._pulled += rows.num_rows

    def _refusal(self, error: ConfigurationError) -> Outcome:
        text = str(error)[:_DESCRIPTION]
        return Outcome(OutcomeStatus.FAILED, "send", self._address, condition=_UNSENDABLE, description=text)

    def write_failed(self) -> None:
        """Write the rows that failed so far."""
        while self._failed:
            row, outcome = self._failed.popleft()
            if self._file is not None:
                self._file.add(row, [outcome])

    # ------------------------------------------------------------------ where outcomes come

    def note(self, index: int, outcome: Outcome) -> None:
        self.note_alike([index], outcome.status, [outcome])

    def note_alike(self, indexes: Sequence[int], status: OutcomeStatus, outcomes: Iterable[Outcome]) -> None:
        if status is OutcomeStatus.SETTLED:
            self._result.done += len(indexes)
        else:
            for index, outcome in zip(indexes, outcomes, strict=True):
                part = self._part_of(index)
                self._fail(part.rows.slice(index - part.first, 1), outcome)
        start = 0
        while start < len(indexes):
            part = self._part_of(indexes[start])
            end = bisect_left(indexes, part.first + part.rows.num_rows, start)
            part.open -= end - start
            if not part.open:
                self._parts.remove(part)
            start = end

    def _part_of(self, index: int) -> _Part:
        return self._parts[bisect_right(self._parts, index, key=_FIRST) - 1]

    def _fail(self, row: pa.RecordBatch, outcome: Outcome) -> None:
        with self._lock:
            self._result.fail(outcome)
        self._failed.append((row, outcome))

    def report(self) -> Report:
        return Report()  # it is all in the counts


def check_sent_columns(schema: StructType) -> None:
    """Refuse a frame whose rows cannot be sent as the user means them.

    Example:
        >>> check_sent_columns(StructType().add("message_id", "string").add("carrier", "string"))
        >>> check_sent_columns(StructType().add("message_id", "long").add("carrier", "string"))
        Traceback (most recent call last):
        ...
        sbnotebook.errors.ConfigurationError: The column message_id has the type bigint, but it must be a string: ...
    """
    names = [field.name for field in schema.fields]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"There are several columns {name[:_SHOWN]}: rename or drop all but one.")
    for field in schema.fields:
        _check_type(field.name, field.dataType)
    others = [name for name in names if name not in SENT_COLUMNS and name not in OUTCOME_COLUMNS]
    if any(name in _BODIES for name in names):
        _refuse_misspelt(others)
        return
    _refuse_misspelt_body(others)
    _refuse_columns_of_kafka(others)
    if not others:
        raise ConfigurationError(
            "The frame has nothing to send: give it a column body or body_text, or other columns, of which a JSON body "
            "is made."
        )


def _check_type(name: str, kind: DataType) -> None:
    if name in SENT_COLUMNS and not isinstance(kind, NullType):
        holds, kinds = _KINDS[name]
        if not _fits(kind, kinds, is_map=name in _MAPS):
            shown = kind.simpleString()[:_SHOWN]
            raise ConfigurationError(f"The column {name} has the type {shown}, but it must be {holds}: cast it.")
    try:
        with suppress(ValueError):  # an empty map, which Spark passes on
            arrow_schema_for(StructType([StructField(name, kind)]))
    except PySparkTypeError:
        shown = kind.simpleString()[:_SHOWN]
        raise ConfigurationError(
            f"The column {name[:_SHOWN]} cannot be sent: Spark does not hand a {shown} to Python."
        ) from None


def _fits(kind: DataType, kinds: tuple[type[DataType], ...], *, is_map: bool) -> bool:
    if not is_map:
        return isinstance(kind, kinds)
    return (
        isinstance(kind, MapType) and isinstance(kind.keyType, _TEXT) and isinstance(kind.valueType, (*kinds, NullType))
    )


def _refuse_misspelt(others: list[str]) -> None:
    """Refuse names such as messageId: beside a body, such a column would not be sent."""
    for name in others:
        near = near_match(name, SENT_COLUMNS, cutoff=_ALIKE)
        if near:
            raise ConfigurationError(
                f"The column {name[:_SHOWN]} is not a message column and would not be sent: "
                f"rename it to {near}, or drop it."
            )


def _refuse_misspelt_body(others: list[str]) -> None:
    """Refuse names such as Body or bodyText: without a body, such a column would become a part of a JSON body."""
    plain = {column.replace("_", ""): column for column in _BODIES}
    for name in others:
        meant = plain.get(name.lower().replace("_", ""))
        if meant is not None:
            raise ConfigurationError(
                f"The column {name[:_SHOWN]} would become a part of a JSON body: rename it to {meant}, or to something "
                "else if it is to be a part."
            )


def _refuse_columns_of_kafka(others: list[str]) -> None:
    """Refuse a frame for Kafka's sink: its value would become a part of a JSON body, and its key, too."""
    if "value" in others and _KAFKA.issuperset(others):
        raise ConfigurationError(
            f"The columns {', '.join(others)} are those of Kafka, and would become a JSON body: select value AS body, "
            "and key AS partition_key or session_id. For JSON, select to_json(struct(*)) AS body_text."
        )
