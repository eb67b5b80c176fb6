from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from sbnotebook.client import Namespace
from sbnotebook.errors import DecisionError, SbNotebookError
from sbnotebook.model import EntityAddress, Message
from sbnotebook.model.decision import AUTO
from sbnotebook.settlement import Limits
from sbnotebook.widgets.forms.edit_form import EditForm
from sbnotebook.widgets.forms.message_actions import resubmit_form

NAMES = ("to", "delay", "cap", "rate", "in_flight")


def form_for(namespace: Namespace) -> tuple[dict[str, Any], Callable[[], tuple[dict[str, Any], Limits]]]:
    """The fields of a form by name, and what reads them: the arguments of a resubmit and the limits."""
    form = resubmit_form(namespace.entity("events/subscriptions/audit/$dlq"))

    def read() -> tuple[dict[str, Any], Limits]:
        assert form.plan is not None
        make, limits = form.plan()
        assert isinstance(make, partial)
        return make.keywords, limits

    return dict(zip(NAMES, form.fields, strict=True)), read


def test_resubmit_form_needs_no_choice(namespace: Namespace) -> None:
    fields, read = form_for(namespace)
    assert fields["to"].block().hint == "events, whose subscriptions get them by their rules"
    assert read() == ({"to": None, "delay": None, "edit": None, "max_resubmits": AUTO}, Limits())


def test_resubmit_form_reads_every_field(namespace: Namespace) -> None:
    fields, read = form_for(namespace)
    values = {"to": " parts ", "delay": "5m", "cap": "3", "rate": "0.5", "in_flight": "20"}
    for name, value in values.items():
        fields[name].value = value
    options = {"to": EntityAddress("parts"), "delay": timedelta(minutes=5), "edit": None, "max_resubmits": 3}
    assert read() == (options, Limits(20, 0.5))


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
    with pytest.raises(SbNotebookError):
        read()
    field.value = ""
    assert field.problem == ""
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
        form.plan()
    step = changes.add_step()
    step.kind.value, step.value.value = "Set subject", "fixed"
    make, _ = form.plan()
    assert (
        make(queue.peek()).preview().sentence == "resubmit 1 message of resubmitted to resubmitted, 5m later, edited."
    )
