"""The content and the length of output."""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata
from pathlib import Path
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


def test_closed_batch_is_shown_as_a_table(notebook: Kernel) -> None:
    notebook.run("%sb_lock boarded --into old\n%sb_lock boarded --into new")
    (shown,) = [output["data"] for output in notebook.run("old").outputs]
    assert WIDGET not in shown
    assert "Locked in boarded" in shown["text/plain"]
    notebook.run("%sb_release")


# ----------------------------------------------------------------


pty = pytest.importorskip("pty", reason="Windows has none")

LINES = """\
%load_ext sbnotebook
%sb_connect env:PTY_CONNECTION --into ns
from sbnotebook import LockBoard, MessageTable
from sbnotebook.testing.hostile import hostile_messages, hostile_texts
ns.create_queue('pty'); queue = ns.entity('pty'); sent = queue.send(hostile_messages())
batch = queue.lock(60); pairs = list(zip(batch.messages, hostile_texts().values()))
dead = [batch.dead_letter([message], reason=text, description=text) for message, text in pairs]
%sb_peek pty/$dlq
%sb_groups pty/$dlq
%sb_triage pty/$dlq
%sb_browse pty/$dlq
%sb_monitor pty
%sb_resubmit pty/$dlq --dry-run
LockBoard(ns, queue.lock(3))
MessageTable(queue.peek(3))
[*queue.peek(100)]
1 / 0
exit
"""
SHOWN = ("Triage of pty/$dlq", "fingerprint", "Plan: resubmit", "Held in pty", "3 messages", "ZeroDivisionError")


def test_terminal_acts_on_nothing_of_a_message(emulator: RunningEmulator, tmp_path: Path) -> None:
    mine, its = pty.openpty()
    variables = {"PTY_CONNECTION": emulator.connection_string, "IPYTHONDIR": str(tmp_path), "TERM": "xterm-256color"}
    options = ("--simple-prompt", "--colors=NoColor", "--no-banner", "--no-term-title", "--no-confirm-exit")
    command = [sys.executable, "-m", "IPython", *options]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=its, stderr=its, env={**os.environ, **variables}
    ) as ran:
        os.close(its)
        assert ran.stdin
        ran.stdin.write(LINES.encode())
        ran.stdin.close()
        said = _until_the_end(mine)
    for text in SHOWN:
        assert text in said, said[-2000:]
    assert {one for one in said if unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp")} <= {"\r", "\n"}


def _until_the_end(terminal: int) -> str:
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(terminal, 65_536)
        except OSError:  # what Linux says where the other end is closed
            part = b""
        if not part:
            os.close(terminal)
            return b"".join(parts).decode(errors="replace")
        parts.append(part)


# ----------------------------------------------------------------


LINES_TERMINAL = """
%load_ext sbnotebook
%sb_connect {connection} --into namespace
%sb_connect {connection}
%sb_send term 'hello' --subject <b>bold</b>
rows = [dict(subject=s, body=s) for s in 'abcd']
%sb_send term rows
%sb_entities
%sb_peek term
%sb_lock term -n 2
%sb_lock
%sb_renew --for 1h
%sb_dead_letter --reason Bad --where "subject = 'a'"
%sb_release
%sb_groups term/$dlq
%sb_pick term --where "subject = 'c'" --complete
%sb_lock term -n 1
%sb_defer
%sb_deferred term
%sb_send term 'later' --delay 1h
%sb_peek term --state scheduled
%sb_resubmit term/$dlq
%sb_journal
%sb_undo
%sb_resume
%sb_purge term --dry-run
%sb_browse term
%sb_triage term/$dlq
%sb_monitor term
%sb_nothing
"""
SHOWN_TERMINAL = (
    "(emulator, Premium)",
    "Plan: send 1 message to term.",
    "Sent 4 messages",
    "dead_letter",
    "term: 5 messages",
    "Locked in term: 2 messages",
    "locked_until",
    "The locks of 2 messages are renewed until",
    "Dead-lettered 1 message",
    "1 group",
    "Plan: complete 1 message of term.",
    "1 deferred in term: 1 in the journal",
    "active 1h later",
    "Resubmitted 1 message",
    "%sb_undo term --since 7d",
    "There are no interrupted resubmits.",
    "purge 5 messages of term",
    "%sb_nothing",
)


def test_magics_show_text(emulator: RunningEmulator) -> None:
    emulator.create_queue("term")
    code = LINES_TERMINAL.replace("{connection}", emulator.connection_string)
    command = [sys.executable, "-m", "IPython", "--simple-prompt", "--colors=NoColor", "--no-banner", "--quick"]
    ended = subprocess.run(command, input=code, capture_output=True, text=True, check=False, timeout=200)
    assert not [words for words in SHOWN_TERMINAL if words not in ended.stdout + ended.stderr], (
        ended.stdout + ended.stderr
    )
    assert "Traceback" not in ended.stdout + ended.stderr
    assert "<td" not in ended.stdout
    assert "\x1b" not in ended.stdout
