"""Peeked messages as a sequence that can be looked at, filtered and turned into frames."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, overload

from sbnotebook.client import frames, query, tables
from sbnotebook.client.groups import Group, group_by_cause
from sbnotebook.model import PeekedMessage

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["Messages"]


class Messages(Sequence[PeekedMessage]):
    """Peeked messages, in the order of their sequence numbers.

    Shown as a table in a notebook and as text elsewhere.

    Args:
        messages: the messages.
        where_from: the entity, in words, for the table's caption.
    """

    def __init__(self, messages: Iterable[PeekedMessage] = (), *, where_from: str = "") -> None:
        self._messages = tuple(messages)
        self._where_from = where_from

    def where(self, expression: str | None) -> Messages:
        """The messages for which a SQL expression over the message columns is true.

        Raises:
            ConfigurationError: the expression is wrong.
        """
        return Messages(query.where(self._messages, expression), where_from=self._where_from)

    def groups(self) -> list[Group]:
        """The messages grouped by dead-letter reason and description, the largest group first."""
        return group_by_cause(self._messages)

    def to_arrow(self) -> pa.Table:
        """An Arrow table with all message columns."""
        return frames.to_arrow(self._messages)

    def to_pandas(self) -> pd.DataFrame:
        """A pandas frame with all message columns."""
        return frames.to_pandas(self._messages)

    def to_spark(self, spark: Any) -> Any:
        """A Spark frame with all message columns, made of the messages that are here.

        Args:
            spark: a session.
        """
        return spark.createDataFrame(self.to_arrow())

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> PeekedMessage: ...
    @overload
    def __getitem__(self, index: slice) -> Messages: ...
    def __getitem__(self, index: int | slice) -> PeekedMessage | Messages:
        if isinstance(index, slice):
            return Messages(self._messages[index], where_from=self._where_from)
        return self._messages[index]

    def __repr__(self) -> str:
        return tables.messages_text(self._messages, self._where_from)

    def _repr_html_(self) -> str:
        return tables.messages_html(self._messages, self._where_from)
