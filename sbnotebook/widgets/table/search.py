"""Words in texts that are too long for a row of the table: the browser has only their beginnings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbnotebook.widgets.table.packing import CUT, NOT_SHOWN, texts_of

__all__ = ["long_texts", "matches"]

_MAX_WORDS: Final = 20


def long_texts(table: pa.Table) -> dict[str, Any]:
    """The columns of which the rows show only a part of some texts.

    Args:
        table: with message columns.

    Example:
        >>> list(long_texts(pa.table({"subject": ["UA"], "body_text": ["x" * 1_000]})))
        ['body_text']
    """
    long: dict[str, Any] = {}
    for name in table.column_names:
        column: Any = table.column(name)
        if name not in NOT_SHOWN and (pa.types.is_string(column.type) or pa.types.is_map(column.type)):
            texts = texts_of(column)
            longest: Any = pc.max(pc.utf8_length(texts))
            if (longest.as_py() or 0) > CUT:
                long[name] = texts
    return long


def matches(texts: Mapping[str, Any], words: Sequence[str], count: int) -> Iterable[bytes]:
    """For each word, the rows in which it stands, as bits; upper and lower case are the same.

    Args:
        texts: columns of texts.
        words: to look for, the first 20 of them.
        count: of rows.
    """
    for word in words[:_MAX_WORDS]:
        found = np.zeros(count, dtype=bool)
        for column in texts.values():
            hits: Any = pc.match_substring(column, word, ignore_case=True)
            found |= hits.fill_null(fill_value=False).to_numpy()
        yield np.packbits(found, bitorder="little").tobytes()
