from __future__ import annotations

import gzip
import sys
from typing import Any

import pyarrow as pa
import pytest

from sbnotebook.analysis.decoders import Decoder, Decoding, Labels, decoder_of
from sbnotebook.analysis.frames import to_arrow
from sbnotebook.analysis.query import filtered
from sbnotebook.model import BodyType, Message
from sbnotebook.model.budget import DECODED_BYTES


def lines(body: bytes) -> dict[str, list[str]]:
    return {"items": body.decode("ascii").split("|")}


def constant(value: Any) -> Decoder:
    def read(_: bytes) -> Any:
        return value

    return decoder_of(read)


LINES = decoder_of(lines)


def decoded(*messages: Message, decoder: Decoder = LINES) -> list[tuple[str | None, str | None]]:
    table: Any = Decoding(decoder).table(to_arrow(messages))
    return [*zip(table["body_text"].to_pylist(), table["decode_error"].to_pylist(), strict=True)]


def test_the_text_is_the_value_and_one_error_fails_no_other() -> None:
    assert decoded(Message(body=b"UA|DL"), Message(body=b"\xff"), Message(body="é".encode())) == [
        ('{"items":["UA","DL"]}', None),
        (None, "UnicodeDecodeError: 'ascii' codec can't decode byte 0xff in position 0: ordinal not in range(128)"),
        ("é", "UnicodeDecodeError: 'ascii' codec can't decode byte 0xc3 in position 0: ordinal not in range(128)"),
    ]


def test_a_decoder_that_exits_fails_one_body_only() -> None:
    def read(body: bytes) -> Any:
        return sys.exit("no more") if body == b"2" else body.decode()

    found = decoded(*(Message(body=body) for body in (b"1", b"2", b"3")), decoder=decoder_of(read))
    assert found == [('"1"', None), ("2", "SystemExit: no more"), ('"3"', None)]


def test_a_decoder_gets_the_bytes_without_their_packing() -> None:
    packed = gzip.compress(b"UA")
    of_dotnet = b"@\x0cbase64Binary\x08\x33http://schemas.microsoft.com/2003/10/Serialization/\x9f\x02UA"
    as_value = Message.of_value(b"UA")
    said = Message(body=packed, application_properties={"Content-Encoding": "gzip"})
    for message in (Message(body=packed), Message(body=of_dotnet), as_value, said):
        assert decoded(message) == [('{"items":["UA"]}', None)]
    ((_, why),) = decoded(Message(body=b"\xa1\x02UA", body_type=BodyType.VALUE))
    assert why == "the body is a text or an AMQP value, not bytes"


def test_a_function_of_two_arguments_gets_the_labels() -> None:
    def read(body: bytes, labels: Labels) -> Any:
        return [labels.subject, labels.content_type, dict(labels.application_properties), len(body)]

    message = Message(body=b"x", subject="UA", content_type="a/b", application_properties={"kind": 5})
    assert decoded(message, decoder=decoder_of(read)) == [('["UA","a/b",{"kind":"5"},1]', None)]


def test_a_body_of_another_format_keeps_its_text() -> None:
    assert decoded(Message(body=b"hello"), decoder=constant(None)) == [("hello", None)]


def test_bodies_stay_within_their_limits() -> None:
    assert decoded(Message(body=bytes(DECODED_BYTES + 1)))[0][1] == (
        f"the body has {DECODED_BYTES + 1:,} bytes, and at most {DECODED_BYTES:,} are decoded"
    )
    bomb = gzip.compress(bytes(80 * 1024 * 1024))
    assert str(decoded(Message(body=bomb))[0][1]).endswith("bytes, and at most 1,048,576 are decoded")
    assert "characters as JSON" in str(decoded(Message(), decoder=constant("x" * 2_000_001))[0][1])
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert decoded(Message(), decoder=constant(deep))[0][1] == "the value is nested too deep for JSON"


def test_when_the_time_is_spent_the_rest_says_so() -> None:
    times = iter(range(10))
    decoding = Decoding(LINES, seconds=2, clock=lambda: next(times))
    table: Any = decoding.table(to_arrow([Message(body=b"x")] * 64))
    spent = "not decoded: the time for the bodies of a table is spent"
    assert table["decode_error"].to_pylist() == [None] * 16 + [spent] * 48


def test_an_error_that_quotes_a_body_is_cut_and_harmless() -> None:
    def fail(body: bytes) -> Any:
        raise ValueError(body.decode())

    ((_, why),) = decoded(Message(body=b"\x1b[31m" + b"y" * 500), decoder=decoder_of(fail))
    assert why is not None
    assert len(why) == 200
    assert "\x1b" not in why


def test_where_reads_the_decoded_body() -> None:
    table = Decoding(LINES).table(to_arrow([Message(body=b"UA|DL"), Message(body=b"AA"), Message(body=b"\xff")]))
    found: Any = filtered(table, "body_json->>'$.items[0]' = 'UA'")
    assert found["body"].to_pylist() == [b"UA|DL"]
    assert len(filtered(table, "decode_error is not null")) == 1
    assert Decoding(LINES).table(table).column_names == table.column_names  # decoded twice


@pytest.mark.parametrize("value", [{"n": 1.5}, {"n": True}, {"n": 2**70}, 5, {"n": "x"}, {"m": {"a": "b"}, "n": []}])
def test_a_value_that_does_not_fit_the_schema_is_an_error(value: Any) -> None:
    kind: Any = pa.struct([("n", pa.int64()), ("s", pa.string()), ("m", pa.map_(pa.string(), pa.int64()))])
    values = iter([value, {"n": 5, "s": {"a": [1]}, "m": {"k": 7}, "more": 1}])
    batch: Any = to_arrow([Message(body=b"1"), Message(body=b"2")]).to_batches()[0]

    def read(_: bytes) -> Any:
        return next(values)

    made, errors = Decoding(decoder_of(read, kind)).columns(batch, kind)
    assert made.to_pylist() == [None, {"n": 5, "s": '{"a":[1]}', "m": [("k", 7)]}]
    assert errors.to_pylist()[0]
    assert errors.to_pylist()[1] is None
