"""One expression language for messages: a SQL boolean expression over the message columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import duckdb
import numpy as np
import pyarrow as pa

from sbnotebook.client.frames import to_arrow
from sbnotebook.client.tables import printable
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Message

__all__ = ["filtered", "matching", "where"]

M = TypeVar("M", bound=Message)

_INDEX: Final = "row_index_"
_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
}
# A body that is not JSON must not fail the expression for all the others.
_BODY_JSON: Final = "*, CASE WHEN json_valid(body_text) THEN CAST(body_text AS JSON) END AS body_json"


def where(messages: Sequence[M], expression: str | None) -> list[M]:
    """The messages for which an expression is true, in their order.

    Args:
        messages: which to look through.
        expression: over the message columns and ``body_json``, in DuckDB's SQL, for example
            ``dead_letter_reason = 'Invalid' and body_json->>'$.carrier' = 'UA'``; None for all messages. A missing
            value makes a comparison neither true nor false.

    Raises:
        ConfigurationError: the expression is wrong; names the column or the place.

    Example:
        >>> messages = [Message(body=b'{"n": 1}'), Message(body=b'{"n": 2}')]
        >>> [message.body for message in where(messages, "(body_json->>'$.n')::int > 1")]
        [b'{"n": 2}']
    """
    if expression is None:
        return list(messages)
    return [messages[index] for index in matching(to_arrow(messages), expression)]


def filtered(table: pa.Table, expression: str) -> pa.Table:
    """The rows of a table for which an expression is true: see :func:`where`."""
    chosen = np.zeros(len(table), dtype=bool)
    chosen[matching(table, expression)] = True
    return table.filter(pa.array(chosen))


def matching(table: pa.Table, expression: str) -> list[int]:
    """The positions of the rows for which an expression is true, ascending: see :func:`where`."""
    indexed = table.append_column(_INDEX, pa.array(range(len(table)), type=pa.int64()))
    with duckdb.connect(":memory:", config=_CONFIG) as database:
        database.execute("SET lock_configuration = true")
        try:
            rows = database.from_arrow(indexed).project(_BODY_JSON).filter(expression).project(_INDEX).fetchall()
        except duckdb.Error as error:
            raise ConfigurationError(f"The expression {expression[:200]!r} cannot be used: {_reason(error)}") from None
    return sorted(index for (index,) in rows)


def _reason(error: duckdb.Error) -> str:
    # DuckDB quotes the values that it stumbles over, and they come from messages.
    return printable(" ".join(str(error).split())[:500])
