from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.errors import DecisionError
from sbnotebook.model.json_text import json_text, parse_path, remove_at, set_at

WRITTEN = '{ "fare" : 1.10, "id": 123456789012345678901234567890,\n "legs": [ {"to": "IAH"}, {} ], "old": null }'


@pytest.mark.parametrize(
    ("path", "value", "after"),
    [
        ("$.fare", "2", WRITTEN.replace("1.10", "2")),
        ("legs[0].to", '"EWR"', WRITTEN.replace("IAH", "EWR")),
        ("$.legs[1].to", "7", WRITTEN.replace("{}", '{"to": 7}')),
        ("$.legs[2]", "{}", WRITTEN.replace("{} ]", "{}, {} ]")),
        ("$.legs[0].from", '"EWR"', WRITTEN.replace('"IAH"', '"IAH", "from": "EWR"')),
        ('$["a b"].c.d', "true", WRITTEN.replace("null }", 'null, "a b": {"c": {"d": true}} }')),
    ],
    ids=range(6),
)
def test_one_value_is_set_and_all_else_stays_as_it_was_written(path: str, value: str, after: str) -> None:
    assert set_at(WRITTEN, parse_path(path), value) == after


@pytest.mark.parametrize(
    ("path", "after"),
    [
        ("$.fare", WRITTEN.replace('"fare" : 1.10, ', "")),
        ("$.old", WRITTEN.replace(', "old": null', "")),
        ("$.legs[0]", WRITTEN.replace('{"to": "IAH"}, ', "")),
        ("$.legs[0].to", WRITTEN.replace('{"to": "IAH"}', "{}")),
        ("$.none.such", WRITTEN),
    ],
    ids=range(5),
)
def test_one_value_is_removed_and_all_else_stays(path: str, after: str) -> None:
    assert remove_at(WRITTEN, parse_path(path)) == after


@given(st.dictionaries(st.text(), st.integers() | st.lists(st.integers())), st.text(), st.integers())
def test_what_is_set_is_there_and_what_is_removed_is_not(value: dict[str, Any], key: str, new: int) -> None:
    text = set_at(json.dumps(value, indent=1), (key,), str(new))
    assert json.loads(text) == value | {key: new}
    assert json.loads(remove_at(text, (key,))) == {name: each for name, each in value.items() if name != key}


def test_json_edit_changes_the_last_of_equal_names() -> None:
    assert set_at('{"a": 1, "a": 2}', ("a",), "3") == '{"a": 1, "a": 3}'


@pytest.mark.parametrize("path", ["", "$", "a b", "$.a.", "[x]", "a[-1]", "$..a", '["open'])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(DecisionError, match="is not a path in JSON"):
        parse_path(path)


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ("no JSON", ("a",), "The body is not JSON"),
        ("[" * 100_000, ("a",), "nested too deep"),
        ('{"a": 1}', ("a", "b"), "no object in the body that could have 'b'"),
        ('{"a": 1}', (0,), "no list in the body"),
        ("[1]", (3,), "has 1 elements, and so no place 3"),
        ("{}", ("a", 0), "no list with a place 0"),
    ],
    ids=range(6),
)
def test_where_the_path_leads_nowhere_it_says_so(text: str, path: Any, said: str) -> None:
    with pytest.raises(DecisionError, match=said):
        set_at(text, path, "1")


def test_what_is_typed_is_json_or_a_text() -> None:
    typed = ["1.10", " true ", "null", '"7"', "UA", "{", "", "[" * 100_000]
    assert [json_text(each)[:8] for each in typed[:7]] == ["1.10", "true", "null", '"7"', '"UA"', '"{"', '""']
    assert json_text(typed[7]).startswith('"[')
