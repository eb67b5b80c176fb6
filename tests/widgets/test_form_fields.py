from __future__ import annotations

import pytest

from sbnotebook.errors import ConfigurationError
from sbnotebook.widgets.form_fields import Field, number, whole_number


def test_a_field_reads_its_text_without_the_spaces_around_it() -> None:
    field = Field("Rate", number, value=" 0.5 ")
    assert (field.read(), field.problem) == (0.5, "")


def test_a_field_says_what_is_wrong_from_the_beginning_and_until_it_is_mended() -> None:
    field = Field("At most", whole_number, value="none")
    assert field.problem == "Write a whole number from 1, or nothing."
    with pytest.raises(ConfigurationError):
        field.read()
    field.box.value = "3"
    assert (field.read(), field.problem) == (3, "")
