from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.errors import SettlementFailedError
from sbnotebook.model import EntityAddress, Outcome, OutcomeStatus, Report

ORDERS = EntityAddress("orders")


def outcome(status: OutcomeStatus, number: int = 1, verb: str = "complete") -> Outcome:
    return Outcome(status, verb, ORDERS, sequence_number=number)


def report_of(statuses: list[OutcomeStatus]) -> Report:
    return Report(outcome(status, number) for number, status in enumerate(statuses))


STATUSES = st.lists(st.sampled_from(OutcomeStatus), max_size=30)


@given(STATUSES)
def test_every_message_is_counted_once(statuses: list[OutcomeStatus]) -> None:
    report = report_of(statuses)
    assert sum(report.counts.values()) == len(report) == len(statuses)
    assert report.settled + len(report.failures) == len(report)
    assert report.settled == report.counts.get(OutcomeStatus.SETTLED, 0)
    assert report.ok is (set(statuses) <= {OutcomeStatus.SETTLED})
    assert 0 not in report.counts.values()


@given(STATUSES, st.slices(30))
def test_a_part_of_a_report_is_a_report(statuses: list[OutcomeStatus], part: slice) -> None:
    report = report_of(statuses)
    assert isinstance(report[part], Report)
    assert list(report[part]) == list(report)[part]


@given(STATUSES, STATUSES)
def test_reports_are_joined_in_order(first: list[OutcomeStatus], second: list[OutcomeStatus]) -> None:
    joined = report_of(first) + report_of(second)
    assert list(joined) == [*report_of(first), *report_of(second)]


@pytest.mark.parametrize("status", OutcomeStatus)
def test_only_settled_is_a_success(status: OutcomeStatus) -> None:
    assert outcome(status).ok is (status is OutcomeStatus.SETTLED)


def test_a_report_is_a_sequence_of_outcomes() -> None:
    report = report_of([OutcomeStatus.SETTLED, OutcomeStatus.FAILED])
    assert (report[1].status, report[-2].status) == (OutcomeStatus.FAILED, OutcomeStatus.SETTLED)
    assert outcome(OutcomeStatus.FAILED, 1) in report
    with pytest.raises(IndexError):
        _ = report[2]


def test_a_report_says_what_happened() -> None:
    settled, lost = OutcomeStatus.SETTLED, OutcomeStatus.LOCK_LOST
    assert str(report_of([lost, settled, settled])) == "complete: 2 settled, 1 lock lost"
    assert str(Report([outcome(settled), outcome(settled, verb="release")])) == "complete/release: 2 settled"
    assert str(report_of([settled] * 1234)) == "complete: 1,234 settled"
    assert (str(Report()), repr(Report())) == ("no messages", "<Report no messages>")


def test_a_report_without_failures_raises_nothing() -> None:
    report_of([OutcomeStatus.SETTLED] * 3).raise_for_failures()
    Report().raise_for_failures()


def test_failures_are_raised_on_demand_with_their_outcomes() -> None:
    report = report_of([OutcomeStatus.SETTLED, OutcomeStatus.UNCONFIRMED, OutcomeStatus.NOT_FOUND])
    with pytest.raises(
        SettlementFailedError, match=r"2 of 3 messages: complete: 1 settled, 1 not found, 1 unconf"
    ) as e:
        report.raise_for_failures()
    assert e.value.outcomes == (report[1], report[2]) == report.failures
