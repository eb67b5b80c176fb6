from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sbnotebook.errors import DecisionError
from sbnotebook.model import Complete, DeadLetter, Decision, Defer, EntityAddress, OutcomeStatus, PeekedMessage
from sbnotebook.settlement.terms import check_decision, is_same, outcome_until_now

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("decision", "address", "error"),
    [
        (DeadLetter("Bad"), "orders", None),
        (DeadLetter("Bad"), "orders/$transfer", None),
        (DeadLetter("Bad"), "orders/$dlq", "dead-letter queue already"),
        (Complete(), "orders/$dlq", None),
        (Defer(), "orders/$dlq", None),
        (Defer(HOUR), "orders", None),
        (Defer(HOUR), "orders/$dlq", "cannot be sent to orders/\\$dlq itself"),
        (Defer(HOUR), "events/subscriptions/audit", "in events others would get it"),
        (Defer(HOUR, EntityAddress("parts")), "orders/$dlq", None),
    ],
    ids=str,
)
def test_a_decision_is_refused_only_where_it_is_impossible(decision: Decision, address: str, error: str | None) -> None:
    if error is None:
        check_decision(decision, EntityAddress.parse(address))
    else:
        with pytest.raises(DecisionError, match=error):
            check_decision(decision, EntityAddress.parse(address))


def message_at(time: datetime | None) -> PeekedMessage:
    return PeekedMessage(entity=EntityAddress("orders"), sequence_number=1, enqueued_time=time)


@pytest.mark.parametrize(
    ("time", "same"), [(NOW, True), (NOW + HOUR, False), (NOW - HOUR, False), (None, True)], ids=str
)
def test_a_message_is_the_same_with_the_same_time(time: datetime | None, same: bool) -> None:
    assert is_same(message_at(time), message_at(NOW)) is is_same(message_at(NOW), message_at(time)) is same


def test_a_message_in_progress_is_unconfirmed_and_others_skipped() -> None:
    begun = outcome_until_now(message_at(NOW), Complete(), "It was not its turn.", begun=True)
    waiting = outcome_until_now(message_at(NOW), Complete(), "It was not its turn.", begun=False)
    assert begun.status is OutcomeStatus.UNCONFIRMED
    assert "may be done or not" in str(begun.description)
    assert (waiting.status, waiting.description) == (OutcomeStatus.SKIPPED, "It was not its turn.")
