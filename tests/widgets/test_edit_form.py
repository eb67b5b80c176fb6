from __future__ import annotations

from typing import Any

import pytest

from sbnotebook.errors import DecisionError
from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.widgets import edit_form
from sbnotebook.widgets.blocks import Button
from sbnotebook.widgets.edit_form import EditForm
from tests.widgets.conftest import blocks, names, until

ORDERS = EntityAddress("orders")
MESSAGES = [
    PeekedMessage(entity=ORDERS, sequence_number=number, body=b'{"carrier": "??"}', subject="a" if number < 9 else "b")
    for number in (7, 8, 9)
]


def button(form: EditForm, name: str) -> Button:
    found = (each for each in blocks(form) if isinstance(each, Button) and name in (each.name, each.tooltip))
    return next(found)


def tried(form: EditForm, name: str = "Try it") -> str:
    button(form, name).click()
    until(lambda: "Trying" not in repr(form))
    return repr(form)


def test_edit_form_previews_changes_and_gives_an_edit() -> None:
    form = EditForm(lambda: MESSAGES)
    assert form.edit is None
    assert "Nothing is changed" in tried(form)
    button(form, "Add a change").click()
    button(form, "Add a change").click()
    first, second = form.steps
    first.kind.value, first.name.value, first.value.value = "Set in JSON body", " $.carrier ", "UA"
    second.kind.value, second.value.value = "Set subject", "b"
    said = tried(form)
    assert "Message 1 of 3, number 7" in said
    assert "body.carrier\n    - ??\n    + UA" in said
    assert "7 subject" in said
    assert "number 8" in tried(form, "The next message")
    assert "9 subject" not in tried(form, "The next message")
    assert "Message 1 of 3" in tried(form, "The next message"), "behind the last comes the first"
    assert "Message 3 of 3" in tried(form, "The message before")
    edit = form.edit
    assert edit is not None
    assert edit(MESSAGES[0]).body == b'{"carrier": "UA"}'
    second.value.value = "c"
    until(lambda: "+ c" in repr(form))  # the preview shows the edit that is written
    [each for each in blocks(form) if isinstance(each, Button) and each.name == "Remove"][1].click()
    assert form.steps == (first,)
    until(lambda: "+ c" not in repr(form))
    form.close()


def test_what_cannot_be_is_said_in_the_form() -> None:
    form = EditForm(lambda: MESSAGES)
    step = form.add_step()
    step.kind.value, step.name.value = "Set in JSON body", "no path!"
    assert "is not a path in JSON" in tried(form)
    with pytest.raises(DecisionError, match="is not a path"):
        assert form.edit
    step.name.value = "$.carrier.code"
    assert "the edit\n    - \n    + The edit failed for message #7: There is no object" in tried(form)
    of_none = EditForm(list)
    of_none.add_step().kind.value = "Set subject"
    assert "Select messages" in tried(of_none)


def test_edit_form_runs_typed_code_on_a_click_only(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    monkeypatch.setattr(edit_form, "notebook_names", lambda: {"ran": ran})
    form = EditForm(lambda: MESSAGES)
    form.way.value = "By a Python function"
    form.code.value = "ran.append(1)\ndef edit(m):\n    return m.with_changes(subject='fixed')"
    assert ran == []
    with pytest.raises(DecisionError, match="was not tried"):
        assert form.edit
    assert "+ fixed" in tried(form)
    assert ran == [1]
    edit = form.edit
    assert edit is not None
    assert edit(MESSAGES[0]).subject == "fixed"
    assert ran == [1], "it is not run again"
    form.code.value += " "
    with pytest.raises(DecisionError, match="was not tried as it is now"):
        assert form.edit
    form.code.value = "def edit(m):\n    return m.nothing"
    assert "failed for message #7, line 2 of edit: AttributeError" in tried(form)
    form.code.value = "async def edit(m): return m"
    assert "an ordinary function here" in tried(form)
    form.code.value = "def edit(m:"
    assert "Line 1: " in tried(form)
    with pytest.raises(DecisionError, match="was not tried"):
        assert form.edit


def test_a_function_of_the_notebook_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, Any] = {"__name__": "__main__"}
    exec("def fix(m): return m.with_changes(subject='fixed')", known)  # noqa: S102
    monkeypatch.setattr(edit_form, "notebook_names", lambda: known)
    form = EditForm(lambda: MESSAGES)
    form.way.value = "By a Python function"
    form.function.value = "fix"
    assert "Code" not in names(form)
    assert "+ fixed" in tried(form)
    edit = form.edit
    assert edit is not None
    assert edit(MESSAGES[0]).subject == "fixed"
    del known["fix"]
    with pytest.raises(DecisionError, match="has no function 'fix' any more"):
        assert form.edit


def test_edit_form_takes_a_function_of_the_json() -> None:
    form = EditForm(lambda: MESSAGES)
    form.way.value = "By a Python function"
    form.gets_json.value = True
    form.code.value = "def fix(order):\n    order['carrier'] = 'UA'"
    assert "body.carrier\n    - ??\n    + UA" in tried(form)
    edit = form.edit
    assert edit is not None
    assert edit(MESSAGES[0]).body == b'{"carrier": "UA"}'
    form.close()
