"""The rows of a plan to settle by a frame, in their file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from sbnotebook.errors import DecisionError
from sbnotebook.model import Abandon, Complete, DeadLetter, EntityAddress, Outcome, OutcomeStatus
from sbnotebook.spark.frame_plan import FrameRows
from sbnotebook.spark.settle_writer import decided_rows

ORDERS = EntityAddress("orders")


def rows(*given: tuple[str, int | None, str, str | None]) -> FrameRows:
    made = FrameRows()
    for row in given:  # each as a page of its own
        named: dict[str, Any] = dict(zip(("entity", "sequence_number", "decision", "reason"), row, strict=True))
        made.add(decided_rows(pa.Table.from_pylist([named]), None))
    return made


def listed(tables: Iterable[pa.Table]) -> list[list[Any]]:
    return [[*row.values()] for table in tables for row in table.to_pylist()]


def test_each_message_comes_once_and_in_order() -> None:
    made = rows(
        ("orders", 10, "complete", None),
        ("Orders", 9, "dead_letter", "Bad"),
        ("orders", 10, "Complete", "a reason that means nothing"),
        ("events/subscriptions/all", 11, "complete", None),
    )
    made.check()
    assert (len(made), made.repeated) == (3, 1)
    assert [*made.open()] == [
        (EntityAddress.parse("events/subscriptions/all"), 11, Complete()),
        (ORDERS, 9, DeadLetter("Bad")),
        (ORDERS, 10, Complete()),
    ]
    assert listed(made.decisions())[1:] == [
        ["Orders", 9, "dead-letter", "Bad", None],
        ["orders", 10, "complete", None, None],
    ]
    assert [*made.decided("dead-letter", "abandon")] == [(ORDERS, {9: DeadLetter("Bad")})]
    assert [*made.decided("dead-letter", "complete")][1:] == [(ORDERS, {9: DeadLetter("Bad"), 10: Complete()})]
    assert made.counts() == [
        ("events/subscriptions/all", "complete", 1),
        ("Orders", "dead-letter", 1),
        ("orders", "complete", 1),
    ]


@pytest.mark.parametrize("other", [("complete", None), ("dead-letter", "Worse"), ("dead-letter", None)])
def test_messages_with_two_decisions_are_refused(other: tuple[str, str | None]) -> None:
    made = rows(
        ("orders", 1, "complete", None),
        ("orders", 2, "dead-letter", "Bad"),
        ("ORDERS", 2, *other),
        ("orders", 2, "dead-letter", "Bad"),
    )
    with pytest.raises(DecisionError, match=r"^1 messages have more than one decision, .* \(#2 of orders\)"):
        made.check()


def test_rows_with_a_problem_are_counted_and_three_shown() -> None:
    made = rows(*[("orders", number, "no", None) for number in range(1, 6)], ("orders", 9, "complete", None))
    with pytest.raises(DecisionError, match=r"^5 of 6 rows cannot .* #1: 'no' is .* #2: .* #3: [^#]*$"):
        made.check()


def test_outcomes_are_kept() -> None:
    made = rows(("orders", 1, "complete", None), ("orders", 2, "abandon", None))
    assert len([*made.open()]) == 2
    made.end([Outcome(OutcomeStatus.SETTLED, "complete", EntityAddress("ORDERS"), 1, "m1", retryable=False)])
    assert [*made.open()] == [(ORDERS, 2, Abandon())]
    outcome = ["orders", 1, "complete", "settled", "m1", None, None, None, False]
    assert listed(made.outcomes()) == [outcome]
