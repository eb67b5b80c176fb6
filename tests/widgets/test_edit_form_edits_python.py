from __future__ import annotations

from typing import Any

import pytest

from sbnotebook.errors import DecisionError
from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.model.edits import edited_by
from sbnotebook.widgets.edit_form import TEMPLATE, edit_functions, edit_of_source, notebook_names

MESSAGE = PeekedMessage(entity=EntityAddress("orders"), sequence_number=7, body=b'{"carrier": "UA"}')


def test_the_template_works() -> None:
    assert edit_of_source(TEMPLATE, {})(MESSAGE).body == b'{"carrier": "UA", "repaired": true}'


def test_the_notebooks_names_are_there_and_stay_as_they_are() -> None:
    names: dict[str, Any] = {"wanted": "EV"}
    edit = edit_of_source("wanted = wanted * 2\ndef fix(m):\n    return m.with_changes(subject=wanted)", names)
    assert edit(MESSAGE).subject == "EVEV"
    assert names == {"wanted": "EV"}


def test_of_several_functions_edit_or_the_last_one_is_taken() -> None:
    def source(*names: str) -> str:
        return "\n".join(f"def {name}(m): return m.with_changes(subject={name!r})" for name in names)

    assert edit_of_source(source("first", "second"), {})(MESSAGE).subject == "second"
    assert edit_of_source(source("edit", "second"), {})(MESSAGE).subject == "edit"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def edit(m):\n  return m +", "Line 2: invalid syntax: return m \\+"),
        ("import json\n1 / 0", "Line 2: ZeroDivisionError: division by zero"),
        ("number = 7", "There is no function"),
        ("\0", "Line None|source code"),
    ],
    ids=range(4),
)
def test_code_that_does_not_run_says_where(source: str, said: str) -> None:
    with pytest.raises(DecisionError, match=said):
        edit_of_source(source, {})


def test_a_function_that_fails_says_in_which_line_and_of_what() -> None:
    edit = edit_of_source("def edit(m):\n    found = {}\n    return found['carrier']", {})
    with pytest.raises(DecisionError, match=r"failed for message #7, line 3 of edit: KeyError: 'carrier'$"):
        edited_by(edit, MESSAGE)
    with pytest.raises(DecisionError, match="gave NoneType for message #7"):
        edited_by(edit_of_source("def edit(m): pass", {}), MESSAGE)


def test_functions_of_the_notebook_can_be_named() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("def fix(m): return m.with_changes(subject='fixed')\ndef two(a, b): pass\ndef _own(m): pass", names)  # noqa: S102
    assert edit_functions(names | {"str": str, "here": test_the_template_works}) == ["fix"]
    assert notebook_names() == {}
