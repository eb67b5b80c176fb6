from __future__ import annotations

import gzip
import io
import json
import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.amqp import Long, ULong
from sbnotebook.analysis.frames import (
    arrow_schema,
    messages_from,
    messages_of_table,
    messages_or_errors,
    to_arrow,
    to_pandas,
    to_send,
)
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import BodyType, EntityAddress, Message, PeekedMessage
from sbnotebook.model.schema import COLUMNS
from sbnotebook.settlement import EncodedRows
from sbnotebook.settlement.wire.encoding import payload_of
from sbnotebook.testing.strategies import PRIMITIVES, messages
from sbnotebook.testing.strategies import peeked_messages as any_peeked
from tests.comparison import differences, same_value

SET_BY_THE_SERVICE = [name for name in PeekedMessage.__dataclass_fields__ if name not in Message.__dataclass_fields__]


def through_parquet(table: pa.Table) -> pa.Table:
    parquet: Any = pyarrow.parquet
    file = io.BytesIO()
    parquet.write_table(table, file)
    return parquet.read_table(io.BytesIO(file.getvalue()))


def through_ipc(table: pa.Table) -> pa.Table:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def frame_and_back(table: pa.Table) -> Any:
    return to_pandas(messages_of_table(table))


WAYS: dict[str, Callable[[pa.Table], Any]] = {
    "arrow": lambda table: table,
    "record batch": lambda table: table.combine_chunks().to_batches()[0],
    "ipc": through_ipc,
    "parquet": through_parquet,
    "pandas": frame_and_back,
    "rows": lambda table: table.to_pylist(),
    "records": lambda table: frame_and_back(table).to_dict("records"),
}


@pytest.mark.parametrize("way", WAYS)
@given(sent=st.lists(any_peeked(), min_size=1, max_size=3))
def test_messages_come_back_to_be_sent(way: str, sent: list[PeekedMessage]) -> None:
    found = list(messages_from(WAYS[way](to_arrow(sent))))
    assert [differences(*pair) for pair in zip(found, sent, strict=True)] == [{}] * len(sent)
    assert {type(message) for message in found} == {Message}


@pytest.mark.parametrize("way", ["arrow", "ipc", "parquet"])
@given(sent=st.lists(any_peeked(), max_size=3))
def test_peeked_messages_come_back_with_what_the_service_set(way: str, sent: list[PeekedMessage]) -> None:
    found = messages_of_table(WAYS[way](to_arrow(sent)))
    assert [differences(*pair) for pair in zip(found, sent, strict=True)] == [{}] * len(sent)
    for name in SET_BY_THE_SERVICE:
        assert [getattr(message, name) for message in found] == [getattr(message, name) for message in sent]


@pytest.mark.parametrize("name", PRIMITIVES)
@given(data=st.data())
def test_pandas_keeps_properties_of_every_type(name: str, data: st.DataObject) -> None:
    value = data.draw(PRIMITIVES[name])
    (found,) = messages_from(to_pandas([Message(application_properties={"p": value})]))
    assert same_value(found.application_properties["p"], value)


@given(st.lists(messages(), max_size=3))
def test_messages_themselves_are_sent_as_they_are(sent: list[Message]) -> None:
    for given_messages in (sent, tuple(sent), iter(sent)):
        assert all(found is message for found, message in zip(messages_from(given_messages), sent, strict=True))


@pytest.mark.parametrize(
    "message",
    [
        Message(body=b"\xff" * 262_144),
        Message(body=b""),
        Message.of_value("é" * 131_072),
        Message.of_sequence([1] * 10_000, []),
        Message(application_properties={"p" * 60_000: "v" * 60_000, "": ""}),
        Message(subject="\x00\x1b🚚", message_id=""),
        Message(time_to_live=timedelta.max // timedelta(milliseconds=1) * timedelta(milliseconds=1)),
        Message(application_properties={"ResubmitCount": ULong(2**64 - 1)}),
        Message(scheduled_enqueue_time=datetime.max.replace(tzinfo=UTC)),
        Message(scheduled_enqueue_time=datetime.min.replace(tzinfo=UTC)),
    ],
    ids=range(10),
)
def test_frames_keep_large_empty_and_odd_values(message: Message) -> None:
    for data in (to_arrow([message]), to_pandas([message])):
        (found,) = messages_from(data)
        assert differences(found, message) == {}


def test_frame_columns_have_their_types() -> None:
    assert arrow_schema().names == [column.name for column in COLUMNS]
    assert to_arrow([]).schema == to_arrow([Message()]).schema == arrow_schema()
    frame = to_pandas([PeekedMessage(entity=EntityAddress("orders"), sequence_number=2**53 + 1), Message()])
    assert frame["sequence_number"].tolist() == [2**53 + 1, pd.NA]
    assert str(frame["enqueued_time"].dtype) == "datetime64[us, UTC]"
    assert to_pandas([]).columns.tolist() == arrow_schema().names


def test_changed_frame_is_sent_as_changed() -> None:
    frame = to_pandas([Message(body=b"a", subject="x", application_properties={"n": Long(1)}), Message(body=b"b")])
    frame["subject"] = ["fixed", None]
    frame = frame[frame["subject"].notna()].assign(time_to_live_ms=60_000)
    (found,) = messages_from(frame)
    expected = Message(
        body=b"a", subject="fixed", time_to_live=timedelta(minutes=1), application_properties={"n": Long(1)}
    )
    assert differences(found, expected) == {}


# ------------------------------------------------------------------ what users have


def one_batch(sent: list[Message]) -> pa.RecordBatch:
    return to_arrow(sent).to_batches()[0]


@pytest.mark.parametrize("frame_of", [to_arrow, to_pandas, one_batch])
@given(sent=st.lists(messages(), min_size=1, max_size=4), plain=st.booleans())
def test_frame_is_sent_like_its_messages(
    frame_of: Callable[[list[Message]], Any], sent: list[Message], plain: bool
) -> None:
    """Of plain ones the bytes are made at once."""
    if plain:
        sent = [Message(body=each.body, message_id=each.message_id, subject=each.subject) for each in sent]
    frame = frame_of(sent)
    expected = [payload_of(message) for message in messages_from(frame)]
    parts = list(to_send(frame))
    if plain:
        assert [type(part) for part in parts] == [EncodedRows]
    assert [payload for part in parts for payload in payloads(part)] == expected


def payloads(part: Message | EncodedRows) -> list[bytes]:
    return part.payloads if isinstance(part, EncodedRows) else [payload_of(part)]


def test_rows_before_a_wrong_row_are_sent() -> None:
    rows = to_send(pd.DataFrame({"body": [b"a"] * 1000 + [b"b", None], "time_to_live_ms": [None] * 1001 + [2**62]}))
    first, second = next(rows), next(rows)
    assert isinstance(first, EncodedRows)
    assert len(first.payloads) == 1000
    assert isinstance(second, Message)
    with pytest.raises(ConfigurationError, match="time_to_live_ms holds whole milliseconds"):
        next(rows)


def test_texts_and_bytes_are_bodies() -> None:
    assert list(messages_from("é")) == [Message(body="é".encode())]
    assert list(messages_from(b"a")) == [Message(body=b"a")]
    assert list(messages_from(bytearray(b"a"))) == list(messages_from([memoryview(b"a")])) == [Message(body=b"a")]
    assert list(messages_from(["a", b"b", Message(body=b"c")])) == [
        Message(body=b"a"),
        Message(body=b"b"),
        Message(body=b"c"),
    ]
    assert list(messages_from(pd.Series(["a", "b"]))) == [Message(body=b"a"), Message(body=b"b")]


def test_row_becomes_a_message() -> None:
    (found,) = messages_from({"body_text": "é", "subject": "s", "carrier": "UA"})
    assert found == Message(body="é".encode(), subject="s")
    (found,) = messages_from({"message_id": "m"})
    assert found == Message(message_id="m")
    assert list(messages_from([])) == list(messages_from({}))[:0]


CONTENT = {"carrier": "UA", "flights": 3, "é": None, "late": 2.5, "at": datetime(2024, 1, 1, tzinfo=UTC)}
JSON = '{"carrier": "UA", "flights": 3, "é": null, "late": 2.5, "at": "2024-01-01T00:00:00+00:00"}'


@pytest.mark.parametrize(
    "data",
    [[CONTENT], pd.DataFrame([CONTENT]), pa.Table.from_pylist([CONTENT]), pa.RecordBatch.from_pylist([CONTENT])],
    ids=["rows", "pandas", "arrow", "batch"],
)
def test_rows_without_a_body_become_json(data: Any) -> None:
    (found,) = messages_from(data)
    assert found == Message(body=JSON.encode(), content_type="application/json")


def test_message_columns_beside_the_content_are_taken_as_such() -> None:
    frame = pd.DataFrame({"carrier": ["UA", "AA"], "subject": ["x", None], "content_type": ["a/b", "a/b"]})
    assert list(messages_from(frame)) == [
        Message(body=b'{"carrier": "UA"}', subject="x", content_type="a/b"),
        Message(body=b'{"carrier": "AA"}', content_type="a/b"),
    ]


def test_service_columns_are_content_without_a_body() -> None:
    rows = {"entity": ["orders"], "dead_letter_reason": ["Bad"], "count": [5], "subject": ["summary"]}
    for data in (pa.table(rows), [{name: value for name, (value,) in rows.items()}]):
        (found,) = messages_from(data)
        assert json.loads(found.body) == {"entity": "orders", "dead_letter_reason": "Bad", "count": 5}
        assert found.subject == "summary"
    (found,) = messages_from(pa.table({**rows, "body": [b"x"]}))
    assert found == Message(body=b"x", subject="summary")
    first, second = messages_from(pa.table({"entity": ["a", "b"], "n": [1, 2], "body": [b"x", None]}))
    assert (first, json.loads(second.body)) == (Message(body=b"x"), {"n": 2})


@pytest.mark.parametrize("rows", [1, 3, 2500])
def test_wrong_row_is_an_error_in_its_place(rows: int) -> None:
    numbers = [math.inf if row % 7 == 1 else float(row) for row in range(rows)]
    found = list(messages_or_errors(pa.RecordBatch.from_pydict({"n": numbers})))
    assert [isinstance(each, ConfigurationError) for each in found] == [not math.isfinite(n) for n in numbers]
    before = 0
    with pytest.raises(ConfigurationError) if rows > 1 else nullcontext():
        for _ in messages_from(pa.table({"n": numbers})):
            before += 1
    assert before == 1  # earlier messages come first


def test_values_that_json_does_not_have_are_texts() -> None:
    row = {"id": UUID(int=1), "price": Decimal("1.50"), "raw": b"\xff", "day": date(2024, 1, 2), "at": time(3, 4)}
    (found,) = messages_from([row])
    assert json.loads(found.body) == {
        "id": str(UUID(int=1)),
        "price": "1.50",
        "raw": "/w==",
        "day": "2024-01-02",
        "at": "03:04:00",
    }


def test_missing_values_of_a_frame_are_null() -> None:
    frame = pd.DataFrame({"n": [1.0, math.nan], "t": [pd.Timestamp("2024-01-01"), pd.NaT], "s": ["x", None]})
    assert [json.loads(found.body) for found in messages_from(frame)] == [
        {"n": 1.0, "t": "2024-01-01T00:00:00", "s": "x"},
        {"n": None, "t": None, "s": None},
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            pd.DataFrame({"t": pd.DatetimeIndex(["NaT", "2024-01-01"])}).to_dict("records"),
            [None, "2024-01-01T00:00:00"],
        ),
        ([{"t": pd.NA}, {"t": np.datetime64("NaT")}, {"t": np.timedelta64("NaT", "ns")}], [None] * 3),
        ([{"t": np.datetime64("2024-01-01", "ns")}], ["2024-01-01T00:00:00"]),
        ([{"t": np.datetime64("2024-01-01")}], ["2024-01-01"]),
        ([{"t": np.array(["2024-01-01", "NaT"], "M8[ns]")}], [["2024-01-01T00:00:00", None]]),
        ([{"t": np.timedelta64(90 * 10**9, "ns")}, {"t": timedelta(seconds=90)}], ["0:01:30"] * 2),
        (pd.DataFrame({"t": pd.PeriodIndex(["2024-01", "NaT"], freq="M")}), ["2024-01", None]),
    ],
    ids=["pandas rows", "missing", "nanoseconds", "days", "array", "duration", "period"],
)
def test_times_become_texts_and_missing_ones_null(data: Any, expected: list[Any]) -> None:
    assert [json.loads(found.body)["t"] for found in messages_from(data)] == expected


@pytest.mark.parametrize(
    "values",
    [
        [{"x": 1}, {"y": 2}],
        [{"x": 1}, {"x": "é", "y": [{"z": None}, {}]}],
        [[{"x": 1}, {"y": 2}], []],
        [{"x": 2**70, "y": 0.1}, None, "text", 5, ["a", 1]],
    ],
    ids=["keys", "types", "lists", "mixed"],
)
def test_frame_sends_nested_values_as_each_row_holds_them(values: list[Any]) -> None:
    frame = pd.DataFrame({"id": range(len(values)), "held": values})
    expected = [{"id": row, "held": value} for row, value in enumerate(values)]
    assert [json.loads(found.body) for found in messages_from(frame)] == expected


def test_frame_sends_what_json_lacks_in_nested_values() -> None:
    held = [{"at": pd.Timestamp("2024-01-01"), "n": math.nan, "raw": b"\xff"}, np.array([1.5, math.nan]), pd.NaT]
    found = [json.loads(each.body)["held"] for each in messages_from(pd.DataFrame({"held": held}))]
    assert found == [{"at": "2024-01-01T00:00:00", "n": None, "raw": "/w=="}, [1.5, None], None]


class Unsendable:
    pass


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (5, "cannot be made of int"),
        (None, "cannot be made of NoneType"),
        (Unsendable(), "cannot be made of Unsendable: give messages, texts, bytes, rows, a pandas, Arrow or Spark"),
        ([5], "A message cannot be made of int"),
        ([None], "A message cannot be made of NoneType"),
        ([{"n": math.inf}], "cannot be sent as JSON"),
        ([{"n": math.nan}], "cannot be sent as JSON"),
        ([{"t": np.datetime64("20000-01-01")}], "The time 20000-01-01 cannot be sent as JSON: make it a text"),
        (pd.DataFrame({"n": [math.inf]}), "cannot be sent as JSON"),
        (pd.DataFrame({"subject": [5]}), "The column 'subject' cannot be sent"),
        (pd.DataFrame({"mixed": ["a", 5]}), "The column 'mixed' cannot be sent"),
        (pd.DataFrame({"time_to_live_ms": ["soon"]}), "The column 'time_to_live_ms' cannot be sent"),
        (pd.DataFrame({"application_properties": [{"a": 1}]}), "'application_properties' holds dictionaries of texts"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "Several columns have the name 'a': rename all but one"),
        (pd.DataFrame([[1, 2]], columns=[1, "1"]), "Several columns have the name '1': rename all but one"),
        (
            pa.Table.from_arrays([pa.array([1])] * 2, ["a", "a"]),
            "Several columns have the name 'a': rename all but one",
        ),
        (pd.DataFrame({"n": [2**70, 1]}), "The column 'n' has a value that is too large: make it a text"),
        (
            pd.DataFrame({"s": ["\ud800"]}, dtype=object),
            r"The column 's' has half a character, '\\ud800'.*: replace it",
        ),
        (pd.DataFrame({"d": [{"n": math.inf}]}), "cannot be sent as JSON"),
        (pd.DataFrame({"d": [{(1, 2): 3}]}), "The column 'd' cannot be sent: keys must be str"),
        (pd.DataFrame({"d": [{"s": {1}}]}), "A value of the type set cannot be sent as JSON"),
        ([{"d": {(1, 2): 3}}], "A row cannot be sent as JSON: keys must be str"),
        ("\ud800", r"A text has half a character, '\\ud800', which cannot be sent: replace it"),
        (["\ud800"], "A text has half a character"),
        ([{"body": 5}], "The column body holds bytes or text"),
        ([{"body": "x", "body_type": "json"}], "body_type holds data or value or sequence"),
    ],
    ids=range(26),
)
def test_messages_from_refuses_with_a_reason(data: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        list(messages_from(data))


def test_value_that_holds_itself_is_refused() -> None:
    row: dict[str, Any] = {"carrier": "UA"}
    row["self"] = row
    with pytest.raises(ConfigurationError, match="cannot be sent as JSON"):
        list(messages_from([row]))


def test_iterator_is_pulled_on_demand() -> None:
    pulled: list[int] = []

    def source() -> Iterator[str]:
        for number in range(10):
            pulled.append(number)
            yield str(number)

    found = messages_from(source())
    assert pulled == []
    assert [next(found).body, next(found).body] == [b"0", b"1"]
    assert pulled == [0, 1]


def test_body_type_stays_with_its_bytes() -> None:
    (found,) = messages_from(to_pandas([Message.of_value({"a": [ULong(1)]})]))
    assert found.body_type is BodyType.VALUE
    assert same_value(found.body_value, {"a": [ULong(1)]})


def test_texts_and_rows_are_packed_as_their_columns_say() -> None:
    rows = [
        {"order": 1, "content_encoding": "gzip"},
        {"body_text": "ß", "content_type": "text/plain; charset=latin-1"},
        {"body_text": "{}", "application_properties": {"Content-Encoding": "gzip"}},
        {"body": "a", "body_type": "value"},
    ]
    first, second, third, fourth = messages_from(rows)
    assert gzip.decompress(first.body) == b'{"order": 1}'
    assert second.body == b"\xdf"
    assert gzip.decompress(third.body) == b"{}"
    assert fourth.body_value == "a"
    (packed,) = messages_from(pa.table({"order": [1], "content_encoding": ["gzip"]}))
    assert gzip.decompress(packed.body) == b'{"order": 1}'
