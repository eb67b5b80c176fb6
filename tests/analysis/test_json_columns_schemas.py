from __future__ import annotations

import json
from typing import Any

import pytest

from sbnotebook.analysis.decoders import Decoding, decoder_of
from sbnotebook.analysis.frames import to_arrow
from sbnotebook.analysis.groups import group_by_cause
from sbnotebook.analysis.json_columns import USUAL, drifts_of, forms_of, schemas_of
from sbnotebook.model import Message

ORDER = {"id": 1, "total": 5, "to": {"city": "Oslo"}, "legs": [{"from": "OSL"}, {"from": "SFO", "late": True}]}


def message(body: Any, subject: str | None = "order") -> Message:
    return Message(body=body if isinstance(body, bytes) else json.dumps(body).encode(), subject=subject)


def test_the_schema_of_each_subject_is_inferred() -> None:
    bodies = [message(ORDER), message({**ORDER, "total": "5", "gift": None}), message([1.5], "rates"), message(b"{")]
    schemas = schemas_of(to_arrow(bodies))
    assert list(schemas) == ["order", "rates"]
    assert schemas["rates"] == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "rates",
        "type": "array",
        "items": {"type": "number"},
    }
    assert schemas["order"]["required"] == ["id", "legs", "to", "total"]
    assert schemas["order"]["properties"] == {
        "gift": {"type": "null"},
        "id": {"type": "number"},
        "legs": {
            "type": "array",
            "items": {"type": "object", "properties": {"from": {"type": "string"}, "late": {"type": "boolean"}}},
        },
        "to": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "total": {"type": ["number", "string"]},
    }
    assert "legs[].from" in schemas.as_text()
    assert "total" in schemas.as_html()


def test_a_body_that_differs_says_how() -> None:
    changed = [
        {**ORDER, "gift": {"from": "Ann"}},
        {"id": 1, "total": 5},
        {**ORDER, "total": "5", "id": None},
        [ORDER],
    ]
    bodies = [*map(json.dumps, [ORDER, ORDER, *changed]), "no JSON", None, "[NaN]"]
    assert drifts_of(["order"] * len(bodies), bodies) == [
        USUAL,
        USUAL,
        "new gift",
        "missing legs; missing to",
        "id is null, not number; total is string, not number",
        "new []; missing id; missing legs; missing to; missing total; and 1 more",
        "not JSON",
        "not JSON",
        "not JSON",
    ]


def test_names_with_dots_and_brackets_stay_apart() -> None:
    bodies = ['{"a": {"b": 1}}', '{"a": {"b": 1}}', '{"a.b": 1, "a": {}}', '{"a": {"b": 1}, "[]": 1}']
    assert drifts_of([None] * 4, bodies)[2:] == ["new a.b; missing a.b", "new []"]


def test_groups_have_the_drift_as_a_trait() -> None:
    table = to_arrow([*[message(ORDER)] * 3, message({**ORDER, "gift": 1}), message({"n": 1}, "other")])
    groups = group_by_cause(table, "schema")
    assert [(group.count, group.schema) for group in groups] == [(4, USUAL), (1, "new gift")]
    assert len({group.fingerprint for group in groups}) == 2
    assert "new gift" in groups.as_text()

    def fail(body: bytes) -> Any:
        raise ValueError(len(body))

    decoded = Decoding(decoder_of(fail)).table(to_arrow([message(b"x")]))
    assert group_by_cause(decoded, "schema")[0].schema == "not decoded: ValueError: 1"


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({f"k{n}": n for n in range(100_000)}),
        json.dumps([{f"k{n}": n} for n in range(100_000)]),
        "[" * 100_000,
        '{"a":' * 900 + "1" + "}" * 900,
        '{"\\ud800": "\\udfff"}',
    ],
)
def test_a_hostile_body_costs_little(body: str) -> None:
    drifts = drifts_of([None], [body])
    assert drifts[0] in (USUAL, "not JSON")
    assert schemas_of(to_arrow([Message(body=body.encode())])).as_text()


def test_when_the_time_is_spent_a_body_is_not_read() -> None:
    times = iter([0, 0, 5])
    first, second = forms_of(["{}", "{}"], seconds=1, clock=lambda: next(times))
    assert not isinstance(first, str)
    assert second == "not read: the time for the forms of bodies is spent"
