from __future__ import annotations

from datetime import timedelta

import pytest

from sbnotebook.client import Namespace
from sbnotebook.errors import SbNotebookError
from sbnotebook.model import EntityAddress, Message, Resubmit
from sbnotebook.settlement import Limits
from sbnotebook.widgets.forms.message_actions import ResubmitForm

LETTERS = EntityAddress.parse("events/subscriptions/audit/$dlq")


def test_resubmit_form_needs_no_choice() -> None:
    form = ResubmitForm(LETTERS)
    assert form.to.block().hint == "events, whose subscriptions get them by their rules"
    assert form.read() == (Resubmit(), Limits())


def test_resubmit_form_reads_every_field() -> None:
    form = ResubmitForm(LETTERS)
    values = {"to": " parts ", "delay": "5m", "cap": "3", "rate": "0.5", "in_flight": "20"}
    for name, value in values.items():
        getattr(form, name).value = value
    assert form.read() == (Resubmit(EntityAddress("parts"), timedelta(minutes=5), 3), Limits(20, 0.5))


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
def test_resubmit_form_shows_problems_at_their_fields(name: str, value: str, said: str) -> None:
    form = ResubmitForm(LETTERS)
    field = getattr(form, name)
    field.value = value
    assert said in field.problem
    with pytest.raises(SbNotebookError):
        form.read()
    field.value = ""
    assert field.problem == ""
    form.read()


def test_resubmit_form_makes_the_plan(namespace: Namespace) -> None:
    namespace.create_queue("resubmitted")
    queue = namespace.entity("resubmitted")
    queue.send([Message(message_id="m")])
    form = ResubmitForm(queue.address)
    form.delay.value = "5m"
    plan = form.proposal(queue, lambda message: message.with_changes(subject="fixed"))[0](queue.peek())
    assert plan.preview().sentence == "resubmit 1 message of resubmitted to resubmitted, 5m later, edited."
