"""The base of all results that are shown as tables."""

from __future__ import annotations

import copy
import html
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, TypeVar, overload

from sbnotebook.analysis import tables
from sbnotebook.model import EntityAddress

if TYPE_CHECKING:
    import pandas as pd

Table: TypeAlias = tuple[Sequence[str], Sequence[Sequence[Any]], str]
"""Headers, rows and a caption."""
T = TypeVar("T")


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


class ShownRows(Shown, Sequence[T]):
    """A sequence that is shown as a table, and becomes a frame. A slice of it is the same with fewer rows."""

    _fields: ClassVar[Sequence[str]]
    """The attributes of a row that are the columns of a frame."""

    def __init__(self, rows: Iterable[T] = ()) -> None:
        self._all = tuple(rows)

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas frame with a row for each of them."""
        import pandas as pd

        rows = [[_in_frame(getattr(row, name)) for name in self._fields] for row in self._all]
        return pd.DataFrame(rows, columns=pd.Index(self._fields))

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[T]:
        return iter(self._all)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> T | Self:
        if not isinstance(index, slice):
            return self._all[index]
        part = copy.copy(self)
        part._all = self._all[index]  # noqa: SLF001 (of the same class)
        return part


def _in_frame(value: Any) -> Any:
    return str(value) if isinstance(value, EntityAddress) else value


def without_empty(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> tuple[list[str], list[list[Any]]]:
    """Return a table without the columns that have no value."""
    used = [place for place in range(len(headers)) if any(row[place] is not None for row in rows)]
    return [headers[place] for place in used], [[row[place] for place in used] for row in rows]
