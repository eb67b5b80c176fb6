"""Decode bodies in Avro with fastavro: plain ones, those of single objects, and those framed by a schema registry.

| frame | how the schema is known | source |
|---|---|---|
| single object | the bytes C3 01, and the CRC-64-AVRO fingerprint of the schema | Avro 1.12, "Single-object encoding" |
| registry | a byte 0 and four bytes, the ID | Confluent, "Wire format" |
| Azure Schema Registry | the content type ``avro/binary+ID`` | Azure SDK, ``AvroEncoder`` |
| none | the only schema | |

fastavro is given only schemas with which a hostile body cannot hold up or end the process. Its reader in C ends the
process at a few thousand levels, so a schema that refers to itself is read by its reader in Python. An array of values
that take no bytes, of which six bytes can ask for 2**60, is refused. Decimals of many digits take time that grows with
their square, and are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa

from sbnotebook.analysis.decoders import Decoder, Labels, UndecodableError
from sbnotebook.errors import ConfigurationError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Sequence

AvroSchema = str | Path | Mapping[str, Any] | list[Any]
"""A schema: its file, its JSON, or its parsed JSON."""
_SINGLE_OBJECT: Final = b"\xc3\x01"
_SINGLE_HEADER: Final = 10
_REGISTRY_HEADER: Final = 5
_CONTENT_TYPE: Final = re.compile(r"avro/binary\+([0-9A-Za-z]{1,64})")
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{16}")
_ID: Final = re.compile(r"[0-9a-f]{16}(?:[0-9a-f]{16})?")
_MOST_DIGITS: Final = 38
"""Digits of a decimal, as many as Arrow and Spark have."""
_EXACT: Final = Context(prec=100)
_SCALARS: Final[dict[str, Any]] = {
    "null": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_DECIMAL: Final = "sbnotebook-decimal"
_TIME: Final = "sbnotebook-time"
_LOGICAL: Final[dict[tuple[str, Any], tuple[str, Any]]] = {
    ("bytes", "decimal"): (_DECIMAL, None),
    ("fixed", "decimal"): (_DECIMAL, None),
    ("int", "date"): ("date", pa.date32()),
    ("int", "time-millis"): (_TIME, pa.string()),
    ("long", "time-micros"): (_TIME, pa.string()),
    **{
        ("long", f"timestamp-{unit}"): (f"timestamp-{unit}", pa.timestamp("us", tz="UTC"))
        for unit in ("millis", "micros")
    },
    **{
        ("long", f"local-timestamp-{unit}"): (f"local-timestamp-{unit}", pa.timestamp("us"))
        for unit in ("millis", "micros")
    },
}
"""The logical types that are read, by our names, with their Arrow types; of all others the plain value is shown."""
_RECORDS: Final = ("record", "error")
_MOST_RECURSIVE: Final = 64 * 1024
"""Bytes of a body of a type within itself: the time for a long number grows with its square in Python."""


def avro_decoder(schemas: AvroSchema | Mapping[Any, AvroSchema]) -> Decoder:
    r"""Make a decoder of bodies in Avro.

    Bodies may be plain, single objects with a fingerprint, or framed by a schema registry. Where several schemas are
    given, the values have the fields of all of them, and a field that a body does not have is null.

    Args:
        schemas: one schema, as the path of its file, as JSON, or as parsed JSON. Or several by their IDs in the
            registry: whole numbers, or the 32 hexadecimal digits of Azure Schema Registry. A folder holds one file for
            each ID, such as ``17.avsc``. Every schema is also known by its fingerprint.

    Returns:
        The decoder, for :func:`decoder` and ``decode=``.

    Raises:
        ConfigurationError: a schema is wrong, or a body could hold up the process with it.
        MissingExtraError: the extra ``avro`` is missing.

    Example:
        >>> order = {"type": "record", "name": "Order", "fields": [{"name": "carrier", "type": "string"}]}
        >>> avro_decoder({17: order}).read(b"\0\0\0\0\x11\x04UA", Labels())
        {'carrier': 'UA'}
    """
    try:
        import fastavro
    except ImportError:
        raise MissingExtraError("A decoder of Avro", "avro") from None

    del fastavro
    bodies = AvroBodies(_given(schemas))
    return Decoder(bodies, bodies.schema, is_exact=True)


def _given(schemas: Any) -> Sequence[tuple[int | str | None, Any]]:
    given: Sequence[tuple[int | str | None, Any]]
    if isinstance(schemas, Mapping) and "type" not in schemas:
        by_id = cast("Mapping[Any, AvroSchema]", schemas)
        given = [(_id_of(key), _schema_of(schema)) for key, schema in by_id.items()]
    elif isinstance(schemas, (str, Path)) and not str(schemas).lstrip().startswith(("{", "[", '"')):
        place = Path(schemas).expanduser()
        files = sorted(place.glob("*.avsc")) if place.is_dir() else []
        given = [(_id_of(file.stem), _schema_of(file)) for file in files] or [(None, _schema_of(place))]
    else:
        given = [(None, _schema_of(cast("Any", schemas)))]
    if not given:
        raise ConfigurationError("A decoder of Avro needs a schema: give its file, or schemas by their IDs.")
    return given


def _id_of(key: object) -> int | str:
    text = str(key).strip().lower().replace("-", "")
    if text.isdecimal() and len(text) <= len(str(2**32)):
        return int(text)
    if _ID.fullmatch(text):
        return text
    raise ConfigurationError(
        f"{str(key)[:80]!r} is not an ID of a schema: give the number of a registry, 32 hexadecimal digits of Azure "
        "Schema Registry, or the 16 of a fingerprint."
    )


def _schema_of(given: AvroSchema) -> Any:
    if not isinstance(given, (str, Path)):
        return given
    text = str(given)
    if isinstance(given, Path) or not text.lstrip().startswith(("{", "[", '"')):
        try:
            text = Path(given).expanduser().read_text()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise ConfigurationError(f"The schema {text[:200]!r} cannot be read: {why}.") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"A schema of Avro is JSON, and this is not ({error}): {text[:80]!r}.") from None


class AvroBodies:
    def __init__(self, schemas: Sequence[tuple[int | str | None, Any]]) -> None:
        import fastavro
        from fastavro import _read_py, read
        from fastavro.schema import expand_schema, fingerprint, parse_schema, to_parsing_canonical_form

        modules: tuple[Any, ...] = (read, _read_py)
        for readers in (each.LOGICAL_READERS for each in modules):
            # By names that no other code has.
            readers |= {f"{kind}-{_DECIMAL}": _read_decimal for kind in ("bytes", "fixed")}
            for kind, name in (("int", "time-millis"), ("long", "time-micros")):
                readers[f"{kind}-{_TIME}"] = partial(_read_time, readers[f"{kind}-{name}"])
        self._schemas = tuple(schemas)
        self._by_id: dict[int | str, Callable[[BytesIO], Any]] = {}
        self._by_fingerprint: dict[bytes, Callable[[BytesIO], Any]] = {}
        kinds: list[Any] = []
        for key, schema in schemas:
            try:
                marker = bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))
                prepared = _prepared(schema)
                parsed, whole = parse_schema(prepared), expand_schema(prepared)
            except Exception as error:  # noqa: BLE001 (fastavro has several for a wrong schema)
                raise ConfigurationError(f"A schema of Avro is wrong: {str(error)[:200]}.") from None
            within = set[str]()
            kinds.append(_type_of(whole, within))
            # The reader in C has no limit of levels, and ends the process where its stack ends.
            module: Any = _read_py if within else fastavro
            reader = partial(_read, module.schemaless_reader, parsed, bool(within))
            self._by_fingerprint[marker] = reader
            if isinstance(key, str) and _FINGERPRINT.fullmatch(key):
                self._by_fingerprint[bytes.fromhex(key)] = reader
            elif key is not None:
                self._by_id[key] = reader
        self._plain = next(iter(self._by_fingerprint.values())) if len(self._schemas) == 1 else None
        self.schema = _merged(kinds)

    def __reduce__(self) -> tuple[type[AvroBodies], tuple[Any, ...]]:
        """Return how to make it again, on a worker of Spark."""
        return AvroBodies, (self._schemas,)

    def __call__(self, body: bytes, labels: Labels) -> Any:
        read, start = self._plain, 0
        kind = labels.content_type
        if body[:2] == _SINGLE_OBJECT:
            read, start = self._by_fingerprint.get(body[2:_SINGLE_HEADER]), _SINGLE_HEADER
            if read is None:
                raise UndecodableError(f"no schema has the fingerprint {body[2:_SINGLE_HEADER].hex()}")
        elif self._by_id and (kind is not None or body[:1] == b"\0"):
            read, start = self._framed(body, kind)
        if read is None:
            raise UndecodableError("the body has no frame that says which of the schemas it has")
        source = BytesIO(body)
        if start:
            source.seek(start)
        value = read(source)
        if source.tell() != len(body):
            raise UndecodableError(f"{len(body) - source.tell():,} bytes are left behind the value")
        return value

    def _framed(self, body: bytes, content_type: str | None) -> tuple[Callable[[BytesIO], Any] | None, int]:
        """Return the schema that the content type or a registry's frame names, and where the value begins."""
        match = _CONTENT_TYPE.match(content_type or "")
        if match is not None:
            text = match[1].lower()
            key: int | str = int(text) if text.isdecimal() and len(text) < _SINGLE_HEADER else text
            found = self._by_id.get(key)
            if found is None:
                raise UndecodableError(f"no schema has the ID {text}")
            return found, 0
        numbers = any(isinstance(key, int) for key in self._by_id)
        if body[:1] != b"\0" or len(body) < _REGISTRY_HEADER or not numbers:
            return self._plain, 0
        number = int.from_bytes(body[1:_REGISTRY_HEADER])
        found = self._by_id.get(number)
        if found is None:
            raise UndecodableError(f"no schema has the ID {number}")
        return found, _REGISTRY_HEADER


def _read(read: Any, schema: Any, is_recursive: bool, source: BytesIO) -> Any:
    if is_recursive and len(source.getbuffer()) > _MOST_RECURSIVE:
        raise UndecodableError(f"a body of a type within itself has at most {_MOST_RECURSIVE:,} bytes")
    try:
        return read(source, schema, None)
    except EOFError:
        raise UndecodableError("the body ends in the middle of the value") from None
    except RecursionError:
        raise UndecodableError("the value is nested too deep") from None


def _read_decimal(data: bytes, writer_schema: Any = None, _: Any = None) -> Decimal:
    number = int.from_bytes(data[: _MOST_DIGITS + 1], signed=True)
    if len(data) > _MOST_DIGITS or len(str(abs(number))) > _MOST_DIGITS:
        raise UndecodableError(f"a decimal has more than {_MOST_DIGITS} digits")
    return Decimal(number).scaleb(-writer_schema.get("scale", 0), _EXACT)


def _read_time(read: Any, data: Any, writer_schema: Any = None, reader_schema: Any = None) -> str:
    return read(data, writer_schema, reader_schema).isoformat()


# ------------------------------------------------------------ schemas


def _prepared(schema: Any) -> Any:
    """Return a schema with the logical types that are read safely."""
    if isinstance(schema, list):
        return [_prepared(each) for each in cast("list[Any]", schema)]
    if not isinstance(schema, Mapping):
        return schema
    of = dict(cast("Mapping[str, Any]", schema))
    kind, logical = of.get("type"), of.pop("logicalType", None)
    if isinstance(kind, str) and (kind, logical) in _LOGICAL:
        of["logicalType"] = _LOGICAL[kind, logical][0]
    for name in ("items", "values", "type"):
        if isinstance(of.get(name), (dict, list)):
            of[name] = _prepared(of[name])
    if "fields" in of:
        of["fields"] = [{**field, "type": _prepared(field["type"])} for field in of["fields"]]
    return of


def _type_of(schema: Any, within: set[str]) -> Any:
    """Return the Arrow type of the values of an expanded schema; JSON for a union, and for a type within itself.

    Only a type within itself has its name in an expanded schema; the names are added to a set. An array of values that
    take no bytes is refused: a few bytes can ask for any number of them.
    """
    if isinstance(schema, list):
        branches = [each for each in cast("list[Any]", schema) if each not in ("null", {"type": "null"})]
        kinds = [_type_of(each, within) for each in branches]
        return kinds[0] if len(kinds) == 1 else pa.string()
    if isinstance(schema, str):
        within |= {schema} - _SCALARS.keys()
        return _SCALARS.get(schema, pa.string())
    kind = schema["type"]
    if kind == "array":
        if _takes_no_bytes(schema["items"]):
            raise ConfigurationError(
                "A schema of Avro has an array of values that take no bytes: a few bytes could ask for any number "
                "of them, so it is refused."
            )
        return pa.list_(_type_of(schema["items"], within))
    if kind == "map":
        return pa.map_(pa.string(), _type_of(schema["values"], within))
    if kind in _RECORDS:
        return pa.struct([(field["name"], _type_of(field["type"], within)) for field in schema["fields"]])
    return _scalar(schema, kind) if isinstance(kind, str) and kind in _SCALARS else _type_of(kind, within)


def _scalar(schema: Any, kind: str) -> Any:
    logical = schema.get("logicalType")
    if logical == _DECIMAL:
        return pa.decimal128(min(int(schema.get("precision", _MOST_DIGITS)), _MOST_DIGITS), schema.get("scale", 0))
    return next((kind_ for name, kind_ in _LOGICAL.values() if name == logical), _SCALARS[kind])


def _takes_no_bytes(schema: Any) -> bool:
    if isinstance(schema, list):
        return False
    if isinstance(schema, str):  # a type within itself has a union, an array or a map, which take some
        return schema == "null"
    kind = schema["type"]
    if kind in _RECORDS:
        return all(_takes_no_bytes(field["type"]) for field in schema["fields"])
    if kind == "fixed":
        return not schema["size"]
    return kind not in ("array", "map", "enum") and _takes_no_bytes(kind)


def _merged(kinds: Sequence[Any]) -> Any:
    """Return a type for the values of several schemas: structs have the fields of all of them."""
    first = kinds[0]
    if all(kind == first for kind in kinds):
        return first
    if not all(pa.types.is_struct(kind) for kind in kinds):
        return pa.string()
    fields: dict[str, list[Any]] = {}
    for kind in kinds:
        for field in kind:
            fields.setdefault(field.name, []).append(field.type)
    return pa.struct([(name, _merged(found)) for name, found in fields.items()])
