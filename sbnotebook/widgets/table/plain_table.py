"""Messages as plain blocks, for front ends that do not load the table: a page of rows to search and to tick."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbnotebook.model import ReceivedMessage
from sbnotebook.model.body import json_letters
from sbnotebook.widgets.blocks import Block, Button, Code, Field, Row, Text
from sbnotebook.widgets.pretty import cell
from sbnotebook.widgets.table.message_detail import Decoded, detail_of
from sbnotebook.widgets.table.row_packing import table_columns
from sbnotebook.widgets.table.rows import MessageKey, RowModel

_PAGE: Final = 20
_MOST_COLUMNS: Final = 8
"""More would not fit beside each other."""
_MAX_CELL: Final = 120
_CAUSE_PARTS: Final = ("reason", "cause", "frame", "subject")
_ALL: Final = "all"
_LONG_LINE: Final = re.compile(r"[^\n]{500}(?=[^\n])")


class PlainTable:
    """The rows of a model as blocks. It looks at them from the first time that its blocks are wanted."""

    def __init__(self, model: RowModel, redraw: Callable[[], object]) -> None:
        self._model = model
        self._redraw = redraw
        self._is_used = False
        self._words = self._cause = ""
        self._first = 0
        self._looked_at = ""
        self._found: tuple[object, list[int]] = (None, [])

    def blocks(self) -> list[Block]:
        """Return the page, with its controls."""
        model = self._model
        with model.lock:
            if not self._is_used:
                self._is_used = True
                model.views.append(self)
                model.find_causes()
            found = self._find()
            self._first = max(0, min(self._first, (len(found) - 1) // _PAGE * _PAGE))
            page, selected = found[self._first : self._first + _PAGE], set(model.selection)
            hidden = len(selected.difference(found))
            counts = self._counts(found, page, len(selected), hidden)
            columns = self._columns()
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
        return [*self._causes(), find, Row(controls), *rows, *detail]

    def _causes(self) -> list[Block]:
        model = self._model
        if not model.with_causes:
            return []
        counts = Counter(model.causes.fingerprints)
        names = {_cause_text(cause, counts): cause["fingerprint"] for cause in model.causes.told}
        chosen = next((name for name, fingerprint in names.items() if fingerprint == self._cause), _ALL)

        def choose(name: str) -> None:
            self._cause, self._first = names.get(name, ""), 0

        field = Field("Cause", chosen, choose, "choice", [_ALL, *names], size="wide")
        if not self._cause:
            return [field]
        note = partial(model.on_note, self._cause)
        return [field, Field("Note", model.notes.get(self._cause, ""), note, "area", size="wide", key=self._cause)]

    def _find(self) -> list[int]:
        """Return the rows to show; the same search is done once."""
        model, rows = self._model, self._model.rows
        known = (model.load, len(rows), model.count, self._words, self._cause, len(model.causes.fingerprints))
        if known != self._found[0]:
            shown = ~rows.removed
            if self._words.strip():
                shown &= _holding(rows.with_extra(), self._words.strip())
            if self._cause:
                causes = np.array(model.causes.fingerprints)
                shown[: len(causes)] &= causes == self._cause
            self._found = known, np.flatnonzero(shown).tolist()
        return self._found[1]

    def _columns(self) -> list[str]:
        rows = self._model.rows
        known = table_columns(rows.with_extra(), rows.extra, self._model.columns)
        new = [name for name in tuple(rows.patched) if name not in {column.name for column in known}]
        shown = [column.name for column in known if column.name != "sequence_number" and not column.hidden]
        return [*shown[: _MOST_COLUMNS - len(new)], *new]

    def _row(self, number: int, columns: Sequence[str], *, is_on: bool) -> Block:
        rows = self._model.rows
        key = rows.keys[number]
        name = f"{key[0]} {key[1]}"
        said = " · ".join(filter(None, (self._text(number, column) for column in columns)))
        parts = (
            Field(f"#{key[1]}", is_on, partial(self._tick, key), "check"),
            Button("Look", partial(self._look, key), f"Show message #{key[1]}"),
            Text(said),
        )
        return Row(parts, key=name)

    def _text(self, number: int, name: str) -> str:
        rows = self._model.rows
        if number in (patched := rows.patched.get(name, {})):
            return cell(patched[number], _MAX_CELL)
        table: Any = rows.with_extra()
        value = table.column(name)[number].as_py() if name in table.column_names else None
        return cell(json_letters(value) if name == "body_text" and value else value, _MAX_CELL)

    def _counts(self, found: Sequence[int], page: Sequence[int], selected: int, hidden: int) -> str:
        total = self._model.count
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
        with self._model.lock:
            numbers, selected = set(self._model.rows.present([key])), set(self._model.selection)
        self._select(selected | numbers if is_on else selected - numbers)

    def _select(self, numbers: Sequence[int] | set[int]) -> None:
        model = self._model
        with model.lock:
            model.hidden = len(set(numbers).difference(self._find()))
            model.set_selection(numbers)
        model.on_selection()

    def _select_all(self, found: Sequence[int]) -> None:
        self._select({*self._model.selection, *found})

    def _look(self, key: MessageKey | None) -> None:
        with self._model.lock:
            rows = self._model.rows
            numbers = rows.present([key] if key else [])
            self._looked_at = _detail_text(rows.messages(numbers)[0], rows.decoded(numbers[0])) if numbers else ""

    # ------------------------------------------------------------ changes of the rows

    def _changed(self, *_: object) -> None:
        self._redraw()

    rows_shown = rows_added = rows_removed = cells_changed = selection_changed = _changed
    causes_found = notes_changed = say_problem = _changed


def _cause_text(cause: Mapping[str, str], counts: Mapping[str, int]) -> str:
    told = "; ".join(filter(None, (cause[name] for name in _CAUSE_PARTS))) or "no reason"
    return f"{counts[cause['fingerprint']]:,} with {told[:_MAX_CELL]}".replace("\n", " ")


def _holding(table: Any, words: str) -> Any:
    """Return for each row whether one of its texts contains these words."""
    found = np.zeros(len(table), dtype=bool)
    kernels: Any = pc
    for column in table.columns:
        if pa.types.is_string(column.type) or pa.types.is_integer(column.type):
            hits = kernels.match_substring(column.cast(pa.string()), words, ignore_case=True)
            found |= hits.fill_null(False).to_numpy()
    return found


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
