"""Decoders: pure functions that read a body in a format of its own, such as Avro or Protobuf.

Bodies are hostile input. A decoder gets at most ``DECODED_BYTES`` of a body, and its value becomes at most
``PARSED_CHARACTERS`` of JSON. A body that it cannot read keeps its text, and the column ``decode_error`` says why: one
message never fails the others.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import lru_cache
from inspect import Parameter, signature
from time import thread_time
from typing import Any, Final, NamedTuple, cast

import anyio.to_thread
import pyarrow as pa
import pyarrow.compute as pc

from sbnotebook.analysis.frames import to_arrow
from sbnotebook.analysis.page_columns import array_of_values
from sbnotebook.analysis.tables import printable
from sbnotebook.errors import let_interrupt_pass
from sbnotebook.model import BodyType
from sbnotebook.model.body import PACKING_PROPERTIES, Marks, inner_bytes
from sbnotebook.model.budget import (
    DECODED_BYTES,
    DECODING_SECONDS_OF_TABLE,
    PARSED_CHARACTERS,
    UNPACKED_BYTES_OF_TABLE,
    Allowance,
)

DECODED: Final = "decoded"
"""Spark's column of the values."""
DECODE_ERROR: Final = "decode_error"
"""The column that says why a body was not decoded; null for one that was."""
NEEDED: Final = ("subject", "content_type", "content_encoding", "body", "body_type", "application_properties")
"""The message columns that decoding reads."""
_PACKED: Final = frozenset((b"@", b"\x1f", b"x"))
"""First bytes of a body that may be in a wrapper of .NET, gzip or deflate."""
_TIMED: Final = 16
"""Bodies after which the time is read, which takes a third of the time of a small body."""
_kernels: Final[Any] = pc


class UndecodableError(ValueError):
    """A body that a decoder cannot read; the text says why."""


class Labels(NamedTuple):
    """The part of a message that a decoder gets beside its body.

    Attributes:
        subject: its subject.
        content_type: its content type.
        application_properties: its application properties, as the texts of the message columns.
    """

    subject: str | None = None
    content_type: str | None = None
    application_properties: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Decoder:
    """A function that reads bodies, and the type of its values.

    Args:
        read: takes the bytes of a body and the :class:`Labels` of its message, and returns a value as JSON has them,
            with bytes, decimals and times beside; None for a body of another format. It raises on a damaged body.
        schema: the Arrow type of the values, which Spark needs.
        is_exact: True where the values are of this type by construction.
    """

    read: Callable[[bytes, Labels], Any]
    schema: pa.DataType | None = None
    is_exact: bool = False


def decoder_of(function: Decoder | Callable[..., Any], schema: pa.Schema | pa.DataType | None = None) -> Decoder:
    if isinstance(function, Decoder):
        return function
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    try:
        needed = [each for each in signature(function).parameters.values() if each.kind in kinds]
    except (TypeError, ValueError):  # of some functions in C, Python knows no arguments
        needed = []
    takes_labels = len([each for each in needed if each.default is Parameter.empty]) > 1
    kind: Any = pa.struct([*cast("Any", schema)]) if isinstance(schema, pa.Schema) else schema
    return Decoder(function if takes_labels else _OfBody(function), kind)


@dataclass(frozen=True, slots=True)
class _OfBody:
    function: Callable[[bytes], Any]

    def __call__(self, body: bytes, labels: Labels) -> Any:
        del labels
        return self.function(body)


class Decoding:
    def __init__(
        self, decoder: Decoder, seconds: float = DECODING_SECONDS_OF_TABLE, clock: Callable[[], float] = thread_time
    ) -> None:
        self._decoder = decoder
        self._left = seconds
        self._clock = clock
        self._unpacking = Allowance(UNPACKED_BYTES_OF_TABLE)

    def table(self, table: pa.Table) -> pa.Table:
        """Return a table of messages with the decoded bodies as its texts, in JSON, and a column ``decode_error``."""
        untyped: Any = table
        found = [*self._values(untyped, json_of)]
        texts, errors = [text for text, _ in found], [error for _, error in found]
        before = untyped.column("body_text").combine_chunks()
        decoded = array_of_values(texts, pa.string())
        place = untyped.schema.get_field_index("body_text")
        done = untyped.set_column(place, "body_text", _kernels.coalesce(decoded, before))
        if DECODE_ERROR in done.column_names:
            done = done.drop_columns([DECODE_ERROR])
        return done.append_column(DECODE_ERROR, array_of_values(errors, pa.string()))

    async def tables(self, tables: AsyncGenerator[pa.Table]) -> AsyncGenerator[pa.Table]:
        """Yield tables as :meth:`table` does, decoded in another thread; the first has no rows."""
        async with aclosing(tables):
            yield self.table(to_arrow(()))
            async for table in tables:
                yield await anyio.to_thread.run_sync(self.table, table)

    def columns(self, batch: pa.RecordBatch, kind: pa.DataType) -> tuple[Any, Any]:
        found = [*self._values(batch, lambda value: value)]
        values, errors = [value for value, _ in found], [error for _, error in found]
        if self._decoder.is_exact:
            try:
                return pa.array(values, type=kind), array_of_values(errors, pa.string())
            except (pa.ArrowException, OverflowError, TypeError, ValueError):
                pass  # one of them does not fit: below, each by itself
        for place, value in enumerate(values):
            try:
                values[place] = _fitted(value, kind)
                pa.array([values[place]], type=kind)
            except Exception as fault:  # noqa: BLE001 (of one body)
                values[place], errors[place] = None, _said(fault)
        return pa.array(values, type=kind), array_of_values(errors, pa.string())

    def _values(self, rows: Any, made: Callable[[Any], Any]) -> Iterator[tuple[Any, str | None]]:
        read, started = self._decoder.read, self._clock()
        for place, (body, labels) in enumerate(self._bodies(rows)):
            if not place % _TIMED:
                now = self._clock()
                self._left, started = self._left - (now - started), now
            if self._left <= 0:
                yield None, "not decoded: the time for the bodies of a table is spent"
                continue
            try:
                if isinstance(body, str):
                    found = None, body
                else:
                    value = read(body, labels)
                    found = None if value is None else made(value), None
            except BaseException as error:  # noqa: BLE001 (of one body; sys.exit() would end the loop of all calls)
                let_interrupt_pass(error)
                found = None, _said(error)
            yield found

    def _bodies(self, rows: Any) -> Iterator[tuple[bytes | str, Labels]]:
        """Yield the bytes of each body without its packing, or why there are none, and its labels."""
        columns = {name: rows.column(name) for name in NEEDED}
        bodies, subjects, types, encodings = (
            columns[name].to_pylist() for name in ("body", "subject", "content_type", "content_encoding")
        )
        kinds = columns["body_type"].to_pylist()
        properties: Any = self._properties(columns["application_properties"], len(bodies))
        for body, subject, kind, encoding, own, body_type in zip(
            bodies, subjects, types, encodings, properties, kinds, strict=True
        ):
            labels = Labels(subject, kind, own)
            is_plain = encoding is None and not own and body_type == "data" and not _says_packed(kind)
            if is_plain and body[:1] not in _PACKED:
                yield body if len(body) <= DECODED_BYTES else _too_large(body), labels
            else:
                yield self._unpacked(body or b"", Marks(BodyType(body_type or "data"), kind, encoding, own)), labels

    def _properties(self, column: Any, count: int) -> list[dict[str, str]]:
        """Return the properties of each message; nothing where neither decoder nor packing can depend on them."""
        if isinstance(self._decoder.read, _OfBody) or self._decoder.is_exact:
            held: Any = column.combine_chunks() if hasattr(column, "combine_chunks") else column
            names = _kernels.utf8_lower(held.keys)
            if not _kernels.any(_kernels.is_in(names, array_of_values([*PACKING_PROPERTIES], pa.string()))).as_py():
                return [dict[str, str]()] * count
        rows: list[Any] = column.to_pylist()
        return [dict(pairs or ()) for pairs in rows]

    def _unpacked(self, body: bytes, marks: Marks) -> bytes | str:
        found, note = inner_bytes(body, marks, self._unpacking)
        if found is None:
            return "the body is a text or an AMQP value, not bytes"
        return _too_large(found) if note or len(found) > DECODED_BYTES else found


def columns_of(decoding: Decoding | None) -> pa.Table:
    return to_arrow(()) if decoding is None else decoding.table(to_arrow(()))


@lru_cache(maxsize=256)
def _says_packed(content_type: str | None) -> bool:
    return content_type is not None and bool(Marks(content_type=content_type).packings)


def _too_large(body: bytes) -> str:
    return f"the body has {len(body):,} bytes, and at most {DECODED_BYTES:,} are decoded"


def _said(error: BaseException) -> str:
    # The text of an error may quote the message.
    text = str(error) if isinstance(error, UndecodableError) else f"{type(error).__name__}: {error}"
    return printable(" ".join(text.split())[:200])


# ------------------------------------------------------------ values as JSON


def json_of(value: Any) -> str:
    r"""Return a value as JSON; decimals, bytes, times and not-a-number become texts.

    Example:
        >>> json_of({"key": b"\x00", "rate": float("nan")})
        '{"key":"AA==","rate":"NaN"}'
    """
    try:
        text = _ENCODE(value)
    except ValueError as error:
        if "JSON compliant" not in str(error):
            raise
        text = _ENCODE(_without_constants(value))
    except RecursionError:
        raise UndecodableError("the value is nested too deep for JSON") from None
    if len(text) > PARSED_CHARACTERS:
        raise UndecodableError(
            f"the value has {len(text):,} characters as JSON, and at most {PARSED_CHARACTERS:,} are read"
        )
    return text


def _text_of(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return str(value)


_ENCODE: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False, default=_text_of
).encode


def _without_constants(value: Any) -> Any:
    """Return a value with texts for what JSON does not have, as in the JSON of Protobuf."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _without_constants(each) for name, each in cast("dict[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_without_constants(each) for each in cast("Sequence[Any]", value)]
    return value


# ------------------------------------------------------------ values as Arrow


def _fitted(value: Any, kind: Any) -> Any:
    """Return a value for an array of a type: a text column takes any value as JSON, and no number is cut."""
    types: Any = pa.types
    if value is None:
        return None
    if types.is_struct(kind):
        if not isinstance(value, Mapping):
            raise UndecodableError(f"the value is {type(value).__name__}, and its schema says a struct")
        members = cast("Mapping[Any, Any]", value)
        return {field.name: _fitted(members.get(field.name), field.type) for field in kind}
    if types.is_map(kind):
        untyped: Any = value
        pairs: Any = untyped.items() if hasattr(untyped, "items") else untyped
        return [(_fitted(name, kind.key_type), _fitted(each, kind.item_type)) for name, each in pairs]
    if types.is_list(kind):
        if not isinstance(value, (list, tuple)):
            raise UndecodableError(f"the value is {type(value).__name__}, and its schema says a list")
        return [_fitted(each, kind.value_type) for each in cast("Sequence[Any]", value)]
    return _fitted_scalar(value, kind, types)


def _fitted_scalar(value: Any, kind: Any, types: Any) -> Any:
    if types.is_string(kind) and not isinstance(value, str):
        return json_of(value) if isinstance(value, (dict, list, tuple, bool, int, float)) else _text_of(value)
    if types.is_integer(kind) and not (isinstance(value, int) and not isinstance(value, bool)):
        raise UndecodableError(f"the value {value!r:.40} is not a whole number, and its schema says {kind}")
    return value
