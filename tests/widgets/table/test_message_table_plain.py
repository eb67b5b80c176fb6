"""The plain table, with its blocks clicked as plain ipywidgets would."""

from __future__ import annotations

from typing import Any

import pytest

from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.widgets.blocks import Block
from sbnotebook.widgets.panel import Panel
from sbnotebook.widgets.renderers.words import text_of
from sbnotebook.widgets.table.message_table import MessageTable, PlainTable
from tests.widgets.conftest import click, find, names, write


class Plain(Panel):
    """A panel with nothing but the table."""

    def __init__(self, messages: list[PeekedMessage], *, causes: bool = False) -> None:
        super().__init__()
        self.table = MessageTable(messages, causes=causes)
        self._plain = PlainTable(self.table, self.redraw)

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


def texts(plain: Plain) -> str:
    return text_of(plain.blocks())


def shown(plain: Plain) -> list[str]:
    """The messages of the page, in their order."""
    return [each for each in names(plain) if each.startswith("#")]


@pytest.fixture
def plain() -> Plain:
    return Plain([message(n) for n in range(1, 51)])


def test_rows_come_page_by_page(plain: Plain) -> None:
    assert "1 to 20 of 50, 0 selected" in texts(plain)
    assert not find(plain, "Previous").is_enabled
    click(plain, "Next")
    click(plain, "Next")
    assert "41 to 50 of 50" in texts(plain)
    assert not find(plain, "Next").is_enabled
    assert "S50" in texts(plain)
    assert "S1 " not in texts(plain)


def test_what_is_ticked_stays_selected_whatever_is_shown(plain: Plain) -> None:
    calls: list[int] = []
    end = plain.table.on_selection(lambda: calls.append(len(plain.table.selected_keys)))
    write(plain, "#3", True)
    click(plain, "Next")
    write(plain, "#25", True)
    assert plain.table.selected_keys == (key(3), key(25))
    assert calls == [1, 2]
    write(plain, "Find", "s2")
    assert "of 11 found (50 in all), 2 selected (1 not among those found)" in texts(plain)
    click(plain, "Select all of these")
    assert len(plain.table.selected_keys) == 12
    assert plain.table.hidden == 1
    write(plain, "Find", "")
    assert "of 50, 12 selected" in texts(plain)
    write(plain, "#3", False)
    assert key(3) not in plain.table.selected_keys
    end()
    click(plain, "Clear selection")
    assert plain.table.selected_keys == ()
    assert calls[-1] == 11, "nothing is told after the end"


def test_rows_are_sorted_by_a_column_that_users_choose(plain: Plain) -> None:
    plain.table.patch({key(7): {"outcome": "settled"}, key(9): {"outcome": "lost"}})
    write(plain, "Sort by", "outcome")
    assert shown(plain)[:4] == ["#9", "#7", "#1", "#2"], "those without a value come last"
    write(plain, "largest first", True)
    assert shown(plain)[:4] == ["#7", "#9", "#1", "#2"]
    write(plain, "Sort by", "sequence")
    assert shown(plain)[:2] == ["#50", "#49"]
    write(plain, "Find", "s1")
    assert shown(plain)[0] == "#19"
    write(plain, "Sort by", "as they came")
    assert shown(plain)[:2] == ["#1", "#10"]


def test_plain_table_late_click_is_for_its_own_message(plain: Plain) -> None:
    late = find(plain, "#3")
    click(plain, "Next")
    plain.act(late, True)  # as it comes from a browser that has not drawn the next page
    assert plain.table.selected_keys == (key(3),)
    plain.table.remove([key(3)])
    plain.act(late, True)
    assert plain.table.selected_keys == ()


def test_rows_are_replaced_added_changed_and_removed(plain: Plain) -> None:
    plain.table.select([key(2), key(4), key(7), ("elsewhere", 1)])
    plain.table.show([message(n) for n in range(4, 30)], {"lock": ["held"] * 26})
    assert plain.table.selected_keys == (key(4), key(7)), "by key, not by place"
    plain.table.append([message(4), message(1, entity="other")])
    plain.table.patch({key(4): {"outcome": "settled"}, ("elsewhere", 9): {"outcome": "lost"}})
    assert "settled" in texts(plain)
    assert "held" in texts(plain)
    plain.table.remove([key(4), ("elsewhere", 9)])
    assert plain.table.selected_keys == (key(7),)
    assert "1 to 20 of 26, 1 selected" in texts(plain)
    assert "S4 " not in texts(plain)
    plain.table.append([message(4), message(5)])
    assert "1 to 20 of 27" in texts(plain), "the one that was removed is back, and no other is there twice"
    with pytest.raises(ValueError, match="'lock' has 1 values for 2 messages: give one for each"):
        plain.table.show([message(1), message(2)], {"lock": ["held"]})


def test_a_cause_is_chosen_noted_and_a_message_looked_at() -> None:
    plain = Plain([message(1), message(2, "Odd"), message(3)], causes=True)
    texts(plain)
    assert plain.table.wait_for_causes(60)
    notes: list[tuple[str, str]] = []
    plain.table.on_note(lambda *note: notes.append(note))
    write(plain, "Cause", find(plain, "Cause").options[1])
    assert "1 to 2 of 2 found (3 in all)" in texts(plain)
    write(plain, "Note", "a bug")
    assert [text for _, text in notes] == ["a bug"]
    write(plain, "Cause", find(plain, "Cause").options[2])
    click(plain, "Look")
    assert "Message 2 of orders/$dlq" in texts(plain)
    assert "body of 2" in texts(plain)
    click(plain, "Close")
    assert "body of 2\n" not in texts(plain)
