"""Write messages to files and read them back: Parquet and JSON lines without loss, CSV for a spreadsheet."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq

from sbnotebook.analysis.frames import arrow_schema
from sbnotebook.analysis.tables import printable
from sbnotebook.errors import ConfigurationError
from sbnotebook.model.schema import COLUMNS, ColumnType

_ROWS_AT_ONCE: Final = 1_000
_TYPES: Final = {column.name: column.type for column in COLUMNS}
MISFITS: Final = (pa.ArrowException, UnicodeError, TypeError, OverflowError)
"""The errors of values that do not fit their columns."""
_TEXT: Final = "body_text"
_PARQUET: Final[Any] = pq  # its annotations are partial
_MEASURED: Final = [
    name for name, kind in _TYPES.items() if kind not in (ColumnType.BINARY, ColumnType.STRING_MAP) and name != _TEXT
]
"""Columns with statistics in a Parquet file: the least and the greatest body would be kept several times."""
_REQUIRED: Final = ("entity", "sequence_number")

_PIECE: Final = 65_536
"""Characters of a text that are written at once."""
_MAX_CELL: Final = 32_000
"""A spreadsheet's cell holds 32,767 characters; the rest would spill into another cell."""
# The beginning of a formula. Source: OWASP, "CSV Injection".
_BEGINS: Final = re.compile(r"[\t\r\n]|[\s\"']*[=+\-@＝＋－＠]")  # noqa: RUF001
# A spreadsheet whose separator is not the file's cuts cells in the middle, quotes or not.
# The sign may be missing, so that no run of spaces is looked at from each of its ends.
_BEGINS_INSIDE: Final = re.compile(r"([;|\t\r\n][\s\"']*+)([=+\-@＝＋－＠]?)")  # noqa: RUF001


def write_table(table: pa.Table, path: Path | str, *, overwrite: bool = False) -> Path:
    """Write messages to a file that only its owner can read; the file is complete or does not exist."""
    place = Path(path).expanduser()
    write = _WRITERS.get(place.suffix.lower())
    if write is None:
        raise ConfigurationError(
            f"Messages are not written as {place.suffix or place.name!r}: use .parquet or .jsonl, which "
            "keep everything, or .csv for a spreadsheet."
        )
    # A file of messages has the message columns, and not the errors of a decoder.
    messages: Any = cast("Any", table).select(arrow_schema().names)
    return _written(partial(write, messages), place, overwrite=overwrite)


def write_text(text: str, path: Path, *, overwrite: bool = False) -> Path:
    """Write a text to a new file, complete or not at all, which only its owner can read."""
    data = text.encode(errors="replace")
    return _written(lambda file: file.write(data), path, overwrite=overwrite)


def _written(write: Callable[[Any], object], place: Path, *, overwrite: bool) -> Path:
    try:
        if not place.parent.is_dir():
            raise ConfigurationError(f"There is no folder {place.parent}: make it first.")
        # In the same folder, for an atomic rename; mkstemp makes files that only the owner can read.
        handle, name = tempfile.mkstemp(prefix=".", dir=place.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            _move(Path(name), place, overwrite=overwrite)
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        why = error.strerror or error
        raise ConfigurationError(f"{place} cannot be written ({why}): choose another name or folder.") from None
    return place


def read_table(path: Path | str) -> pa.Table:
    place = Path(path).expanduser()
    read = _READERS.get(place.suffix.lower())
    if read is None:
        why = "CSV is for spreadsheets and loses types" if place.suffix.lower() == ".csv" else "the ending is unknown"
        raise ConfigurationError(f"Messages cannot be read from {place.name}: {why}; use .parquet or .jsonl.")
    try:
        with place.open("rb") as file:
            return read(file)
    except (OSError, *MISFITS) as error:
        if isinstance(error, OSError) and error.strerror:  # Arrow's errors of damaged files have none
            raise ConfigurationError(f"{place} cannot be read: {error.strerror}.") from None
        reason = printable(" ".join(str(error).split())[:200])
        raise ConfigurationError(f"{place} does not hold messages: {reason}") from None


def _move(written: Path, place: Path, *, overwrite: bool) -> None:
    if not overwrite:
        try:
            os.link(written, place)  # fails when the file exists, without a race
        except FileExistsError:
            raise _exists(place) from None
        except OSError:  # a file system without links
            if os.path.lexists(place):
                raise _exists(place) from None
        else:
            return
    written.replace(place)


def _exists(place: Path) -> ConfigurationError:
    return ConfigurationError(
        f"{place} exists: choose another name, or say overwrite=True to replace it (--overwrite in a magic)."
    )


# ------------------------------------------------------------------ Parquet


def _completed(table: pa.Table) -> pa.Table:
    """Restore the message columns, and drop others; a tool may have changed their types, or left some out."""
    for name in _REQUIRED:
        if name not in table.column_names:
            raise ConfigurationError(f"The file does not hold messages: it has no column {name}.")
    schema: Any = arrow_schema()
    columns: list[Any] = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


# ------------------------------------------------------------------ JSON lines


def write_lines(table: pa.Table, path: Path, head: Mapping[str, Any], *, overwrite: bool = False) -> Path:
    """Write messages as JSON lines behind a first line of another kind; the file is as :func:`write_table` makes it."""

    def write(file: Any) -> None:
        file.write(json.dumps(head, separators=(",", ":")).encode() + b"\n")
        _write_json_lines(table, file)

    return _written(write, path, overwrite=overwrite)


def table_of_lines(lines: Iterable[bytes], first: int = 1) -> pa.Table:
    parts: list[pa.Table] = [pa.Table.from_pylist([], schema=arrow_schema())]
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=first):
        rows += [_row_of(line, number)] if line.strip() else []
        if len(rows) == _ROWS_AT_ONCE:
            parts.append(pa.Table.from_pylist(rows, schema=arrow_schema()))
            rows = []
    parts.append(pa.Table.from_pylist(rows, schema=arrow_schema()))
    return pa.concat_tables(parts)


def _write_json_lines(table: pa.Table, file: Any) -> None:
    """Write one object in each line, in ASCII only: no character of a message ends a line or acts on a terminal."""
    for row in _rows(table):
        present = {name: _to_json(name, value) for name, value in row.items() if value is not None}
        text: str = present.pop(_TEXT, "") if len(present.get(_TEXT, "")) > _PIECE else ""
        line = json.dumps(present, separators=(",", ":")).encode()
        if not text:
            file.write(line + b"\n")
            continue
        # A character may take twelve bytes in ASCII, so a long text is written piece by piece.
        file.write(line[:-1] + f',"{_TEXT}":"'.encode())
        for start in range(0, len(text), _PIECE):
            file.write(json.dumps(text[start : start + _PIECE])[1:-1].encode())
        file.write(b'"}\n')


def _row_of(line: bytes, number: int) -> dict[str, Any]:
    try:
        row: Any = json.loads(line)
        if not isinstance(row, dict):
            raise ValueError("it is not an object")  # noqa: TRY004, TRY301 (as what JSON cannot read)
        given = cast("dict[str, Any]", row)
        if absent := [name for name in _REQUIRED if given.get(name) is None]:
            raise ValueError(f"it has no {absent[0]}")  # noqa: TRY301
        return {name: _from_json(name, given[name]) for name in _TYPES if given.get(name) is not None}
    except (ValueError, OverflowError, RecursionError) as error:
        raise ConfigurationError(f"Line {number:,} is not a message: {printable(str(error)[:200])}.") from None


def _to_json(name: str, value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat()
    return dict(value) if _TYPES[name] is ColumnType.STRING_MAP else value


def _from_json(name: str, value: Any) -> Any:
    kind = _TYPES[name]
    is_number, is_map = kind in (ColumnType.INT, ColumnType.LONG), kind is ColumnType.STRING_MAP
    if (type(value) is int) is not is_number or isinstance(value, dict) is not is_map:
        raise ValueError(f"{name} is a {kind.value}")
    if kind is ColumnType.BINARY:
        return base64.b64decode(value, validate=True)
    if kind is ColumnType.TIMESTAMP:
        time = datetime.fromisoformat(value)
        return time.astimezone(UTC) if time.tzinfo else time
    return value


# ------------------------------------------------------------------ CSV


def _write_csv(table: pa.Table, file: Any) -> None:
    """Write a row for each message, without the columns that a spreadsheet cannot show; no cell is a formula.

    Every cell is in quotes, and one that a spreadsheet could take for a formula begins with an apostrophe.
    """
    shown = [column.name for column in COLUMNS if column.name not in ("body", "extras")]
    # Spreadsheets know UTF-8 by its mark.
    file.write("\ufeff".encode())
    text = io.TextIOWrapper(file, "utf-8", newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerow(shown)
    for row in _rows(table):
        if row["body_text"] is None and row["body"]:
            row["body_text"] = f"({len(row['body']):,} bytes that are not text)"
        writer.writerow([_cell(name, row[name]) for name in shown])
    text.detach()


def _cell(name: str, value: Any) -> str | int:
    if value is None:
        return ""
    if isinstance(value, int):
        return value
    if _TYPES[name] is ColumnType.STRING_MAP:
        value = json.dumps(dict(value), ensure_ascii=False) if value else ""
    return _inert(value.isoformat() if isinstance(value, datetime) else value)


def _inert(text: str) -> str:
    """Escape a text so that it is not a formula wherever a spreadsheet may begin a cell."""
    shown = printable(text[:_MAX_CELL], keep="\t\r\n")
    inside = _BEGINS_INSIDE.sub(lambda found: f"{found[1]}'{found[2]}" if found[2] else found[1], shown)
    cell = f"'{inside}" if _BEGINS.match(shown) else inside
    if max(len(text), len(cell)) <= _MAX_CELL:
        return cell
    return f"{cell[:_MAX_CELL]}… ({len(text):,} characters)"


# ------------------------------------------------------------------ all formats


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches(_ROWS_AT_ONCE):
        yield from batch.to_pylist()


_WRITERS: Final[Mapping[str, Callable[[pa.Table, Any], object]]] = {
    ".parquet": partial(_PARQUET.write_table, compression="zstd", write_statistics=_MEASURED),
    ".jsonl": _write_json_lines,
    ".csv": _write_csv,
}
_READERS: Final[Mapping[str, Callable[[Any], pa.Table]]] = {
    ".parquet": lambda file: _completed(_PARQUET.ParquetFile(file).read()),
    ".jsonl": table_of_lines,
}
