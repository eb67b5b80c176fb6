"""Values in JSON bodies as columns: each value that the detail offers is found in all bodies, also in hostile ones."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.model.json_text import Path, parse_path
from sbnotebook.widgets.pretty import json_layout, json_places
from sbnotebook.widgets.table.message_table import MessageTable
from sbnotebook.widgets.table.row_packing import BODY, body_values, path_name

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
DOCUMENTS = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
DEEP = "[" * 100_000 + "]" * 100_000


def scalars(value: Any, path: Path = ()) -> dict[Path, Any]:
    if isinstance(value, list | dict):
        items = enumerate(value) if isinstance(value, list) else value.items()
        return {key: each for name, inner in items for key, each in scalars(inner, (*path, name)).items()}
    return {path: value} if path else {}


def shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def values_in(bodies: list[Any], path: Path) -> list[object]:
    return body_values(pa.table({"body_text": pa.array(bodies, pa.string())}), path)


@given(DOCUMENTS)
def test_each_value_of_a_document_has_its_line_and_its_path(document: Any) -> None:
    text = json.dumps(document)
    lines = json_layout(text, 10**6).text.split("\n")
    found = json_places(text, 10**6)
    expected = scalars(document)
    assert [path for _, path in found] == list(expected)
    for line, path in found:
        assert parse_path(path_name(path).removeprefix(BODY)) == path, "the browser tells it so"
        (value,) = values_in([text], path)
        assert value == shown(expected[path])
        if not isinstance(expected[path], str):
            assert lines[line].rstrip(",").endswith(shown(expected[path]))
    assert len({line for line, _ in found}) == len(found), "no line has two values"


def test_bodies_without_the_value_have_none() -> None:
    bodies = ['{"to": ["a", {"n": 1.50}]}', '{"to": "text"}', "[1]", "no JSON", "", DEEP, None, "null"]
    assert values_in(bodies, ("to", 1, "n")) == ["1.50", *[None] * 7]
    assert values_in(bodies, ("to",)) == ["[…]", "text", *[None] * 6]
    assert values_in(['{"n": ' + "9" * 100_000 + "}"], ("n",)) == ["9" * 100_000]


def peeked(number: int, code: str) -> PeekedMessage:
    body = json.dumps({"carrier": {"code": code}}).encode()
    return PeekedMessage(entity=EntityAddress("orders"), sequence_number=number, body=body)


def test_a_column_of_values_follows_the_messages() -> None:
    model = MessageTable([peeked(1, "UA"), peeked(2, "DL")])
    name = model.add_body_column(("carrier", "code"))
    assert name == "body_json.carrier.code"

    def values() -> list[Any]:
        return model.rows.with_extra().column(name).to_pylist()

    assert values() == ["UA", "DL"]
    assert model.add_body_column(("carrier", "code")) == name
    model.append([peeked(2, "DL"), peeked(3, "AA")], {"note": ["x", "y"]})
    assert values() == ["UA", "DL", "AA"]
    model.show([peeked(9, "B6")])
    assert values() == ["B6"]
    for number in range(19):
        model.add_body_column((number,))
    with pytest.raises(ValueError, match="20 such columns already"):
        model.add_body_column(("one", "more"))


def test_names_of_columns_are_those_of_expressions() -> None:
    assert path_name(("legs", 0, "to")) == "body_json.legs[0].to"
    assert path_name(("a.b", "")) != path_name(("a", "b", ""))
    assert path_name(("\u202e",)).isprintable()
