from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sbnotebook.analysis.frames import to_arrow
from sbnotebook.model import EntityAddress, MessageState, PeekedMessage
from sbnotebook.widgets.table import row_packing as packing
from sbnotebook.widgets.table.row_packing import (
    Packet,
    Rows,
    TableColumn,
    changed_cells,
    cleaned,
    matches,
    packets,
    table_columns,
)

if TYPE_CHECKING:
    import pytest

NULL_LONG = -(2**63)
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def unpacked(packet: Packet) -> dict[str, list[Any]]:
    """What the browser makes of a packet; see columns.js."""
    data = zlib.decompress(packet.data)
    ends = list(itertools.accumulate(int(str(part["bytes"])) for part in packet.parts))
    starts = [0, *ends[:-1]]
    cells: dict[str, list[Any]] = {}
    for part, start, end in zip(packet.parts, starts, ends, strict=True):
        cells[str(part["name"])] = _values(str(part["coding"]), data[start:end], packet.count)
    return cells


def _values(coding: str, data: bytes, count: int) -> list[Any]:
    if coding == "float":
        return [None if value != value else value for value in struct.unpack(f"<{count}d", data)]  # noqa: PLR0124
    if coding == "long":
        return [None if value == NULL_LONG else value for value in struct.unpack(f"<{count}q", data)]
    if coding == "codes":
        texts = _texts(data[4 * count :])
        return [texts[code] for code in struct.unpack(f"<{count}I", data[: 4 * count])]
    return _texts(data)


def _texts(data: bytes) -> list[str | None]:
    return [None if text == "\0" else text for text in data.decode().split("\n")]


def peeked(number: int, **fields: Any) -> PeekedMessage:
    return PeekedMessage(entity=fields.pop("entity", EntityAddress.parse("orders")), sequence_number=number, **fields)


def test_every_kind_of_value_comes_out_as_it_went_in() -> None:
    table = pa.table(
        {
            "number": pa.array([1, None, -3], pa.int32()),
            "large": pa.array([2**53 + 1, None, -(2**62)]),
            "half": [0.5, None, 1.5],
            "time": pa.array([NOON, None, NOON], pa.timestamp("us", tz="UTC")),
            "flag": [True, None, False],
            "few": ["UA", None, "UA"],
            "many": ["", None, "ü€𝄞"],
            "map": pa.array([[("a", "1"), ("b", None)], None, []], pa.map_(pa.string(), pa.string())),
            "list": [[1], None, []],
        }
    )
    columns = table_columns(table.append_column("entity", pa.array(["o"] * 3)), (), table.column_names)
    assert [column.kind for column in columns[:9]] == [
        "number", "number", "number", "time", "flag", "text", "text", "text", "text",
    ]  # fmt: skip
    (packet,) = packets(table, columns[:9])
    milliseconds = NOON.timestamp() * 1000
    assert unpacked(packet) == {
        "number": [1, None, -3],
        "large": [2**53 + 1, None, -(2**62)],
        "half": [0.5, None, 1.5],
        "time": [milliseconds, None, milliseconds],
        "flag": [1, None, 0],
        "few": ["UA", None, "UA"],
        "many": ["", None, "ü€𝄞"],
        "map": ["a=1, b=", "", ""],
        "list": ["[1]", None, "[]"],
    }


def test_packed_texts_hold_no_separators() -> None:
    hostile = ["a\nb\r\n\tc", "\0", "\x1b[31m", "\u202ered", "\u2028line", "x" * 300, "ü" * 300]
    assert cleaned(pa.array(hostile)).to_pylist() == [
        "a b c", "·", "·[31m", "·red", "·line", "x" * 200, "ü" * 200,
    ]  # fmt: skip


def test_table_columns_leave_out_empty_ones() -> None:
    plain = table_columns(to_arrow([peeked(1, body=b"x"), peeked(2, body=b"y")]))
    assert [column.name for column in plain if not column.hidden] == ["sequence_number", "body_text"]
    assert [column.name for column in plain if column.hidden] == ["entity"]
    rich = table_columns(
        to_arrow([
            peeked(1, subject="UA", state=MessageState.DEFERRED, delivery_count=2, correlation_id="c"),
            peeked(2, entity=EntityAddress.parse("other"), application_properties={"a": 1}),
        ]).append_column("outcome", pa.array(["settled", None])),
        ["outcome"],
    )  # fmt: skip
    assert [column.name for column in rich if not column.hidden] == [
        "entity", "sequence_number", "state", "subject", "delivery_count", "outcome",
    ]  # fmt: skip
    assert [column.name for column in rich if column.hidden] == ["correlation_id", "application_properties"]
    chosen = table_columns(to_arrow([peeked(1, subject="UA")]), (), ["subject", "nowhere", "sequence_number"])
    assert [column.name for column in chosen if not column.hidden] == ["subject", "sequence_number"]
    assert chosen[0].message == {"name": "subject", "title": "subject", "kind": "text", "hidden": False, "late": False}


def test_few_rows_come_first_and_no_packet_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_MAX_PACKET", 4_000)
    # Bodies that cannot be compressed to nothing.
    table = to_arrow([peeked(number, body=str(number**40).encode()[:100]) for number in range(2_000)])
    columns = table_columns(table)
    found = list(packets(table, columns))
    assert found[0].count <= 500
    assert all(len(packet.data) <= 4_000 for packet in found)
    assert [packet.first for packet in found[1:]] == [packet.first + packet.count for packet in found[:-1]]
    numbers = [number for packet in found for number in unpacked(packet)["sequence_number"]]
    assert numbers == list(range(2_000))


def test_slices_of_maps_keep_their_own_values() -> None:
    known = {"DeadLetterReason": "Bad"}
    table = to_arrow([peeked(n, application_properties={"a": 1, **known, "n": n}) for n in range(1_200)])
    found = list(packets(table, [TableColumn("application_properties", "text")]))
    assert [text for packet in found for text in unpacked(packet)["application_properties"]] == [
        f"a=1, n={number}" for number in range(1_200)
    ]
    nothing_else = table_columns(to_arrow([peeked(1, application_properties=known)]))
    assert "application_properties" not in [column.name for column in nothing_else]


def test_changed_cells_fit_their_column() -> None:
    def changed(values: Sequence[object], known: TableColumn | None = None) -> tuple[str, list[Any]]:
        column, table = changed_cells("changed", values, known)
        (packet,) = packets(table, [column])
        return column.kind, unpacked(packet)["changed"]

    texts = ["settled", None, EntityAddress.parse("orders"), "two\nlines\u202e"]
    assert changed(texts) == ("text", ["settled", None, "orders", "two lines·"])
    assert changed([1, 2.5, None]) == ("number", [1.0, 2.5, None])
    assert changed([1, None, "x"], TableColumn("changed", "number")) == ("number", [None, None, None])
    assert changed([NOON, None]) == ("time", [NOON.timestamp() * 1000, None])
    assert changed([True, False]) == ("flag", [1.0, 0.0])
    assert changed([float("nan"), 1.0]) == ("number", [None, 1.0])


def test_escaped_letters_in_json_bodies_are_readable() -> None:
    name = "M\\u00fcller"
    table = to_arrow([
        peeked(1, body=f'{{"name": "{name}"}}'.encode(), subject=name),
        peeked(2, body=name.encode()),
        peeked(3, body=f'{{"fill": "{"x" * 190}", "name": "{name}"}}'.encode()),
    ])  # fmt: skip
    (packet,) = packets(table, table_columns(table))
    shown = unpacked(packet)
    assert shown["subject"][0] == name
    assert shown["body_text"][:2] == ['{"name": "Müller"}', name]
    (bits,) = matches(Rows(table).long_texts, ["müller"], len(table))
    assert bits == b"\x05"
