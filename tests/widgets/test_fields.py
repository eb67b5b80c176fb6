from __future__ import annotations

import pytest

from sbnotebook.errors import ConfigurationError
from sbnotebook.widgets.blocks import answer
from sbnotebook.widgets.fields import Entry, number, watch, whole_number


def test_field_reads_its_text_stripped() -> None:
    field = Entry("Rate", number, " 0.5 ")
    assert (field.read(), field.problem) == (0.5, "")


def test_field_shows_its_problem_until_it_is_fixed() -> None:
    field = Entry("At most", whole_number, "none")
    assert field.problem == "Write a whole number from 1, or nothing."
    with pytest.raises(ConfigurationError):
        field.read()
    field.value = "3"
    assert (field.read(), field.problem) == (3, "")


def test_what_is_written_is_told() -> None:
    told: list[str] = []
    entry = Entry("At most", whole_number)
    watch([entry], lambda: told.append(entry.problem))
    answer(entry.block(), "none")
    answer(entry.block(), "3")
    assert told == ["Write a whole number from 1, or nothing.", ""]
