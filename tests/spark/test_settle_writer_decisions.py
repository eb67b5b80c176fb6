from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import Abandon, Complete, DeadLetter, Defer, EntityAddress, Resubmit
from sbnotebook.spark.settle_writer import DecidedRow, check_schema, decided_rows, decision_of

ORDERS = EntityAddress("orders")


def problems(rows: dict[str, list[Any]], entity: EntityAddress | None = ORDERS) -> list[str | None]:
    return [row.problem for row in decided_rows(pa.table(rows), entity)]


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


def test_rows_keep_their_order_in_one_form() -> None:
    rows = {
        "Sequence_Number": pa.array([3, 1, 2], pa.int32()),
        "decision": ["Complete", "dead_letter", "DeadLetter"],
        "reason": ["a note of one's own", "Bad", None],
        "entity": ["Orders/$DeadLetterQueue", "events/Subscriptions/audit", "orders/$dlq"],
        "body": [b"x", b"y", b"z"],
    }
    letters, audit = EntityAddress.parse("orders/$dlq"), EntityAddress.parse("events/subscriptions/audit")
    refused = "orders/$dlq is a dead-letter queue already: complete, resubmit or defer its messages instead."
    assert [*decided_rows(pa.table(rows), None)] == [
        DecidedRow(letters, 3, "complete", Complete()),
        DecidedRow(audit, 1, "dead-letter", DeadLetter("Bad")),
        DecidedRow(letters, 2, "DeadLetter", None, refused),
    ]


def test_a_row_that_is_refused_says_why() -> None:
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


def schema(*names: str) -> pa.Schema:
    return pa.schema([(name, pa.int64() if "number" in name else pa.string()) for name in names])


def test_check_schema_names_missing_columns() -> None:
    with pytest.raises(ConfigurationError, match="needs a column sequence_number and a column decision and a column"):
        check_schema(schema("number"), None)
    with pytest.raises(ConfigurationError, match="needs a column decision: one row"):
        check_schema(schema("sequence_number", "entity"), ORDERS)
    with pytest.raises(ConfigurationError, match="has the column decision twice"):
        check_schema(schema("sequence_number", "Decision", "decision"), ORDERS)
    check_schema(schema("DECISION", "sequence_number"), ORDERS)


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("sequence_number", ["1"], "holds whole numbers"),
        ("sequence_number", [1.0], "holds whole numbers"),
        ("decision", [1], "The column decision holds texts"),
        ("reason", [b"Bad"], "The column reason holds texts"),
    ],
)
def test_check_schema_refuses_another_type(name: str, values: Any, said: str) -> None:
    rows: dict[str, Any] = {"sequence_number": [1], "decision": ["complete"]} | {name: values}
    with pytest.raises(ConfigurationError, match=said):
        check_schema(pa.table(rows).schema, ORDERS)
