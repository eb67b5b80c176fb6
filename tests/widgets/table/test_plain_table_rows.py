from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sbnotebook.client.messages import Messages
from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.widgets.table.plain_table import PlainRows
from sbnotebook.widgets.table.rows import Rows

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def rows(count: int = 6) -> Rows:
    messages = [
        PeekedMessage(
            entity=EntityAddress("orders"),
            sequence_number=n + 1,
            subject=None if n == 0 else f"S{n % 3}",
            body=b"body \x1b %d" % n,
            enqueued_time=BEGIN + timedelta(minutes=n),
            application_properties={"carrier": "UA" if n == 4 else "DL"},
        )
        for n in range(count)
    ]
    return Rows(Messages(messages).to_arrow(), {"lock": ["held"] * count})


def test_a_text_is_found_in_every_column_and_in_changed_cells() -> None:
    held = rows()
    view = PlainRows(held)
    assert view.find() == [0, 1, 2, 3, 4, 5]
    assert view.find("BODY") == [0, 1, 2, 3, 4, 5]
    assert view.find("carrier=ua") == [4]
    assert view.find("2026-01-01 00:02") == [2]
    assert view.find("s1", only=[1, 2, 3]) == [1]
    held.patch({("orders", 6): {"outcome": "settled", "subject": "S1"}, ("orders", 2): {"subject": "new"}})
    assert view.find("settled") == [5]
    assert view.find("S1") == [4, 5]
    held.removed[4] = True
    assert view.find("S1") == [5]
    assert view.find("nowhere") == []


def test_escaped_letters_in_json_bodies_are_found() -> None:
    body = rb'{"name": "Jos\u00e9"}'
    held = Rows(Messages([PeekedMessage(entity=EntityAddress("orders"), sequence_number=1, body=body)]).to_arrow())
    assert PlainRows(held).find("josé") == [0]


def test_plain_rows_sort_by_any_column_with_nulls_last() -> None:
    held = rows()
    view = PlainRows(held)
    assert view.find(sort="subject") == [3, 1, 4, 2, 5, 0]
    assert view.find(sort="enqueued_time", descending=True) == [5, 4, 3, 2, 1, 0]
    assert view.find(sort="application_properties")[-1] == 4
    held.patch({("orders", 3): {"tries": 2}, ("orders", 4): {"tries": 10}, ("orders", 5): {"lock": 7}})
    assert view.find(sort="tries", descending=True)[:2] == [3, 2]
    assert view.find(sort="lock")[0] == 4, "numbers among texts are compared as texts"


def test_columns_are_few_and_changes_bring_new_ones() -> None:
    held = rows()
    names = [column.name for column in PlainRows(held).columns()]
    assert names == ["enqueued_time", "subject", "body_text", "lock"]
    view = PlainRows(held, ["subject", "sequence_number"])
    assert [column.name for column in view.columns()] == ["subject"]
    held.patch({("orders", 1): {"outcome": "settled"}})
    assert [column.name for column in view.columns()] == ["subject", "outcome"]


def test_cells_are_visible_texts() -> None:
    held = rows()
    view = PlainRows(held)
    assert view.text(0, "body_text") == "body ⟨ESC⟩ 0"
    assert view.text(1, "enqueued_time") == "2026-01-01 00:01:00Z"
    assert view.text(0, "subject") == view.text(0, "not there") == ""
    held.patch({("orders", 1): {"outcome": "<b>" + "x" * 500}})
    assert view.text(0, "outcome").startswith("<b>xxx")
    assert len(view.text(0, "outcome")) < 250
