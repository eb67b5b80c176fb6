from __future__ import annotations

from typing import Any

import pytest

from sbnotebook.amqp import Array, Described, Int, Symbol
from sbnotebook.amqp.limits import LEVELS
from sbnotebook.analysis.masks import change_at, parse_path

VALUE = {"a": {"b": 1, "c d": 2}, "list": [{"b": 3}, 4, [5]], "b": None}


def changed(value: Any, *paths: str) -> tuple[Any, set[str]]:
    found: set[str] = set()
    steps = [(path, parse_path(path) or ()) for path in paths]
    return change_at(value, steps, lambda _: "x", found), found


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$.a.b", {**VALUE, "a": {"b": "x", "c d": 2}}),
        ('$.a["c d"]', {**VALUE, "a": {"b": 1, "c d": "x"}}),
        ("$['a']['b']", {**VALUE, "a": {"b": "x", "c d": 2}}),
        ("$.a", {**VALUE, "a": {"b": "x", "c d": "x"}}),
        ("$.list[0].b", {**VALUE, "list": [{"b": "x"}, 4, [5]]}),
        ("$.list[*]", {**VALUE, "list": [{"b": "x"}, "x", ["x"]]}),
        ("$.list[2][0]", {**VALUE, "list": [{"b": 3}, 4, ["x"]]}),
        ("$.*.b", {**VALUE, "a": {"b": "x", "c d": 2}}),
        ("$..b", {"a": {"b": "x", "c d": 2}, "list": [{"b": "x"}, 4, [5]], "b": "x"}),
        ("$.list..[0]", {**VALUE, "list": [{"b": "x"}, 4, ["x"]]}),
        ("$..*", {"a": {"b": "x", "c d": "x"}, "list": [{"b": "x"}, "x", ["x"]], "b": "x"}),
        ("$", {"a": {"b": "x", "c d": "x"}, "list": [{"b": "x"}, "x", ["x"]], "b": "x"}),
    ],
)
def test_change_at_changes_what_a_path_means_and_nothing_else(path: str, expected: Any) -> None:
    assert changed(VALUE, path) == (expected, {path})


@pytest.mark.parametrize("path", ["$.z", "$.a.b.c", "$.a[0]", "$.list.b", "$.list[9]", '$["0"]', "$.A", "$..z"])
def test_path_that_leads_nowhere_changes_nothing(path: str) -> None:
    assert changed(VALUE, path) == (VALUE, set())


def test_paths_within_each_other_change_a_value_once() -> None:
    found: set[str] = set()
    paths = [(path, parse_path(path) or ()) for path in ("$.a", "$.a.b", "$..b", "$.none")]
    assert change_at(VALUE, paths, lambda value: [value], found)["a"] == {"b": [1], "c d": [2]}
    assert found == {"$.a", "$.a.b", "$..b"}


def test_values_of_amqp_keep_their_kinds() -> None:
    value = {Symbol("a"): Described(Symbol("kind"), Array([Int(1), Int(2)]))}
    found, _ = changed(value, "$.a[1]")
    assert found == {Symbol("a"): Described(Symbol("kind"), Array([Int(1), "x"]))}
    assert isinstance(found["a"].value, Array)
    assert found["a"].value.element_type is Int


def test_deep_value_is_refused() -> None:
    value: Any = 1
    for _ in range(LEVELS + 1):
        value = [value]
    with pytest.raises(ValueError, match="too deep"):
        changed(value, "$..a")
