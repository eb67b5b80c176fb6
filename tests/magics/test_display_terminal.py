"""In a plain IPython terminal, in a process of its own, everything is text."""

from __future__ import annotations

import subprocess
import sys

from sbnotebook.emulator import RunningEmulator

LINES = """
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
SHOWN = (
    "(emulator, Premium)",
    "Plan: send 1 message to term.",
    "send: 4 settled",
    "dead_letter",
    "term: 5 messages",
    "Locked in term: 2 messages",
    "locked_until",
    "The locks of 2 messages are renewed until",
    "dead-letter: 1 settled",
    "1 group",
    "Plan: complete 1 message of term.",
    "1 deferred in term: 1 in the journal",
    "active 1h later",
    "resubmit: 1 settled",
    "%sb_undo term --since 7d",
    "There are no interrupted resubmits.",
    "purge 5 messages of term",
    "%sb_nothing",
)


def test_magics_show_text(emulator: RunningEmulator) -> None:
    emulator.create_queue("term")
    code = LINES.replace("{connection}", emulator.connection_string)
    command = [sys.executable, "-m", "IPython", "--simple-prompt", "--colors=NoColor", "--no-banner", "--quick"]
    ended = subprocess.run(command, input=code, capture_output=True, text=True, check=False, timeout=200)
    assert not [words for words in SHOWN if words not in ended.stdout + ended.stderr], ended.stdout + ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr
    assert "<td" not in ended.stdout
    assert "\x1b" not in ended.stdout
