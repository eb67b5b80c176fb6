"""Which rows the plain table shows, in which order, and what stands in their cells."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sbnotebook.widgets.pretty import visible
from sbnotebook.widgets.table.packing import CUT, Column, cleaned, columns_of
from sbnotebook.widgets.table.rows import Rows
from sbnotebook.widgets.text_view import cell

__all__ = ["PlainRows"]

_MOST_COLUMNS: Final = 8
"""More would not stand beside each other."""
_ALWAYS: Final = "sequence_number"


class PlainRows:
    """Looks into rows for a table that has to be drawn by the kernel.

    Args:
        rows: of the table.
        chosen: columns that are shown, in this order; None for those that most want to see.
    """

    def __init__(self, rows: Rows, chosen: Sequence[str] | None = None) -> None:
        self.rows = rows
        self._cells = rows.with_extra()
        self._texts: dict[str, Any] = {}
        self._known = columns_of(self._cells, rows.extra, chosen)

    def columns(self) -> list[Column]:
        """The columns that are shown beside the sequence number; changed cells may bring new ones to the end."""
        names = {column.name for column in self._known} | {"cause"}
        new = [Column(name, "text") for name in tuple(self.rows.patched) if name not in names]
        shown = [column for column in self._known if column.name != _ALWAYS and not column.hidden]
        return [*shown[: _MOST_COLUMNS - len(new)], *new]

    def text(self, row: int, name: str) -> str:
        """What stands in a cell, in visible characters, cut at a length."""
        patched = self.rows.patched.get(name, {})
        if row in patched:
            return cell(patched[row], CUT)
        return cell(self._cells.column(name)[row].as_py(), CUT) if name in self._cells.column_names else ""

    def find(
        self, text: str = "", *, only: Collection[int] | None = None, sort: str | None = None, descending: bool = False
    ) -> list[int]:
        """The rows to show, in their order.

        Args:
            text: has to stand in one of their cells, in capitals or not.
            only: of these row numbers alone; None for all.
            sort: by this column; None for the order in which the messages came.
            descending: the largest first; what has no value is last in any case.
        """
        found: Any = pa.array(~self.rows.removed)
        if text.strip():
            found = pc.and_kleene(found, self._holding(visible(text.strip())))
        if only is not None:
            found = pc.and_kleene(found, pc.is_in(pa.array(range(len(self.rows))), pa.array(sorted(only), pa.int64())))
        order: list[int] = self._order(sort, descending=descending) if sort else list(range(len(self.rows)))
        shown = found.to_pylist()
        return [row for row in order if shown[row]]

    def _holding(self, text: str) -> Any:
        """For each row whether one of its cells holds a text."""
        found: Any = pa.array([False] * len(self.rows))
        for name in {*self._cells.column_names, *tuple(self.rows.patched)}:
            values = self._texts_of(name)
            if values is not None:
                found = pc.or_kleene(found, pc.match_substring(values, text, ignore_case=True))
        return found

    def _texts_of(self, name: str) -> Any:
        if name in self.rows.patched:
            return _as_texts(self._column(name))
        if name not in self._texts:
            self._texts[name] = _as_texts(self._column(name))
        return self._texts[name]

    def _order(self, name: str, *, descending: bool) -> list[int]:
        values = self._column(name)
        if pa.types.is_map(values.type):
            values = self._texts_of(name)
        order = "descending" if descending else "ascending"
        return pc.array_sort_indices(values, order=order, null_placement="at_end").to_pylist()

    def _column(self, name: str) -> Any:
        """A column with the cells that were changed."""
        known: Any = self._cells.column(name) if name in self._cells.column_names else pa.nulls(len(self.rows))
        # Cells may change meanwhile, so they are looked at in a copy.
        values: Any = known.combine_chunks() if isinstance(known, pa.ChunkedArray) else known
        patched = self.rows.patched.get(name)
        if not patched:
            return values
        changed = values.to_pylist()
        for row, value in dict(patched).items():
            changed[row] = value
        try:
            return pa.array(changed)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return pa.array([None if value is None else str(value) for value in changed], pa.string())


def _as_texts(values: Any) -> Any:
    """Values as texts to look into; None for those that nobody searches."""
    kind = values.type
    if pa.types.is_string(kind):
        return cleaned(values)
    if pa.types.is_timestamp(kind):
        return pc.strftime(values.cast(pa.timestamp("s", tz="UTC"), safe=False), format="%Y-%m-%d %H:%M:%SZ")
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return values.cast(pa.string())
    if pa.types.is_map(kind):
        return cleaned(pa.array([_properties(value) for value in values.to_pylist()], pa.string()))
    return None


def _properties(pairs: Any) -> str | None:
    return None if pairs is None else ", ".join(f"{name}={value}" for name, value in pairs)
