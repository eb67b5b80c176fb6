"""Hostile messages in a real terminal: it executes nothing that magics and panels print of them."""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from sbnotebook.emulator import RunningEmulator

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
