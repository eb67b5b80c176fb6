from __future__ import annotations

import pytest

from sbnotebook.client import Messages
from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.widgets.table.message_table import MessageTable, answer

BODY = "ä" * 300 + " end"


@pytest.fixture
def rows() -> MessageTable:
    entity = EntityAddress.parse("orders")
    bodies = [b"first", BODY.encode()]
    return MessageTable([PeekedMessage(entity=entity, sequence_number=n, body=body) for n, body in enumerate(bodies)])


def test_words_are_found_in_the_whole_text(rows: MessageTable) -> None:
    words = ["END", "first", ".*", "("]
    assert answer(rows, "search", {"words": words}) == ({}, [b"\x02", b"\x01", b"\x00", b"\x00"])
    assert len(answer(rows, "search", {"words": ["x"] * 50})[1]) == 20


def test_the_detail_is_that_of_the_row(rows: MessageTable) -> None:
    detail, buffers = answer(rows, "detail", {"row": 1})
    assert "orders" in str(detail["title"])
    assert BODY in str(detail["views"])
    assert buffers == []


def test_the_detail_of_a_decoded_message_is_its_value() -> None:
    entity = EntityAddress.parse("orders")
    messages = Messages([PeekedMessage(entity=entity, sequence_number=n, body=bytes([n + 253])) for n in range(3)])
    rows = MessageTable(messages.decode(lambda body: {"n": 1 // (255 - body[0])}))
    assert '"n": 1' in str(answer(rows, "detail", {"row": 1})[0]["views"])
    assert answer(rows, "body", {"row": 1, "offset": 0, "as_text": True}) == ({}, [b'{"n":1}'])
    assert "could not read the body: ZeroDivisionError" in str(answer(rows, "detail", {"row": 2})[0]["notes"])
    rows.append(Messages([PeekedMessage(entity=entity, sequence_number=9, body=b"later")]))
    assert "later" in str(answer(rows, "detail", {"row": 3})[0]["views"])


def test_a_body_comes_in_parts(rows: MessageTable) -> None:
    assert answer(rows, "body", {"row": 1, "offset": 600, "as_text": False}) == ({}, [b" end"])
    assert answer(rows, "body", {"row": 0, "offset": 0, "as_text": True}) == ({}, [b"first"])


def test_a_row_that_is_not_there_is_an_error(rows: MessageTable) -> None:
    with pytest.raises(IndexError):
        answer(rows, "detail", {"row": 7})
