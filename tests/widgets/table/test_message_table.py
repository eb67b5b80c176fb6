"""The kernel's side of the message table; tests/browser/test_message_table.py has the browser's."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

import comm
import numpy as np
import pytest
from comm.base_comm import BaseComm

from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.widgets.table.message_table import MessageTable
from tests.widgets.conftest import until

SENT: list[tuple[dict[str, Any], list[bytes]]] = []


class Recorder(BaseComm):
    """A connection to a browser that only listens."""

    def publish_msg(
        self, msg_type: str, data: Any = None, metadata: Any = None, buffers: Any = None, **keys: Any
    ) -> None:
        del metadata, keys
        if msg_type == "comm_msg" and data["method"] == "custom":
            SENT.append((data["content"], [bytes(buffer) for buffer in buffers or ()]))


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    SENT.clear()
    monkeypatch.setattr(comm, "create_comm", Recorder)


def peeked(numbers: Sequence[int], entity: str = "orders") -> list[PeekedMessage]:
    address = EntityAddress.parse(entity)
    return [PeekedMessage(entity=address, sequence_number=n, body=b"x" * n, subject=f"s{n}") for n in numbers]


def tell(table: MessageTable, *buffers: bytes, **content: Any) -> None:
    """Send the kernel what a browser would."""
    data = {"method": "custom", "content": {"page": "p1", **content}}
    assert table.comm is not None
    table.comm.handle_msg({"content": {"data": data}, "buffers": [memoryview(buffer) for buffer in buffers]})


def select(table: MessageTable, rows: Sequence[int], turn: int = 1, hidden: int = 0, page: str = "p1") -> None:
    """As a page that knows this many selections: it gets one with the rows."""
    bits = np.zeros(8, dtype=bool)
    bits[list(rows)] = True
    packed = np.packbits(bits, bitorder="little").tobytes()
    tell(table, packed, kind="selection", turn=turn, hidden=hidden, page=page)


def kinds() -> list[str]:
    found = [content["kind"] for content, _ in SENT]
    SENT.clear()
    return found


def test_message_table_sends_everything_to_a_new_browser() -> None:
    table = MessageTable(peeked([1, 2, 3]))
    table.patch({("orders", 2): {"outcome": "settled"}})
    table.remove([("orders", 1)])
    table.select([("orders", 2), ("orders", 1)])
    table.set_notes({"f": "a note"}, {})
    assert SENT == []
    tell(table, kind="ready")
    assert [(content["kind"], content["page"], content["load"]) for content, _ in SENT] == [
        (kind, "p1", 1) for kind in ("begin", "rows", "remove", "select", "end")
    ]
    begin, rows, removed, selected = SENT[:4]
    assert begin[0]["total"] == 3
    assert removed[1] == [b"\0\0\0\0"]
    outcome = begin[0]["columns"][1]
    assert (outcome["name"], outcome["late"]) == ("outcome", True)
    assert "outcome" in [part["name"] for part in rows[0]["parts"]]
    assert b"settled" in zlib.decompress(rows[1][0])
    assert selected[1] == [b"\2"]


def test_message_table_ignores_an_outdated_selection() -> None:
    table = MessageTable(peeked([5, 6, 7]))
    tell(table, kind="ready")
    select(table, [0, 2])
    table.show(peeked([7, 8, 9]))
    select(table, [1])  # it was on its way: row 1 was message 6 then, and is message 8 now
    assert table.selected_keys == (("orders", 7),)
    table.select([("orders", 9)])
    select(table, [0, 1], turn=2)  # the browser has heard of the rows, but not of the other selection
    assert table.selected_keys == (("orders", 9),)
    select(table, [0, 2], turn=3)
    assert table.selected_keys == (("orders", 7), ("orders", 9))


def test_message_table_keeps_the_selection_by_key() -> None:
    table = MessageTable(peeked([1, 2, 3]))
    tell(table, kind="ready")
    table.select([("orders", 3), ("orders", 1), ("orders", 99)])
    table.show([*peeked([2], "bills"), *peeked([3, 2])])
    assert table.selected_keys == (("orders", 3),)
    table.append(peeked([3, 4]))
    assert [message.sequence_number for message in table.messages] == [2, 3, 2, 4]
    table.select([("orders", 3), ("orders", 4)])
    table.remove([("orders", 3), ("nowhere", 1)])
    assert table.selected_keys == (("orders", 4),)
    assert [message.sequence_number for message in table.messages] == [2, 2, 4]
    select(table, [1, 3], turn=4)  # as a browser would that has not yet heard of the removal
    assert table.selected_keys == (("orders", 4),)


def test_message_table_second_page_follows_the_first() -> None:
    table = MessageTable(peeked([1, 2]))
    tell(table, kind="ready")
    select(table, [1])
    kinds()
    tell(table, kind="ready", page="p2")
    assert {content["page"] for content, _ in SENT} == {"p2"}
    assert SENT[-2][1] == [b"\2"]
    kinds()
    select(table, [0], page="p2")
    assert [(content["kind"], content["but"], buffers) for content, buffers in SENT] == [("select", "p2", [b"\1"])]
    select(table, [0, 1], page="p1")  # at the same time, before it has heard of the other's
    assert table.selected_keys == (("orders", 1),)
    select(table, [0, 1], page="p1", turn=2)
    assert table.selected_keys == (("orders", 1), ("orders", 2))


def test_message_table_sends_causes_of_shown_rows() -> None:
    table = MessageTable(causes=True)
    tell(table, kind="ready")
    table.on_note(lambda fingerprint, text: notes.append((fingerprint, text)))
    notes: list[tuple[str, str]] = []
    properties = {"DeadLetterReason": "Bad\u202e", "DeadLetterErrorDescription": "Flight 7 is late"}
    table.show([message.with_changes(application_properties=properties, subject="UA") for message in peeked([1, 2])])
    until(lambda: any(content["kind"] == "notes" for content, _ in SENT))
    causes = json.loads(zlib.decompress(next(buffers[0] for content, buffers in SENT if content["kind"] == "causes")))
    assert [cause["cause"] for cause in causes] == ["Flight <n> is late"]
    assert "cause" in [part["name"] for content, _ in SENT if content["kind"] == "rows" for part in content["parts"]]
    tell(table, kind="request", id=3, name="note", data={"fingerprint": causes[0]["fingerprint"], "text": "known"})
    until(lambda: (SENT[-1][0]["kind"], SENT[-1][0].get("id")) == ("answer", 3))
    assert notes == [(causes[0]["fingerprint"], "known")]


def test_questions_are_answered_and_what_goes_wrong_is_said() -> None:
    table = MessageTable(peeked([1, 2]))
    tell(table, kind="ready")
    for row in (1, 99):
        tell(table, kind="request", id=row, name="detail", data={"row": row})
    expected = {("answer", 1), ("refusal", 99)}
    until(lambda: {(content["kind"], content.get("id")) for content, _ in SENT} >= expected)

    def fail() -> None:
        raise LookupError("no such panel")

    table.on_selection(fail)
    select(table, [0])
    assert SENT[-1][0]["text"] == "LookupError: no such panel"
    tell(table, kind="selection", turn=1)
    assert SENT[-1][0]["kind"] == "failed"
    tell(table, kind="something new")


def test_message_table_keeps_messages_out_of_its_traits() -> None:
    table = MessageTable([message.with_changes(subject="secret") for message in peeked([1])], label="Orders")
    assert "secret" not in str(table.get_state())
    assert table.options["label"] == "Orders"
    assert "secret" in repr(table)
