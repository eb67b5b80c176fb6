from __future__ import annotations

from sbnotebook.emulator import RunningEmulator
from tests.magics.conftest import Shell


def fill(shell: Shell, queue: str, subjects: str) -> None:
    shell.run(f"namespace.create_queue('{queue}')")
    shell.variables["rows"] = [{"subject": subject, "body": subject} for subject in subjects]
    assert shell.run(f"%sb_send {queue} rows").value.settled == len(subjects)


def bodies(shell: Shell, address: str) -> list[bytes]:
    return [message.body for message in shell.run(f"%sb_peek {address} -n all").value]


def test_resubmit_repairs_and_shows_the_change(shell: Shell, emulator: RunningEmulator) -> None:
    shell.run("namespace.create_queue('repair')\nnamespace.create_queue('repaired')")
    shell.variables["rows"] = [{"subject": s, "body": f'{{"time": null, "s": "{s}"}}'} for s in ("a", "b", "c")]
    shell.run("%sb_send repair rows\n%sb_lock repair -n 3\n%sb_dead_letter --reason NoTime")
    shell.run("def fix(message):\n    return message.with_changes(body=message.body.replace(b'null', b'150'))")

    line = """%sb_resubmit repair/$dlq --where "subject <> 'b'" --to repaired --edit fix --max-resubmits 5"""
    dry = shell.run(f"{line} --dry-run").value
    assert [(change.field, change.after) for change in dry.preview().changes] == [("body.time", "150")] * 2
    assert "body.time" in repr(dry)
    assert emulator.counts("repaired").active == 0

    ran = shell.run(line)
    assert "resubmit 2 messages of repair/$dlq to repaired, at most 5 times each (then left here), edited." in ran.out
    assert ran.value.settled == 2
    sent = shell.run("%sb_peek repaired").value
    assert [m.body for m in sent] == [b'{"time": 150, "s": "a"}', b'{"time": 150, "s": "c"}']
    assert [m.subject for m in shell.run("%sb_peek repair/$dlq").value] == ["b"]


def test_resubmit_holds_back_what_follows_a_failed_ramp(shell: Shell) -> None:
    shell.run("namespace.create_queue('ramped')\nrows = ['a', 'b', 'c']\n%sb_send ramped rows")
    shell.run("%sb_lock ramped -n 3\n%sb_dead_letter --reason Bad")
    wrong = shell.error("%sb_resubmit ramped/$dlq --watch 5m")
    assert wrong == "--watch and --stop-at go with --ramp, such as --ramp 1,5,20,100."
    assert "'soon' is not a duration" in shell.error("%sb_resubmit ramped/$dlq --ramp 1 --watch soon")
    dry = shell.run("%sb_resubmit ramped/$dlq --ramp 1 --watch 90s --stop-at 0 --dry-run").value
    assert repr(dry).startswith("Plan: resubmit 3 messages of ramped/$dlq to ramped. Ramp: 1 first, watched for 1m30s")
    ran = shell.run("%sb_resubmit ramped/$dlq --ramp 1 --watch 1s")
    assert "Ramp: 1 first, watched for 1s at most. The other 2 follow if none of these comes back." in ran.out
    assert "1 of 1 still waits after 1s" in ran.value.stopped
    assert len(shell.run("%sb_peek ramped/$dlq").value) == 2


def test_resubmit_is_rehearsed_on_copies(shell: Shell, emulator: RunningEmulator) -> None:
    shell.run("namespace.create_queue('tried')\nrows = ['good', 'bad']\n%sb_send tried rows")
    shell.run("%sb_lock tried -n 2\n%sb_dead_letter --reason Bad")
    shell.run("def consumer(message):\n    assert message.body == b'good', 'still bad'")
    assert shell.error("%sb_resubmit tried/$dlq --consumer consumer") == "--consumer goes with --rehearse."
    assert "no variable 'none'" in shell.error("%sb_resubmit tried/$dlq --rehearse --consumer none")
    shown = shell.run("%sb_resubmit tried/$dlq --rehearse --consumer consumer").value
    assert [str(each.result) for each in shown] == ["consumed", "dead-lettered again"]
    assert "still bad" in repr(shown)
    assert (emulator.counts("tried").active, emulator.counts("tried").dead_letter) == (0, 2)


def test_pick_settles_the_chosen_and_no_others(shell: Shell) -> None:
    fill(shell, "picked", "abcdef")
    ran = shell.run("""%sb_pick picked --where "subject in ('b', 'e')" --deadletter --reason Bad --description why""")
    assert "Plan: dead-letter 2 messages of picked with the reason 'Bad'" in ran.out
    assert ran.value.settled == 2
    assert bodies(shell, "picked") == [b"a", b"c", b"d", b"f"]
    assert {message.delivery_count for message in shell.run("%sb_peek picked").value} == {0}
    letters = shell.run("%sb_peek picked/$dlq").value
    assert [(m.body, m.dead_letter_reason, m.dead_letter_error_description) for m in letters] == [
        (b"b", "Bad", "why"),
        (b"e", "Bad", "why"),
    ]


def test_deferred_messages_are_shown_and_settled(shell: Shell) -> None:
    fill(shell, "aside", "abcd")
    assert shell.run("%sb_lock aside -n 4\n%sb_defer").value.settled == 4
    shown = shell.run("%sb_deferred aside")
    assert len(shown.value) == 4
    assert "4 deferred in aside: 4 in the journal, 0 orphans" in repr(shown.value)
    assert len(shell.run("""%sb_deferred aside --where "subject = 'a'" """).value) == 1
    ran = shell.run("""%sb_deferred aside --where "subject = 'a'" --complete""")
    assert "Plan: complete 1 message of aside." in ran.out
    assert shell.run("""%sb_deferred aside --where "subject = 'b'" --deadletter --reason Old""").value.settled == 1
    assert shell.run("%sb_resubmit aside --state deferred --delay 1h").value.settled == 2
    assert len(shell.run("%sb_deferred aside").value) == 0
    assert [m.dead_letter_reason for m in shell.run("%sb_peek aside/$dlq").value] == ["Old"]


def test_purge_removes_and_undo_gives_back(shell: Shell, emulator: RunningEmulator) -> None:
    fill(shell, "purged", "abcd")
    dry = shell.run("%sb_purge purged --dry-run")
    assert "purge 4 messages of purged" in repr(dry.value)
    assert emulator.counts("purged").active == 4
    assert shell.run("""%sb_purge purged --where "subject <> 'd'" """).value.settled == 3
    assert bodies(shell, "purged") == [b"d"]
    assert len(shell.run("%sb_purge purged --before 1h --dry-run").value) == 0
    assert shell.run("%sb_undo").value.settled == 3
    assert "removed for good" in repr(shell.run("%sb_purge purged --no-archive --dry-run").value)


def dead_letters(shell: Shell, queue: str, subjects: str) -> None:
    fill(shell, queue, subjects)
    shell.run(f"%sb_lock {queue} -n {len(subjects)}\n%sb_dead_letter --reason Bad")


def test_numbers_are_chosen_on_the_line(shell: Shell) -> None:
    dead_letters(shell, "typed", "abcdef")
    assert shell.run("%sb_resubmit typed/$dlq --messages 1,3-4").value.settled == 3
    assert bodies(shell, "typed") == [b"a", b"c", b"d"]
    assert "more than 1,000,000 numbers" in shell.error("%sb_resubmit typed/$dlq --messages 1-99999999999999999")


def test_a_cause_is_resubmitted_by_its_fingerprint(shell: Shell) -> None:
    dead_letters(shell, "caused", "ab")
    fill(shell, "caused2", "c")
    shell.run(
        "%sb_send caused rows\n%sb_lock caused -n 1\n%sb_dead_letter --reason Late\ncauses = %sb_groups caused/$dlq"
    )
    groups = shell.variables["causes"]
    assert [(group.reason, group.count) for group in groups] == [("Bad", 2), ("Late", 1)]
    assert shell.run(f"%sb_resubmit caused/$dlq --cause {groups[0].fingerprint} -n 1").value.settled == 1
    assert shell.run(f"%sb_pick caused/$dlq --cause {groups[1].fingerprint} --complete").value.settled == 1
    assert bodies(shell, "caused") == [b"a"]
    assert bodies(shell, "caused/$dlq") == [b"b"]
    assert "There is no group with the fingerprint 'zzz'" in shell.error("%sb_resubmit caused/$dlq --cause zzz")


def test_n_is_the_number_of_messages_that_match(shell: Shell) -> None:
    dead_letters(shell, "limited", "ababab")
    matching = """--where "subject = 'b'" -n 2"""
    assert [m.body for m in shell.run(f"%sb_peek limited/$dlq {matching}").value] == [b"b", b"b"]
    assert [group.count for group in shell.run(f"%sb_groups limited/$dlq {matching}").value] == [2]
    assert len(shell.run(f"%sb_pick limited/$dlq {matching} --complete --dry-run").value) == 2
    assert len(shell.run(f"%sb_resubmit limited/$dlq {matching} --dry-run").value) == 2
    assert "More messages that match follow" in shell.run(f"%sb_peek limited/$dlq {matching}").out


def test_edit_json_changes_the_json_of_bodies(shell: Shell, emulator: RunningEmulator) -> None:
    emulator.create_queue("json-repair")
    shell.run("%sb_send json-repair '{\"fare\": 1.10}'")
    shell.run("def fix(order):\n    order['carrier'] = 'UPS'")
    shell.run("def wrong(order):\n    return order['none']")
    assert "body.carrier │ (absent) │ UPS" in shell.run("%sb_resubmit json-repair --edit-json fix --dry-run").out
    said = shell.error("%sb_resubmit json-repair --edit-json wrong --dry-run")
    assert said == "The edit failed for message #1, line 2 of wrong: KeyError: 'none'"
    assert shell.error("%sb_resubmit json-repair --edit fix --edit-json fix").startswith("Give --edit or --edit-json")
