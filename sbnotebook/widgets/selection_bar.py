"""A table, the bar below it with actions on selected messages, and the form that each opens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Final

from sbnotebook.client import DeferredMessages, Entity, Messages, Plan
from sbnotebook.client.difference import MessageDifference, last_good
from sbnotebook.client.portal import run
from sbnotebook.client.targets import duration
from sbnotebook.errors import DecisionError
from sbnotebook.model import Abandon, Complete, DeadLetter, Decision, Defer, EntityAddress, Release, SubQueue
from sbnotebook.model.decision import AUTO
from sbnotebook.settlement import DEFAULT_MAX_HELD, Limits
from sbnotebook.widgets.action_panel import ActionPanel
from sbnotebook.widgets.blocks import Block, Button, Code, Column, Grid, Row, Table, Text
from sbnotebook.widgets.edit_form import EditForm
from sbnotebook.widgets.fields import (
    FORM_CHANGED,
    Entry,
    FormPart,
    check_entry,
    have_faults,
    number,
    number_entry,
    optional,
    queue_or_topic,
    required,
    watch,
    whole_number,
)
from sbnotebook.widgets.panel import Panel, must_wait
from sbnotebook.widgets.table.message_table import MessageTable, PlainTable
from sbnotebook.widgets.table.row_packing import MessageKey, keys_of

_NONE: Final = "No message is selected. Tick rows, or select all that are shown."
_WAITING: Final = (
    "While a cell runs, all buttons and forms wait until it ends: this kernel answers them between "
    "cells. You can search, filter and select in the table meanwhile, but not in the plain one. With "
    "ipykernel 7.4 or newer, no button waits."
)
_MOST_DIFFERENCES: Final = 100
_PAIR: Final = 2


@dataclass(frozen=True, slots=True)
class ActionForm:
    """The form of an action, with a button: for a plan, or for a task that changes no message.

    Plan and task read the fields when they are called, in the background, after :func:`have_faults` has.
    """

    title: str
    words: str
    fields: tuple[FormPart, ...] = ()
    plan: Callable[[Messages], Plan] | None = None
    limits: Callable[[], Limits] = Limits
    task: Callable[[Messages], str] | None = None
    submit: str = "Show the plan"
    on_all: bool = False


Planner = Callable[[Decision, Messages], Plan]
Actions = dict[str, Callable[[], ActionForm]]
"""The forms that actions open, by the names of the actions."""
LOOKS: Final = {
    "Abandon…": ("Give them back to be delivered again, counted", "undo"),
    "Cancel…": ("Remove them before they become active", "trash"),
    "Compare": (
        "Show what differs between two messages, or between a dead letter and the last good message",
        "columns",
    ),
    "Complete…": ("Remove them: they are done with", "check"),
    "Copy KQL": ("Copy a query for the exceptions behind them, for Application Insights", "search"),
    "Dead-letter…": ("Move them to the dead-letter queue, with a reason", "ban"),
    "Defer…": ("Set them aside, to be received by their numbers only", "clock-o"),
    "Edit and resubmit…": ("Change them, look at what changes, and send them again", "pencil"),
    "Export…": ("Write a copy of them to a file", "download"),
    "Release…": ("Give them back as if they had not been delivered", "unlock"),
    "Resubmit…": ("Send them again, and remove them from here", "repeat"),
    "Select where…": ("Select messages by a SQL expression", "filter"),
}


class SelectionBar(Panel):
    def __init__(self, table: MessageTable, actions: Actions, panel: ActionPanel) -> None:
        super().__init__()
        self._table = table
        self._panel = panel
        self.actions = actions
        self.grid = Grid(table, PlainTable(table, self.redraw).blocks)
        self._form: ActionForm | None = None
        self._opened = 0
        self._problem = self._said = ""
        self._planned: tuple[MessageKey, ...] = ()
        """The messages for which the form has asked for a plan."""
        self._take_back: Callable[[str], object] = lambda _: None
        table.on_selection(self.update)

    def blocks(self) -> list[Block]:
        if not self.actions:
            return []
        buttons = [
            Button(name, partial(self._open, form), LOOKS[name][0], icon=LOOKS[name][1])
            for name, form in self.actions.items()
        ]
        head = [Text(self._count, is_strong=True), Row(buttons)]
        return [
            Column(head, look="held" if self._table.selection else "selection", key="selection"),
            Text(_WAITING if must_wait() else "", "quiet"),
            *([] if self._form is None else [self._form_block(self._form)]),
            Text(self._said),
        ]

    def _form_block(self, form: ActionForm) -> Block:
        controls = [Button("Close", self._close_form, "Close this form; nothing is done")]
        if form.plan or form.task:
            controls.insert(0, Button(form.submit, partial(self._submit, form), tone="primary"))
        fields = [block for part in form.fields for block in part.blocks()]
        parts = [Text(form.words), *fields, Row(controls), Text(self._problem, "error")]
        return Column(parts, form.title, "form", key=f"form-{self._opened}")

    @property
    def _count(self) -> str:
        count, hidden = len(self._table.selection), self._table.hidden
        if not count:
            return _NONE
        selected = "1 message is selected" if count == 1 else f"{count:,} messages are selected"
        return f"{selected}, {hidden:,} hidden by a filter." if hidden else f"{selected}."

    def update(self) -> None:
        """Show how many messages are selected now, and put an unconfirmed plan for others away."""
        if self._planned and self._table.selected_keys != self._planned:
            self._take_back("The selection was changed, so this plan was put away: show it again.")
        self.redraw()

    def offer(self, actions: Actions) -> None:
        """Offer other actions; the form of the others is closed."""
        self._close_form()
        self.actions, self._said = actions, ""
        self.redraw()

    def begin(self, name: str) -> None:
        self._open(self.actions[name])
        self.redraw()

    def close(self) -> None:
        self._close_form()
        super().close()
        self._table.close()

    def _open(self, make: Callable[[], ActionForm]) -> None:
        self._close_form()
        self._said = ""
        form = make()
        self._opened += 1
        watch(form.fields, lambda: self._take_back(FORM_CHANGED))
        for part in form.fields:
            if isinstance(part, Panel):
                part.outer = self
        self._form = form

    def _close_form(self, form: ActionForm | None = None) -> None:
        """Close the form, unless another one than this was opened meanwhile."""
        if form is not None and form is not self._form:
            return
        if self._planned:  # this does nothing to a plan that is carried out
            self._take_back("The form of this plan was closed, so the plan was put away: show it again.")
        self._form, self._problem, self._planned = None, "", ()

    def _submit(self, form: ActionForm) -> None:
        self._problem = ""
        messages = self._table.messages if form.on_all else self._table.selected
        if not messages:
            self._problem = "There are no messages." if form.on_all else _NONE
            return
        if form is not self._form or have_faults(form.fields):
            return
        if form.plan:
            self._planned = self._table.selected_keys
            self._take_back = self._panel.propose(
                partial(form.plan, messages),
                hidden=self._table.hidden,
                title=form.title,
                limits=form.limits(),
                carried_out=partial(self._close_form, form),
            )
        elif form.task:
            self.in_background(partial(self._do, form, form.task, messages), partial(setattr, self, "_problem"))

    def _do(self, form: ActionForm, task: Callable[[Messages], str], messages: Messages) -> None:
        said = task(messages)
        self._close_form(form)
        self._said = said


# ------------------------------------------------------------ which actions there are


def triage_actions(entity: Entity, whole: Entity, table: MessageTable, *, is_editing: bool = True) -> Actions:
    complete = "The messages are done with: they are removed from here, and nothing is sent."
    actions: Actions = {
        "Resubmit…": partial(resubmit_form, entity),
        "Edit and resubmit…": lambda: _edit_form(entity, lambda: table.selected),
        "Complete…": lambda: _decision_form("Complete", complete, Complete(), *_picking(entity)),
        "Dead-letter…": lambda: _dead_letter_form(entity.address, *_picking(entity)),
        "Defer…": lambda: _defer_form(entity.address, *_picking(entity)),
        "Compare": lambda: _compare_form(entity, whole, table.selected),
        "Copy KQL": lambda: _kql_form(table.selected),
        "Export…": partial(_export_form, entity),
        "Select where…": partial(_select_form, table),
    }
    if entity.address.sub_queue is not None:
        del actions["Dead-letter…"]
    if not is_editing:
        del actions["Edit and resubmit…"]
    return actions


def lock_actions(address: EntityAddress, plan: Planner) -> Actions:
    complete = "The messages are done with: the service removes them."
    release = "The messages are given back as if they had not been delivered: their delivery count stays."
    actions: Actions = {
        "Complete…": lambda: _decision_form("Complete", complete, Complete(), plan),
        "Abandon…": lambda: _abandon_form(plan),
        "Dead-letter…": lambda: _dead_letter_form(address, plan),
        "Defer…": lambda: _defer_form(address, plan),
        "Release…": lambda: _decision_form("Release", release, Release(), plan),
    }
    if address.sub_queue is SubQueue.DEAD_LETTER:
        del actions["Dead-letter…"]
    return actions


def scheduled_actions(entity: Entity) -> Actions:
    return {
        "Cancel…": lambda: ActionForm(
            "Cancel scheduled messages",
            "The messages never become active: they are removed. Where there is an archive, this can be undone.",
            plan=entity.cancel_scheduled,
        )
    }


def deferred_actions(entity: Entity, deferred: DeferredMessages) -> Actions:
    complete = "The messages are done with: they are removed."
    resubmit = "Sends clones of the messages to their own entity, and completes the originals."

    actions: Actions = {
        "Complete…": lambda: _decision_form("Complete deferred messages", complete, Complete(), deferred.plan),
        "Resubmit…": lambda: ActionForm("Resubmit deferred messages", resubmit, plan=entity.resubmit),
    }
    if entity.address.sub_queue is None:
        actions["Dead-letter…"] = lambda: _dead_letter_form(
            entity.address, deferred.plan, title="Dead-letter deferred messages"
        )
    return actions


# ------------------------------------------------------------ forms of decisions


def _decision_form(title: str, words: str, decision: Decision, plan: Planner, *fields: FormPart) -> ActionForm:
    return ActionForm(title, words, fields, partial(plan, decision))


def _abandon_form(plan: Planner) -> ActionForm:
    delay = Entry("After", optional(duration), hint="such as 2m; empty for at once")
    return ActionForm(
        "Abandon",
        "The messages are delivered again, with a delivery count one higher: when it is too high, they "
        "are dead-lettered. Until the delay is over they are held here, with their locks renewed.",
        (delay,),
        lambda messages: plan(Abandon(delay.read()), messages),
    )


def _dead_letter_form(address: EntityAddress, plan: Planner, *more: FormPart, title: str = "Dead-letter") -> ActionForm:
    reason = Entry(
        "Reason",
        required("Give a reason: dead letters are found and grouped by it."),
        hint="short, and the same for the same cause",
    )
    description = Entry("Description", str, hint="what happened to these messages")
    letters = EntityAddress(address.name, address.subscription, SubQueue.DEAD_LETTER)

    def make(messages: Messages) -> Plan:
        return plan(DeadLetter(reason.read(), description.read() or None), messages)

    return ActionForm(title, f"The messages move to {letters}, with a reason.", (reason, description, *more), make)


def _defer_form(address: EntityAddress, plan: Planner, *more: FormPart) -> ActionForm:
    after = Entry("Wake up after", optional(duration), hint="such as 2h; empty for no wake-up message")
    to = Entry("Wake-up goes to", optional(EntityAddress.parse), hint="a queue or topic")

    def make(messages: Messages) -> Plan:
        wake_after, wake_to = after.read(), to.read()
        # A sub-queue cannot be sent to, and of a topic all subscriptions would get the wake-up.
        if wake_after is not None and wake_to is None and address != address.sends_to:
            raise DecisionError(f"Name a queue for the wake-up message: it cannot be sent to {address} itself.")
        return plan(Defer(wake_after, wake_to), messages)

    return ActionForm(
        "Defer",
        "The messages stay where they are, and can be received only by their sequence numbers, which the "
        "journal keeps. A wake-up message, if you want one, tells its receiver these numbers when the "
        "time has come.",
        (after, to, *more),
        make,
    )


def _picking(entity: Entity) -> tuple[Planner, FormPart]:
    held = number_entry(
        "Lock at most",
        DEFAULT_MAX_HELD,
        10_000_000,
        tooltip="Locks the messages before the selected ones for a while, and releases them: at most this "
        "many, with about a kilobyte of memory each.",
    )

    def plan(decision: Decision, messages: Messages) -> Plan:
        return entity.pick(messages, decision, show_progress=False, max_held=held.read())

    return plan, held


# ------------------------------------------------------------ forms of resubmits


def resubmit_form(entity: Entity, changes: EditForm | None = None) -> ActionForm:
    address = entity.address
    whom = ", whose subscriptions get them by their rules" if address.subscription else ""
    to = Entry("To", optional(queue_or_topic), hint=f"{address.sends_to}{whom}")
    delay = Entry("Delay", optional(duration), hint="such as 5m or 2h: they become active that much later")
    cap = Entry("Resubmit limit", optional(whole_number), hint="maximum resubmits; 5 for dead letters if empty")
    rate = Entry("Rate per second", optional(number), hint="a number of messages, such as 20; empty for no limit")
    in_flight = Entry("In flight at most", optional(whole_number), hint="empty to adapt to the network")

    def make(messages: Messages) -> Plan:
        edit = changes.edit if changes else None
        if changes and edit is None:
            raise DecisionError("Nothing is changed: add a change, or choose Resubmit to send them as they are.")
        most = cap.read() or AUTO
        return entity.resubmit(messages, to=to.read(), delay=delay.read(), edit=edit, max_resubmits=most)

    words = "Sends a clone of each message, and removes the original when Service Bus has confirmed the clone."
    if address.sub_queue is not None:
        words += f" Clones go back to {address.sends_to}, or to the queue or topic that you name."
    title, changed = ("Edit and resubmit", [changes]) if changes else ("Resubmit", [])
    fields = (*changed, to, delay, cap, rate, in_flight)
    return ActionForm(title, words, fields, make, lambda: Limits(in_flight.read() or AUTO, rate.read()))


def _edit_form(entity: Entity, selected: Callable[[], Messages]) -> ActionForm:
    changes = EditForm(selected)
    changes.add_step()
    return resubmit_form(entity, changes)


# ------------------------------------------------------------ forms that change no message


def _export_form(entity: Entity) -> ActionForm:
    name = str(entity.address).replace("/$", "-").replace("/", "-")
    path = Entry("File", str, hint="a path that ends with .parquet, .jsonl or .csv", value=f"{name}.parquet")
    overwrite = check_entry("replace it if it exists")

    def export(messages: Messages) -> str:
        written = messages.export(path.read(), overwrite=overwrite.read()).resolve()
        count = len(messages)
        return f"{count:,} {'message is' if count == 1 else 'messages are'} in {written}, which only you can read."

    return ActionForm(
        "Export",
        "A copy in a file; the messages stay where they are. Parquet and JSON lines keep everything, "
        "types included; CSV is for a spreadsheet.",
        (path, overwrite),
        task=export,
        submit="Write the file",
    )


def _compare_form(entity: Entity, whole: Entity, selected: Messages) -> ActionForm:
    return ActionForm(
        "Compare",
        "Fields, properties and values in JSON bodies that differ; places, ids and times are left out.",
        (Finding("Comparing …", lambda: _blocks(_compared(selected, entity, whole))),),
    )


class Finding(Panel):
    def __init__(self, words: str, find: Callable[[], list[Block]], outer: Panel | None = None) -> None:
        super().__init__()
        self.outer = outer
        self._find = find
        self._found: list[Block] = [Text(words, "quiet")]
        self.look(self._show)

    def blocks(self) -> list[Block]:
        return self._found

    def _show(self, _: Event) -> None:
        self._found = self._find()

    def ended(self, problem: str) -> None:
        if problem:
            self._found = [Text(problem, "error")]


def _kql_form(selected: Messages) -> ActionForm:
    return ActionForm(
        "Telemetry",
        "A query for the exceptions and failed dependencies of the operations of these messages. Run it "
        "in the Logs of the workspace of Application Insights.",
        (Finding("Reading the traces …", lambda: [Code(selected.kql(), 1)]),),
    )


def _compared(selected: Messages, entity: Entity, whole: Entity) -> MessageDifference:
    if len(selected) == _PAIR:
        return MessageDifference(selected[0], selected[1])
    if len(selected) != 1 or entity.address.sub_queue is None:
        one = ", or one dead letter to compare it with the last good message" if entity.address.sub_queue else ""
        raise DecisionError(f"Select two messages{one}; {len(selected):,} are selected.")
    return MessageDifference(selected[0], run(last_good, entity.asynchronous, whole.asynchronous, selected[0]))


def _blocks(found: MessageDifference) -> list[Block]:
    if not found:
        return [Text(found.summary)]
    rows = [["(absent)" if value is None else value for value in row] for row in found.rows(_MOST_DIFFERENCES)]
    more = f" The first {_MOST_DIFFERENCES}:" if len(found) > _MOST_DIFFERENCES else ""
    return [Text(f"{found.summary}{more}"), Table(found.headers, rows)]


def _select_form(table: MessageTable) -> ActionForm:
    where = Entry(
        "Where",
        required("Write an expression, such as delivery_count > 3."),
        hint="subject = 'order' and body_json->>'$.carrier' = 'UA'",
    )

    def choose(messages: Messages) -> str:
        found = messages.where(where.read())
        table.select(keys_of(found))
        return f"The expression is true for {len(found):,} of {len(messages):,} messages, which are selected now."

    return ActionForm(
        "Select by an expression",
        "A SQL expression over the message columns; body_json reaches into bodies that are JSON.",
        (where,),
        task=choose,
        submit="Select",
        on_all=True,
    )
