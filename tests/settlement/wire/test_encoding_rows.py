from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.analysis.frames import to_arrow
from sbnotebook.model import Message
from sbnotebook.model.schema import SENT_COLUMNS, messages_from_columns
from sbnotebook.settlement.wire.encoding import EncodedRows, payload_of
from sbnotebook.testing.strategies import messages

if TYPE_CHECKING:
    import pyarrow as pa

TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=300) | st.sampled_from(["a", "b", ""])
FIELDS = (
    "message_id", "correlation_id", "subject", "content_type", "content_encoding", "to", "reply_to",
    "reply_to_session_id",
)  # fmt: skip
VALUES = st.none() | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.floats(allow_nan=False) | st.text("ab🙂")
PAIRS = st.none() | st.dictionaries(st.text("xyz"), VALUES, max_size=3).map(lambda named: list(named.items()))
BODIES = st.sampled_from([st.binary(max_size=400), st.text(st.characters(exclude_categories=["Cs"]), max_size=200)])


def one_by_one(columns: dict[str, list[Any]], count: int) -> list[bytes]:
    return [payload_of(message) for message in messages_from_columns(columns, count)]


@st.composite
def plain_columns(draw: st.DrawFn) -> tuple[dict[str, list[Any]], int]:
    count = draw(st.integers(1, 5))
    names = draw(st.sets(st.sampled_from(FIELDS)))
    columns: dict[str, list[Any]] = {
        name: draw(st.lists(TEXTS, min_size=count, max_size=count)) for name in sorted(names)
    }
    columns[draw(st.sampled_from(["body", "body_text"]))] = draw(st.lists(draw(BODIES), min_size=count, max_size=count))
    if draw(st.booleans()):
        columns["application_properties"] = draw(st.lists(PAIRS, min_size=count, max_size=count))
    return columns, count


@given(plain_columns())
def test_rows_of_texts_and_bytes_match_their_payloads(
    drawn: tuple[dict[str, list[Any]], int],
) -> None:
    columns, count = drawn
    if "body_text" in columns and isinstance(columns["body_text"][0], bytes):
        columns["body"] = columns.pop("body_text")
    try:
        expected = one_by_one(columns, count)
    except Exception as error:  # noqa: BLE001 (such as a text that the charset of its content type has not)
        expected = error
    rows = EncodedRows.of(columns, count)
    if isinstance(expected, Exception):
        assert rows is None
        return
    assert rows is not None
    assert rows.payloads == expected
    assert list(rows.message_ids) == columns.get("message_id", [None] * count)


@given(st.lists(messages(), min_size=1, max_size=4))
def test_rows_of_read_messages_match_their_payloads(read: list[Message]) -> None:
    table: pa.Table = to_arrow(read)
    columns = {name: table.column(name).to_pylist() for name in table.schema.names if name in SENT_COLUMNS}
    rows = EncodedRows.of(columns, len(read))
    if rows is not None:
        assert rows.payloads == one_by_one(columns, len(read))


def test_rows_of_plain_messages_are_encoded_by_column() -> None:
    read = [Message(body=b"{}", message_id=str(number), application_properties={"k": "v"}) for number in range(3)]
    table: pa.Table = to_arrow(read)
    columns = {name: table.column(name).to_pylist() for name in table.schema.names if name in SENT_COLUMNS}
    rows = EncodedRows.of(columns, 3)
    assert rows is not None
    assert rows.payloads == [payload_of(message) for message in read]


@pytest.mark.parametrize(
    "others",
    [
        {"body": [b"a", None]},
        {"body": [b"a", "a"]},
        {"body": [None, None]},
        {"session_id": [None, "s"]},
        {"partition_key": [None, "s"]},
        {"time_to_live_ms": [None, 1]},
        {"body_type": ["data", "value"]},
        {"message_id": ["a", 1]},
        {"extras": [None, b"{}"]},
        {"application_properties": [[("a", "1")], []], "application_property_types": [[("a", "int")], []]},
        {"application_properties": [[("a", 2**70)], []]},
        {"application_properties": [[("a", object())], []]},
        {"body_text": ["a", "ä"], "content_type": ["text/plain; charset=ascii"] * 2},
    ],
)  # fmt: skip
def test_other_rows_go_one_by_one(others: dict[str, list[Any]]) -> None:
    body = {} if "body_text" in others else {"body": [b"a", b"b"]}
    assert EncodedRows.of(body | others, 2) is None
