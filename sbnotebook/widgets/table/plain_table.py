"""Messages as plain blocks, for front ends that do not load the table: a page of rows to search, sort and tick."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbnotebook.analysis.arrays import array_of_numbers
from sbnotebook.model import ReceivedMessage
from sbnotebook.widgets.blocks import Block, Button, Code, Field, Row, Text
from sbnotebook.widgets.pretty import cell
from sbnotebook.widgets.table.message_detail import Decoded, detail_of
from sbnotebook.widgets.table.message_table import MessageTable
from sbnotebook.widgets.table.row_packing import texts_of, title_of
from sbnotebook.widgets.table.rows import MessageKey, holding

_PAGE: Final = 20
_MOST_COLUMNS: Final = 8
"""More would not fit beside each other."""
_MAX_CELL: Final = 120
_MOST_CAUSES: Final = 200
_CAUSE_PARTS: Final = ("reason", "cause", "frame", "subject")
_ALL: Final = "all"
_AS_THEY_CAME: Final = "as they came"
_LONG_LINE: Final = re.compile(r"[^\n]{500}(?=[^\n])")


class PlainTable:
    """The rows of a table as blocks. It looks at them from the first time that its blocks are wanted."""

    def __init__(self, table: MessageTable, redraw: Callable[[], object]) -> None:
        self._table = table
        self._redraw = redraw
        self._is_used = False
        self._words = self._cause = self._sort = ""
        self._is_descending = False
        self._first = 0
        self._looked_at = ""
        self._found: tuple[object, list[int]] = (None, [])

    def blocks(self) -> list[Block]:
        table = self._table
        with table.lock:
            if not self._is_used:
                self._is_used = True
                table.on_change(self._redraw)
                table.find_causes()
            found = self._find()
            self._first = max(0, min(self._first, (len(found) - 1) // _PAGE * _PAGE))
            page, selected = found[self._first : self._first + _PAGE], set(table.selection)
            hidden = len(selected.difference(found))
            counts = self._counts(found, page, len(selected), hidden)
            columns = [name for name in table.shown_columns if name != "sequence_number"][:_MOST_COLUMNS]
            order = self._order(columns)
            rows = [self._row(number, columns, is_on=number in selected) for number in page]
        all_of = partial(self._select_all, found)
        controls = [
            Button("Previous", partial(self._turn, -_PAGE), icon="chevron-left", is_enabled=self._first > 0),
            Button("Next", partial(self._turn, _PAGE), icon="chevron-right", is_enabled=found[-1:] != page[-1:]),
            Button("Select all of these", all_of, "Select every message that was found, on all pages"),
            Button("Clear selection", partial(self._select, ()), "Select no message"),
            Text(counts, is_strong=True),
        ]
        find = Field("Find", self._words, self._search, hint="in all columns, then Enter")
        detail = [Button("Close", partial(self._look, None)), Code(self._looked_at)] if self._looked_at else []
        return [*self._causes(), find, order, Row(controls), *rows, *detail]

    def _causes(self) -> list[Block]:
        table = self._table
        if not table.with_causes:
            return []
        counts = Counter(table.causes.fingerprints)
        causes = table.causes.every
        names = {_cause_text(causes[each], counts): each for each, _ in counts.most_common(_MOST_CAUSES)}
        chosen = next((name for name, fingerprint in names.items() if fingerprint == self._cause), _ALL)

        def choose(name: str) -> None:
            self._cause, self._first = names.get(name, ""), 0

        field = Field("Cause", chosen, choose, "choice", [_ALL, *names], size="wide")
        if not self._cause:
            return [field]
        note = partial(table.on_note.tell, self._cause)
        return [field, Field("Note", table.notes.get(self._cause, ""), note, "area", size="wide", key=self._cause)]

    def _order(self, columns: Sequence[str]) -> Row:
        names = {title_of(name): name for name in ("sequence_number", *columns)}
        chosen = next((title for title, name in names.items() if name == self._sort), _AS_THEY_CAME)

        def choose(title: str) -> None:
            self._sort, self._first = names.get(title, ""), 0

        def turn(is_descending: bool) -> None:
            self._is_descending, self._first = is_descending, 0

        by = Field("Sort by", chosen, choose, "choice", [_AS_THEY_CAME, *names], size="short")
        return Row([by, Field("largest first", self._is_descending, turn, "check")], key="order")

    def _find(self) -> list[int]:
        """Return the rows to show, in their order; the same search is done once."""
        table, rows = self._table, self._table.rows
        asked = (self._words, self._cause, self._sort, self._is_descending)
        is_found = (len(table.causes.fingerprints), rows.changes)
        known = (table.load, len(rows), table.count, *asked, *is_found)
        if known != self._found[0]:
            shown = ~rows.removed
            if self._words.strip():
                columns: Any = rows.with_extra().columns
                readable = [each for each in columns if pa.types.is_string(each.type) or pa.types.is_integer(each.type)]
                texts = (each.cast(pa.string()) for each in readable)
                shown &= holding(texts, self._words.strip(), len(rows))
            if self._cause:
                causes = np.array(table.causes.fingerprints)
                shown[: len(causes)] &= causes == self._cause
            found = np.flatnonzero(shown)
            self._found = known, self._sorted(found).tolist() if self._sort else found.tolist()
        return self._found[1]

    def _sorted(self, found: Any) -> Any:
        values = self._table.rows.column(self._sort).take(array_of_numbers(found))
        if pa.types.is_map(values.type):
            values = texts_of(values)
        kernels: Any = pc
        places = kernels.array_sort_indices(values, order="descending" if self._is_descending else "ascending")
        return found[places.to_numpy()]

    def _row(self, number: int, columns: Sequence[str], *, is_on: bool) -> Block:
        rows = self._table.rows
        key = rows.keys[number]
        name = f"{key[0]} {key[1]}"
        said = " · ".join(filter(None, (cell(rows.cell(number, column), _MAX_CELL) for column in columns)))
        parts = (
            Field(f"#{key[1]}", is_on, partial(self._tick, key), "check"),
            Button("Look", partial(self._look, key), f"Show message #{key[1]}"),
            Text(said),
        )
        return Row(parts, key=name)

    def _counts(self, found: Sequence[int], page: Sequence[int], selected: int, hidden: int) -> str:
        total = self._table.count
        place = f"{self._first + 1:,} to {self._first + len(page):,} of {len(found):,}" if page else "No message"
        of = "" if len(found) == total else f" found ({total:,} in all)"
        not_found = f" ({hidden:,} not among those found)" if hidden else ""
        return f"{place}{of}, {selected:,} selected{not_found}"

    # ------------------------------------------------------------ clicks

    def _search(self, words: str) -> None:
        self._words, self._first = words, 0

    def _turn(self, rows: int) -> None:
        self._first += rows

    def _tick(self, key: MessageKey, is_on: bool) -> None:
        with self._table.lock:
            numbers, selected = set(self._table.rows.present([key])), set(self._table.selection)
        self._select(selected | numbers if is_on else selected - numbers)

    def _select(self, numbers: Sequence[int] | set[int]) -> None:
        with self._table.lock:
            hidden = len(set(numbers).difference(self._find()))
        self._table.select_rows(numbers, hidden)

    def _select_all(self, found: Sequence[int]) -> None:
        self._select({*self._table.selection, *found})

    def _look(self, key: MessageKey | None) -> None:
        with self._table.lock:
            rows = self._table.rows
            numbers = rows.present([key] if key else [])
            self._looked_at = _detail_text(rows.messages(numbers)[0], rows.decoded(numbers[0])) if numbers else ""


def _cause_text(cause: Mapping[str, str], counts: Mapping[str, int]) -> str:
    told = "; ".join(filter(None, (cause[name] for name in _CAUSE_PARTS))) or "no reason"
    return f"{counts[cause['fingerprint']]:,} with {told[:_MAX_CELL]}".replace("\n", " ")


def _detail_text(message: ReceivedMessage, decoded: Decoded | None) -> str:
    detail = detail_of(message, decoded)
    parts = [detail["title"], detail["about"], *detail["notes"]]
    if fault := detail["fault"]:
        parts += ["", "Dead letter", f"  {fault['reason']}", *(f"  {line}" for line, _ in fault["lines"])]
    for section in detail["sections"]:
        parts += ["", section["title"], *(f"  {name}: {value}" for name, value, *_ in section["rows"])]
    view = detail["views"][0]
    told = "\n".join([*parts, "", f"Body ({view['name']}) {view['note']}".rstrip(), view["text"]])
    # A browser needs half a minute to lay out a long line that changes its direction.
    return _LONG_LINE.sub(r"\g<0>\n", told)
