from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.amqp import Array, Char, Decimal128, Described, Int, Long, Symbol, Timestamp, ULong, encode
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import BodyType, EntityAddress, LockedMessage, Message, MessageState, PeekedMessage
from sbnotebook.model.body import Marks, body_of_text
from sbnotebook.model.budget import Allowance
from sbnotebook.model.message import EXTRAS
from sbnotebook.model.schema import (
    COLUMNS,
    SENT_COLUMNS,
    columns_of,
    message_from_row,
    messages_from_columns,
    peeked_from_columns,
)
from sbnotebook.testing.strategies import messages, peeked_messages
from tests.comparison import differences, same_value

NEVER_SENT = ("entity", "sequence_number", "enqueued_sequence_number", "enqueued_time", "expires_at")
SET_BY_THE_SERVICE = (*NEVER_SENT, "delivery_count", "state", "dead_letter_source")


def row_of(message: Message) -> dict[str, Any]:
    return {name: values[0] for name, values in columns_of([message]).items()}


@given(messages())
def test_a_message_comes_back_from_its_row(message: Message) -> None:
    assert differences(message_from_row(row_of(message)), message) == {}


@given(st.lists(messages(), max_size=3), st.data())
def test_columns_become_the_messages_that_their_rows_become(sent: list[Message], data: st.DataObject) -> None:
    all_columns = columns_of(sent)
    chosen = data.draw(st.sets(st.sampled_from(sorted(SENT_COLUMNS))))
    columns = {name: all_columns[name] for name in chosen}
    rows = [{name: values[row] for name, values in columns.items()} for row in range(len(sent))]
    try:
        expected = [message_from_row(row) for row in rows]
    except ConfigurationError as error:  # such as a body of text with another charset than the column that is left out
        with pytest.raises(ConfigurationError, match=re.escape(str(error))):
            messages_from_columns(columns, len(sent))
    else:
        found = messages_from_columns(columns, len(sent))
        assert [differences(*pair) for pair in zip(found, expected, strict=True)] == [{}] * len(sent)


@given(peeked_messages())
def test_a_peeked_message_comes_back_from_its_row(message: PeekedMessage) -> None:
    (twin,) = peeked_from_columns(columns_of([message]), 1)
    assert differences(twin, message) == {}
    for name in SET_BY_THE_SERVICE:
        assert getattr(twin, name) == getattr(message, name)


@given(peeked_messages())
def test_the_row_of_a_peeked_message_can_be_sent(message: PeekedMessage) -> None:
    sent = message_from_row(row_of(message))
    assert type(sent) is Message
    assert differences(sent, message) == {}


def test_types_are_kept_of_what_is_no_string() -> None:
    values: dict[str, Any] = {
        "text": "5",
        "number": 5,
        "id": UUID(int=5),
        "none": None,
        "moment": datetime(2024, 1, 1, tzinfo=UTC),
        "later": Timestamp(2**62),
        "list": [Long(1), [Symbol("a")]],
        "array": Array([ULong(1)]),
        "described": Described(ULong(1), Char("é")),
        "decimal": Decimal128(16),
    }
    row = row_of(Message(application_properties=values))
    assert row["application_properties"].keys() == values.keys()
    assert row["application_property_types"] == {
        "number": "int",
        "id": "uuid",
        "none": "null",
        "moment": "timestamp",
        "later": "timestamp",
        "list": "list",
        "array": "array",
        "described": "described",
        "decimal": "decimal128",
    }
    assert row["application_properties"]["text"] == "5"
    assert row["application_properties"]["moment"] == "2024-01-01T00:00:00.000+00:00"


def test_a_locked_message_shows_its_lock_and_no_token() -> None:
    until = datetime(2024, 1, 1, tzinfo=UTC)
    token = UUID(int=2**100)
    row = row_of(LockedMessage(entity=EntityAddress("orders"), sequence_number=1, lock_token=token, locked_until=until))
    assert row["locked_until"] == until
    assert str(token) not in str(row)


def test_a_message_that_was_not_sent_has_no_place() -> None:
    row = row_of(Message(body=b"a"))
    assert [row[name] for name in NEVER_SENT] == [None] * len(NEVER_SENT)


def test_all_columns_are_as_long_as_the_messages() -> None:
    columns = columns_of(Message(body=bytes([number])) for number in range(3))
    assert [*columns] == [column.name for column in COLUMNS]
    assert {len(values) for values in columns.values()} == {3}
    assert columns["body"] == [b"\x00", b"\x01", b"\x02"]
    assert columns_of([])["body"] == []


def test_packed_bodies_of_a_table_take_from_its_allowance() -> None:
    packed = body_of_text("x" * 10_000, Marks(content_encoding="gzip"))
    message, allowance = Message(body=packed, content_encoding="gzip"), Allowance(10_000)
    texts = columns_of([message] * 3, allowance)["body_text"]
    assert texts[0] == "x" * 10_000
    assert texts[2] == "x" * 16 * len(packed) + f"… (cut at {16 * len(packed):,} bytes)"
    assert allowance.left == 0


def test_a_row_may_hold_less_and_more_than_the_columns() -> None:
    assert message_from_row({}) == Message()
    assert message_from_row({"subject": "s", "carrier": "UA", "sequence_number": "x"}) == Message(subject="s")


def test_a_body_may_be_given_as_text() -> None:
    assert message_from_row({"body_text": "é"}).body == "é".encode()
    assert message_from_row({"body": "é"}).body == "é".encode()
    assert message_from_row({"body": bytearray(b"a"), "body_text": "not this"}).body == b"a"
    assert message_from_row({"body_text": "é", "body_type": "value"}) == Message.of_value("é")


@pytest.mark.parametrize(
    "columns",
    [
        {"message_id": [5, "a", None, math.nan], "session_id": [UUID(int=1), None, "s", 2.5]},
        {"body": [b"a", b"\x40", b"c"], "body_type": ["data", "value", None]},
        {"body": ["é", bytearray(b"b"), None], "body_text": ["not this", None, "t"]},
        {"body": ["é", None, b"\x40"], "body_type": [None, "data", "value"]},
        {"application_properties": [{"a": 1}, [("a", "1")], math.nan]},
        {"application_properties": [[("a", "1")], {"a": "1"}, None], "application_property_types": [{"a": "int"}] * 3},
    ],
)
def test_columns_of_several_kinds_are_read_as_rows_are(columns: dict[str, list[Any]]) -> None:
    count = len(next(iter(columns.values())))
    rows = [{name: values[row] for name, values in columns.items()} for row in range(count)]
    found = messages_from_columns(columns, count)
    assert [differences(*pair) for pair in zip(found, map(message_from_row, rows), strict=True)] == [{}] * count


def test_numbers_become_texts_where_a_text_belongs() -> None:
    assert message_from_row({"message_id": 5, "session_id": UUID(int=1)}).message_id == "5"


def test_properties_have_types_of_python_or_by_name() -> None:
    row = {"application_properties": {"a": Long(1), "b": "2"}, "application_property_types": {"b": "int", "c": "long"}}
    found = message_from_row(row).application_properties
    assert same_value(dict(found), {"a": Long(1), "b": Int(2)})


def test_maps_may_be_given_as_pairs_as_arrow_does() -> None:
    found = message_from_row({"application_properties": [("a", "1"), ("b", None)]}).application_properties
    assert found == {"a": "1", "b": None}


MISSING = (None, math.nan, pd.NA, pd.NaT)


@pytest.mark.parametrize("missing", MISSING, ids=repr)
def test_missing_values_of_pandas_are_none(missing: Any) -> None:
    row = {column.name: missing for column in COLUMNS}
    assert message_from_row(row) == Message()


def test_a_peeked_message_needs_no_more_than_its_place() -> None:
    (found,) = peeked_from_columns({"entity": ["orders"], "sequence_number": [1]}, 1)
    assert found == PeekedMessage(entity=EntityAddress("orders"), sequence_number=1)


def test_a_time_without_a_zone_is_utc() -> None:
    naive = datetime(2024, 1, 1)  # noqa: DTZ001
    assert message_from_row({"scheduled_enqueue_time": naive}).scheduled_enqueue_time == naive.replace(tzinfo=UTC)
    stamp = pd.Timestamp("2024-01-01")
    assert message_from_row({"scheduled_enqueue_time": stamp}).scheduled_enqueue_time == naive.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("scheduled_enqueue_time", "tomorrow"),
        ("time_to_live_ms", "1h"),
        ("time_to_live_ms", math.inf),
        ("time_to_live_ms", [1]),
        ("time_to_live_ms", 10**30),
        ("body", 5),
        ("body", {"a": 1}),
        ("body_text", 0),
        ("body_text", NotImplemented),
        ("body_type", "json"),
        ("application_properties", 5),
        ("application_properties", 0),
        ("application_properties", "text"),
        ("application_property_types", ["a"]),
        ("application_property_types", {"p": "nonsense"}),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_its_column_is_refused(column: str, value: Any) -> None:
    row = {"application_properties": {"p": "1"}, column: value}
    with pytest.raises(ConfigurationError) as refused:
        message_from_row(row)
    assert len(str(refused.value)) < 400
    with pytest.raises(ConfigurationError):
        messages_from_columns({name: [each] for name, each in row.items()}, 1)


@pytest.mark.parametrize("column", ["body", "body_text"])
def test_a_number_as_a_body_is_refused_by_the_name_of_its_column(column: str) -> None:
    with pytest.raises(ConfigurationError, match=f"The column {column} holds bytes or text, not '0'"):
        message_from_row({column: 0})


@given(st.dictionaries(st.sampled_from([column.name for column in COLUMNS]), st.from_type(object) | st.text()))
def test_a_hostile_row_is_a_message_or_refused(row: dict[str, Any]) -> None:
    try:
        found: object = message_from_row(row)
    except ConfigurationError as error:
        found = error
    assert isinstance(found, (Message, ConfigurationError))


def test_a_damaged_body_stays_as_it_is_until_it_is_sent() -> None:
    row = {"body": b"\xff", "body_type": "sequence"}
    assert message_from_row(row) == Message(body=b"\xff", body_type=BodyType.SEQUENCE)
    assert row_of(message_from_row(row))["body_text"] is None


def test_the_largest_message_of_the_standard_tier() -> None:
    body = "é".encode() * 128 * 1024
    message = PeekedMessage(
        entity=EntityAddress("orders"),
        sequence_number=2**63 - 1,
        body=body,
        time_to_live=timedelta.max // timedelta(milliseconds=1) * timedelta(milliseconds=1),
        state=MessageState.DEFERRED,
        application_properties={"large": body, "none": b""},
    )
    assert peeked_from_columns(columns_of([message]), 1) == [message]
    assert len(row_of(message)["body_text"]) == 128 * 1024
    assert differences(message_from_row(row_of(Message.of_value(body))), Message.of_value(body)) == {}
    assert Message.of_value(body).body == encode(body)


def test_the_page_on_the_columns_names_all_of_them() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "message-columns.md").read_text()
    for column in COLUMNS:
        assert f"\n| `{column.name}` | {column.type.value} | " in page
    for name in EXTRAS - {"to", "subject", "reply_to", "content_type", "content_encoding", "session_id"}:
        assert name == "reply_to_session_id" or f"`{name}`" in page


def test_a_value_that_does_not_fit_is_quoted_up_to_60_characters() -> None:
    with pytest.raises(ConfigurationError) as refused:
        message_from_row({"time_to_live_ms": "x" * 61})
    assert (
        str(refused.value)
        == f"The column time_to_live_ms holds whole milliseconds of less than a billion days, not {'x' * 60!r}."
    )


def test_a_time_to_live_is_counted_in_milliseconds() -> None:
    assert row_of(Message(time_to_live=timedelta(milliseconds=1, microseconds=999)))["time_to_live_ms"] == 1
    assert message_from_row({"time_to_live_ms": 1}).time_to_live == timedelta(milliseconds=1)


def test_extras_that_are_no_bytes_are_refused() -> None:
    for value in ("text", 5):
        with pytest.raises(ConfigurationError, match="The column extras holds bytes"):
            message_from_row({"extras": value})
