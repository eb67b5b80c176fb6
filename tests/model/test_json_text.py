from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.errors import DecisionError
from sbnotebook.model.json_text import (
    JsonNumber,
    json_text,
    parse_path,
    read_json,
    rewrite_json,
    set_at,
    write_json,
)

WRITTEN = '{ "fare" : 1.10, "id": 123456789012345678901234567890,\n "legs": [ {"to": "IAH"}, {} ], "old": null }'


@pytest.mark.parametrize(
    ("path", "value", "after"),
    [
        ("$.fare", "2", WRITTEN.replace("1.10", "2")),
        ("legs[0].to", '"EWR"', WRITTEN.replace("IAH", "EWR")),
        ("$.legs[1].to", "7", WRITTEN.replace("{}", '{"to": 7}')),
        ("$.new[0].to", "1", WRITTEN.replace("null }", 'null, "new" : [{"to": 1}] }')),
        ("$.legs[2]", "{}", WRITTEN.replace("{} ]", "{}, {} ]")),
        ("$.legs[0].from", '"EWR"', WRITTEN.replace('"IAH"', '"IAH", "from": "EWR"')),
        ('$["a b"].c.d', "true", WRITTEN.replace("null }", 'null, "a b" : {"c": {"d": true}} }')),
    ],
    ids=range(7),
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
    assert set_at(WRITTEN, parse_path(path), None) == after


@given(st.dictionaries(st.text(), st.integers() | st.lists(st.integers())), st.text(), st.integers())
def test_what_is_set_is_there_and_what_is_removed_is_not(value: dict[str, Any], key: str, new: int) -> None:
    text = set_at(json.dumps(value, indent=1), (key,), str(new))
    assert json.loads(text) == value | {key: new}
    assert json.loads(set_at(text, (key,), None)) == {name: each for name, each in value.items() if name != key}


@pytest.mark.parametrize("path", ["", "$", "a b", "$.a.", "[x]", "a[-1]", "$..a", '["open', '["\\x"]', '["a\tb"]'])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(DecisionError, match="is not a path in JSON"):
        parse_path(path)


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ("no JSON", ("a",), "cannot be read as JSON"),
        ("[" * 100_000, ("a",), "nested too deep"),
        ('{"a": 1}', ("a", "b"), "no object in the body that could have 'b'"),
        ('{"a": 1}', (0,), "no list in the body"),
        ('{"a": 1, "a": 2}', ("a",), "A name is in an object twice"),
        ("[1]", (3,), "has 1 elements, and so no place 3"),
        ("{}", ("a", 1), "has 0 elements, and so no place 1"),
    ],
    ids=range(7),
)
def test_where_the_path_leads_nowhere_it_says_so(text: str, path: Any, said: str) -> None:
    with pytest.raises(DecisionError, match=said):
        set_at(text, path, "1")


def test_what_is_typed_is_json_or_a_text() -> None:
    typed = ["1.10", " true ", "null", '"7"', "UA", "{", "", "[" * 100_000]
    assert [json_text(each)[:8] for each in typed[:7]] == ["1.10", "true", "null", '"7"', '"UA"', '"{"', '""']
    assert json_text(typed[7]).startswith('"[')


SPACES = st.text(" \n\t", max_size=2)
SCALARS = (
    st.sampled_from(["1.10", "-0", "0.30", "1E+2", "1e400", "12345678901234567890", "true", "false", "null", "NaN"])
    | st.integers().map(str)
    | st.text(max_size=5).map(json.dumps)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5).map(
        lambda text: json.dumps(text, ensure_ascii=False)
    )
)


@st.composite
def documents(draw: st.DrawFn, depth: int = 2) -> str:
    """JSON as people and machines write it: any spaces, escapes and digits; no name twice."""
    kind = draw(st.sampled_from(["scalar", "object", "list"])) if depth else "scalar"
    if kind == "scalar":
        inner = draw(SCALARS)
    else:
        items = draw(st.lists(documents(depth - 1), max_size=3))
        if kind == "object":
            names = draw(st.lists(st.text(max_size=3), min_size=len(items), max_size=len(items), unique=True))
            items = [f"{json.dumps(name)}{draw(SPACES)}:{item}" for name, item in zip(names, items, strict=True)]
        inner = ",".join(f"{draw(SPACES)}{item}" for item in items) + draw(SPACES)
        inner = f"{{{inner}}}" if kind == "object" else f"[{inner}]"
    return f"{draw(SPACES)}{inner}{draw(SPACES)}"


def same(one: Any, other: Any) -> bool:
    return write_json(one) == write_json(other)


@given(documents(), documents())
def test_a_document_is_rewritten_to_any_other_value(before: str, after: str) -> None:
    assert rewrite_json(before, read_json(before)) == before
    value = read_json(after)
    assert same(read_json(rewrite_json(before, value)), value)


@given(st.dictionaries(st.text(max_size=3), documents(1), min_size=1, max_size=4), st.data())
def test_all_members_but_the_changed_one_stay_as_they_were_written(
    members: dict[str, str], data: st.DataObject
) -> None:
    def written(texts: dict[str, str]) -> str:
        return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in texts.items()) + "}"

    text = written(members)
    name = data.draw(st.sampled_from([*members]))
    value = read_json(text)
    value[name] = "changed"
    lead = members[name][: len(members[name]) - len(members[name].lstrip())]
    tail = members[name][len(members[name].rstrip()) :]
    assert rewrite_json(text, value) == written(members | {name: f'{lead}"changed"{tail}'})


@pytest.mark.parametrize(
    ("text", "change", "after"),
    [
        ('{"a":1,"b":2}', {"b": 3}, '{"a":1,"b":3}'),
        ('{\n  "a": 1.10,\n  "b": 2\n}', {"c": 3}, '{\n  "a": 1.10,\n  "b": 2,\n  "c": 3\n}'),
        ('{"n":"Jos\\u00e9"}', {"m": "é"}, '{"n":"Jos\\u00e9", "m":"\\u00e9"}'),
        ('{"n": "José"}', {"m": "é"}, '{"n": "José", "m": "é"}'),
        ("{}", {"m": "é"}, '{"m": "é"}'),
    ],
    ids=range(5),
)
def test_new_members_are_written_like_the_others(text: str, change: dict[str, Any], after: str) -> None:
    assert rewrite_json(text, read_json(text) | change) == after


def test_elements_that_stay_in_a_list_are_found() -> None:
    text = '[ 1.10, "Jos\\u00e9",  {"a":2}, 3 ]'
    value = read_json(text)
    del value[0]
    value.append(4)
    assert rewrite_json(text, value) == '[ "Jos\\u00e9",  {"a":2}, 3, 4 ]'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1, "a": 2}', "A name is in an object twice"),
        ("{'a': 1}", "cannot be read as JSON"),
        ("", "Expecting value"),
        ("[" * 100_000, "nested too deep"),
        (None, "not text"),
    ],
    ids=range(5),
)
def test_what_is_no_document_is_refused_in_a_sentence(text: str | None, said: str) -> None:
    with pytest.raises(DecisionError, match=said):
        read_json(text)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), "nan is not JSON"),
        (datetime.now(UTC), "JSON has nothing for datetime"),
        ({1: 2}, "A name in a JSON object is a text"),
        ({"a": {1}}, "JSON has nothing for set"),
    ],
    ids=range(4),
)
def test_what_json_cannot_say_is_refused(value: Any, said: str) -> None:
    with pytest.raises(DecisionError, match=said):
        rewrite_json('{"a": 1}', value)


def test_a_value_that_holds_itself_is_refused() -> None:
    value: dict[str, Any] = {}
    value["a"] = value
    with pytest.raises(DecisionError, match="holds itself"):
        rewrite_json('{"a": 1}', value)


def test_values_of_other_libraries_are_written_as_json() -> None:
    value = {"n": np.int64(5), "f": np.float64(0.5), "b": np.bool_(True), "d": Decimal("1.10"), "t": (1, "\ud800")}
    assert write_json(value) == '{"n": 5, "f": 0.5, "b": true, "d": 1.10, "t": [1, "\\ud800"]}'


def test_a_number_is_a_float_and_keeps_its_digits_in_copies() -> None:
    number = read_json("1.10")
    assert (number, number * 2, type(number * 2)) == (1.1, 2.2, float)
    for copied in (copy.deepcopy(number), pickle.loads(pickle.dumps(number))):  # noqa: S301 (our own)
        assert isinstance(copied, JsonNumber)
        assert write_json([copied]) == "[1.10]"
    assert write_json(read_json("9" * 5_000)) == "9" * 5_000
