"""Bodies that fastavro wrote, in each frame, and bodies of senders that mean harm."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from fastavro.schema import fingerprint, to_parsing_canonical_form

from sbnotebook.analysis.avro_bodies import avro_decoder
from sbnotebook.analysis.decoders import Labels, UndecodableError
from sbnotebook.errors import ConfigurationError

untyped: Any = fastavro
NOTHING = Labels(None, None, {})
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "due", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "fare", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "carrier", "type": ["null", {"type": "enum", "name": "Carrier", "symbols": ["UA", "DL"]}]},
        {"name": "other", "type": ["null", "Carrier"]},
        {"name": "key", "type": ["int", "string"]},
        {"name": "rates", "type": {"type": "map", "values": "double"}},
        {
            "name": "legs",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Leg", "fields": [{"name": "to", "type": "string"}]},
            },
        },
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
    ],
}
VALUE: dict[str, Any] = {
    "id": UUID(int=7),
    "at": datetime(2026, 1, 2, 3, tzinfo=UTC),
    "day": date(2026, 1, 2),
    "due": time(12, 30),
    "fare": Decimal("1.10"),
    "carrier": "UA",
    "other": None,
    "key": "x",
    "rates": {"EUR": 1.5},
    "legs": [{"to": "Oslo"}],
    "hash": b"ab",
}
READ = VALUE | {"id": str(UUID(int=7)), "due": "12:30:00"}
NODE: dict[str, Any] = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


def written(schema: Any, value: Any) -> bytes:
    sink = BytesIO()
    untyped.schemaless_writer(sink, untyped.parse_schema(schema), value)
    return sink.getvalue()


BODY = written(ORDER, VALUE)
FINGERPRINT = bytes.fromhex(fingerprint(to_parsing_canonical_form(ORDER), "CRC-64-AVRO"))
AZURE_ID = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("schemas", "body", "content_type"),
    [
        (ORDER, BODY, None),
        (ORDER, b"\xc3\x01" + FINGERPRINT + BODY, None),
        ({17: ORDER, 18: NODE}, b"\0\0\0\0\x11" + BODY, None),
        ({17: ORDER, 18: NODE}, b"\xc3\x01" + FINGERPRINT + BODY, None),
        ({AZURE_ID: ORDER, 18: NODE}, BODY, f"avro/binary+{AZURE_ID}"),
        (ORDER, BODY, f"avro/binary+{AZURE_ID}"),
        ({FINGERPRINT.hex(): ORDER}, BODY, "application/avro"),
    ],
)
def test_a_body_is_read_in_each_frame(schemas: Any, body: bytes, content_type: str | None) -> None:
    decoder = avro_decoder(schemas)
    labels = Labels(None, content_type, {})
    assert decoder.read(body, labels) == READ
    assert pickle.loads(pickle.dumps(decoder)).read(body, labels) == READ  # noqa: S301 (as Spark sends it)


def test_the_values_fit_the_arrow_type() -> None:
    kind = avro_decoder(ORDER).schema
    made: Any = pa.array([READ], kind)
    assert made.to_pylist() == [READ | {"rates": [("EUR", 1.5)]}]
    assert avro_decoder(NODE).schema == pa.struct([("next", pa.string())])


def test_several_schemas_give_the_fields_of_all() -> None:
    one = {"type": "record", "name": "A", "fields": [{"name": "a", "type": "int"}, {"name": "c", "type": "int"}]}
    two = {"type": "record", "name": "B", "fields": [{"name": "b", "type": "int"}, {"name": "c", "type": "string"}]}
    kind = avro_decoder({1: one, 2: two}).schema
    assert kind == pa.struct([("a", pa.int32()), ("c", pa.string()), ("b", pa.int32())])


def test_schemas_come_from_files(tmp_path: Path) -> None:
    text = '{"type": "record", "name": "Order", "fields": [{"name": "carrier", "type": "string"}]}'
    (tmp_path / "17.avsc").write_text(text)
    for given in (text, str(tmp_path / "17.avsc"), tmp_path):
        assert avro_decoder(given).read(b"\x04UA", NOTHING) == {"carrier": "UA"}
    assert avro_decoder(tmp_path).read(b"\0\0\0\0\x11\x04UA", NOTHING) == {"carrier": "UA"}


@pytest.mark.parametrize(
    ("schemas", "body", "content_type", "why"),
    [
        (ORDER, BODY + b"x", None, "1 bytes are left"),
        (ORDER, BODY[:-1], None, "ends in the middle"),
        (ORDER, b"", None, "ends in the middle"),
        (ORDER, b"\xc3\x01" + bytes(8) + BODY, None, "the fingerprint 0000000000000000"),
        ({17: ORDER}, b"\0\0\0\0\x12" + BODY, None, "the ID 18"),
        ({17: ORDER}, BODY, "avro/binary+99", "the ID 99"),
        ({17: ORDER, 18: NODE}, BODY, None, "no frame"),
    ],
)
def test_a_body_that_cannot_be_read_says_why(schemas: Any, body: bytes, content_type: str | None, why: str) -> None:
    with pytest.raises(UndecodableError, match=why):
        avro_decoder(schemas).read(body, Labels(None, content_type, {}))


@pytest.mark.parametrize("levels", [2_000, 60_000, 1_000_000])
def test_a_deep_body_does_not_end_the_process(levels: int) -> None:
    with pytest.raises(UndecodableError, match=r"nested too deep|at most 65,536 bytes"):
        avro_decoder(NODE).read(b"\x02" * levels + b"\0", NOTHING)


def test_a_long_decimal_takes_no_time() -> None:
    money = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    with pytest.raises(UndecodableError, match="more than 38 digits"):
        avro_decoder(money).read(b"\x80\x89\x7a" + b"\x7f" * 1_000_000, NOTHING)


EMPTY: dict[str, Any] = {"type": "record", "name": "Empty", "fields": [{"name": "n", "type": "null"}]}


@pytest.mark.parametrize(
    ("schemas", "why"),
    [
        ({"type": "array", "items": "null"}, "take no bytes"),
        ({"type": "array", "items": EMPTY}, "take no bytes"),
        ({"type": "recrd", "name": "R"}, "A schema of Avro is wrong"),
        ({"x!": ORDER}, "'x!' is not an ID of a schema"),
        ({}, "needs a schema"),
        ("{", "is JSON, and this is not"),
        ("/no/such.avsc", "cannot be read: No such file"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schemas: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        avro_decoder(schemas)
