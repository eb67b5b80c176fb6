from __future__ import annotations

import re

import pytest

from sbnotebook.emulator import RunningEmulator
from tests.magics.conftest import Shell


@pytest.fixture
def queue(shell: Shell, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"\W+", "-", request.node.name).strip("-")
    shell.run(f"namespace.create_queue('{name}')")
    shell.variables["rows"] = [{"subject": subject, "body": subject * 3} for subject in "abcd"]
    assert shell.run(f"%sb_send {name} rows").value.settled == 4
    return name


def test_complete_shows_the_plan_and_gives_the_report(shell: Shell, queue: str, emulator: RunningEmulator) -> None:
    shell.run(f"%sb_lock {queue} -n 3 --into batch")
    ran = shell.run("""%sb_complete --where "subject in ('a', 'b')" """)
    assert f"Plan: complete 2 messages of {queue}." in ran.out
    assert ran.value.ok
    assert ran.value.settled == 2
    assert [message.subject for message in shell.variables["batch"].messages] == ["c"]
    assert emulator.counts(queue).active == 2


def test_deadletter_gives_reason_and_description(shell: Shell, queue: str) -> None:
    shell.run(f"%sb_lock {queue} -n 1")
    shell.run("""%sb_dead_letter --reason Invalid --description "it's <b>bad</b>" """)
    (letter,) = shell.run(f"%sb_peek {queue}/$dlq").value
    assert (letter.dead_letter_reason, letter.dead_letter_error_description) == ("Invalid", "it's <b>bad</b>")


@pytest.mark.parametrize(("magic", "delivery_count"), [("%sb_abandon", 1), ("%sb_release", 0)])
def test_abandon_counts_a_delivery_and_release_does_not(
    shell: Shell, queue: str, magic: str, delivery_count: int
) -> None:
    shell.run(f"%sb_lock {queue} -n 1")
    assert shell.run(magic).value.settled == 1
    assert shell.run(f"%sb_peek {queue} -n 1").value[0].delivery_count == delivery_count


def test_locking_again_releases_what_was_held(shell: Shell, queue: str) -> None:
    shell.run(f"%sb_lock {queue} -n 2")
    ran = shell.run(f"%sb_lock {queue} -n 1")
    assert ran.out.startswith("Released 2 of the messages that were held before.\n")
    assert [(m.subject, m.delivery_count) for m in ran.value.messages] == [("a", 0)]


def test_connecting_again_releases_what_was_held(shell: Shell, queue: str) -> None:
    shell.run(f"%sb_lock {queue} -n 2")
    shell.run("%sb_connect {connection_string}")
    assert [m.delivery_count for m in shell.run(f"%sb_lock {queue} -n 2").value.messages] == [0, 0]


def test_unsettled_messages_are_reported(shell: Shell, queue: str) -> None:
    shell.run(f"%sb_lock {queue} -n 1 --into batch\nplan = %sb_complete --dry-run")
    shell.run("%sb_release")
    ran = shell.run("plan.apply()")
    assert "Completed 0 of 1 message: 1 already settled" in ran.out
    assert "Not settled: 1 of 1" in ran.out


def test_lock_alone_shows_what_is_held_and_until_when(shell: Shell, queue: str) -> None:
    shell.run(f"%sb_lock {queue} -n 2 --renew-for 1m --into batch")
    shown = shell.run("%sb_lock")
    assert shown.value is shell.variables["batch"]
    assert "locked_until" in repr(shown.value)
    assert [message.sequence_number for message in shown.value] == [
        shown.value[0].sequence_number,
        shown.value[-1].sequence_number,
    ]
    assert shell.error("%sb_lock -n 2") == "Name the entity to lock messages of: %sb_lock ENTITY -n 10."
    shell.run("%sb_release")


def test_renew_holds_for_longer(shell: Shell, queue: str) -> None:
    shell.run(f"%sb_lock {queue} -n 2 --renew-for 1m --into batch")
    before = shell.variables["batch"].renew_until
    ran = shell.run("%sb_renew --for 2h --into until")
    assert re.fullmatch(r"The locks of 2 messages are renewed until [\d-]+ [\d:]+ UTC\.\n", ran.out)
    assert shell.variables["until"] == shell.variables["batch"].renew_until > before
    shell.run("%sb_release")


def test_a_wrong_duration_releases_nothing(shell: Shell, queue: str) -> None:
    shell.run(f"%sb_lock {queue} -n 2")
    assert "'ever' is not a duration" in shell.error(f"%sb_lock {queue} --renew-for ever")
    assert len(shell.run("%sb_lock").value) == 2
    shell.run("%sb_release")


def test_abandoning_may_wait(shell: Shell, queue: str) -> None:
    shell.run(f"%sb_lock {queue} -n 1 --renew-for 5m")
    assert "with a longer renew_for" in shell.error("%sb_abandon --delay 10m"), "the delay is passed on"
    assert shell.run("%sb_abandon --delay 10ms").value.settled == 1


def test_deferring_may_send_a_wake_up(shell: Shell, queue: str) -> None:
    shell.run(f"%sb_lock {queue} -n 1")
    assert shell.run(f"%sb_defer --wake-after 1h --wake-to {queue}").value.settled == 1
    assert len(shell.run(f"%sb_peek {queue} --state scheduled").value) == 1


def test_all_messages_are_locked(shell: Shell) -> None:
    shell.run("%sb_create queue wholly\nrows = list('abcdefghijkl')\n%sb_send wholly rows")
    assert len(shell.run("%sb_lock wholly").value) == 10
    assert len(shell.run("%sb_lock wholly -n all").value) == 12
    assert shell.run("%sb_complete --messages 1-3").value.settled == 3
    assert shell.run("%sb_dead_letter --messages 4 --reason R").value.settled == 1
    assert shell.run("%sb_dead_letter --messages 5 --reason R").value.settled == 1
    assert "The batch does not hold 1 of the chosen messages" in shell.error("%sb_complete --messages 1")
    shell.run("%sb_release")
