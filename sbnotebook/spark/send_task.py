"""What one task of a write does: send its rows, and keep those that failed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from threading import Lock
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from sbnotebook.analysis.frames import in_slices, rows_to_send
from sbnotebook.client.portal import run
from sbnotebook.client.scrubbing import in_words, scrubbed
from sbnotebook.errors import ConfigurationError, SbNotebookError
from sbnotebook.model import EntityAddress, Message, Outcome, OutcomeStatus, Report, Tally
from sbnotebook.settlement.pace import Pace
from sbnotebook.settlement.sending.send import send_many
from sbnotebook.settlement.wire.encoded_rows import EncodedRows
from sbnotebook.spark.failed_rows import OUTCOME_COLUMNS, FailureFile, FailuresFolder
from sbnotebook.spark.in_flight import in_flight_of_task
from sbnotebook.spark.options import WriteOptions
from sbnotebook.spark.sent_columns import check_sent_columns
from sbnotebook.spark.warm_namespace import warm_namespace

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["SendTask", "SentMessages"]

_UNSENDABLE: Final = "amqp:encode-error"
_DESCRIPTION: Final = 500


@dataclass
class SentMessages(WriterCommitMessage):
    """What one task did.

    Args:
        count: messages that were sent, each confirmed.
        failed: rows that were not, and are in ``failuresPath``; some of them may have arrived.
        first_failure: why the first of these was not sent.
    """

    count: int
    failed: int = 0
    first_failure: str | None = None


@dataclass(frozen=True)
class SendTask:
    """Sends the rows of one task. It is pickled and sent to the workers, so it holds no connection.

    Args:
        options: where to and how.
        failures: where rows that failed are written, None when they fail the job.
    """

    options: WriteOptions
    failures: FailuresFolder | None

    @classmethod
    def prepared(cls, options: WriteOptions, schema: StructType, *, is_stream: bool) -> SendTask:
        """The task of a write, all of which was looked at that can be before anything is sent; on the driver.

        Raises:
            ConfigurationError: the columns cannot be sent, or ``failuresPath`` cannot be written.
        """
        with scrubbed(options.namespace.secrets):
            check_sent_columns(schema)
        if options.failures_path is None:
            return cls(options, None)
        folder = FailuresFolder(options.failures_path, is_stream)
        with scrubbed(folder.secrets):
            folder.prepare(schema)
        return cls(options, folder)

    @property
    def address(self) -> EntityAddress:
        """Where messages are sent."""
        return self.options.entity

    def run(self, batches: Iterator[pa.RecordBatch]) -> SentMessages:
        """Send the rows.

        Raises:
            SbNotebookError: not all could be sent, and there is no place for those that could not; says how many were.
        """
        secrets = self.options.namespace.secrets + (self.failures.secrets if self.failures else ())
        with scrubbed(secrets):
            at_once = in_flight_of_task(self.options)
            rows = _RowsOnTheirWay(self.address, self.failures.file() if self.failures else None)
            try:
                self._send(rows, batches, at_once)
                rows.finish()
            except Exception as error:
                rows.discard()
                done = f"{rows.sent:,} messages of this task were sent to {self.address}"
                raise SbNotebookError(f"{done}, then it failed: {in_words(error)}") from error
        return SentMessages(rows.sent, rows.failed, rows.first_failure)

    def _send(self, rows: _RowsOnTheirWay, batches: Iterator[pa.RecordBatch], at_once: int) -> None:
        options = self.options
        with warm_namespace(options.namespace) as namespace:

            async def send() -> Report:
                pool = namespace.pool(options.entity)
                pool.doubt()  # since the task before, the queue may have been made anew
                return await send_many(
                    pool,
                    rows.messages(batches),
                    max_in_flight=at_once,
                    batch_size=options.batch_size,
                    pace=Pace(options.rate),
                    tally=rows,
                )

            run(send)


@dataclass(slots=True, eq=False)
class _Part:
    """Rows of which some have no outcome yet.

    Args:
        first: the position of its first row among all that are sent.
        rows: that become messages.
        open: how many have no outcome yet.
    """

    first: int
    rows: pa.RecordBatch
    open: int


class _RowsOnTheirWay(Tally):
    """The rows of a task, each kept until its outcome is known.

    They are pulled in one thread, and outcomes come in another one. What failed is written in the first one, where it
    holds up nobody.

    Args:
        address: where they are sent.
        file: takes rows that failed; None when the first one ends it all.
    """

    def __init__(self, address: EntityAddress, file: FailureFile | None) -> None:
        super().__init__()
        self._address = address
        self._file = file
        self._parts: list[_Part] = []
        self._failed: deque[tuple[pa.RecordBatch, Outcome]] = deque()
        self._pulled = 0
        self._lock = Lock()
        self._counts: Counter[OutcomeStatus] = Counter()
        self.sent = 0
        """How many were confirmed."""
        self.first_failure: str | None = None
        """Why the first of the others was not."""

    @property
    def failed(self) -> int:
        """How many rows were not sent, or were sent without an answer."""
        return self._counts.total()

    # ------------------------------------------------------------------ in the thread that pulls

    def messages(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Message | EncodedRows]:
        """What the rows become."""
        for batch in batches:
            own = batch.drop_columns([name for name in OUTCOME_COLUMNS if name in batch.schema.names])
            for rows in in_slices(own):
                yield from self._begin(rows)
                self._write_failed()
                if self.failed and self._file is None:
                    return  # the job fails: nothing more is sent for it

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
        said = str(error)[:_DESCRIPTION]
        return Outcome(OutcomeStatus.FAILED, "send", self._address, condition=_UNSENDABLE, description=said)

    def _write_failed(self) -> None:
        while self._failed:
            row, outcome = self._failed.popleft()
            if self._file is not None:
                self._file.add(row, [outcome])

    # ------------------------------------------------------------------ where outcomes come

    def note(self, index: int, outcome: Outcome) -> None:
        self.note_alike([index], outcome.status, [outcome])

    def note_alike(self, indexes: Sequence[int], status: OutcomeStatus, outcomes: Iterable[Outcome]) -> None:
        if status is OutcomeStatus.SETTLED:
            self.sent += len(indexes)
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
            self._counts[outcome.status] += 1
            said = filter(None, (outcome.status.value, outcome.condition, outcome.description))
            self.first_failure = self.first_failure or ": ".join(said)
        self._failed.append((row, outcome))

    def report(self) -> Report:
        return Report()  # it is all in the counts

    # ------------------------------------------------------------------ at the end

    def finish(self) -> None:
        """Write what failed, or fail for it."""
        self._write_failed()
        if self._file is not None:
            self._file.finish()
        elif self.failed:
            raise SbNotebookError(
                f"{self._ends()}; the rest of its rows was not sent. The first that was not: {self.first_failure} "
                '- option("failuresPath", FOLDER) keeps such rows and sends the others.'
            )

    def _ends(self) -> str:
        said = {OutcomeStatus.UNCONFIRMED: " (they may have arrived)"}
        return ", ".join(f"{count:,} {status}{said.get(status, '')}" for status, count in self._counts.items())

    def discard(self) -> None:
        """Drop what failed: another attempt of this task writes it again."""
        if self._file is not None:
            self._file.discard()


_FIRST: Final = attrgetter("first")
