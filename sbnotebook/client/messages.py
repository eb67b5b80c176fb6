"""Peeked messages as a sequence to filter, group, export and turn into frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast, overload

import pyarrow as pa

from sbnotebook.analysis import exports, foreign_files, frames, query, tables
from sbnotebook.analysis.decoders import DECODE_ERROR, Decoding
from sbnotebook.analysis.decoding import Decode, decoder_for
from sbnotebook.analysis.groups import CAUSE, Groups, Trait, group_by_cause, messages_figure
from sbnotebook.analysis.json_columns import Schemas, json_columns, schemas_of
from sbnotebook.analysis.tables import Shown, Table
from sbnotebook.client.verbs import SdkNames
from sbnotebook.model import PeekedMessage
from sbnotebook.settlement import names_sentence

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

_OBJECTS_AT_ONCE: Final = 500
MOST_NAMES: Final = 1_000
"""Different names that are counted: the senders of messages choose them."""


class Messages(Shown, SdkNames, Sequence[PeekedMessage]):
    """Peeked messages, in the order of their sequence numbers.

    An Arrow table keeps them without loss in a fraction of the memory; a message is made of its row each time that you
    ask for it. Shown as a table in a notebook and as text elsewhere.

    Args:
        messages: the messages, or a table of them with all message columns.
        where_from: the entity, in words, for the table's caption.
        note: says for no messages which ones were looked at.
    """

    def __init__(
        self, messages: Iterable[PeekedMessage] | pa.Table = (), *, where_from: str = "", note: str = ""
    ) -> None:
        self._arrow = messages if isinstance(messages, pa.Table) else frames.to_arrow(messages)
        self.where_from = where_from
        self.note = note

    def where(self, expression: str | None) -> Messages:
        """Return the messages for which a SQL expression over the message columns is true.

        Raises:
            ConfigurationError: the expression is wrong.
        """
        if expression is None:
            return self
        found = self._with(query.filtered(self._arrow, expression))
        if self and not found:
            found.note = present_in(self._arrow)
        return found

    def decode(self, decoder: Decode) -> Messages:
        """Return the messages with their bodies decoded: ``body_text``, and so ``body_json``, is the decoded value.

        Each message keeps its bytes. One that cannot be decoded keeps its text; the column ``decode_error`` says why.

        Args:
            decoder: the name of a decoder of :func:`sbnotebook.decoder`, a decoder, a function of a body's bytes,
                ``"avro:FILE"``, or ``"protobuf:FILE#MESSAGE"``. At most 1 MB of a body is decoded, and all of them
                within 60 seconds.

        Raises:
            ConfigurationError: there is no such decoder, or its schema cannot be used.
            MissingExtraError: the extra ``avro`` or ``protobuf`` is missing.

        Example:
            >>> orders = connect("emulator").entity("orders").peek().decode("avro:order.avsc")  # doctest: +SKIP
            >>> orders.where("body_json->>'$.carrier' = 'UA' or decode_error is not null")  # doctest: +SKIP
        """
        return self._with(Decoding(decoder_for(decoder)).table(self._arrow))

    def _with(self, table: pa.Table) -> Messages:
        """Return some of these messages; those of a subclass that has verbs of its own have them, too."""
        return Messages(table, where_from=self.where_from, note=self.note)

    def sql(self, query_text: str) -> pd.DataFrame:
        """Run a SQL query over the messages, which it knows as the table ``messages``, and return its result.

        DuckDB runs it in a process of its own, under the limits of :meth:`where`: it sees these messages only.

        Args:
            query_text: one SELECT over the message columns and ``body_json``, in DuckDB's SQL.

        Returns:
            A pandas frame, of at most 256 MB.

        Raises:
            ConfigurationError: the query is wrong, or takes more than 60 seconds or 1 GB of memory.

        Example:
            >>> letters = connect("emulator").entity("orders/$dlq").peek()  # doctest: +SKIP
            >>> letters.sql("SELECT subject, count(*) AS n FROM messages GROUP BY subject")  # doctest: +SKIP
        """
        return frames.table_to_pandas(query.result_of(self._arrow, query_text))

    def groups(self, by: Trait | Sequence[Trait] = CAUSE) -> Groups:
        """Group the messages by what went wrong with them, the largest group first.

        Args:
            by: the values that the messages of a group share, one or more of ``reason``, ``description`` (without
                varying parts), ``frame`` (of the application in a stack trace of the description), ``subject``,
                ``source`` and ``schema``. The first three by default. ``schema`` says how the JSON body differs from
                the most frequent form of its subject.

        Example:
            >>> letters = connect("emulator").entity("orders/$dlq")  # doctest: +SKIP
            >>> causes = letters.peek().groups()  # doctest: +SKIP
            >>> letters.resubmit(causes[0], to="orders")  # doctest: +SKIP
        """
        return group_by_cause(self._arrow, by, take=self._in_places)

    def kql(self, *, until: datetime | None = None) -> str:
        """Return a Kusto query for the failures behind these messages: see :meth:`Groups.kql`."""
        return self.groups("reason").kql(until=until)

    def _in_places(self, places: Sequence[int]) -> Messages:
        return self._with(cast("Any", self._arrow).take(pa.array(places, pa.int64())))

    def schema(self) -> Schemas:
        """Infer the JSON Schema of the bodies of each subject, from these messages; decode other formats first.

        A field is required where each body has it. ``groups(by="schema")`` finds the bodies that differ from the most
        frequent form of their subject: with a new field, without one, or with a value of another type. At most 500
        fields of a body are looked at, on 8 levels.

        Returns:
            A mapping of each subject to its schema, as a dictionary of JSON Schema 2020-12.

        Example:
            >>> orders = connect("emulator").entity("orders").peek()  # doctest: +SKIP
            >>> orders.schema()["order"]["properties"]["total"]  # doctest: +SKIP
            {'type': 'number'}
            >>> orders.groups(by="schema")  # doctest: +SKIP
        """
        return schemas_of(self._arrow)

    def plot(self, by: Trait = "reason", *, top: int = 8) -> Figure:
        """Draw the messages over the time at which they were enqueued, stacked by a trait, as a plotly figure.

        Args:
            by: one trait, as for :meth:`groups`.
            top: how many have a colour of their own; the rest are others.
        """
        return messages_figure(self._arrow, by, top)

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table with all message columns."""
        return self._arrow

    def to_pandas(self, *, json: bool = False) -> pd.DataFrame:
        """Return a pandas frame with all message columns.

        Args:
            json: True for further columns with the fields of JSON bodies, such as ``body_json.address.city``: see
                :func:`sbnotebook.analysis.json_columns.json_columns`. At most 200 fields become columns, those that
                most bodies have; a list, and an object on the fifth level, is a column of JSON text.

        Example:
            >>> flights = connect("emulator").entity("flights").peek()  # doctest: +SKIP
            >>> flights.to_pandas(json=True).groupby("body_json.carrier").size()  # doctest: +SKIP
        """
        frame = frames.table_to_pandas(self._arrow)
        if not json:
            return frame
        return frame.join(json_columns(cast("Any", self._arrow.column("body_text")).to_pylist()))

    def to_spark(self, spark: Any) -> Any:
        """Return a Spark frame with all message columns.

        Args:
            spark: a session.
        """
        from pyspark.sql.pandas.types import from_arrow_schema

        # Spark Connect takes the types of an empty table from nowhere else.
        return spark.createDataFrame(self._arrow, from_arrow_schema(self._arrow.schema))

    def export(self, path: Path | str, *, overwrite: bool = False) -> Path:
        """Write the messages to a new file, complete or not at all, which only its owner can read.

        Parquet (``.parquet``) and JSON lines (``.jsonl``) keep everything, AMQP types included: :func:`read_messages`
        reads them. CSV (``.csv``) is for a spreadsheet: bodies as text, long ones cut, and nothing that acts as a
        formula.

        Args:
            path: the file; its ending chooses the format.
            overwrite: True to replace an existing file.

        Returns:
            The path of the file.

        Raises:
            ConfigurationError: there is no such format or folder, or the file exists.
        """
        return exports.write_table(self._arrow, path, overwrite=overwrite)

    def _table(self, most: int) -> Table:
        decoded = (DECODE_ERROR,) if DECODE_ERROR in self._arrow.column_names else ()
        columns = (*tables.MESSAGE_COLUMNS, *decoded)
        rows = frames.rows_of_table(self._arrow.slice(0, most), columns)
        return tables.messages_table(self, most, self.where_from, columns, note="" if self else self.note, rows=rows)

    def __len__(self) -> int:
        return len(self._arrow)

    def __iter__(self) -> Iterator[PeekedMessage]:
        for start in range(0, len(self), _OBJECTS_AT_ONCE):
            yield from frames.messages_of_table(self._arrow.slice(start, _OBJECTS_AT_ONCE))

    @overload
    def __getitem__(self, index: int) -> PeekedMessage: ...
    @overload
    def __getitem__(self, index: slice) -> Messages: ...
    def __getitem__(self, index: int | slice) -> PeekedMessage | Messages:
        if isinstance(index, slice):
            places = range(len(self))[index]
            if places.step != 1:
                return self._in_places(places)
            return self._with(self._arrow.slice(places.start, len(places)))
        place = range(len(self))[index]
        return frames.messages_of_table(self._arrow.slice(place, 1))[0]


@dataclass(slots=True)
class Present:
    """The dead-letter reasons, or of messages without any the subjects, of the messages looked at."""

    reasons: Counter[str] = field(default_factory=Counter[str])
    subjects: Counter[str] = field(default_factory=Counter[str])
    looked_at: int = 0

    def note(self, table: pa.Table) -> None:
        self.looked_at += len(table)
        for name, names in (("dead_letter_reason", self.reasons), ("subject", self.subjects)):
            for found in cast("Any", table.column(name)).value_counts().to_pylist():
                value = found["values"] or ""
                if value in names or len(names) < MOST_NAMES:
                    names[value] += found["counts"]

    async def noting(self, tables: AsyncGenerator[pa.Table]) -> AsyncGenerator[pa.Table]:
        async with aclosing(tables):
            async for table in tables:
                self.note(table)
                yield table

    def __str__(self) -> str:
        is_of_reasons = bool(self.reasons.keys() - {""})
        return names_sentence(
            self.reasons if is_of_reasons else self.subjects, self.looked_at, is_of_reasons=is_of_reasons
        )


def present_in(table: pa.Table) -> str:
    seen = Present()
    seen.note(table)
    return str(seen)


def read_messages(path: Path | str) -> Any:
    """Read the messages of a file: one that :meth:`Messages.export` wrote, or one of another tool.

    The JSON of Service Bus Explorer, and plain JSON lines with fields such as ``messageId``, ``subject``,
    ``properties`` and ``body``, become messages to send. Fields that only Service Bus sets are left out; a warning
    names others. The body of these files is text or JSON, so Service Bus Explorer has lost the form of other bodies.

    Args:
        path: the file, ``.parquet``, ``.jsonl`` or ``.json``.

    Returns:
        :class:`Messages` with their places, from a file of ours; a list of messages to send, from others.

    Raises:
        ConfigurationError: the file does not hold messages; says which line, or which message of a list.

    Example:
        >>> connect("emulator").entity("orders").send(read_messages("saved.json"))  # doctest: +SKIP
    """
    place = Path(path).expanduser()
    if foreign_files.is_foreign(place):
        return foreign_files.read_foreign(place)
    return Messages(exports.read_table(place), where_from=place.name)
