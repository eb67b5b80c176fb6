from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from sbnotebook.client import Messages, Namespace
from sbnotebook.errors import DecisionError, SbNotebookError
from sbnotebook.model import Decision, EntityAddress, Message, Resubmit
from sbnotebook.settlement import Limits
from sbnotebook.widgets.edit_form import EditForm
from sbnotebook.widgets.fields import have_faults
from sbnotebook.widgets.selection_bar import resubmit_form

NAMES = ("to", "delay", "cap", "rate", "in_flight")


def form_for(namespace: Namespace) -> tuple[dict[str, Any], Callable[[], tuple[Decision, Limits]]]:
    """The fields of a form by name, and what reads them: the decision of the plan, and the limits."""
    form = resubmit_form(namespace.entity("events/subscriptions/audit/$dlq"))

    def read() -> tuple[Decision, Limits]:
        assert form.plan is not None
        return form.plan(Messages()).decision, form.limits()

    return dict(zip(NAMES, form.fields, strict=True)), read


def test_resubmit_form_needs_no_choice(namespace: Namespace) -> None:
    fields, read = form_for(namespace)
    assert fields["to"].block().hint == "events, whose subscriptions get them by their rules"
    assert read() == (Resubmit(EntityAddress("events")), Limits())


def test_resubmit_form_reads_every_field(namespace: Namespace) -> None:
    fields, read = form_for(namespace)
    values = {"to": " parts ", "delay": "5m", "cap": "3", "rate": "0.5", "in_flight": "20"}
    for name, value in values.items():
        fields[name].value = value
    assert read() == (Resubmit(EntityAddress("parts"), timedelta(minutes=5), max_resubmits=3), Limits(20, 0.5))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("to", "orders/$dlq", "A message cannot be sent to orders/$dlq: name a queue or a topic."),
        ("to", "orders//x", "orders//x"),
        ("delay", "soon\u202e", "write 90s, 5m, 1h30m or 2d."),
        ("cap", "0", "Write a whole number from 1, or nothing."),
        ("cap", "1.5", "Write a whole number from 1, or nothing."),
        ("cap", "9" * 5000, "Write a whole number from 1, or nothing."),
        ("rate", "-1", "Write a number above 0, such as 20 or 0.5, or nothing."),
        ("rate", "nan", "Write a number above 0, such as 20 or 0.5, or nothing."),
        ("rate", "many", "Write a number above 0, such as 20 or 0.5, or nothing."),
        ("in_flight", "many", "Write a whole number from 1, or nothing."),
    ],
)
def test_resubmit_form_shows_problems_at_their_fields(namespace: Namespace, name: str, value: str, said: str) -> None:
    fields, read = form_for(namespace)
    field = fields[name]
    field.value = value
    assert said in field.problem
    assert have_faults(fields.values())
    with pytest.raises(SbNotebookError):
        read()
    field.value = ""
    assert field.problem == ""
    assert not have_faults(fields.values())
    read()


def test_resubmit_form_makes_the_plan(namespace: Namespace) -> None:
    namespace.create_queue("resubmitted")
    queue = namespace.entity("resubmitted")
    queue.send([Message(message_id="m")])
    changes = EditForm(queue.peek)
    form = resubmit_form(queue, changes)
    fields: Any = form.fields[1:]
    fields[1].value = "5m"
    assert form.plan is not None
    with pytest.raises(DecisionError, match="Nothing is changed"):
        form.plan(queue.peek())
    step = changes.add_step()
    step.kind.value, step.value.value = "Set subject", "fixed"
    plan = form.plan(queue.peek())
    assert plan.preview().sentence == "resubmit 1 message of resubmitted to resubmitted, 5m later, edited."
