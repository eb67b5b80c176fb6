"""Actions on selected messages: the confirmed plan is the one for the selection and the input."""

from __future__ import annotations

from sbnotebook.client import Namespace
from sbnotebook.model import Report
from sbnotebook.widgets.action_panel import ActionPanel
from sbnotebook.widgets.blocks import Button
from sbnotebook.widgets.edit_form import EditForm
from sbnotebook.widgets.renderers.words import text_of
from sbnotebook.widgets.selection_bar import SelectionBar, resubmit_form
from sbnotebook.widgets.table.message_table import MessageTable
from tests.filled_queues import filled_client_queue
from tests.widgets.conftest import click, find, names, until, write


def test_selection_bar_withdraws_a_plan_after_a_change(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "chosen", 4)
    table = MessageTable(queue.peek())
    panel = ActionPanel(namespace, table=table)
    bar = SelectionBar(table, {"Resubmit…": lambda: resubmit_form(queue)}, panel)

    def plan() -> None:
        click(bar, "Show the plan")
        until(lambda: not panel.is_looking)
        assert "Resubmit 2 messages" in repr(panel)

    def said_and_gone(words: str) -> None:
        assert words in repr(panel)
        assert "Carry out" not in names(panel)

    table.select([("chosen", 1), ("chosen", 2)])
    click(bar, "Resubmit…")
    plan()
    table.select([("chosen", 2), ("chosen", 1)])
    assert "Resubmit 2 messages" in repr(panel), "the same ones"
    table.select([("chosen", 1), ("chosen", 3)])
    said_and_gone("The selection was changed")
    plan()
    write(bar, "Delay", "5m")  # while the kernel is busy, it comes after the click on the button
    said_and_gone("The form was changed")
    plan()

    write(bar, "Delay", "soon")
    click(bar, "Show the plan")
    assert text_of(bar.blocks()).count("is not a duration") == 1, "below the field, and not once more below the form"
    write(bar, "Delay", "5m")
    plan()

    click(panel, "Carry out")
    until(lambda: panel.report)
    assert names(bar) == ["Resubmit…"], "the form is closed before its report is shown"
    table.select([("chosen", 2), ("chosen", 4)])
    assert "Resubmit is done" in repr(panel), "a report stays"
    bar.close()


def test_plan_goes_with_its_form(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "formed", 2)
    table = MessageTable(queue.peek())
    panel = ActionPanel(namespace, table=table)
    bar = SelectionBar(table, {"Resubmit…": lambda: resubmit_form(queue)}, panel)
    table.select([("formed", 1)])

    def plan() -> Button:
        click(bar, "Resubmit…")
        click(bar, "Show the plan")
        until(lambda: not panel.is_looking)
        assert "Resubmit 1 message" in repr(panel)
        return find(panel, "Carry out")

    for away in (lambda: click(bar, "Resubmit…"), lambda: click(bar, "Close"), bar.close):
        carry_out = plan()
        away()
        assert "Carry out" not in names(panel)
        carry_out.click()  # too late
        assert not panel.is_looking
        assert "The form of this plan was closed" in repr(panel)
    assert [message.sequence_number for message in queue.peek()] == [1, 2]


def test_a_refused_plan_goes_with_its_form(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "refused", 2)
    table = MessageTable(queue.peek())
    panel = ActionPanel(namespace, table=table)
    actions = {
        "Edit and resubmit…": lambda: resubmit_form(queue, EditForm(lambda: table.selected)),
        "Resubmit…": lambda: resubmit_form(queue),
    }
    bar = SelectionBar(table, actions, panel)
    table.select([("refused", 1)])
    click(bar, "Edit and resubmit…")
    click(bar, "Show the plan")
    until(lambda: not panel.is_looking)
    assert "Nothing is changed" in repr(panel)
    click(bar, "Resubmit…")
    assert "Nothing is changed" not in repr(panel), "it is of another form"
    bar.close()


def test_form_opened_while_a_plan_is_carried_out_stays(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "kept-open", 4)
    table = MessageTable(queue.peek())
    panel = ActionPanel(namespace, table=table)
    bar = SelectionBar(table, {"Resubmit…": lambda: resubmit_form(queue)}, panel)
    table.select([("kept-open", number) for number in (1, 2, 3)])
    click(bar, "Resubmit…")
    write(bar, "Rate per second", "0.1")
    click(bar, "Show the plan")
    click(panel, "Carry out")
    click(bar, "Resubmit…")
    write(bar, "Delay", "7m")
    click(bar, "Show the plan")
    assert "Another plan is being carried out" in repr(bar)
    panel.cancel()
    until(lambda: panel.report and not panel.is_looking)
    assert find(bar, "Delay").value == "7m"
    click(bar, "Show the plan")
    until(lambda: "7m later" in repr(panel))
    bar.close()


def test_form_opened_right_after_a_report_stays(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "acted-again", 2)
    table = MessageTable(queue.peek())
    panel = ActionPanel(namespace, table=table)

    def act_again(_: Report) -> None:
        table.select([("acted-again", 2)])
        click(bar, "Resubmit…")
        click(bar, "Show the plan")

    panel.on_report(act_again)  # before all that the bar may hear of it
    bar = SelectionBar(table, {"Resubmit…": lambda: resubmit_form(queue)}, panel)
    table.select([("acted-again", 1)])
    click(bar, "Resubmit…")
    click(bar, "Show the plan")
    click(panel, "Carry out")
    until(lambda: panel.report and panel.wait() and "Carry out" in names(panel))
    assert "Show the plan" in names(bar)
    bar.close()
