from __future__ import annotations

import json
import time

import pytest

from sbnotebook.analysis.json_columns import MOST_COLUMNS, json_columns
from sbnotebook.client import Messages
from sbnotebook.model import EntityAddress, PeekedMessage


def test_fields_become_columns_by_their_paths() -> None:
    frame = json_columns(['{"total": 5, "to": {"city": "Oslo"}, "tags": [1, {"a": 2}]}', '{"total": 7, "late": true}'])
    assert [*frame.columns] == ["body_json.total", "body_json.to.city", "body_json.tags", "body_json.late"]
    assert frame["body_json.total"].tolist() == [5, 7]
    assert str(frame["body_json.total"].dtype) == "Int64"
    assert frame["body_json.tags"][0] == '[1, {"a": 2}]'
    assert frame["body_json.to.city"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    "body", [None, "", "no JSON", '{"a": NaN}', "[" * 100_000, '{"a":' * 5_000, "1" * 5_000, '{"a": 1'], ids=range(8)
)
def test_body_that_is_not_json_has_no_values(body: str | None) -> None:
    frame = json_columns([body, '{"a": 1}'])
    assert [*frame.columns] == ["body_json.a"]
    assert frame["body_json.a"].isna().tolist() == [True, False]


def test_list_or_scalar_is_a_column_of_its_own() -> None:
    assert json_columns(["[1, 2]", '"text"'])["body_json"].tolist() == ["[1, 2]", "text"]


def test_large_whole_numbers_stay_exact() -> None:
    large = 2**60 + 1
    frame = json_columns([f'{{"id": {large}, "mixed": {large}, "huge": {2**70}}}', "{}", '{"mixed": 1.5}'])
    assert frame["body_json.id"].dtype == "Int64"
    assert frame["body_json.id"][0] == frame["body_json.mixed"][0] == large
    assert frame["body_json.huge"][0] == 2**70


def test_half_a_surrogate_pair_costs_only_itself() -> None:
    frame = json_columns(['{"a": "\\ud83d!", "b": ["\\ud83d"]}', '{"a": "x"}'])
    assert frame["body_json.a"].to_list() == ["?!", "x"]
    assert frame["body_json.b"][0] == '["?"]'


def test_deep_objects_stay_json() -> None:
    frame = json_columns(['{"a": {"b": {"c": {"d": {"e": 1}}}}}'])
    assert frame.to_dict("list") == {"body_json.a.b.c.d": ['{"e": 1}']}


def test_most_frequent_fields_become_columns() -> None:
    junk = [json.dumps({f"junk-{n}-{place}": n for n in range(3_000)}) for place in range(20)]
    with pytest.warns(UserWarning, match=f"the {MOST_COLUMNS} most frequent became columns"):
        frame = json_columns([*junk, '{"total": 1}', '{"total": 2}'])
    assert len(frame.columns) == MOST_COLUMNS
    assert "body_json.total" in frame


def test_names_of_fields_are_cut_printable_and_different() -> None:
    frame = json_columns([json.dumps({"a.b": 1, "a": {"b": 2}, "\x1b[31m": 3, "x" * 5_000: 4})])
    assert [*frame.columns] == ["body_json.a.b", "body_json.a.b (2)", "body_json.·[31m", f"body_json.{'x' * 90}"]


def test_of_fields_with_the_same_name_the_first_counts_as_in_where() -> None:
    body = '{"a": 1, "b": {"c": "x", "c": "y"}, "a": 2}'
    assert json_columns([body]).to_dict("list") == {"body_json.a": [1], "body_json.b.c": ["x"]}
    message = PeekedMessage(entity=EntityAddress("orders"), sequence_number=1, body=body.encode())
    assert len(Messages([message]).where("body_json.a = 1 and body_json.b.c = 'x'")) == 1


def test_time_grows_with_the_bodies() -> None:
    def seconds(count: int) -> float:
        bodies = [json.dumps({str(n): n for n in range(100)})] * count
        started = time.process_time()
        json_columns(bodies)
        return time.process_time() - started

    seconds(100)
    assert seconds(4_000) < 12 * seconds(1_000), "four times as many; 16 times if it grew with the square"


def test_messages_have_their_rows_in_order() -> None:
    messages = Messages(
        PeekedMessage(entity=EntityAddress("orders"), sequence_number=n, body=body)
        for n, body in enumerate([b'{"carrier": "UA"}', b"\xff", b'{"carrier": "AA"}'], 1)
    )
    frame = messages.to_pandas(json=True)
    assert frame["sequence_number"].tolist() == [1, 2, 3]
    assert frame["body_json.carrier"].fillna("none").tolist() == ["UA", "none", "AA"]
    assert "body_json.carrier" not in messages.to_pandas()
