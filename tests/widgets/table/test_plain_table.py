"""The plain table, with its blocks clicked as plain ipywidgets would."""

from __future__ import annotations

from typing import Any

import pytest

from sbnotebook.client import Messages
from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.widgets.blocks import Block
from sbnotebook.widgets.panel import Panel
from sbnotebook.widgets.renderers.terminal import text_of
from sbnotebook.widgets.table.plain_table import PlainTable
from sbnotebook.widgets.table.rows import MessageRows, RowModel
from tests.widgets.conftest import click, find, write


class Plain(MessageRows, Panel):
    """A panel with nothing but the table."""

    def __init__(self, messages: list[PeekedMessage], *, causes: bool = False) -> None:
        super().__init__()
        self.model = RowModel(messages, causes=causes)
        self._plain = PlainTable(self.model, self.redraw)

    def blocks(self) -> list[Block]:
        return self._plain.blocks()


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


def texts(table: Plain) -> str:
    return text_of(table.blocks())


@pytest.fixture
def table() -> Plain:
    return Plain([message(n) for n in range(1, 51)])


def test_rows_come_page_by_page(table: Plain) -> None:
    assert "1 to 20 of 50, 0 selected" in texts(table)
    assert not find(table, "Previous").is_enabled
    click(table, "Next")
    click(table, "Next")
    assert "41 to 50 of 50" in texts(table)
    assert not find(table, "Next").is_enabled
    assert "S50" in texts(table)
    assert "S1 " not in texts(table)


def test_what_is_ticked_stays_selected_whatever_is_shown(table: Plain) -> None:
    calls: list[int] = []
    end = table.on_selection(lambda: calls.append(len(table.selected_keys)))
    write(table, "#3", True)
    click(table, "Next")
    write(table, "#25", True)
    assert table.selected_keys == (key(3), key(25))
    assert calls == [1, 2]
    write(table, "Find", "s2")
    assert "of 11 found (50 in all), 2 selected (1 not among those found)" in texts(table)
    click(table, "Select all of these")
    assert len(table.selected_keys) == 12
    assert table.hidden == 1
    write(table, "Find", "")
    assert "of 50, 12 selected" in texts(table)
    write(table, "#3", False)
    assert key(3) not in table.selected_keys
    end()
    click(table, "Clear selection")
    assert table.selected_keys == ()
    assert calls[-1] == 11, "nothing is told after the end"


def test_plain_table_late_click_is_for_its_own_message(table: Plain) -> None:
    late = find(table, "#3")
    click(table, "Next")
    table.act(late, True)  # as it comes from a browser that has not drawn the next page
    assert table.selected_keys == (key(3),)
    table.remove([key(3)])
    table.act(late, True)
    assert table.selected_keys == ()


def test_rows_are_replaced_added_changed_and_removed(table: Plain) -> None:
    table.select([key(2), key(4), key(7), ("elsewhere", 1)])
    table.show([message(n) for n in range(4, 30)], {"lock": ["held"] * 26})
    assert table.selected_keys == (key(4), key(7)), "by key, not by place"
    table.append([message(4), message(1, entity="other")])
    table.patch({key(4): {"outcome": "settled"}, ("elsewhere", 9): {"outcome": "lost"}})
    assert "settled" in texts(table)
    assert "held" in texts(table)
    table.remove([key(4), ("elsewhere", 9)])
    assert table.selected_keys == (key(7),)
    assert "1 to 20 of 26, 1 selected" in texts(table)
    assert "S4 " not in texts(table)


def test_a_cause_is_chosen_noted_and_a_message_looked_at() -> None:
    table = Plain([message(1), message(2, "Odd"), message(3)], causes=True)
    texts(table)
    assert table.model.wait_for_causes(60)
    notes: list[tuple[str, str]] = []
    table.on_note(lambda *note: notes.append(note))
    write(table, "Cause", find(table, "Cause").options[1])
    assert "1 to 2 of 2 found (3 in all)" in texts(table)
    write(table, "Note", "a bug")
    assert [text for _, text in notes] == ["a bug"]
    write(table, "Cause", find(table, "Cause").options[2])
    click(table, "Look")
    assert "Message 2 of orders/$dlq" in texts(table)
    assert "body of 2" in texts(table)
    click(table, "Close")
    assert "body of 2\n" not in texts(table)


def test_the_detail_of_a_decoded_message_is_its_value() -> None:
    table = Plain([])
    table.model.show(Messages([message(1)]).decode(lambda body: {"size": len(body)}), {})
    click(table, "Look")
    assert '"size": 9' in texts(table)
