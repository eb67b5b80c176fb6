from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from sbnotebook.errors import DecisionError, InvalidEntityAddressError
from sbnotebook.model import Abandon, Complete, DeadLetter, Decision, Defer, EntityAddress, Release, Resubmit
from sbnotebook.settlement import Policy, PolicyRow, Then
from sbnotebook.settlement.processing.policy import End, Fault

ORDERS = EntityAddress("orders")


def test_the_table_is_data_with_a_row_for_each_end() -> None:
    assert {end: (row.decision, row.then, row.envelope_to) for end, row in Policy().rows.items()} == {
        End.COMPLETED: (Complete(), Then.GO_ON, None),
        End.SKIPPED: (Complete(), Then.GO_ON, None),
        End.REJECTED: (DeadLetter(), Then.GO_ON, None),
        End.STOPPED: (Abandon(), Then.STOP, None),
        End.FAILED: (Abandon(), Then.RAISE, None),
    }


@pytest.mark.parametrize("end", list(End))
def test_a_decision_alone_leaves_the_rest_of_its_row(end: End) -> None:
    changed = Policy(**{end.value: Defer()}).rows
    before = Policy().rows
    assert changed.pop(end) == PolicyRow(Defer(), before.pop(end).then)
    assert changed == before


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (lambda: PolicyRow(Resubmit()), "plan of their own"),
        (lambda: PolicyRow(Complete(), envelope_to="orders/$dlq"), "cannot be sent to orders"),
        (lambda: PolicyRow(Complete(), envelope_to="news/subscriptions/all"), "cannot be sent to news"),
        (lambda: Policy(completed=Resubmit()), "settles messages"),
        (lambda: Policy(completed=PolicyRow(Complete(), envelope_to="faults")), "what went wrong"),
    ],
    ids=["resubmit", "sub-queue", "subscription", "resubmit-alone", "nothing-wrong"],
)
def test_impossible_row_is_refused(row: Callable[[], object], error: str) -> None:
    with pytest.raises(DecisionError, match=error):
        row()


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        (Policy(skipped=Release()), "forever"),
        (Policy(failed=PolicyRow(Abandon(timedelta(minutes=1)), Then.GO_ON)), "held for its delay"),
    ],
    ids=["release", "delay"],
)
def test_redelivering_rows_are_refused_in_endless_runs_only(policy: Policy, error: str) -> None:
    policy.check(ORDERS, redelivers=False)
    with pytest.raises(DecisionError, match=error):
        policy.check(ORDERS, redelivers=True)


def test_rows_the_entity_cannot_carry_out_are_refused() -> None:
    for end in {*End} - {End.REJECTED}:
        with pytest.raises(DecisionError, match="dead-letter queue already"):
            Policy(**{end.value: DeadLetter()}).check(ORDERS.dead_letter, redelivers=False)
    with pytest.raises(DecisionError, match="processed there themselves"):
        Policy(skipped=PolicyRow(Complete(), envelope_to="ORDERS")).check(ORDERS, redelivers=False)
    Policy().check(ORDERS.dead_letter, redelivers=True)
    Policy(failed=Release()).check(ORDERS, redelivers=True)  # the run ends with it


def test_row_with_invalid_address_or_then_is_refused() -> None:
    with pytest.raises(InvalidEntityAddressError):
        PolicyRow(Complete(), envelope_to="a/$nonsense")
    with pytest.raises(ValueError, match="nonsense"):
        PolicyRow(Complete(), "nonsense")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("decision", "made"),
    [
        (DeadLetter(), DeadLetter("ValueError", "It is 7.")),
        (DeadLetter(None, "Ask Ann."), DeadLetter("ValueError", "Ask Ann.")),
        (DeadLetter("Bad"), DeadLetter("Bad")),
        (Abandon(), Abandon()),
    ],
    ids=str,
)
def test_a_dead_letter_without_a_reason_takes_that_of_the_fault(decision: Decision, made: Decision) -> None:
    fault = Fault.of(ValueError("It is 7."), component="work", component_kind="function", time=datetime.now(UTC))
    assert PolicyRow(decision).decision_for(fault) == made
    assert PolicyRow(decision).decision_for(None) == decision
