"""The lock board: countdowns, settling and lost locks; in JupyterLab also while a cell keeps the kernel busy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import RUN_TIMEOUT, Run

SET_UP = """
from sbnotebook import Message
from sbnotebook.widgets.lock_board import LockBoard

namespace.create_queue("orders")
orders = namespace.entity("orders")
subjects = ["<b>odd</b> $x$"] + [f"flight {n}" for n in range(1, 11)] + ["needle"]
assert orders.send([Message(body=b"{}", subject=each) for each in subjects]).ok
"""
TIME_LEFT = """(board) => {
    const names = [...board.querySelectorAll("[role=columnheader]")];
    const place = names.findIndex((name) => name.dataset.column === "locked_until");
    const last = [...board.querySelectorAll(".sbn-row:not([hidden])")].at(-1);
    const [minutes, seconds] = last.children[place].textContent.split(":").map(Number);
    return 60 * minutes + seconds;
}"""
FALLS = f"([board, before]) => ({TIME_LEFT})(board) < before"


def count_is(board: Locator, text: str) -> None:
    expect(board.locator(".sbn-counts")).to_have_text(text, timeout=RUN_TIMEOUT)


def tick(board: Locator, *places: int) -> None:
    for place in places:
        board.locator(".sbn-row:not([hidden]) .sbn-check").nth(place).click()


def click(board: Locator, name: str) -> None:
    # Before it is the icon, which is a letter of its own.
    board.get_by_role("button", name=re.compile(f"{re.escape(name)}$")).click()


def see(board: Locator, text: str) -> None:
    expect(board.get_by_text(text).first).to_be_visible(timeout=RUN_TIMEOUT)


def countdown_falls(page: Page, board: Locator) -> None:
    """The time that is left of the last lock that is shown becomes less."""
    before = board.evaluate(TIME_LEFT)
    assert before > 0
    page.wait_for_function(FALLS, arg=[board.element_handle(), before], timeout=RUN_TIMEOUT)


@pytest.mark.browser
def test_lock_board_settles_and_shows_lost_locks_while_a_cell_runs(run: Run, tmp_path: Path) -> None:
    notebook = run([SET_UP, "board = LockBoard(namespace, orders.lock(12))\nboard"])
    page = notebook.page
    board = page.locator(".jp-OutputArea-output .sbn-panel").first
    count_is(board, "12 shown")
    expect(board.locator("b")).to_have_count(0)
    expect(board.locator(".sbn-row").first).to_contain_text("<b>odd</b> $x$")
    expect(board.get_by_role("columnheader", name="time left")).to_be_visible()
    countdown_falls(page, board)

    tick(board, 0, 1)
    count_is(board, "12 shown, 2 selected")
    click(board, "Complete…")
    click(board, "Show the plan")
    click(board, "Carry out")
    count_is(board, "10 shown")
    see(board, "10 messages are held.")
    assert notebook.kernel("print(emulator.counts('orders').active)") == "10"

    # Work continues during a long cell, and clicks are answered.
    tick(board, 0, 1, 2)
    click(board, "Complete…")
    click(board, "Show the plan")
    notebook.kernel("emulator.freeze('orders')")
    click(board, "Carry out")
    see(board, "0 of 3")
    with notebook.busy(tmp_path, "emulator.thaw()"):
        count_is(board, "7 shown")
        see(board, "7 messages are held.")
        countdown_falls(page, board)
        board.get_by_role("searchbox", name="Search").fill("needle")
        count_is(board, "1 of 7 shown")
        click(board, "Release…")
        see(board, "their delivery count stays")

    notebook.kernel("emulator.lose_locks('orders')")
    click(board, "Select 1 shown")
    click(board, "Show the plan")
    click(board, "Carry out")
    see(board, "1 lock is lost: #12.")
    for text in ("lost", "ended"):
        expect(board.locator(".sbn-row:not([hidden])").first).to_contain_text(text)
    assert notebook.kernel("print(emulator.counts('orders').active)") == "7"
    assert (notebook.external, notebook.errors) == ([], [])
    assert notebook.largest < 1_000_000
