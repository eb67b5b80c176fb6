"""Magics that look: files, sessions, and parts of an entity."""

from __future__ import annotations

from pathlib import Path

from sbnotebook import read_messages
from tests.magics.conftest import Shell


def test_export_writes_the_messages_that_match(shell: Shell, tmp_path: Path) -> None:
    shell.run("%sb_create queue to-files\nrows = [{'subject': s, 'body': s} for s in 'abab']\n%sb_send to-files rows")
    file = tmp_path / "b.parquet"
    ran = shell.run(f"""%sb_peek to-files --to {file} --where "subject = 'b'" -n 1""")
    assert ran.out == f"Wrote 1 messages of to-files to {file}.\n"
    assert [message.body for message in read_messages(file)] == [b"b"]
    assert "exists" in shell.error(f"%sb_peek to-files --to {file}")
    assert shell.run(f"%sb_peek to-files --to {file} --overwrite --into path\npath").value == file
    assert len(read_messages(file)) == 4


def test_sessions_are_listed(shell: Shell) -> None:
    shell.run("%sb_create queue with-sessions --requires-session")
    shell.run("rows = [{'session_id': s, 'body': s} for s in 'xyx']\n%sb_send with-sessions rows")
    assert shell.run("%sb_entities with-sessions --sessions").value == ["x", "y"]
    assert len(shell.run("%sb_peek with-sessions --session x").value) == 2


def test_session_of_a_queue_without_sessions_is_empty(shell: Shell) -> None:
    shell.run("%sb_create queue sessionless\n%sb_send sessionless 'x'")
    assert len(shell.run("%sb_peek sessionless --session A").value) == 0


def test_peek_takes_a_range_and_one_number(shell: Shell) -> None:
    shell.run("%sb_create queue in-ranges\nrows = list('abcdef')\n%sb_send in-ranges rows")
    assert [m.body for m in shell.run("%sb_peek in-ranges --from 2 --to-sequence-number 3").value] == [b"b", b"c"]
    assert [m.body for m in shell.run("%sb_peek in-ranges --sequence-number 4").value] == [b"d"]
    assert len(shell.run("%sb_resubmit in-ranges --from 5 --dry-run").value) == 2
    assert len(shell.run("%sb_purge in-ranges --to-sequence-number 3 --dry-run").value) == 3
