"""Convert messages to Arrow tables and pandas frames, and back."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from pathlib import PurePath
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

import numpy as np
import pyarrow as pa

from sbnotebook.analysis.page_columns import PageColumns, array_of_values
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Message, PeekedMessage
from sbnotebook.model.budget import UNPACKED_BYTES_OF_TABLE, Allowance
from sbnotebook.model.schema import (
    COLUMNS,
    PEEKED_COLUMNS,
    PROPERTY_COLUMNS,
    SENT_COLUMNS,
    ColumnType,
    columns_of,
    messages_from_columns,
    peeked_from_columns,
)
from sbnotebook.settlement import EncodedRows, Page, PeekCursor, Progress

if TYPE_CHECKING:
    import pandas as pd

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ROWS_AT_ONCE: Final = 1_000
_BYTES_AT_ONCE: Final = 8 * 1024 * 1024
"""Rows that become messages together, or fewer where they are large."""
_NOT_JSON: Final = (ValueError, TypeError, RecursionError)
_IN_JSON: Final = {b"sbnotebook": b"json"}
"""The metadata of a column of JSON texts, which stand for their values."""
_TEXTS_BY_NAME: Final = (
    "holds dictionaries of texts, such as {'stops': '2'}; the column 'application_property_types' has their AMQP "
    "types, such as {'stops': 'int'}"
)
_MISFITS: Final = (ConfigurationError, ValueError, OverflowError, pa.ArrowException)
"""The exceptions of values that cannot become a message."""


@cache
def arrow_schema() -> pa.Schema:
    """Return the message columns as an Arrow schema; timestamps are in microseconds, UTC."""
    types: dict[ColumnType, Any] = {
        ColumnType.STRING: pa.string(),
        ColumnType.INT: pa.int32(),
        ColumnType.LONG: pa.int64(),
        ColumnType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
        ColumnType.BINARY: pa.binary(),
        ColumnType.STRING_MAP: pa.map_(pa.string(), pa.string()),
    }
    return pa.schema([pa.field(column.name, types[column.type]) for column in COLUMNS])


def to_arrow(messages: Iterable[Message], unpacking: Allowance | None = None) -> pa.Table:
    schema: Any = arrow_schema()
    columns = columns_of(messages, unpacking)
    arrays: list[Any] = [array_of_values(columns[field.name], field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


async def tables_of_pages(
    pages: AsyncIterator[Page], cursor: PeekCursor, progress: Progress | None = None, unpacking: Allowance | None = None
) -> AsyncGenerator[pa.Table]:
    reader = PageColumns(COLUMNS, arrow_schema())
    unpacking = unpacking or Allowance(UNPACKED_BYTES_OF_TABLE)
    async with aclosing(cast("AsyncGenerator[Page]", pages)):
        async for page in pages:
            if progress is not None:
                progress(len(page.payloads))
            taken = reader.taken(page, cursor, unpacking)
            if taken.num_rows:
                yield pa.Table.from_batches([taken])


async def one_table(tables: AsyncIterator[pa.Table]) -> pa.Table:
    parts: list[pa.Table] = []
    async for table in tables:
        parts.append(table)  # noqa: PERF401 (a comprehension is one more frame of each traceback)
    return pa.concat_tables(parts) if parts else to_arrow(())


def to_pandas(messages: Iterable[Message]) -> pd.DataFrame:
    return table_to_pandas(to_arrow(messages))


def table_to_pandas(table: pa.Table) -> pd.DataFrame:
    """Convert a table to a frame with the types that :func:`to_pandas` makes: whole numbers stay exact beside nulls."""
    import pandas as pd

    signed = {pa.int8(): pd.Int8Dtype(), pa.int16(): pd.Int16Dtype(), pa.int32(): pd.Int32Dtype()}
    unsigned = {pa.uint8(): pd.UInt8Dtype(), pa.uint16(): pd.UInt16Dtype(), pa.uint32(): pd.UInt32Dtype()}
    whole: dict[Any, Any] = {**signed, **unsigned, pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
    return cast("Any", table).to_pandas(types_mapper=whole.get, maps_as_pydicts="strict")


def messages_of_table(table: pa.Table) -> list[PeekedMessage]:
    # A message reads its text from its body, so that texts, which may be large, are needed only where that is missing.
    untyped: Any = table
    names = PEEKED_COLUMNS if untyped.column("body").null_count else PEEKED_COLUMNS - {"body_text"}
    found = {name: untyped.column(name) for name in names}
    columns = {name: values_of_column(column) for name, column in found.items() if column.null_count < len(column)}
    return peeked_from_columns(columns, table.num_rows) if columns else []


def rows_of_table(table: pa.Table, names: Sequence[str]) -> Iterator[SimpleNamespace]:
    """Yield rows of a table that :func:`to_arrow` made, with these columns alone: no body is decoded.

    One row is held at a time, because texts may be large.
    """
    untyped: Any = table
    columns = {name: untyped.column(name) for name in names}
    for place in range(table.num_rows):
        yield SimpleNamespace(**{name: values_of_column(each.slice(place, 1))[0] for name, each in columns.items()})


def values_of_column(column: Any) -> list[Any]:
    """Return the values of a column of a table that :func:`to_arrow` made."""
    if not pa.types.is_timestamp(column.type):
        return column.to_pylist()
    # Arrow takes several times as long to make each moment.
    return [None if us is None else _EPOCH + timedelta(microseconds=us) for us in column.cast(pa.int64()).to_pylist()]


def messages_from(data: Any) -> Iterator[Message]:
    """Convert data that users give to send to messages, one by one."""
    chunks = _chunks_of(data := collect_spark_frame(data))
    if chunks is not None:
        for rows in chunks:
            yield from _raising(messages_or_errors(rows))
    elif isinstance(data, (Message, str, *_BYTES, Mapping)):
        yield _message(data)  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(data, Iterable):
        for item in data:  # pyright: ignore[reportUnknownVariableType]
            yield _message(item)
    else:
        raise ConfigurationError(f"Messages cannot be made of {type(data).__name__}: {_ACCEPTED}.")


def to_send(data: Any) -> Iterator[Message | EncodedRows]:
    """Convert data for a sender: as :func:`messages_from`, and most rows of a frame to bytes."""
    chunks = _chunks_of(data := collect_spark_frame(data))
    if chunks is None:
        yield from messages_from(data)
        return
    for rows in chunks:
        made = rows_to_send(rows)
        yield from (made,) if isinstance(made, EncodedRows) else _raising(made)


_BYTES: Final = (bytes, bytearray, memoryview)
_ACCEPTED: Final = "give messages, texts, bytes, rows, a pandas, Arrow or Spark frame"


def collect_spark_frame(data: Any) -> Any:
    """Collect a Spark frame, classic or of Spark Connect, into an Arrow table; return other data as it is."""
    if type(data).__module__.startswith("pyspark.sql.") and hasattr(data, "toArrow"):
        return data.toArrow()
    return data


def _message(item: Any) -> Message:
    if isinstance(item, Message):
        return item
    if isinstance(item, _BYTES):
        return Message(body=bytes(item))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(item, str):
        try:
            return Message(body=item.encode())
        except UnicodeEncodeError as error:
            raise ConfigurationError(f"A text has {_half(error)}.") from None
    if isinstance(item, Mapping):
        columns = {str(key): [value] for key, value in cast("Mapping[Any, Any]", item).items()}
        return messages_from_columns(_with_contents(columns, [*columns], 1, columns.__getitem__), 1)[0]
    raise ConfigurationError(f"A message cannot be made of {type(item).__name__}: {_ACCEPTED}.")


def _half(error: UnicodeEncodeError) -> str:
    return f"half a character, {error.object[error.start]!a}, which cannot be sent: replace it"


def _chunks_of(data: Any) -> Iterator[pa.RecordBatch] | None:
    if isinstance(data, pa.Table):
        return (rows for batch in data.to_batches() for rows in in_slices(batch))
    if isinstance(data, pa.RecordBatch):
        return in_slices(data)
    if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
        parts = (data.iloc[start : start + _ROWS_AT_ONCE] for start in range(0, len(data), _ROWS_AT_ONCE))
        return (rows for part in parts for batch in _arrow_of_frame(part).to_batches() for rows in in_slices(batch))
    return None


def in_slices(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    at_once = min(_ROWS_AT_ONCE, max(1, rows.num_rows * _BYTES_AT_ONCE // max(1, rows.nbytes)))
    return (rows.slice(start, at_once) for start in range(0, rows.num_rows, at_once))


def _raising(made: Iterable[Message | ConfigurationError]) -> Iterator[Message]:
    for message in made:
        if isinstance(message, ConfigurationError):
            raise message
        yield message


def rows_to_send(rows: pa.RecordBatch) -> EncodedRows | list[Message | ConfigurationError]:
    """Convert the rows of a batch for a sender: all to bytes, or else each to a message or an error."""
    with suppress(*_MISFITS):
        encoded = EncodedRows.of(_sent_columns(rows), rows.num_rows)
        if encoded is not None:
            return encoded
    return [*messages_or_errors(rows)]


def messages_or_errors(rows: pa.RecordBatch) -> Iterator[Message | ConfigurationError]:
    """Yield a message for each row of a batch, as :func:`messages_from` makes it, or the error of the row."""
    try:
        yield from messages_from_columns(_sent_columns(rows), rows.num_rows)
    except _MISFITS as error:
        if rows.num_rows == 1:  # the others are fine
            is_ours = isinstance(error, ConfigurationError)
            yield error if is_ours else ConfigurationError(f"A row cannot be sent: {error}.")
            return
        for row in range(rows.num_rows):
            yield from messages_or_errors(rows.slice(row, 1))


def _sent_columns(rows: pa.RecordBatch) -> dict[str, list[Any]]:
    names: list[str] = rows.schema.names
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ConfigurationError(f"Several columns have the name {twice[0][:80]!r}: rename all but one of them.")
    columns: dict[str, list[Any]] = {name: rows.column(name).to_pylist() for name in names if name in SENT_COLUMNS}
    schema: Any = rows.schema
    return _with_contents(columns, names, rows.num_rows, lambda name: _values(schema.field(name), rows.column(name)))


def _with_contents(
    columns: dict[str, list[Any]], names: Sequence[str], count: int, values_of: Callable[[str], list[Any]]
) -> dict[str, list[Any]]:
    """Return columns, with a JSON body of the other columns in rows without a body."""
    given = [columns[name] for name in ("body", "body_text") if name in columns]
    # Beside a body, columns that the service sets are left out; without one they are content.
    taken = arrow_schema().names if given else SENT_COLUMNS
    others = [name for name in names if name not in taken]
    without = [not any(values[row] is not None for values in given) for row in range(count)]
    if not others or not any(without):
        return columns
    contents = [dict(zip(others, values, strict=True)) for values in zip(*map(values_of, others), strict=True)]
    bodies = columns.get("body", [None] * count)
    made = [_json(row) if lacks else body for lacks, row, body in zip(without, contents, bodies, strict=True)]
    kinds = ["application/json" if lacks else None for lacks in without]
    return {"content_type": kinds, **columns, "body": made}


def _values(field: Any, column: Any) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if field.metadata == _IN_JSON:
        return json.loads(f"[{','.join(values)}]", parse_constant=_constant)
    return [_with_dicts(value, column.type) for value in values] if pa.types.is_nested(column.type) else values


def _constant(name: str) -> float | None:
    # A missing number is null, as in a column of numbers.
    return None if name == "NaN" else float(name)


def _with_dicts(value: Any, kind: Any) -> Any:
    """Return a value of an Arrow column with its maps as dicts: ``to_pylist`` gives lists of pairs."""
    parts: Any = kind
    items: Any = value
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_map(kind):
        return {str(key): _with_dicts(item, parts.item_type) for key, item in items}
    if pa.types.is_struct(kind):
        return {field.name: _with_dicts(items[field.name], field.type) for field in parts}
    return [_with_dicts(item, parts.value_type) for item in items]


def _json(content: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(content, ensure_ascii=False, default=_json_text, allow_nan=False)
        text.encode()  # refuses half a character
    except ConfigurationError:
        raise
    except _NOT_JSON as error:  # such as an infinity, a tuple as a key, or a value that holds itself
        raise ConfigurationError(f"A row cannot be sent as JSON: {error}.") from None
    return text


def _json_text(value: Any) -> Any:
    if type(value).__name__ in ("NaTType", "NAType"):  # pandas' missing values; NaT is a date, too
        return None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID, timedelta, Enum, PurePath)):
        return str(value)
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return _time_of_numpy(value) if value.dtype.kind in "mM" else value.tolist()
    raise ConfigurationError(
        f"A value of the type {type(value).__name__} cannot be sent as JSON: make it a text, a number, a list or a "
        "dictionary first."
    )


def _time_of_numpy(value: Any) -> Any:
    if value.ndim:
        return [*value]
    # Of units below microseconds, and of years that Python does not have, NumPy makes whole numbers.
    is_fine = np.datetime_data(value.dtype)[0] in ("ns", "ps", "fs", "as")
    found = (value.astype(f"{value.dtype.kind}8[us]") if is_fine else value).tolist()
    if isinstance(found, int):
        raise ConfigurationError(f"The time {value!s:.80} cannot be sent as JSON: make it a text or a number first.")
    return found


def _arrow_of_frame(frame: pd.DataFrame) -> pa.Table:
    fields: list[Any] = []
    arrays: list[Any] = []
    for key, column in frame.items():
        name = str(key)
        try:
            made, metadata = _arrow_of_column(name, column)
        except ConfigurationError:
            raise
        except OverflowError:
            raise ConfigurationError(
                f"The column {name[:80]!r} has a value that is too large: make it a text."
            ) from None
        except UnicodeEncodeError as error:
            raise ConfigurationError(f"The column {name[:80]!r} has {_half(error)}.") from None
        except (pa.ArrowException, *_NOT_JSON) as error:
            why = f"cannot be sent: {error}" if name not in PROPERTY_COLUMNS else _TEXTS_BY_NAME
            raise ConfigurationError(f"The column {name[:80]!r} {why}.") from None
        fields.append(pa.field(name, made.type, metadata=metadata))
        arrays.append(made)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _arrow_of_column(name: str, column: pd.Series[Any]) -> tuple[Any, Any]:
    schema: Any = arrow_schema()
    kind = schema.field(name).type if name in schema.names else None
    values: Any = column.to_numpy() if kind is None and column.dtype == object else ()
    # Arrow would give all dicts of a column the same keys.
    if any(issubclass(each, (dict, list, tuple, np.ndarray)) for each in set(map(type, values))):
        encode = json.JSONEncoder(default=_json_text).encode
        return array_of_values([*map(encode, values)], pa.string()), _IN_JSON
    made: Any = pa.array(column, type=kind, from_pandas=True)
    # In Arrow, a period of pandas is a number.
    if getattr(made.type, "extension_name", "") == "pandas.period":
        return _arrow_of_column(name, column.astype("string"))
    return made, None
