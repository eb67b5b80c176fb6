"""Trying a plan in the panel: on copies, and with its first messages, which a real consumer completes."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from sbnotebook.client import Entity, Namespace, connect
from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import OutcomeStatus, ReceivedMessage
from sbnotebook.settlement import RejectMessage
from sbnotebook.widgets.action_panel import ActionPanel
from sbnotebook.widgets.blocks import Code
from sbnotebook.widgets.triage import Triage
from tests.filled_queues import dead_letter_queue
from tests.widgets.conftest import blocks, buttons, click, names, said, until, write

COPY = ["Copy as cell", "Copy as Python"]


@pytest.fixture
def notebook() -> Iterator[dict[str, Any]]:
    """The variables of a shell that this process has, as a kernel has one."""
    shell: Any = InteractiveShell.instance(config=Config(HistoryManager={"hist_file": ":memory:"}))
    yield shell.user_ns
    atexit.unregister(shell.atexit_operations)
    shell.atexit_operations()
    InteractiveShell.clear_instance()


def propose(panel: ActionPanel, letters: Entity) -> None:
    panel.propose(lambda: letters.resubmit(letters.peek(show_progress=False)))
    assert panel.wait()


def code_of(panel: ActionPanel, name: str) -> str:
    click(panel, name)
    (found,) = [each for each in blocks(panel) if isinstance(each, Code)]
    return found.text


def _emulators() -> int:
    return sum(thread.name == "sbnotebook-emulator" for thread in threading.enumerate())


def test_a_plan_is_rehearsed_in_the_panel(
    namespace: Namespace, shared_emulator: RunningEmulator, notebook: dict[str, Any]
) -> None:
    before = [*dead_letter_queue(namespace, "tried", 6).peek()]

    def ship(message: ReceivedMessage) -> None:
        if message.body == b"3":
            raise RejectMessage("StillLate", "no carrier")

    notebook["ship"] = ship
    with connect(shared_emulator.connection_string, write=False) as looking:
        triage = Triage(looking, "tried/$dlq")
        assert "Writing is off: you can make plans" in said(triage)
        triage.close()
        panel = ActionPanel(looking)
        propose(panel, looking.entity("tried/$dlq"))
        write(panel, "Consumer", "shop")
        click(panel, "Rehearse")
        assert "The notebook has no function or command 'shop'" in said(panel)
        write(panel, "Consumer", "ship")
        click(panel, "Rehearse")
        assert buttons(panel) == ["Cancel"]
        assert "Rehearsing 6 messages on copies …" in repr(panel)
        assert panel.wait()
        assert "5 consumed, 1 dead-lettered again. The namespace is as it was." in repr(panel)
        assert "StillLate" in repr(panel)
        assert repr(panel).startswith("Resubmit 6 messages of tried/$dlq"), "the plan is still there"
        assert buttons(panel) == ["Not now", "Rehearse", *COPY]
        panel.close()
    assert [*namespace.entity("tried/$dlq").peek()] == before
    counts = shared_emulator.counts("tried")
    assert (counts.active, counts.locked, counts.dead_letter) == (0, 0, 6)


def test_a_rehearsal_is_cancelled_while_a_consumer_works(namespace: Namespace, notebook: dict[str, Any]) -> None:
    letters = dead_letter_queue(namespace, "cut-off", 6)
    begun, go_on = threading.Event(), threading.Event()

    def slow(_message: ReceivedMessage) -> None:
        begun.set()
        go_on.wait(60)

    notebook["slow"] = slow
    panel = ActionPanel(namespace)
    propose(panel, letters)
    before = _emulators()
    write(panel, "Consumer", "slow")
    click(panel, "Rehearse")
    assert begun.wait(60)
    assert _emulators() == before + 1
    click(panel, "Cancel")
    assert not panel.is_looking
    assert "The rehearsal was cancelled." in repr(panel)
    go_on.set()
    until(lambda: _emulators() == before, "the end of the rehearsal's emulator")
    assert "Rehearsed on copies" not in repr(panel)
    write(panel, "Consumer", "")
    click(panel, "Rehearse")
    assert panel.wait()
    assert "6 arrived. The namespace is as it was." in repr(panel)
    click(panel, "Carry out")
    assert panel.wait()
    assert "Resubmitted 6 messages to cut-off." in repr(panel)


def test_a_namespace_without_the_destination_ends_the_rehearsal(namespace: Namespace) -> None:
    letters = dead_letter_queue(namespace, "lonely", 1)
    panel = ActionPanel(namespace, is_editing=False)
    panel.propose(lambda: letters.resubmit(letters.peek(show_progress=False), to="nowhere"))
    assert panel.wait()
    assert "Consumer" not in names(panel)
    click(panel, "Rehearse")
    assert panel.wait()
    assert "The rehearsal failed: " in repr(panel)
    assert "nowhere" in repr(panel).split("The rehearsal failed: ")[1]
    assert buttons(panel) == ["Carry out", "Not now", "Rehearse", *COPY]


def test_a_first_message_goes_first_and_the_others_follow(namespace: Namespace) -> None:
    letters = dead_letter_queue(namespace, "watched", 6)
    panel = ActionPanel(namespace)
    propose(panel, letters)
    assert "First" not in names(panel)
    write(panel, "Send a few first", True)
    write(panel, "First", "2")
    write(panel, "then watch them for", "50s")
    sentence = "Ramp: 2 first, watched for 50s at most. The other 4 follow if none of these comes back."
    assert sentence in said(panel)
    assert "--ramp 2 --watch 50s" in code_of(panel, COPY[0])
    assert ".with_ramp(2, watch='50s')" in code_of(panel, COPY[1])
    consumer = namespace.entity("watched").start_processing(lambda _: None)
    try:
        click(panel, "Carry out")
        until(lambda: panel.report is not None)
    finally:
        consumer.stop()
    assert str(panel.report) == "Resubmitted 6 messages; ramp: 2 consumed"
    assert sentence in str(panel.record), "the record of a saved notebook has it"
    assert "The fate of the first messages" in repr(panel)
    assert len(letters.peek()) == 0


def test_a_cancelled_or_failed_ramp_holds_the_others_back(namespace: Namespace) -> None:
    letters = dead_letter_queue(namespace, "held-back", 6)
    panel = ActionPanel(namespace)
    propose(panel, letters)
    write(panel, "Send a few first", True)
    write(panel, "First", "2")
    write(panel, "then watch them for", "soon")
    write(panel, "Stop at", "2")
    assert "'soon' is not a duration" in said(panel)
    assert "stop_at is a share from 0 to 1" in said(panel)
    write(panel, "Stop at", "0.5")
    click(panel, "Carry out")
    assert panel.report is None
    assert not panel.is_looking, "nothing is carried out with a ramp that cannot be"
    write(panel, "then watch them for", "5m")
    click(panel, "Carry out")
    until(lambda: "2 of 6, watching these: 2 sent, 0 consumed, " in repr(panel), "the watch")
    click(panel, "Cancel")
    assert panel.wait()
    assert panel.report is not None
    assert panel.report.counts == {OutcomeStatus.SETTLED: 2, OutcomeStatus.SKIPPED: 4}
    assert "waiting" in repr(panel).split("The fate of the first messages")[1]
    assert [message.delivery_count for message in letters.peek()] == [0] * 4

    def fails(_message: ReceivedMessage) -> None:
        raise RejectMessage("StillLate", "no carrier")

    propose(panel, letters)
    assert "First" not in names(panel), "each plan has its own"
    write(panel, "Send a few first", True)
    write(panel, "First", "1")
    consumer = namespace.entity("held-back").start_processing(fails)
    try:
        click(panel, "Carry out")
        assert panel.wait()
    finally:
        consumer.stop()
    assert "Not attempted: 1 of 1 came back ('StillLate' 1 times)." in repr(panel)
    assert "no carrier" in repr(panel)
