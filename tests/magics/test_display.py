"""The content and the length of output."""

from __future__ import annotations

from typing import Any

import pytest

from sbnotebook.emulator import RunningEmulator
from tests.magics.conftest import Kernel, Shell

WIDGET = "application/vnd.jupyter.widget-view+json"


def test_so_many_rows_are_shown_as_the_setting_says(shell: Shell) -> None:
    shell.run("namespace.create_queue('rows')\nrows = [f'row-{n}' for n in range(60)]\n%sb_send rows rows")
    peeked = shell.run("%sb_peek rows").value
    formats: Any = shell.ipython.display_formatter.format

    def shown() -> tuple[int, int]:
        data = formats(peeked)[0]
        return data["text/plain"].count("row-"), data["text/html"].count("row-")

    assert shown() == (20, 50)
    shell.run("%config SbMagics.max_rows = 3")
    assert shown() == (3, 3)
    shell.run("%config SbMagics.max_rows = None")
    assert shown() == (20, 50)
    assert len(peeked) == 60


def test_terminal_has_no_widgets(shell: Shell) -> None:
    shell.run("namespace.create_queue('held')\n%sb_send held 'x'")
    batch = shell.run("%sb_lock held").value
    data = shell.ipython.display_formatter.format(batch)[0]
    assert WIDGET not in data
    assert data["text/plain"].startswith("Locked in held: 1 message")
    shell.run("%sb_release")


@pytest.fixture(scope="module")
def notebook(kernel: Kernel, emulator: RunningEmulator) -> Kernel:
    emulator.create_queue("boarded")
    kernel.run(f"%sb_connect {emulator.connection_string}")
    kernel.run("%sb_send boarded 'x'")
    return kernel


def test_in_a_notebook_what_is_held_is_a_board(notebook: Kernel) -> None:
    (shown,) = [output["data"] for output in notebook.run("%sb_lock boarded --into batch\n%sb_lock").outputs]
    assert WIDGET in shown
    assert "boarded" in shown["text/plain"]
    assert notebook.run("%sb_lock boarded --into batch").text.startswith("Released 1 of the messages")
    notebook.run("%sb_release")


def test_batch_has_one_board_however_often_it_is_shown(notebook: Kernel) -> None:
    notebook.run("import gc, threading\nfrom ipywidgets.widgets.widget import _instances as kept")
    widgets = "print(sum(type(each).__name__ == 'LockBoard' for each in gc.get_objects()), len(kept))"
    threads = "print(sum(each.name == 'sbnotebook lock board' for each in threading.enumerate()))"
    notebook.run("%sb_lock boarded")
    boards, before = map(int, notebook.run(widgets).text.split())
    assert WIDGET in str(notebook.run("%sb_lock").outputs)
    assert notebook.run(widgets).text.split() == [str(boards), str(before)]
    assert notebook.run(threads).text.strip() == "1"
    notebook.run("%sb_lock boarded")
    assert int(notebook.run(widgets).text.split()[0]) == boards + 1
    notebook.run("%sb_release")


def test_closed_batch_is_shown_as_a_table(notebook: Kernel) -> None:
    notebook.run("%sb_lock boarded --into old\n%sb_lock boarded --into new")
    (shown,) = [output["data"] for output in notebook.run("old").outputs]
    assert WIDGET not in shown
    assert "Locked in boarded" in shown["text/plain"]
    notebook.run("%sb_release")
