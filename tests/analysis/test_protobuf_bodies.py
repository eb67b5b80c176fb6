"""Bodies that Google's library wrote, and bodies of senders that mean harm."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2

from sbnotebook.analysis.decoders import Labels, UndecodableError, json_of
from sbnotebook.analysis.protobuf_bodies import protobuf_decoder
from sbnotebook.errors import ConfigurationError

NOTHING = Labels(None, None, {})
_FIELD: Any = descriptor_pb2.FieldDescriptorProto
_FILE: Any = descriptor_pb2.FileDescriptorProto


def _field(name: str, number: int, kind: str, of: str = "", *, many: bool = False, optional: bool = False) -> Any:
    made = _FIELD(name=name, number=number, type=_FIELD.Type.Value(f"TYPE_{kind}"), type_name=of or None)
    made.label = _FIELD.LABEL_REPEATED if many else _FIELD.LABEL_OPTIONAL
    if optional:
        made.proto3_optional, made.oneof_index = True, 0
    return made


def _shop() -> Any:
    """Describe the messages that ``protoc`` would read from a file."""
    file = _FILE(name="shop.proto", package="shop", syntax="proto3", dependency=[timestamp_pb2.DESCRIPTOR.name])
    file.message_type.add(name="Leg", field=[_field("to", 1, "STRING"), _field("then", 2, "MESSAGE", ".shop.Leg")])
    order = file.message_type.add(name="Order")
    order.oneof_decl.add(name="_gift")
    order.nested_type.add(
        name="RatesEntry",
        field=[_field("key", 1, "INT32"), _field("value", 2, "DOUBLE")],
        options=descriptor_pb2.MessageOptions(map_entry=True),
    )
    order.field.extend(
        [
            _field("id", 1, "INT64"),
            _field("carrier", 2, "ENUM", ".shop.Carrier"),
            _field("gift", 3, "STRING", optional=True),
            _field("at", 4, "MESSAGE", ".google.protobuf.Timestamp"),
            _field("legs", 5, "MESSAGE", ".shop.Leg", many=True),
            _field("rates", 6, "MESSAGE", ".shop.Order.RatesEntry", many=True),
            _field("hash", 7, "BYTES"),
            _field("total", 8, "UINT64"),
        ]
    )
    carrier = file.enum_type.add(name="Carrier")
    carrier.value.add(name="UNKNOWN", number=0)
    carrier.value.add(name="UA", number=1)
    return file


def _files() -> bytes:
    held = _FILE()
    timestamp_pb2.DESCRIPTOR.CopyToProto(held)
    return descriptor_pb2.FileDescriptorSet(file=[held, _shop()]).SerializeToString()


FILES = _files()


def _class() -> Any:
    pool: Any = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(FILES).file:
        pool.AddSerializedFile(file.SerializeToString())
    factory: Any = message_factory
    return factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


ORDER: Any = _class()
BODY: bytes = ORDER(
    id=7,
    carrier=1,
    at={"seconds": 1_767_225_600},
    legs=[{"to": "Oslo"}],
    rates={5: 1.5},
    hash=b"ab",
).SerializeToString()
READ = {
    "id": 7,
    "carrier": "UA",
    "at": datetime(2026, 1, 1, tzinfo=UTC),
    "legs": [{"to": "Oslo"}],
    "rates": {"5": 1.5},
    "hash": b"ab",
    "total": 0,
}


@pytest.mark.parametrize("frame", [b"", b"\0\0\0\0\x11\x02\x02"])
def test_a_body_is_read_with_and_without_a_frame(frame: bytes, tmp_path: Path) -> None:
    (tmp_path / "shop.desc").write_bytes(FILES)
    for decoder in (protobuf_decoder(tmp_path / "shop.desc", "shop.Order"), protobuf_decoder(ORDER)):
        assert decoder.read(frame + BODY, NOTHING) == READ
        assert pickle.loads(pickle.dumps(decoder)).read(BODY, NOTHING) == READ  # noqa: S301 (as Spark sends it)


def test_the_values_fit_the_arrow_type() -> None:
    kind = protobuf_decoder(FILES, "shop.Order").schema
    made: Any = pa.array([READ], kind)
    (row,) = made.to_pylist()
    assert (row["at"], row["gift"], row["total"]) == (READ["at"], None, 0)
    assert pa.types.is_string(cast_struct(kind)["legs"].value_type.field("then").type)  # a message within itself


def cast_struct(kind: Any) -> dict[str, Any]:
    return {field.name: field.type for field in kind}


def test_the_well_known_messages_are_plain_values() -> None:
    assert protobuf_decoder(wrappers_pb2.StringValue).read(b"\n\x02UA", NOTHING) == "UA"
    unknown = ORDER(id=1, carrier=9).SerializeToString()
    assert protobuf_decoder(ORDER).read(unknown, NOTHING)["carrier"] == 9
    assert json_of({"n": float("inf")}) == '{"n":"Infinity"}'


def deep(levels: int) -> bytes:
    body = b""
    for _ in range(levels):
        body = b"\x12" + bytes([len(body) & 127 | 128, len(body) >> 7]) + body
    return body


@pytest.mark.parametrize(
    ("name", "body", "why"),
    [
        ("shop.Order", BODY[:-1], "is not a shop.Order"),
        ("shop.Order", b"\xff" * 20, "is not a shop.Order"),
        ("shop.Order", b"\xa2\x06\x01x", "has no field of shop.Order"),
        ("shop.Order", b"\0\0\0\0\x11\0" + BODY, "names the message 0 of its file"),
        ("shop.Order", b"\0\0\0\0\x11" + b"\xff" * 9, "frame is damaged"),
        ("shop.Order", b"\0\0", "frame is damaged"),
        ("shop.Leg", deep(200), "is not a shop.Leg"),
    ],
)
def test_a_body_that_cannot_be_read_says_why(name: str, body: bytes, why: str) -> None:
    with pytest.raises(UndecodableError, match=why):
        protobuf_decoder(FILES, name).read(body, NOTHING)


def test_what_cannot_be_used_is_refused(tmp_path: Path) -> None:
    lacks = descriptor_pb2.FileDescriptorSet(file=[_shop()]).SerializeToString()
    for source, message, why in (
        (FILES, "shop.Ordr", "did you mean shop.Order"),
        (FILES, None, "one of shop.Leg, shop.Order"),
        (lacks, "shop.Order", "--include_imports"),
        (b"\xff", "shop.Order", "is not a descriptor set"),
        (tmp_path / "none.desc", "shop.Order", "cannot be read"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            protobuf_decoder(source, message)
