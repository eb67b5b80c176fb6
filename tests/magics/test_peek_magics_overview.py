from __future__ import annotations

from pathlib import Path

from sbnotebook.client.dead_letters import DeadLetters
from tests.magics.conftest import Shell


def dead_letter(shell: Shell, queue: str, *texts: str) -> None:
    shell.run(f"namespace.create_queue('{queue}')")
    shell.variables["texts"] = list(texts)
    assert shell.run(f"%sb_send {queue} texts").value.ok
    shell.run(f"%sb_lock {queue} -n {len(texts)}")
    assert shell.run("%sb_dead_letter --reason Late --yes").value.ok


def test_dlq_shows_queues_and_fails_above(shell: Shell) -> None:
    dead_letter(shell, "late-orders", "a", "b")
    found = shell.run("%sb_dlq late-orders").value
    assert isinstance(found, DeadLetters)
    assert [(str(each.address), each.count) for each in found] == [("late-orders/$dlq", 2)]
    assert shell.run("%sb_dlq late-orders --fail-above 2 --into kept").value is None
    assert shell.variables["kept"][0].growth == 0
    assert shell.error("%sb_dlq late-orders --fail-above 1").endswith("More than 1 dead letters: late-orders/$dlq (2).")
    assert "did you mean late-orders?" in shell.error("%sb_dlq late-order")


def test_report_is_written_once(shell: Shell, tmp_path: Path) -> None:
    dead_letter(shell, "reported", "a")
    ran = shell.run(f"%sb_dlq reported --to {tmp_path}/r.md")
    assert ran.out.startswith(f"Wrote {tmp_path}/r.md.")
    assert "reported/$dlq" in (tmp_path / "r.md").read_text()
    assert "exists: choose another name" in shell.error(f"%sb_dlq reported --to {tmp_path}/r.md")
    assert len(shell.run(f"%sb_dlq reported --to {tmp_path}/r.md --overwrite").value) == 1


def test_find_shows_messages_of_several_entities(shell: Shell) -> None:
    dead_letter(shell, "first-place", "needle", "hay")
    shell.run("namespace.create_queue('second-place')")
    shell.run("%sb_send second-place 'needle'")
    found = shell.run("""%sb_find first-place second-place --where "body_text = 'needle'" """).value
    assert [str(each.entity) for each in found] == ["first-place/$dlq", "second-place"]
    assert "Choose what to find" in shell.error("%sb_find first-place")
    assert shell.run("%sb_find first-place --message-id none").value.summary.startswith("No message with message_id")


def test_sql_cell_gives_a_frame_of_messages(shell: Shell) -> None:
    dead_letter(shell, "asked-in-sql", "a", "b")
    query = "select dead_letter_reason as reason, count(*) as n from messages group by all"
    frame = shell.run(f"%%sb_sql asked-in-sql/$dlq asked-in-sql\n{query}").value
    assert frame.to_dict("records") == [{"reason": "Late", "n": 2}]
    assert shell.run(f"%%sb_sql asked-in-sql/$dlq --into frame -n 1\n{query}").value is None
    assert list(shell.variables["frame"]["n"]) == [1]
    (row,) = shell.run(f'%sb_sql asked-in-sql/$dlq "{query}"').value.to_dict("records")
    assert row == {"reason": "Late", "n": 2}
    assert "Write the query in quotes" in shell.error("%sb_sql asked-in-sql/$dlq")
    assert "did you mean subject" in shell.error("%%sb_sql asked-in-sql\nselect subjet from messages")
    assert "There is no queue or topic 'asked-in-sq'" in shell.error("%%sb_sql asked-in-sq\nselect * from messages")


def test_diff_compares_messages_by_their_numbers(shell: Shell) -> None:
    dead_letter(shell, "differing", "a", "b")
    found = shell.run("%sb_diff differing/$dlq 1 2").value
    assert [(each.field, each.one, each.other) for each in found] == [("body_text line 1", "a", "b")]
    assert "There is no message 9" in shell.error("%sb_diff differing/$dlq 9")
