from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from sbnotebook.client import Namespace, connect
from sbnotebook.client.entity import Entity
from sbnotebook.client.plan import Plan
from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import DecisionError
from sbnotebook.model import Complete, Message, Report
from sbnotebook.settlement import Limits
from sbnotebook.widgets.action_panel import ActionPanel
from sbnotebook.widgets.table.message_table import MessageTable
from sbnotebook.widgets.table.row_packing import keys_of
from tests.widgets.conftest import buttons, click, find, until, write

RESEND = "Restore the originals (duplicates)"


def queue_of(count: int, name: str, namespace: Namespace) -> Entity:
    namespace.create_queue(name)
    queue = namespace.entity(name)
    messages = [Message(message_id=f"m{n}", body=b'{"carrier": {"code": "??"}, "number": 7}') for n in range(count)]
    queue.send(messages).raise_for_failures()
    return queue


COPY = ("Copy as cell", "Copy as Python")
TRIAL = "Rehearse"


def proposed(panel: ActionPanel, make: Callable[[], Plan], **options: Any) -> str:
    panel.propose(make, **options)
    until(lambda: not panel.is_looking)
    return repr(panel)


def purge(queue: Entity) -> Callable[[], Plan]:
    return lambda: queue.purge(show_progress=False)


def test_action_panel_carries_a_plan_out_and_undoes_it(namespace: Namespace) -> None:
    queue = queue_of(12, "acted-on", namespace)
    table = MessageTable(queue.peek())
    panel = ActionPanel(namespace, table=table)
    assert "Nothing is planned" in repr(panel)
    assert buttons(panel) == []
    reports: list[Report] = []
    end = panel.on_report(reports.append)
    chosen = table.messages[:7]

    def fix(message: Message) -> Message:
        return message.with_changes(body=b'{"carrier": {"code": "UA"}, "number": 7}', subject="fixed")

    said = proposed(panel, lambda: queue.resubmit(chosen, edit=fix), hidden=2, title="Repair")
    assert said.startswith("Repair\nResubmit 7 messages of acted-on to acted-on, edited.\n2 of them are hidden by the")
    assert "What changes in the first 5" in said
    assert "- {\n" in said or '-   "code": "??"' in said
    assert "kept for 7 days. The clones cannot be taken back." in said
    assert buttons(panel) == ["Carry out", "Not now", TRIAL, *COPY]
    assert len(queue.peek()) == 12, "nothing was done until now"

    confirm = find(panel, "Carry out")
    confirm.click()
    confirm.click()  # the second of a double click
    until(lambda: reports)
    end()
    assert "Resubmit is done\nResubmitted 7 messages to acted-on." in repr(panel)
    assert [report.settled for report in reports] == [7]
    assert panel.report == reports[0]
    assert keys_of(table.messages) == [("acted-on", number) for number in range(8, 13)]
    assert [message.subject for message in queue.peek()].count("fixed") == 7
    assert buttons(panel) == ["Done", RESEND]

    click(panel, RESEND)
    until(lambda: not panel.is_looking)
    assert "Restore the originals of 7 messages" in repr(panel)
    click(panel, "Carry out")
    until(lambda: not panel.is_looking)
    assert "Undo is done" in repr(panel)
    assert len(queue.peek()) == 19
    assert buttons(panel) == ["Done"]
    click(panel, "Done")
    assert "Nothing is planned" in repr(panel)
    assert len(reports) == 1


def test_a_plan_is_paused_goes_on_and_is_cancelled(namespace: Namespace) -> None:
    queue = queue_of(300, "paused", namespace)
    table = MessageTable(queue.peek())
    panel = ActionPanel(namespace, table=table)
    proposed(panel, purge(queue), limits=Limits(rate=20))
    click(panel, "Carry out")
    assert buttons(panel) == ["Pause", "Cancel"]
    until(lambda: len(queue.peek()) < 300)
    click(panel, "Pause")
    until(lambda: "Paused. Locks are renewed." in repr(panel))
    left = len(queue.peek())
    assert f"{300 - left} of 300" in repr(panel)
    assert buttons(panel) == ["Continue", "Cancel"]
    with pytest.raises(DecisionError, match="Another plan is being carried out"):
        panel.propose(purge(queue))
    click(panel, "Continue")
    until(lambda: len(queue.peek()) < left)
    assert len(table.messages) == 300, "the rows stay until the end, with their outcomes"
    click(panel, "Pause")
    until(lambda: "Paused. Locks are renewed." in repr(panel))
    click(panel, "Cancel")
    until(lambda: not panel.is_looking)
    assert "Purge was cancelled" in repr(panel)
    assert "skipped" in repr(panel)
    assert keys_of(table.messages) == keys_of(queue.peek())
    assert set(buttons(panel)) == {"Undo", "Select these again", "Done"}


def test_what_is_not_wanted_is_forgotten(namespace: Namespace) -> None:
    queue = queue_of(3, "unwanted", namespace)
    panel = ActionPanel(namespace)
    proposed(panel, purge(queue))
    confirm = find(panel, "Carry out")
    click(panel, "Not now")
    confirm.click()  # it is not on the screen any more
    assert not panel.is_looking
    assert proposed(panel, lambda: queue.purge(where="subject = 'none'", show_progress=False))
    assert buttons(panel) == ["Not now"], "there is nothing to carry out"
    assert len(queue.peek()) == 3


def test_a_click_that_comes_late_is_for_the_plan_that_was_seen(namespace: Namespace) -> None:
    queue = queue_of(5, "seen", namespace)
    panel = ActionPanel(namespace)
    few, all_of_them = queue.peek()[:1], queue.peek()
    proposed(panel, lambda: queue.pick(few, Complete(), show_progress=False))
    confirm = find(panel, "Carry out")
    proposed(panel, lambda: queue.pick(all_of_them, Complete(), show_progress=False))
    confirm.click()  # made while a cell was running, and the other plan was not there yet
    assert not panel.is_looking
    assert buttons(panel) == ["Carry out", "Not now", *COPY]
    assert panel.report is None
    click(panel, "Carry out")
    until(lambda: panel.report)
    assert len(queue.peek()) == 0


def test_a_plan_can_be_taken_back_until_it_is_confirmed(namespace: Namespace) -> None:
    queue = queue_of(3, "taken-back", namespace)
    panel = ActionPanel(namespace)
    take_back_first, take_back = panel.propose(purge(queue)), panel.propose(purge(queue))
    until(lambda: not panel.is_looking)
    take_back_first("another one is shown")
    assert buttons(panel) == ["Carry out", "Not now", *COPY]
    take_back("It is out of date.")
    assert (repr(panel), buttons(panel)) == ("It is out of date.", [])
    take_back = panel.propose(purge(queue))
    take_back("It is not even made.")
    assert not panel.is_looking
    assert repr(panel) == "It is not even made."
    take_back = panel.propose(purge(queue))
    until(lambda: not panel.is_looking)
    click(panel, "Carry out")
    take_back("too late")
    until(lambda: panel.report)
    assert "Purge is done" in repr(panel)


def test_what_was_not_settled_can_be_selected_again(namespace: Namespace) -> None:
    queue = queue_of(4, "selected-again", namespace)
    table = MessageTable(queue.peek())
    panel = ActionPanel(namespace, table=table)
    queue.pick([2, 3], Complete(), show_progress=False).apply()  # by another user
    proposed(panel, lambda: queue.pick([1, 2, 3], Complete(), show_progress=False))
    click(panel, "Carry out")
    until(lambda: panel.report is not None and not panel.is_looking)
    click(panel, "Select these again")
    assert table.selected_keys == (("selected-again", 2), ("selected-again", 3))
    outcomes = [str(each).partition(":")[0] for each in table.rows.with_extra().column("outcome").to_pylist()]
    assert outcomes == ["settled", "not found", "not found", "None"]
    click(panel, "Done")
    assert buttons(panel) == []
    panel.close()


def test_a_table_that_fails_does_not_hide_how_it_ended(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("It is closed.")

    queue = queue_of(2, "failing-table", namespace)
    panel = ActionPanel(namespace, table=(table := MessageTable(queue.peek())))
    monkeypatch.setattr(table, "patch", fail)
    proposed(panel, purge(queue))
    click(panel, "Carry out")
    until(lambda: panel.report is not None and not panel.is_looking)
    assert "Purge is done" in repr(panel)
    assert "It is closed." in repr(panel)


def test_errors_are_shown_in_the_panel(namespace: Namespace) -> None:
    queue = queue_of(3, "failing", namespace)
    panel = ActionPanel(namespace)
    assert "There is nothing to send back." in proposed(panel, lambda: namespace.undo(entity="failing"))
    assert "LookupError: no such thing" in proposed(panel, lambda: (_ for _ in ()).throw(LookupError("no such thing")))
    panel.on_report(lambda report: report[7])
    proposed(panel, purge(queue))
    namespace.delete_queue("failing")
    click(panel, "Carry out")
    until(lambda: not panel.is_looking)
    assert "failing" in repr(panel)
    until(lambda: "IndexError" in repr(panel))


def test_a_connection_that_only_looks_says_why_it_does_no_more(
    namespace: Namespace, shared_emulator: RunningEmulator
) -> None:
    queue_of(3, "only-looked-at", namespace)
    with connect(shared_emulator.connection_string, write=False) as looking:
        panel = ActionPanel(looking)
        said = proposed(panel, purge(looking.entity("only-looked-at")))
        assert "writing is off on the connection" in said
        assert buttons(panel) == ["Not now", *COPY]


def test_closing_cuts_off_what_goes_on(namespace: Namespace) -> None:
    queue = queue_of(300, "closed", namespace)
    panel, reports = ActionPanel(namespace, table=MessageTable(queue.peek())), list[Report]()
    panel.on_report(reports.append)
    proposed(panel, purge(queue), limits=Limits(rate=20))
    click(panel, "Carry out")
    until(lambda: len(queue.peek()) < 300)
    panel.close()
    panel.close()
    until(lambda: not any(thread.name == "sbnotebook panel" for thread in threading.enumerate()))
    assert reports == []
    assert 0 < len(queue.peek()) < 300
    assert {message.delivery_count for message in queue.peek()} == {0}


def test_two_panels_work_at_once(namespace: Namespace) -> None:
    queues = [queue_of(150, name, namespace) for name in ("one", "other")]
    panels = [ActionPanel(namespace, table=MessageTable(queue.peek())) for queue in queues]
    for panel, queue in zip(panels, queues, strict=True):
        panel.propose(lambda queue=queue: queue.pick(queue.peek(), Complete(), show_progress=False))
    until(lambda: not any(panel.is_looking for panel in panels))
    for panel in panels:
        click(panel, "Carry out")
    until(lambda: not any(panel.is_looking for panel in panels))
    assert [len(queue.peek()) for queue in queues] == [0, 0]
    assert all("Completed 150 messages" in repr(panel) for panel in panels)


def test_what_nobody_knows_is_told_and_can_be_finished(namespace: Namespace, shared_emulator: RunningEmulator) -> None:
    namespace.create_queue("answered")
    queue = queue_of(1, "asked", namespace)
    table = MessageTable(queue.peek())
    panel = ActionPanel(namespace, table=table)
    proposed(panel, lambda: queue.resubmit(queue.peek(), to="answered"))
    shared_emulator.faults.entity("answered").drop_after_nth = 1
    click(panel, "Carry out")
    until(lambda: not panel.is_looking)
    assert "Of 1 message it is unknown whether the clone was sent. Resume looks" in repr(panel)
    assert keys_of(table.messages) == [("asked", 1)]
    assert buttons(panel) == ["Resume", "Done"]
    click(panel, "Resume")
    until(lambda: not panel.is_looking)
    assert "complete the original, whose clone was sent" in repr(panel)
    click(panel, "Carry out")
    until(lambda: not panel.is_looking)
    assert "Resubmit is done" in repr(panel)
    assert [len(namespace.entity(name).peek()) for name in ("asked", "answered")] == [0, 1]
    assert len(table.messages) == 0


def test_an_undo_that_needs_a_destination_asks_for_it(namespace: Namespace) -> None:
    namespace.create_queue("sent-back")
    namespace.entity("events").send([Message(message_id="m")] * 3)
    panel = ActionPanel(namespace)
    proposed(panel, purge(namespace.entity("events/subscriptions/audit")))
    click(panel, "Carry out")
    until(lambda: not panel.is_looking)
    click(panel, "Undo")
    until(lambda: not panel.is_looking)
    assert "Choose a destination" in repr(panel)
    write(panel, "Send back to", "sent-back")
    click(panel, "Undo")
    until(lambda: not panel.is_looking)
    assert "Send back 3 messages" in repr(panel)
    click(panel, "Not now")
    assert "Purge is done" in repr(panel), "the report is there again, and can still be undone"
    click(panel, "Undo")
    until(lambda: not panel.is_looking)
    click(panel, "Carry out")
    until(lambda: not panel.is_looking)
    assert len(namespace.entity("sent-back").peek()) == 3
    click(panel, "Done")
    assert panel.report is None
