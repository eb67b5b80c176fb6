from __future__ import annotations

import pytest

from sbnotebook.client import connect
from sbnotebook.emulator import RunningEmulator, running
from tests.magics.conftest import Shell


def bodies(shell: Shell, address: str) -> list[bytes]:
    return [message.body for message in shell.run(f"%sb_peek {address} -n all").value]


@pytest.fixture
def cut_off(shell: Shell, emulator: RunningEmulator, request: pytest.FixtureRequest) -> str:
    """A queue with a dead letter whose clone may have been sent or not."""
    name = f"cut-{abs(hash(request.node.name)) % 10**6}"
    shell.run(f"namespace.create_queue('{name}')\n%sb_send {name} 'x' --message-id m")
    shell.run(f"%sb_lock {name}\n%sb_dead_letter --reason Bad")
    emulator.faults.entity(name).drop_after_nth = 1
    with pytest.warns(UserWarning, match="Resubmitted 0 of 1 message: 1 unconfirmed"):
        shell.run(f"%sb_resubmit {name}/$dlq --into not_looked_at")
    return name


def test_the_journal_says_what_is_open_and_how_to_go_on(shell: Shell, cut_off: str) -> None:
    shell.run(f"%sb_send {cut_off} 'later'\n%sb_lock {cut_off} -n 2\n%sb_defer")
    shell.run("namespace.note('fingerprint-1', 'see <b>INC-4711</b>')")
    remembered = shell.run("%sb_journal").value
    for text in (repr(remembered), remembered._repr_html_()):
        for words in (
            "resubmit not ended",
            f"{cut_off}/$dlq to {cut_off}",
            f"%sb_resume {cut_off}/$dlq",
            f"%sb_deferred {cut_off}",
            "fingerprint-1: see ",
        ):
            assert words in text
    assert "<b>" not in remembered._repr_html_()


def test_resume_shows_its_plans_and_finishes(shell: Shell, cut_off: str, emulator: RunningEmulator) -> None:
    dry = shell.run(f"%sb_resume {cut_off}/$dlq --dry-run")
    assert "finish 1 resubmit" in repr(dry.value)
    assert "finish 1 resubmit" in dry.value._repr_html_()
    assert emulator.counts(cut_off).dead_letter == 1
    ran = shell.run("%sb_resume")
    assert f"finish 1 resubmit of {cut_off}/$dlq" in ran.out
    assert ran.value.ok
    assert (emulator.counts(cut_off).active, emulator.counts(cut_off).dead_letter) == (1, 0)
    ran = shell.run("%sb_resume")
    assert (ran.out.splitlines()[0], len(ran.value)) == ("There are no interrupted resubmits.", 0)


def test_resume_and_history_look_into_another_namespace(shell: Shell) -> None:
    shell.run("namespace.create_queue('moved-away')\n%sb_send moved-away 'x' --message-id m")
    shell.run("%sb_lock moved-away\n%sb_dead_letter --reason Bad")
    with running(queues=["arrives"]) as there, connect(there.connection_string) as other:
        shell.variables.update(other=other, there=other.entity("arrives"))
        there.faults.entity("arrives").drop_after_nth = 1
        assert (
            str(shell.run("%sb_resubmit moved-away/$dlq --to-entity there --yes").value)
            == "Resubmitted 0 of 1 message: 1 unconfirmed"
        )
        wrong = "--other names a variable with a namespace, such as other = connect(…)."
        assert shell.error("%sb_resume --other there") == wrong
        assert shell.error("%sb_journal --other there") == wrong
        assert "no variable 'nowhere'" in shell.error("%sb_resume --other nowhere")
        alone = shell.run("%sb_resume moved-away/$dlq")
        assert str(alone.value) == "Resubmitted 0 of 1 message: 1 unconfirmed"
        assert [entry.fate for entry in shell.run("%sb_journal moved-away/$dlq").value] == ["unknown"]
        dry = shell.run("%sb_resume moved-away/$dlq --other other --dry-run").value
        assert "complete the original, whose clone was sent (1)" in repr(dry)
        assert shell.run("%sb_resume moved-away/$dlq --other other --yes").value.ok
        (entry,) = shell.run("%sb_journal moved-away/$dlq --other other").value
        assert (entry.fate, str(entry.place)) == ("waiting", "arrives")


def test_undo_takes_a_report_an_entity_or_the_last_report(shell: Shell) -> None:
    shell.run("namespace.create_queue('undone')\nrows = ['a', 'b', 'c']\n%sb_send undone rows")
    shell.run("%sb_lock undone -n 1\n%sb_complete --into report\n%sb_lock undone -n 1\n%sb_complete")
    assert bodies(shell, "undone") == [b"c"]
    ran = shell.run("%sb_undo")
    assert "send back 1 message: 1 of undone to undone." in ran.out
    assert bodies(shell, "undone") == [b"c", b"b"]
    assert shell.run("%sb_undo report").value.settled == 1
    assert sorted(bodies(shell, "undone")) == [b"a", b"b", b"c"]
    assert "There is nothing to send back. Left out: 2 sent back before." in shell.error("%sb_undo undone --since 1h")
    shell.run("%sb_lock undone -n 3\n%sb_complete")
    assert len(shell.run("%sb_undo --since 1h --dry-run").value) >= 3
    assert shell.run("%sb_undo 'undone' --since 1h --new-ids").value.settled == 3


def test_undo_of_a_resubmit_is_refused_unless_asked_for(shell: Shell) -> None:
    shell.run("namespace.create_queue('doubled')\nrows = ['a', 'b']\n%sb_send doubled rows\n%sb_resubmit doubled")
    assert "Left out: 2 resubmitted. Their clones exist" in shell.error("%sb_undo")
    assert "%sb_undo --include-resubmitted" in shell.error("%sb_undo doubled --since 1h")
    assert len(bodies(shell, "doubled")) == 2
    assert "there will be both" in shell.run("%sb_undo --include-resubmitted --dry-run").value.preview().sentence
    assert shell.run("%sb_undo --include-resubmitted").value.settled == 2
    assert len(bodies(shell, "doubled")) == 4


def test_undo_without_anything_to_undo_says_what_to_give(unconnected: Shell, emulator: RunningEmulator) -> None:
    unconnected.run(f"%sb_connect {emulator.connection_string}")
    assert unconnected.error("%sb_undo") == (
        "Choose what to undo: the variable of a report, or an entity, or --since 2h."
    )


@pytest.mark.parametrize(
    ("settle", "sentence"),
    [
        ("%sb_dead_letter", "Dead letters are not removed: %sb_resubmit still/$dlq sends them back."),
        ("%sb_defer", "Deferred messages are not removed: %sb_deferred still shows and settles them."),
        ("%sb_abandon", "Abandoned messages are not removed: they are in still."),
        ("%sb_release", "Released messages are not removed: they are in still."),
        ("", "You cannot recall sent messages: %sb_pick still or %sb_purge still removes them."),
    ],
)
def test_undo_says_how_to_take_other_actions_back(shell: Shell, settle: str, sentence: str) -> None:
    shell.run("if 'still' not in [str(each.address) for each in namespace.entities()]: namespace.create_queue('still')")
    shell.run("%sb_send still 'x'")
    if settle:
        shell.run(f"%sb_lock still -n 1\n{settle}")
    assert shell.error("%sb_undo") == f"There is nothing to send back. {sentence}"


def test_a_note_is_kept_and_shown(shell: Shell) -> None:
    assert shell.run("%sb_journal --note 4a7d1ed41474").out == "There is no note on 4a7d1ed41474.\n"
    assert shell.run("%sb_journal --note 4a7d1ed41474 price list was empty").out == "price list was empty\n"
    assert shell.run("%sb_journal --note 4a7d1ed41474").out == "price list was empty\n"
    assert shell.run("%sb_journal --note 4a7d1ed41474 ''").out == "There is no note on 4a7d1ed41474.\n"
