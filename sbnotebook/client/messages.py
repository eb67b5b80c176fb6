"""Peeked messages as a sequence that can be looked at, filtered and turned into frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, overload

import pyarrow as pa

from sbnotebook.analysis import charts, exports, frames, query, tables
from sbnotebook.analysis.groups import TRAITS, Groups, Trait, group_by_cause
from sbnotebook.model import PeekedMessage

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

__all__ = ["Messages", "read_messages"]

_OBJECTS_AT_ONCE: Final = 500


class Messages(Sequence[PeekedMessage]):
    """Peeked messages, in the order of their sequence numbers.

    They are kept as an Arrow table, which takes a fraction of the room and is without loss; a message is made of its
    row each time that it is asked for. Shown as a table in a notebook and as text elsewhere.

    Args:
        messages: the messages, or a table of them with all message columns.
        where_from: the entity, in words, for the table's caption.
    """

    def __init__(self, messages: Iterable[PeekedMessage] | pa.Table = (), *, where_from: str = "") -> None:
        self._table = messages if isinstance(messages, pa.Table) else frames.to_arrow(messages)
        self._where_from = where_from

    def where(self, expression: str | None) -> Messages:
        """The messages for which a SQL expression over the message columns is true.

        Raises:
            ConfigurationError: the expression is wrong.
        """
        if expression is None:
            return self
        return Messages(query.filtered(self._table, expression), where_from=self._where_from)

    def groups(self, by: Sequence[Trait] = TRAITS) -> Groups:
        """The messages grouped by what went wrong with them, the largest group first.

        Args:
            by: what the messages of a group have in common, all of it by default: ``reason``, ``description`` (without
                what differs from message to message), ``frame`` of the application in a stack trace, ``subject`` and
                ``source``.
        """
        return group_by_cause(self._table, by)

    def plot(self, by: Trait = "reason", *, top: int = 8) -> Figure:
        """A plotly figure: the messages over the time at which they were enqueued, stacked by what they differ in.

        Args:
            by: ``reason``, ``description``, ``frame``, ``subject`` or ``source``, as for :meth:`groups`.
            top: how many have a colour of their own; the rest are others.
        """
        return charts.messages_figure(self._table, by, top)

    def to_arrow(self) -> pa.Table:
        """An Arrow table with all message columns."""
        return self._table

    def to_pandas(self) -> pd.DataFrame:
        """A pandas frame with all message columns."""
        return frames.table_to_pandas(self._table)

    def to_spark(self, spark: Any) -> Any:
        """A Spark frame with all message columns, made of the messages that are here.

        Args:
            spark: a session.
        """
        return spark.createDataFrame(self._table)

    def export(self, path: Path | str, *, overwrite: bool = False) -> Path:
        """Write the messages to a new file, which only its owner can read and which is there whole or not at all.

        Parquet (``.parquet``) and JSON lines (``.jsonl``) keep everything, AMQP types included: :func:`read_messages`
        reads them. CSV (``.csv``) is for a spreadsheet: bodies as text, long ones cut, and nothing that acts as a
        formula.

        Args:
            path: the file; its ending says which format.
            overwrite: whether a file that is there is replaced.

        Returns:
            Where they were written.

        Raises:
            ConfigurationError: there is no such format or folder, or the file exists.
        """
        return exports.write_table(self._table, path, overwrite=overwrite)

    def as_text(self, max_rows: int = 20) -> str:
        """A text table, as it is shown in terminals.

        Args:
            max_rows: how many of the messages are in it.
        """
        return tables.messages_text(self, self._where_from, max_rows)

    def as_html(self, max_rows: int = tables.MAX_ROWS) -> str:
        """An HTML table, as it is shown in notebooks.

        Args:
            max_rows: how many of the messages are in it.
        """
        return tables.messages_html(self, self._where_from, max_rows)

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[PeekedMessage]:
        for start in range(0, len(self), _OBJECTS_AT_ONCE):
            yield from frames.peeked_messages(self._table.slice(start, _OBJECTS_AT_ONCE))

    @overload
    def __getitem__(self, index: int) -> PeekedMessage: ...
    @overload
    def __getitem__(self, index: slice) -> Messages: ...
    def __getitem__(self, index: int | slice) -> PeekedMessage | Messages:
        if isinstance(index, slice):
            places = range(len(self))[index]
            part: Any = self._table
            if places.step == 1:
                part = part.slice(places.start, len(places))
            else:
                part = part.take(pa.array(places, pa.int64()))
            return Messages(part, where_from=self._where_from)
        place = range(len(self))[index]
        return frames.peeked_messages(self._table.slice(place, 1))[0]

    def __repr__(self) -> str:
        return self.as_text()

    def _repr_html_(self) -> str:
        return self.as_html()


def read_messages(path: Path | str) -> Messages:
    """The messages of a Parquet or JSON lines file that :meth:`Messages.export` wrote; to send them gives the same.

    Args:
        path: the file, ``.parquet`` or ``.jsonl``.

    Raises:
        ConfigurationError: the file does not hold messages.
    """
    return Messages(exports.read_table(path), where_from=Path(path).name)
