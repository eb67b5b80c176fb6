"""The data of the detail pane, above all for hostile messages."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from sbnotebook import EntityAddress, Message, PeekedMessage
from sbnotebook.amqp import Symbol, Timestamp, ULong
from sbnotebook.model import BodyType
from sbnotebook.widgets.table.message_detail import PART, body_part, detail_of

MEGABYTE = 1_000_000
ENTITY = EntityAddress.parse("orders/$dlq")


def peeked(body: bytes = b"", **fields: Any) -> PeekedMessage:
    return PeekedMessage(entity=ENTITY, sequence_number=7, body=body, **fields)


def views(detail: dict[str, Any]) -> dict[str, str]:
    return {view["name"]: view["text"] for view in detail["views"]}


def rows(detail: dict[str, Any]) -> dict[str, list[list[str]]]:
    return {section["title"]: section["rows"] for section in detail["sections"]}


TRACE = """\
System.InvalidOperationException: no price\u202e
   at System.Linq.ThrowHelper.ThrowNoElementsException()
   at Acme.Shop.Prices.Find(Order order) in /src/Prices.cs:line 31
   at Microsoft.Azure.Functions.Worker.Invoke()"""


def test_the_fault_dims_the_frames_of_libraries() -> None:
    properties: dict[str, Any] = {"DeadLetterReason": "Late\x1b", "DeadLetterErrorDescription": TRACE}
    fault = detail_of(peeked(application_properties=properties))["fault"]
    assert fault["reason"] == "Late⟨ESC⟩"
    assert [is_library for _, is_library in fault["lines"]] == [False, True, False, True]
    assert fault["lines"][0][0].endswith("no price⟨U+202E⟩")
    assert detail_of(peeked())["fault"] is None


def test_the_fault_of_a_hostile_description_is_small() -> None:
    for part in ("\n", "x" * 100_000, "\u202e", "at a.b(\n", "é " * 9):
        properties: dict[str, Any] = {"DeadLetterErrorDescription": part * (1_000_000 // len(part))}
        fault = detail_of(peeked(application_properties=properties))["fault"]
        assert len(json.dumps(fault)) < 100_000
        assert "… (cut, " in fault["lines"][-1][0]
        assert len(fault["lines"]) < 400


def test_properties_have_their_names_values_and_types() -> None:
    message = peeked(
        b"{}",
        message_id="m-1",
        content_type="application/json",
        enqueued_time=datetime(2026, 11, 21, 10, 30, tzinfo=UTC),
        delivery_count=10,
        time_to_live=timedelta(hours=1),
        application_properties={
            "DeadLetterReason": "Invalid",
            "carrier": "UA",
            "big": ULong(2**64 - 1),
            "when": Timestamp(0),
            "raw": b"\x00\xff",
            "nested": {"a": [1, "two"]},
            "nothing": None,
        },
        extras={"durable": True, "message_annotations": {Symbol("x-opt-own"): 5}},
    )
    detail = detail_of(message)
    assert detail["title"] == "Message 7 of orders/$dlq"
    assert detail["about"] == "2 bytes, application/json"
    assert detail["file_name"] == "orders-dlq-7.json"
    found = rows(detail)
    assert detail["fault"] == {"reason": "Invalid", "lines": []}
    assert "Dead letter" not in found
    assert found["Application properties"] == [
        ["carrier", "UA", "string"],
        ["big", "18446744073709551615", "ulong"],
        ["when", "1970-01-01T00:00:00.000+00:00", "timestamp"],
        ["raw", "00 ff", "binary"],
        ["nested", '{"a": [1, "two"]}', "map"],
        ["nothing", "", "null"],
    ]
    assert ["message_id", "m-1", ""] in found["Message"]
    assert ["time_to_live", "1:00:00", ""] in found["Message"]
    assert ["enqueued_time", "2026-11-21 10:30:00.000 UTC", ""] in found["Delivery"]
    assert ["delivery_count", "10", ""] in found["Delivery"]
    assert found["Other sections"] == [
        ["durable", "true", "boolean"],
        ["message_annotations", '{"x-opt-own": 5}', "map"],
    ]


@pytest.mark.parametrize(
    ("message", "names"),
    [
        (peeked(b'{"a": 1}'), ["JSON", "Text", "Hex"]),
        (peeked(b"\xef\xbb\xbf[1]"), ["JSON", "Text", "Hex"]),
        (peeked(b"<a><b/></a>"), ["XML", "Text", "Hex"]),
        (peeked(b"plain"), ["Text", "Hex"]),
        (peeked(b""), ["Text", "Hex"]),
        (peeked(b"\xff\xfe\x00"), ["Hex", "Text"]),
        (peeked(b"{not json"), ["Text", "Hex"]),
        (peeked(b"\x0a\x02UA\x10\x16\x00"), ["Hex", "Text"]),
        (peeked(Message.of_value([1, "a"]).body, body_type=Message.of_value(1).body_type), ["JSON", "Text", "Hex"]),
    ],
)
def test_the_view_that_reads_best_comes_first(message: PeekedMessage, names: list[str]) -> None:
    assert [view["name"] for view in detail_of(message)["views"]] == names


def test_a_body_that_only_seems_to_be_json_says_where_it_is_not() -> None:
    assert detail_of(peeked(b'{"a": }'))["notes"] == [
        "The body is not valid JSON: Expecting value in line 1, column 7."
    ]
    assert detail_of(peeked(b"hello", content_type="application/json"))["notes"][0].startswith("The body is not valid")


def test_a_value_over_the_budget_shows_its_bytes_and_says_why() -> None:
    empty_lists = b"\xd0" + (70_004).to_bytes(4) + (70_000).to_bytes(4) + b"\x45" * 70_000
    detail = detail_of(peeked(empty_lists, body_type=BodyType.VALUE))
    assert [*views(detail)] == ["Hex", "Text"]
    assert detail["notes"][0] == ("Its AMQP value could not be read: An AMQP value holds more elements than are read.")


def test_broken_utf_8_shows_its_bytes() -> None:
    detail = detail_of(peeked(b"caf\xe9 \xff"))
    assert views(detail)["Text"] == r"caf\xe9 \xff"
    assert views(detail)["Hex"].startswith("00000000  63 61 66 e9 20 ff")
    assert (detail["size"], detail["text_size"]) == (6, None)
    assert "not text" in detail["notes"][0]


def test_a_packed_body_shows_its_text_and_keeps_its_bytes() -> None:
    packed = gzip.compress(b'{"carrier": "UA"}', mtime=0)
    message = peeked(packed, content_encoding="gzip")
    detail = detail_of(message)
    assert views(detail)["JSON"] == '{\n  "carrier": "UA"\n}'
    assert "unpacked or decoded" in detail["notes"][0]
    assert (detail["size"], detail["text_size"]) == (len(packed), 17)
    assert body_part(message, 0) == packed
    assert body_part(message, 0, as_text=True) == b'{"carrier": "UA"}'


def test_a_message_that_could_not_be_read_says_so() -> None:
    assert "could not be read" in detail_of(peeked(b"\x00", extras={"unreadable": "cut off"}))["notes"][0]


HOSTILE = "\x1b]0;x\x07\u202e<img src=x onerror=alert(1)>\x00"


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b"9" * 256_000,
        b'"' + b"\\\\" * 128_000 + b'"',
        f'["{HOSTILE * 8_000}"]'.encode(),
        ("\u202e" * 90_000).encode(),
        ("\U000e0041" * 90_000).encode(),
        b"\x00" * 256_000,
        bytes(range(256)) * 4_000,
        b"<a b='" + b"\xff" * 256_000,
        b"<a>" * 100_000,
    ],
    ids=lambda body: f"{body[:6]!r}, {len(body)} bytes",
)
def test_hostile_bodies_stay_visible_and_small(body: bytes) -> None:
    # The properties are as large as they can be, too: each for itself, and all together.
    properties = {"long": HOSTILE * 4_000} | {f"{HOSTILE}{number}": HOSTILE * 100 for number in range(1_000)}
    detail = detail_of(peeked(body, subject=HOSTILE * 10, content_type=HOSTILE, application_properties=properties))
    sent = json.dumps(detail, ensure_ascii=False)
    assert len(sent.encode()) < MEGABYTE
    assert all(one.isprintable() or one in "\n\t" for text in _texts(detail) for one in text)
    assert any(view["note"] for view in detail["views"])
    own = rows(detail)["Application properties"]
    assert "… (cut, " in own[0][1]
    assert own[-1][1] == "There are more properties than can be shown."


def test_a_body_of_many_megabytes_travels_in_parts() -> None:
    body = bytes(range(256)) * 10_000
    message = peeked(body)
    parts = [body_part(message, offset) for offset in range(0, len(body), PART)]
    assert len(parts) == 3
    assert max(map(len, parts)) == PART < MEGABYTE
    assert b"".join(parts) == body
    assert body_part(message, len(body)) == b""
    assert [view["note"] != "" for view in detail_of(message)["views"]] == [True, True]


def _texts(value: Any) -> Iterator[str]:
    inner: Any = cast("Any", value) if isinstance(value, list) else ()
    if isinstance(value, str):
        yield value
    if isinstance(value, dict):
        inner = (*value, *value.values())
    for item in inner:
        yield from _texts(item)
