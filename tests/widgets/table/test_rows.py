from __future__ import annotations

import pytest

from sbnotebook.analysis.frames import to_arrow
from sbnotebook.client import Messages
from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.widgets.table.rows import Rows, keys_of


def peeked(number: int, entity: str = "orders") -> PeekedMessage:
    return PeekedMessage(entity=EntityAddress.parse(entity), sequence_number=number, subject=f"s{number}")


def test_keys_are_the_same_for_messages_and_for_tables_of_them() -> None:
    messages = [peeked(7), peeked(7, "orders/$dlq")]
    assert keys_of(messages) == keys_of(Messages(messages)) == [("orders", 7), ("orders/$dlq", 7)]


def test_only_what_is_there_is_found() -> None:
    rows = Rows(to_arrow(map(peeked, range(5))))
    rows.removed[2] = True
    assert rows.present([("orders", 4), ("orders", 2), ("orders", 9), ("orders", 1), ("orders", 4)]) == [4, 1]
    assert [message.sequence_number for message in rows.messages()] == [0, 1, 3, 4]
    assert [message.subject for message in rows.messages([3, 1])] == ["s3", "s1"]


def test_rows_are_added_once_and_keep_their_numbers() -> None:
    rows = Rows(to_arrow(map(peeked, range(3))), {"age": [1, 2, 3]})
    rows.removed[1] = True
    more = rows.extended(Rows(to_arrow(map(peeked, range(1, 5))), {"note": ["a", "b", "c", "d"]}))
    assert [number for _, number in more.keys] == [0, 1, 2, 1, 3, 4]  # 1 was removed and is back, 2 was there
    assert more.removed.tolist() == [False, True, False, False, False, False]
    assert more.extra["age"].to_pylist() == [1, 2, 3, None, None, None]
    assert more.extra["note"].to_pylist() == [None, None, None, "a", "c", "d"]
    assert more.present([("orders", 1)]) == [3]


def test_changes_are_kept_by_row_for_who_comes_later() -> None:
    rows = Rows(to_arrow(map(peeked, range(3))))
    rows.removed[0] = True
    change = {"outcome": "settled", "tries": 1}
    assert rows.patch({("orders", 2): change, ("orders", 0): change, ("other", 1): change}) == {
        "outcome": {2: "settled"},
        "tries": {2: 1},
    }
    rows.patch({("orders", 2): {"tries": 2}, ("orders", 1): {"tries": 5}})
    assert rows.patched == {"outcome": {2: "settled"}, "tries": {2: 2, 1: 5}}


def test_rows_take_further_columns_of_any_kind() -> None:
    table = to_arrow(map(peeked, range(2)))
    rows = Rows(table, {"mixed": [1, "a"], "subject": ["other", None]})
    assert rows.extra["mixed"].to_pylist() == ["1", "a"]
    assert rows.with_extra().column("subject").to_pylist() == ["other", None]
    with pytest.raises(ValueError, match="'age' has 1 values for 2 messages: give one for each"):
        Rows(table, {"age": [1]})
