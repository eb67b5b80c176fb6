from __future__ import annotations

import ipywidgets as widgets
import pytest

from sbnotebook.errors import ConfigurationError
from sbnotebook.widgets.forms.fields import Field, number, on_change, whole_number
from sbnotebook.widgets.text_view import TextView, paragraph


def test_field_reads_its_text_stripped() -> None:
    field = Field("Rate", number, value=" 0.5 ")
    assert (field.read(), field.problem) == (0.5, "")


def test_field_shows_its_problem_until_it_is_fixed() -> None:
    field = Field("At most", whole_number, value="none")
    assert field.problem == "Write a whole number from 1, or nothing."
    with pytest.raises(ConfigurationError):
        field.read()
    field.box.value = "3"
    assert (field.read(), field.problem) == (3, "")


def test_changes_of_a_form_are_told_and_what_it_says_is_not() -> None:
    told: list[str] = []
    view, field, rows = TextView(), Field("At most", whole_number), widgets.VBox()
    on_change(widgets.VBox([view, field, rows]), lambda: told.append("changed"))
    view.show(paragraph("Trying …"))
    view.use_plain(True)
    assert told == []
    field.box.value = "none"
    assert told == ["changed"], "once, although the field says that it is wrong"
    later = widgets.Checkbox()
    rows.children = (later,)
    later.value = True
    assert told == ["changed"] * 3
    rows.children = ()
    assert told == ["changed"] * 4
