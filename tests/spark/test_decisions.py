from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import Abandon, Complete, DeadLetter, Defer, EntityAddress, Resubmit
from sbnotebook.spark.decisions import check_columns, conflicts, decision_of, decisions_in, read_decisions

ORDERS = EntityAddress("orders")


def problems(rows: dict[str, list[Any]], entity: EntityAddress | None = ORDERS) -> list[str | None]:
    return read_decisions(pa.table(rows), entity).column("problem").to_pylist()


@pytest.mark.parametrize("word", ["dead_letter", "Dead-Letter", "DEADLETTER", " dead letter "])
def test_decision_of_accepts_every_spelling(word: str) -> None:
    assert decision_of(word, "Bad", "no price") == DeadLetter("Bad", "no price")


def test_decision_of_knows_five_decisions() -> None:
    words = ["complete", "abandon", "defer", "resubmit"]
    assert [decision_of(word) for word in words] == [Complete(), Abandon(), Defer(), Resubmit()]
    for word in ("release", "purge", "delete", "", "complete it", "\x1b[2J" * 100):
        with pytest.raises(
            DecisionError, match=r"(is not a decision|There is no decision): complete, dead-letter,"
        ) as told:
            decision_of(word)
        assert "\x1b" not in str(told.value)
        assert len(str(told.value)) < 200


def test_read_decisions_keeps_the_order_in_one_form() -> None:
    rows = {
        "Sequence_Number": pa.array([3, 1, 2], pa.int32()),
        "decision": ["Complete", "dead_letter", "DeadLetter"],
        "reason": ["a note of one's own", "Bad", None],
        "entity": ["Orders/$DeadLetterQueue", "events/Subscriptions/audit", "orders/$dlq"],
        "body": [b"x", b"y", b"z"],
    }
    read = read_decisions(pa.table(rows), None)
    assert read.column("sequence_number").to_pylist() == [3, 1, 2]
    assert read.column("entity").to_pylist() == ["Orders/$dlq", "events/subscriptions/audit", "Orders/$dlq"]
    assert read.column("decision").to_pylist() == ["complete", "dead-letter", "dead-letter"]
    assert read.column("reason").to_pylist() == [None, "Bad", None]
    assert read.column("problem").to_pylist() == [
        None,
        None,
        "Orders/$dlq is a dead-letter queue already: complete, resubmit or defer its messages instead.",
    ]
    assert list(decisions_in(read.slice(0, 2))) == [
        (EntityAddress.parse("orders/$dlq"), 3, Complete()),
        (EntityAddress.parse("events/subscriptions/audit"), 1, DeadLetter("Bad")),
    ]


def test_read_decisions_says_why_a_row_is_refused() -> None:
    rows: dict[str, list[Any]] = {
        "sequence_number": [None, 0, -5, 4, 5, 6, 7],
        "decision": ["complete", "complete", "complete", None, "compleet", "complete", "complete"],
        "entity": [None, None, None, None, None, "invoices", "ORDERS"],
    }
    assert problems(rows) == [
        "It has no sequence number.",
        "It has no sequence number.",
        "It has no sequence number.",
        "There is no decision: complete, dead-letter, abandon, defer, resubmit.",
        "'compleet' is not a decision: complete, dead-letter, abandon, defer, resubmit.",
        "It is in 'invoices', and not in orders.",
        None,
    ]
    assert problems({"sequence_number": [1], "decision": ["complete"], "entity": [None]}, None) == ["It has no entity."]
    (why,) = problems({"sequence_number": [1], "decision": ["complete"], "entity": ["a//$x"]}, None)
    assert "sub-queue" in (why or "")


def test_check_columns_names_missing_columns() -> None:
    with pytest.raises(ConfigurationError, match="needs a column sequence_number and a column decision and a column"):
        check_columns(["number"], None)
    with pytest.raises(ConfigurationError, match="needs a column decision: one row"):
        check_columns(["sequence_number", "entity"], ORDERS)
    with pytest.raises(ConfigurationError, match="has the column decision twice"):
        check_columns(["sequence_number", "Decision", "decision"], ORDERS)
    check_columns(["DECISION", "sequence_number"], ORDERS)


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("sequence_number", ["1"], "holds whole numbers"),
        ("sequence_number", [1.0], "holds whole numbers"),
        ("sequence_number", pa.array([2**64 - 1], pa.uint64()), "too large"),
        ("decision", [1], "The column decision holds texts"),
        ("reason", [b"Bad"], "The column reason holds texts"),
    ],
)
def test_read_decisions_refuses_another_type(name: str, values: Any, said: str) -> None:
    rows: dict[str, Any] = {"sequence_number": [1], "decision": ["complete"]} | {name: values}
    with pytest.raises(ConfigurationError, match=said):
        read_decisions(pa.table(rows), ORDERS)


def test_conflicts_are_different_decisions_on_one_message() -> None:
    rows = {
        "sequence_number": [1, 1, 2, 2, 3, 3, 4],
        "decision": ["complete", "COMPLETE", "complete", "abandon", "dead_letter", "dead_letter", "complete"],
        "reason": ["a", "b", None, None, "a", "b", None],
    }
    assert conflicts(read_decisions(pa.table(rows), ORDERS)).to_pylist() == [
        {"entity": "orders", "sequence_number": 2},
        {"entity": "orders", "sequence_number": 3},
    ]
