"""Decode bodies in Avro, as sbnotebook and as fastavro alone: ratios in one run, in turns."""

from __future__ import annotations

from io import BytesIO
from time import process_time
from typing import TYPE_CHECKING, Any, Final

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

from benchmarks.results import Result
from sbnotebook.analysis.avro_bodies import avro_decoder
from sbnotebook.analysis.decoders import Decoding, Labels
from sbnotebook.analysis.frames import to_arrow
from sbnotebook.model import Message

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["measure"]

_COUNT: Final = 20_000
_TURNS: Final = 7
_MOST: Final = 1.3
_LEG: Final = {
    "type": "record",
    "name": "Leg",
    "fields": [{"name": "from", "type": "string"}, {"name": "to", "type": "string"}, {"name": "miles", "type": "int"}],
}
_ORDER: Final = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "customer", "type": "long"},
        {"name": "total", "type": "double"},
        {"name": "carrier", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "legs", "type": {"type": "array", "items": _LEG}},
    ],
}
_library: Final[Any] = fastavro


def _bodies() -> list[bytes]:
    schema = _library.parse_schema(_ORDER)
    head = b"\xc3\x01" + bytes.fromhex(fingerprint(to_parsing_canonical_form(_ORDER), "CRC-64-AVRO"))
    bodies: list[bytes] = []
    for number in range(_COUNT):
        legs = [{"from": "OSL", "to": "SFO", "miles": number}, {"from": "SFO", "to": "OSL", "miles": number}]
        order = {
            "id": f"order-{number}",
            "customer": number,
            "total": number / 7,
            "carrier": "UA",
            "at": 1,
            "legs": legs,
        }
        sink = BytesIO(head)
        sink.seek(len(head))
        _library.schemaless_writer(sink, schema, order)
        bodies.append(sink.getvalue())
    return bodies


def measure() -> list[Result]:
    """Measure the values of bodies, and their texts in a table."""
    bodies = _bodies()
    schema, read = _library.parse_schema(_ORDER), _library.schemaless_reader
    decoder, labels = avro_decoder(_ORDER), Labels(None, None, {})
    table = to_arrow([Message(body=body) for body in bodies])

    def alone() -> None:
        for body in bodies:
            read(BytesIO(body[10:]), schema)

    def values() -> None:
        for body in bodies:
            decoder.read(body, labels)

    def texts() -> None:
        Decoding(decoder).table(table)

    times: dict[str, list[float]] = {"fastavro alone": [], "values": [], "texts of a table": []}
    for _ in range(_TURNS):
        for name, work in zip(times, (alone, values, texts), strict=True):
            times[name].append(_seconds(work))
    own, value, text = (min(each) for each in times.values())
    return [
        Result(
            f"Decode {_COUNT:,} bodies in Avro, single objects of {len(bodies[0])} bytes, to Python values",
            f"{value / own:.2f} x the time of fastavro alone",
            f"{_MOST} x",
            value / own <= _MOST,
        ),
        Result("The same to the JSON texts of a table", f"{text / own:.2f} x the time of fastavro alone"),
    ]


def _seconds(work: Callable[[], None]) -> float:
    started = process_time()
    work()
    return process_time() - started
