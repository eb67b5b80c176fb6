"""Actions on selected messages: the confirmed plan is the one for the selection and the input."""

from __future__ import annotations

from typing import Any

from sbnotebook.client import Namespace
from sbnotebook.model import Message, Report
from sbnotebook.widgets.action_panel import ActionPanel
from sbnotebook.widgets.forms.message_actions import Action, resubmit_form
from sbnotebook.widgets.selection_bar import SelectionBar
from sbnotebook.widgets.table.message_table import MessageTable
from tests.widgets.conftest import named, parts, until


def test_selection_bar_withdraws_a_plan_after_a_change(namespace: Namespace) -> None:
    namespace.create_queue("chosen")
    queue = namespace.entity("chosen")
    queue.send([Message(message_id=f"m{number}") for number in range(4)])
    table = MessageTable(queue.peek())
    panel = ActionPanel(namespace, table=table)
    bar = SelectionBar(table, [Action("Resubmit…", "Send them again", lambda: resubmit_form(queue))], panel)

    def plan() -> None:
        named(bar, "Show the plan").click()
        until(lambda: not panel.busy)
        assert "Resubmit 2 messages" in repr(panel)

    def said_and_gone(words: str) -> None:
        assert words in repr(panel)
        assert "Carry out" not in [getattr(each, "description", "") for each in parts(panel)]

    table.select([("chosen", 1), ("chosen", 2)])
    named(bar, "Resubmit…").click()
    plan()
    table.select([("chosen", 2), ("chosen", 1)])
    assert "Resubmit 2 messages" in repr(panel), "the same ones"
    table.select([("chosen", 1), ("chosen", 3)])
    said_and_gone("The selection was changed")
    plan()
    named(bar, "Delay").value = "5m"  # while the kernel is busy, it comes after the click on the button
    said_and_gone("The form was changed")
    plan()

    named(bar, "Delay").value = "soon"
    named(bar, "Show the plan").click()
    faults = [each.value for each in parts(bar) if "duration" in str(getattr(each, "value", ""))]
    assert len(faults) == 1, "below the field, and not once more below the form"
    named(bar, "Delay").value = "5m"
    plan()

    # A form opened while a plan is carried out stays, with its input.
    reports: list[Report] = []
    panel.on_report(reports.append)  # told after the bar was
    named(panel, "Carry out").click()
    named(bar, "Resubmit…").click()
    named(bar, "Delay").value = "7m"
    until(lambda: reports)
    assert named(bar, "Delay").value == "7m"
    table.select([("chosen", 2), ("chosen", 4)])
    assert "Resubmit is done" in repr(panel), "a report stays"
    bar.close()


def test_plan_goes_with_its_form(namespace: Namespace) -> None:
    namespace.create_queue("formed")
    queue = namespace.entity("formed")
    queue.send([Message(message_id=f"m{number}") for number in range(2)])
    table = MessageTable(queue.peek())
    panel = ActionPanel(namespace, table=table)
    bar = SelectionBar(table, [Action("Resubmit…", "Send them again", lambda: resubmit_form(queue))], panel)
    table.select([("formed", 1)])

    def plan() -> Any:
        named(bar, "Resubmit…").click()
        named(bar, "Show the plan").click()
        until(lambda: not panel.busy)
        assert "Resubmit 1 message" in repr(panel)
        return named(panel, "Carry out")

    for away in (named(bar, "Resubmit…").click, lambda: named(bar, "Close").click(), bar.close):
        carry_out = plan()
        away()
        assert carry_out not in parts(panel)
        carry_out.click()  # too late
        assert not panel.busy
        assert "The form of this plan was closed" in repr(panel)
    assert [message.sequence_number for message in queue.peek()] == [1, 2]
