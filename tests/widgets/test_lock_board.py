"""The lock board against the emulator, driven by clicks and values as a browser would."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from sbnotebook.client import Namespace
from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import LockedMessage, Message
from sbnotebook.widgets.lock_board import LockBoard
from tests.filled_queues import dead_letter_queue, filled_client_queue
from tests.widgets.conftest import click, find, names, said, until, write

EVIL = "<img src=x onerror=alert(1)> \x1b[31m"


def hostile_messages(count: int, session_id: str | None = None) -> list[Message]:
    """Return messages of which the first has a hostile subject."""
    return [Message(body=b"%d" % n, subject=EVIL if n == 0 else f"S{n}", session_id=session_id) for n in range(count)]


def shown(board: LockBoard) -> str:
    return f"{said(board)}\n{board.actions!r}"


def select(board: LockBoard, *numbers: int) -> None:
    board.table.select([(str(board.batch.address), number) for number in numbers])


def act(board: LockBoard, name: str, **fields: str) -> None:
    """Open a form, fill it in, look at the plan, and carry it out."""
    click(board, name)
    for field, value in fields.items():
        write(board, field.replace("_", " "), value)
    click(board, "Show the plan")
    before = board.actions.report
    click(board, "Carry out")
    until(lambda: board.actions.report is not before and not board.actions.is_looking, "the report")


@pytest.fixture
def boards() -> Iterator[list[LockBoard]]:
    opened: list[LockBoard] = []
    yield opened
    for board in opened:
        board.close()


def test_messages_are_shown_with_their_locks_and_settled(namespace: Namespace, boards: list[LockBoard]) -> None:
    queue = filled_client_queue(namespace, "settled", hostile_messages(6))
    board = LockBoard(namespace, queue.lock(4, renew_for="10m"))
    boards.append(board)
    assert "4 messages are held." in shown(board)
    assert [each.sequence_number for each in board.table.messages] == [1, 2, 3, 4]
    told = repr(board)
    assert "held" in told
    assert "\x1b" not in told
    assert "Held in settled on" in told
    click(board, "Lock more")
    until(lambda: len(board.table.messages) == 6, "two more")
    until(lambda: " locked." in shown(board), shown(board))
    click(board, "Lock more")
    until(lambda: "There is no more to lock now." in shown(board))
    before = board.batch.renew_until
    write(board, "Renew for", "soon")
    click(board, "Renew")
    assert repr(board).count("is not a duration") == 1, "below the field, and not once more at the foot"
    write(board, "Renew for", "30m")
    click(board, "Renew")
    until(lambda: board.batch.renew_until > before)
    until(lambda: "29m from now" in shown(board) or "30m from now" in shown(board), shown(board))

    click(board, "Complete…")
    click(board, "Show the plan")
    assert "No message is selected" in shown(board)
    select(board, 1)
    act(board, "Complete…")
    until(lambda: [each.sequence_number for each in board.table.messages] == [2, 3, 4, 5, 6], "the row to go")
    select(board, 2)
    act(board, "Dead-letter…", Reason="Odd", Description="it is")
    select(board, 3)
    act(board, "Defer…")
    select(board, 4)
    act(board, "Abandon…", After="")
    select(board, 5)
    act(board, "Release…")
    until(lambda: [each.sequence_number for each in board.table.messages] == [6], "all others are gone")
    assert "1 message is held." in shown(board)
    found = {each.sequence_number: (each.state, each.delivery_count) for each in queue.peek(show_progress=False)}
    assert found == {3: ("deferred", 1), 4: ("active", 1), 5: ("active", 0), 6: ("active", 0)}
    (letter,) = namespace.entity("settled/$dlq").peek(show_progress=False)
    assert (letter.dead_letter_reason, letter.dead_letter_error_description) == ("Odd", "it is")

    click(board, "Release all")
    until(lambda: "Carry out" in names(board))
    click(board, "Carry out")
    until(lambda: "No message is held. Lock some." in shown(board), shown(board))
    until(lambda: len(board.table.messages) == 0, "the last row to go")
    click(board, "Lock more")
    until(lambda: len(board.table.messages) == 3, "they can be locked again")


def test_lock_board_shows_lost_locks_at_once(
    namespace: Namespace, shared_emulator: RunningEmulator, boards: list[LockBoard]
) -> None:
    queue = filled_client_queue(namespace, "lost", hostile_messages(3))
    board = LockBoard(namespace, queue.lock(2))
    boards.append(board)
    shared_emulator.lose_locks("lost")
    select(board, 1)
    act(board, "Complete…")
    until(lambda: "lock is lost: #1. Leave" in shown(board), shown(board))
    assert "lost" in repr(board.table)
    until(lambda: "1 message is held." in shown(board), shown(board))
    click(board, "Complete…")
    click(board, "Show the plan")
    until(lambda: "None of the selected messages is held any more" in shown(board), shown(board))
    click(board, "Lock more")
    until(lambda: {each.sequence_number for each in board.table.messages} == {1, 2, 3}, "number 1 again, and number 3")
    until(lambda: "lost" not in repr(board.table), "number 1 is locked again")


def test_a_batch_that_is_closed_elsewhere_says_so(namespace: Namespace, boards: list[LockBoard]) -> None:
    queue = filled_client_queue(namespace, "closed", hostile_messages(2))
    batch = queue.lock(2)
    board = LockBoard(namespace, batch)
    boards.append(board)
    batch.complete(batch.messages[:1])
    until(lambda: "no longer held" in repr(board), repr(board))
    click(board, "Remove rows of messages that are not held")
    assert [each.sequence_number for each in board.table.messages] == [2]
    batch.close()
    until(lambda: "The batch is closed" in shown(board), shown(board))
    assert not find(board, "Lock more").is_enabled
    assert [each.delivery_count for each in queue.peek(show_progress=False)] == [0]


def test_a_double_click_locks_no_more_than_is_said(
    namespace: Namespace, boards: list[LockBoard], monkeypatch: pytest.MonkeyPatch
) -> None:
    boards.append(
        board := LockBoard(namespace, filled_client_queue(namespace, "clicked-twice", hostile_messages(3)).lock(1))
    )
    asked, clicked, receive = list[int](), threading.Event(), board.batch.receive

    def received(count: int, *, max_wait: float) -> tuple[LockedMessage, ...]:
        asked.append(count)
        clicked.wait()
        return receive(count, max_wait=max_wait)

    monkeypatch.setattr(board.batch, "receive", received)
    write(board, "More messages", 2)
    more = find(board, "Lock more")
    more.click()
    more.click()
    clicked.set()
    until(lambda: " locked." in shown(board), shown(board))
    assert asked == [2]


def test_more_locks_are_renewed_after_the_time_of_the_first(namespace: Namespace, boards: list[LockBoard]) -> None:
    queue = filled_client_queue(namespace, "late", hostile_messages(3))
    board = LockBoard(namespace, queue.lock(1, renew_for="100ms"))
    boards.append(board)
    until(lambda: "Locks are no longer renewed since" in shown(board), shown(board))
    write(board, "More messages", 2)
    click(board, "Lock more")
    until(lambda: "2 messages are locked." in shown(board), shown(board))
    assert board.batch.renew_until > datetime.now(UTC) + timedelta(minutes=29)
    until(lambda: "Locks are renewed until" in shown(board), shown(board))


def test_closing_the_board_releases_what_is_held(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "board-closed", hostile_messages(2))
    board = LockBoard(namespace, queue.lock(2))
    board.close()
    assert not board.batch.is_open
    assert board.batch.release_report is not None
    assert board.batch.release_report.settled == 2
    board.close()


def test_a_session_has_one_lock_for_all(
    namespace: Namespace, shared_emulator: RunningEmulator, boards: list[LockBoard]
) -> None:
    queue = filled_client_queue(namespace, "in-session", hostile_messages(3, "a"), requires_session=True)
    session = queue.session("a")
    board = LockBoard(namespace, session)
    boards.append(board)
    assert "No message is held. Lock some. Session 'a'." in shown(board)
    click(board, "Lock more")
    until(lambda: len(board.table.messages) == 3, "its messages")
    select(board, 1)
    act(board, "Complete…")
    until(lambda: "2 messages are held. Session 'a'." in shown(board), shown(board))
    shared_emulator.close_links("in-session")
    until(lambda: "The session is lost: lock it again to continue." in shown(board), shown(board))
    until(lambda: "2 locks are lost: #2, #3" in shown(board), shown(board))
    assert not find(board, "Lock more").is_enabled


def test_a_dead_letter_queue_has_nothing_to_dead_letter_to(namespace: Namespace, boards: list[LockBoard]) -> None:
    board = LockBoard(namespace, dead_letter_queue(namespace, "letters", hostile_messages(1)).lock(1))
    boards.append(board)
    assert "Complete…" in names(board)
    assert "Dead-letter…" not in names(board)
