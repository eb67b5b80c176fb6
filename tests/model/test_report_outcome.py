from __future__ import annotations

import pytest

from sbnotebook.errors import SettlementFailedError
from sbnotebook.model import EntityAddress, Outcome, OutcomeStatus, Report

ORDERS = EntityAddress("orders")


def outcome(status: OutcomeStatus, number: int = 1, verb: str = "complete") -> Outcome:
    return Outcome(status, verb, ORDERS, sequence_number=number)


def report_of(statuses: list[OutcomeStatus]) -> Report:
    return Report(outcome(status, number) for number, status in enumerate(statuses))


@pytest.mark.parametrize("status", OutcomeStatus)
def test_only_settled_is_a_success(status: OutcomeStatus) -> None:
    assert outcome(status).ok is (status is OutcomeStatus.SETTLED)


def test_a_report_says_what_happened() -> None:
    settled, lost = OutcomeStatus.SETTLED, OutcomeStatus.LOCK_LOST
    assert str(report_of([lost, settled, settled])) == "Completed 2 of 3 messages: 1 lock lost"
    assert (
        str(Report([outcome(settled), outcome(settled, verb="release")])) == "Completed 1 message; released 1 message"
    )
    assert str(report_of([settled] * 1234)) == "Completed 1,234 messages"
    assert (str(Report()), repr(Report())) == ("no messages", "<Report no messages>")


def test_a_report_without_failures_raises_nothing() -> None:
    report_of([OutcomeStatus.SETTLED] * 3).raise_for_failures()
    Report().raise_for_failures()


def test_failures_are_raised_on_demand_with_their_outcomes() -> None:
    report = report_of([OutcomeStatus.SETTLED, OutcomeStatus.UNCONFIRMED, OutcomeStatus.NOT_FOUND])
    with pytest.raises(SettlementFailedError, match=r"Completed 1 of 3 messages: 1 not found, 1 unconf") as e:
        report.raise_for_failures()
    assert e.value.outcomes == (report[1], report[2]) == report.failures
