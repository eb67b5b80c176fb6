"""Bodies of 256 KB that attack the decoders: the process lives, and each body costs little."""

# ruff: noqa: S311 (the chance has no secrets)

from __future__ import annotations

import random
import resource
import time
from io import BytesIO
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, struct_pb2

from sbnotebook.analysis.avro_bodies import avro_decoder
from sbnotebook.analysis.decoders import Decoder, Decoding
from sbnotebook.analysis.frames import to_arrow
from sbnotebook.analysis.json_columns import schemas_of
from sbnotebook.analysis.protobuf_bodies import protobuf_decoder
from sbnotebook.model import Message
from tests.chances import SEED, rounds

SIZE = 256 * 1024
SECONDS, MEGABYTES = 2.0, 150.0
COUNT = rounds(15, 2_000)
library: Any = fastavro
NODE: Any = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "next", "type": ["null", "Node"]},
        {"name": "all", "type": {"type": "array", "items": "Node"}},
        {"name": "named", "type": {"type": "map", "values": "Node"}},
    ],
}
ORDER: Any = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "fare", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "flags", "type": {"type": "array", "items": ["null", "boolean"]}},
        {"name": "lists", "type": {"type": "array", "items": {"type": "array", "items": "int"}}},
        {"name": "names", "type": {"type": "map", "values": ["null", "double", "string"]}},
    ],
}


def written(schema: Any, value: Any) -> bytes:
    sink = BytesIO()
    library.schemaless_writer(sink, library.parse_schema(schema), value)
    return sink.getvalue()


GOOD = written(
    ORDER,
    {
        "id": "x",
        "at": 1,
        "fare": b"\x05",
        "kind": "A",
        "flags": [None, True],
        "lists": [[1], []],
        "names": {"a": 1.5, "b": "c"},
    },
)
DECODERS: dict[str, tuple[Decoder, bytes]] = {
    "avro": (avro_decoder(ORDER), GOOD),
    "avro, a type within itself": (avro_decoder(NODE), written(NODE, {"next": None, "all": [], "named": {}})),
    "avro, a list": (avro_decoder({"type": "array", "items": {"type": "array", "items": "boolean"}}), b"\x02\0\0"),
    "protobuf, a type within itself": (
        protobuf_decoder(descriptor_pb2.DescriptorProto),
        descriptor_pb2.DescriptorProto(
            name="a", field=[descriptor_pb2.FieldDescriptorProto(name="b")]
        ).SerializeToString(),
    ),
    "protobuf, any value": (protobuf_decoder(struct_pb2.Value), struct_pb2.Value(string_value="x").SerializeToString()),
}
REPEATED = (
    b"\0",
    b"\x01",
    b"\x02",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\x02\x02",
    b"\x0a\x00",
    b"\x22\x80",
    b"\x32\x02\x0a\x00",
)


def memory() -> int:
    """Bytes that this process has had at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def attacks(good: bytes, seed: int) -> list[bytes]:
    """Bodies of one byte over and over, and a good one with damage."""
    chance = random.Random(seed)
    bodies = [(each * SIZE)[:SIZE] for each in REPEATED] + [
        good + (each * SIZE)[: SIZE - len(good)] for each in REPEATED
    ]
    for _ in range(COUNT):
        body = bytearray(good * chance.choice((1, 1, 50)))
        for _ in range(chance.randint(1, 4)):
            body[chance.randrange(len(body))] = chance.choice((0, 1, 2, 127, 128, 255, chance.randrange(256)))
        bodies.append(bytes(body))
    return bodies


@pytest.mark.parametrize("name", DECODERS)
def test_hostile_bodies_neither_end_the_process_nor_cost_much(name: str) -> None:
    decoder, good = DECODERS[name]
    kind: Any = decoder.schema
    for body in attacks(good, SEED):
        table = to_arrow([Message(body=body), Message(body=good)])
        before, started = memory(), time.process_time()
        decoded: Any = Decoding(decoder).table(table)
        _, errors = Decoding(decoder).columns(table.to_batches()[0], kind)
        schemas_of(decoded).as_text()
        what = f"{name}, seed {SEED}: {body[:40].hex()}, {len(body):,} bytes"
        assert time.process_time() - started < SECONDS, what
        assert memory() - before < MEGABYTES * 2**20, what
        assert decoded["decode_error"].to_pylist()[1] is None, what
        assert errors.to_pylist()[1] is None, what
