from __future__ import annotations

import threading
from typing import Any

import ipywidgets
import pytest

from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.widgets.table.plain_table import PlainRows, PlainTable
from sbnotebook.widgets.table.rows import RowModel
from tests.widgets.conftest import named, parts, until


def message(number: int, reason: str = "Bad", entity: str = "orders/$dlq") -> PeekedMessage:
    properties: Any = {"DeadLetterReason": reason}
    return PeekedMessage(
        entity=EntityAddress.parse(entity),
        sequence_number=number,
        subject=f"S{number}",
        body=b"body of %d" % number,
        application_properties=properties,
    )


def key(number: int, entity: str = "orders/$dlq") -> tuple[str, int]:
    return entity, number


def texts(table: ipywidgets.Widget) -> str:
    return "\n".join(each.value for each in parts(table) if isinstance(each, ipywidgets.Label))


@pytest.fixture
def table() -> PlainTable:
    return PlainTable(RowModel([message(n) for n in range(1, 51)]))


def test_rows_come_page_by_page(table: PlainTable) -> None:
    assert "1 to 20 of 50, 0 selected" in texts(table)
    assert named(table, "Previous").disabled
    named(table, "Next").click()
    named(table, "Next").click()
    assert "41 to 50 of 50" in texts(table)
    assert named(table, "Next").disabled
    assert "S50" in texts(table)
    assert "S1\n" not in texts(table)


def test_what_is_ticked_stays_selected_whatever_is_shown(table: PlainTable) -> None:
    calls: list[int] = []
    end = table.on_selection(lambda: calls.append(len(table.selected_keys)))
    named(table, "#3").value = True
    named(table, "Next").click()
    named(table, "#25").value = True
    assert table.selected_keys == (key(3), key(25))
    assert [each.subject for each in table.selected] == ["S3", "S25"]
    assert calls == [1, 2]
    named(table, "Find").value = "S2"
    until(lambda: "of 11 found (50 in all), 2 selected (1 not among those found)" in texts(table))
    assert table.hidden == 1
    named(table, "Select all of these").click()
    assert len(table.selected_keys) == 12
    named(table, "Find").value = ""
    until(lambda: "of 50, 12 selected" in texts(table))
    named(table, "#3").value = False
    assert key(3) not in table.selected_keys
    end()
    named(table, "Clear selection").click()
    assert table.selected_keys == ()
    assert calls[-1] == 11, "nothing is told after the end"


def test_what_is_selected_is_what_is_searched_for_now(table: PlainTable, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, find = threading.Event(), PlainRows.find

    def find_slowly(self: PlainRows, *given: Any, **options: Any) -> list[int]:
        if threading.current_thread() is not threading.main_thread():
            go_on.wait()
        return find(self, *given, **options)

    monkeypatch.setattr(PlainRows, "find", find_slowly)  # many rows take their time
    named(table, "Find").value = "body of 7"
    named(table, "Select all of these").click()
    assert table.selected_keys == (key(7),)
    go_on.set()
    assert "1 to 1 of 1 found (50 in all), 1 selected" in texts(table)


def test_plain_table_late_click_is_for_its_own_message(table: PlainTable) -> None:
    late = named(table, "#3")
    named(table, "Next").click()
    late.value = True  # as it comes from a browser that has not drawn the next page
    assert key(23) not in table.selected_keys
    assert set(table.selected_keys) <= {key(3)}
    table.remove([key(3)])
    late.value = False
    late.value = True
    assert table.selected_keys == ()


def test_rows_are_replaced_added_changed_and_removed(table: PlainTable) -> None:
    table.select([key(2), key(4), key(7), ("elsewhere", 1)])
    table.show([message(n) for n in range(4, 30)], {"lock": ["held"] * 26})
    assert table.selected_keys == (key(4), key(7)), "by key, not by place"
    table.append([message(4), message(1, entity="other")])
    assert len(table.messages) == 27
    table.patch({key(4): {"outcome": "settled"}, ("elsewhere", 9): {"outcome": "lost"}})
    assert "settled" in texts(table)
    assert "outcome" in dict(named(table, "Sort by").options).values() or "outcome" in texts(table)
    table.remove([key(4), ("elsewhere", 9)])
    assert table.selected_keys == (key(7),)
    assert len(table.messages) == 26
    assert "S4\n" not in texts(table)
    assert "26 messages" in repr(table)


def test_rows_are_sorted(table: PlainTable) -> None:
    named(table, "Sort by").value = "subject"
    until(lambda: 0 <= (shown := texts(table)).find("S10\n") < shown.find("S2\n"))
    named(table, "descending").value = True
    until(lambda: "S9" in texts(table) and "S10\n" not in texts(table))


def test_causes_are_chosen_and_have_notes() -> None:
    table = PlainTable(RowModel([message(n, "Bad" if n % 3 else "Worse") for n in range(1, 10)], causes=True))
    causes = named(table, "Cause")
    until(lambda: len(causes.options) > 2, "the causes")
    notes: list[tuple[str, str]] = []
    table.on_note(lambda fingerprint, words: notes.append((fingerprint, words)))
    chosen = next(fingerprint for name, fingerprint in causes.options if name.startswith("3 with Worse"))
    table.set_notes({chosen: "known"})
    causes.value = chosen
    until(lambda: "1 to 3 of 3 found (9 in all)" in texts(table))
    note = named(table, "Note")
    assert note.value == "known"
    assert notes == []
    note.value = "mended"
    assert notes == [(chosen, "mended")]
    causes.value = ""
    until(lambda: "of 9, " in texts(table))
    assert notes == [(chosen, "mended")]


def test_one_message_is_shown_with_all_that_it_carries(table: PlainTable) -> None:
    named(table, "Look").click()
    areas = [each for each in parts(table) if isinstance(each, ipywidgets.Textarea)]
    until(lambda: any("body of 1" in each.value for each in areas), "the message")
    told = next(each.value for each in areas if "body of 1" in each.value)
    assert "Message 1 of orders/$dlq" in told
    assert "Dead letter\n  Bad\n" in told


def test_plain_table_breaks_long_lines_of_mixed_direction() -> None:
    table = PlainTable(RowModel([message(1).with_changes(body="\u05d0a".encode() * 50_000)]))
    named(table, "Look").click()
    areas = [each for each in parts(table) if isinstance(each, ipywidgets.Textarea)]
    until(lambda: any("\u05d0" in each.value for each in areas), "the message")
    told = next(each.value for each in areas if "\u05d0" in each.value)
    assert max(map(len, told.splitlines())) <= 500
    assert told.count("\u05d0") == 50_000
    table.close()


def test_texts_of_messages_are_never_mathematics_or_html() -> None:
    table = PlainTable(RowModel([message(1, "$\\href{javascript:x}{y}$ <img src=x>")]))
    states = [each.get_state() for each in parts(table) if isinstance(each, ipywidgets.Label)]
    cells = [state for state in states if "$" in state["value"]]
    assert cells
    assert all("mathjax_ignore" in state["_dom_classes"] for state in cells)
    markup = [each.value for each in parts(table) if isinstance(each, ipywidgets.HTML)]
    assert not any("img" in each for each in markup)
