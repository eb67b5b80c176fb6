from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.widgets.table import message_table, message_view
from sbnotebook.widgets.table.message_table import MessageTable
from sbnotebook.widgets.table.message_view import MessageView
from sbnotebook.widgets.table.plain_table import PlainTable

if TYPE_CHECKING:
    import pytest


def message(number: int) -> PeekedMessage:
    return PeekedMessage(entity=EntityAddress("orders"), sequence_number=number, subject=f"S{number}")


def key(number: int) -> tuple[str, int]:
    return "orders", number


def shown(view: MessageView) -> MessageTable | PlainTable:
    (table,) = (child for child in view.children if isinstance(child, MessageTable | PlainTable))
    return table


def notice(view: MessageView) -> Any:
    (_, button) = view.children[0].children
    return button if view.children[0].layout.display is None else None


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 (there is no event)
            await asyncio.sleep(0.05)


def hear(view: MessageView) -> None:
    """What the browser sends as soon as it has loaded the table."""
    own: Any = view.own
    own._handle_custom_msg({"kind": "ready", "page": "p1"}, [])  # noqa: SLF001 (as a kernel calls it)


def test_message_view_swap_keeps_rows_and_selection() -> None:
    view = MessageView([message(n) for n in range(1, 6)], countdown=True)
    swaps: list[bool] = []
    changes: list[tuple[tuple[str, int], ...]] = []
    view.on_swap(swaps.append)
    view.on_selection(lambda: changes.append(view.selected_keys))
    view.select([key(2), key(4)])
    view.patch({key(2): {"outcome": "settled"}})
    view.remove([key(1)])
    view.use_plain()
    assert isinstance(shown(view), PlainTable)
    assert view.selected_keys == (key(2), key(4))
    assert [each.sequence_number for each in view.messages] == [2, 3, 4, 5]
    view.patch({key(3): {"outcome": "lock lost"}})
    view.append([message(6)])
    view.remove([key(2)])
    view.select([key(6), key(4)])
    view.use_plain(False)
    assert isinstance(shown(view), MessageTable)
    assert view.selected_keys == (key(4), key(6))
    assert [each.sequence_number for each in view.messages] == [3, 4, 5, 6]
    assert swaps == [True, False]
    assert changes[-1] == (key(4), key(6))
    view.show([message(4)])
    assert view.selected_keys == (key(4),)
    assert "1 message" in repr(view)
    view.close()


def test_the_other_is_chosen_by_hand_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_view, "_HINT_AFTER", 0.5)

    async def kernel() -> None:
        view = MessageView([message(1)])
        assert notice(view) is None
        await until(lambda: notice(view) is not None)
        assert isinstance(shown(view), MessageTable)
        notice(view).click()
        assert isinstance(shown(view), PlainTable)
        hear(view)
        assert isinstance(shown(view), PlainTable), "the user chose it"
        notice(view).click()
        assert isinstance(shown(view), MessageTable)
        assert notice(view) is None

    asyncio.run(kernel())


def test_message_view_silent_browser_gets_the_plain_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(message_view, "_PLAIN_AFTER", 0.5)

    async def kernel() -> None:
        view = MessageView([message(1), message(2)])
        view.select([key(2)])
        await until(lambda: view.is_plain)
        assert notice(view) is not None
        assert view.selected_keys == (key(2),)
        hear(view)
        assert not view.is_plain
        assert view.selected_keys == (key(2),)
        assert notice(view) is None

    asyncio.run(kernel())


def test_a_browser_that_speaks_in_time_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_view, "_PLAIN_AFTER", 0.5)
    monkeypatch.setattr(message_view, "_HINT_AFTER", 0.5)

    async def kernel() -> None:
        view, silent = MessageView([message(1)]), MessageView([message(1)])
        hear(view)
        await until(lambda: silent.is_plain)
        assert not view.is_plain
        assert notice(view) is None

    asyncio.run(kernel())


def test_a_browser_that_answers_while_the_table_is_made_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_view, "_PLAIN_AFTER", 0.5)

    def answer(table: Any) -> None:  # at the moment from which the subshell takes what the browser sends
        table._handle_custom_msg({"kind": "ready", "page": "p1"}, [])  # noqa: SLF001 (as a kernel calls it)

    async def kernel() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(message_table, "answer_at_once", answer)
            view = MessageView([message(1)])
        silent = MessageView([message(1)])
        await until(lambda: silent.is_plain)
        assert not view.is_plain
        assert notice(view) is None

    asyncio.run(kernel())


def test_the_environment_has_the_plain_one_from_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBNOTEBOOK_WIDGETS", "plain")
    view = MessageView([message(1)], causes=True)
    assert view.is_plain
    assert isinstance(shown(view), PlainTable)
    assert notice(view) is None
    view.use_plain(False)
    assert view.is_plain, "there is no other"
    notes: list[tuple[str, str]] = []
    view.on_note(lambda cause, words: notes.append((cause, words)))
    view.set_notes({"f": "known"})
    assert notes == []
