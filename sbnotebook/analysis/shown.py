"""The base of all results that are shown as tables."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

from sbnotebook.analysis import tables

Table: TypeAlias = tuple[Sequence[str], Sequence[Sequence[Any]], str]
"""Headers, rows and a caption."""


class Shown:
    """A result that is shown as a table of its first rows: HTML in a notebook, text elsewhere.

    Without rows, its caption is shown alone.
    """

    _one_line: ClassVar[bool] = True
    """True cuts long cells in the text; False breaks them into lines."""

    def _table(self, most: int) -> Table:
        raise NotImplementedError

    def as_text(self, max_rows: int = 20) -> str:
        """Return a text table, as shown in terminals.

        Args:
            max_rows: the maximum number of rows.
        """
        headers, rows, caption = self._table(max_rows)
        return tables.text_table(headers, rows, caption, one_line=self._one_line) if rows else tables.printable(caption)

    def as_html(self, max_rows: int = tables.MAX_ROWS) -> str:
        """Return an HTML table, as shown in notebooks; texts of messages are escaped.

        Args:
            max_rows: the maximum number of rows.
        """
        headers, rows, caption = self._table(max_rows)
        return tables.html_table(headers, rows, caption) if rows else f"<p>{html.escape(tables.printable(caption))}</p>"

    def __repr__(self) -> str:
        return self.as_text()

    def _repr_html_(self) -> str:
        return self.as_html()


def without_empty(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> tuple[list[str], list[list[Any]]]:
    """Return a table without the columns that have no value."""
    used = [place for place in range(len(headers)) if any(row[place] is not None for row in rows)]
    return [headers[place] for place in used], [[row[place] for place in used] for row in rows]
