from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    Abandon,
    Decision,
    Defer,
    EntityAddress,
    Resubmit,
    Send,
    Undo,
)
from sbnotebook.model.decision import MaxResubmits


def test_every_decision_has_a_verb_of_its_own() -> None:
    kinds = get_args(Decision)
    settled = {"complete", "abandon", "dead-letter", "defer", "release"}
    assert {kind.verb for kind in kinds} == settled | {"cancel", "purge", "resubmit", "send", "undo"}
    assert len(kinds) == 10


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"to": EntityAddress.parse("orders/$dlq")}, r"orders/\$dlq: name a queue or a topic"),
        ({"to": EntityAddress.parse("events/subscriptions/audit")}, "name a queue or a topic"),
        ({"delay": timedelta(milliseconds=-1)}, "less than nothing"),
        ({"max_resubmits": 0}, "max_resubmits is 1 or more"),
        ({"atomic": "back"}, "atomic is True, False or 'forward'"),
    ],
    ids=str,
)
def test_resubmit_refuses_impossible_settings(options: dict[str, Any], why: str) -> None:
    with pytest.raises(DecisionError, match=why):
        Resubmit(**options)


@pytest.mark.parametrize("to", ["orders/$dlq", "events/subscriptions/audit"])
def test_undo_refuses_a_destination_that_takes_no_messages(to: str) -> None:
    with pytest.raises(DecisionError, match="name a queue or a topic"):
        Undo(EntityAddress.parse(to))


@pytest.mark.parametrize(
    ("decision", "field"), [(Abandon, "delay"), (Defer, "wake_after"), (Resubmit, "delay"), (Send, "delay")]
)
def test_a_delay_is_zero_or_more(decision: Any, field: str) -> None:
    assert getattr(decision(**{field: timedelta(0)}), field) == timedelta(0)
    with pytest.raises(DecisionError):
        decision(**{field: timedelta(microseconds=-1)})


def test_wake_up_needs_a_time_and_a_destination() -> None:
    orders, later = EntityAddress("orders"), timedelta(minutes=5)
    assert Defer(later, orders).wake_to == orders
    for after, to in ((None, orders), (later, EntityAddress.parse("orders/$dlq"))):
        with pytest.raises(DecisionError, match="wake_to is the queue or topic for a wake-up message"):
            Defer(after, to)


def test_a_send_has_one_clear_time() -> None:
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    assert Send().is_for_now
    assert not Send(at=noon).is_for_now
    assert not Send(delay=timedelta(0)).is_for_now
    with pytest.raises(DecisionError, match="not both"):
        Send(at=noon, delay=timedelta(0))
    with pytest.raises(DecisionError, match="no time zone"):
        Send(at=noon.replace(tzinfo=None))


def test_what_may_send_twice_is_off_unless_it_is_asked_for() -> None:
    assert (Resubmit().resend_unknown, Resubmit().atomic, Undo().include_unknown) == (False, False, False)


@pytest.mark.parametrize(("limit", "of_dead_letters", "of_others"), [("auto", 5, None), (1, 1, 1), (None, None, None)])
def test_the_limit_of_resubmits_is_as_it_was_asked_for(
    limit: MaxResubmits, of_dead_letters: int | None, of_others: int | None
) -> None:
    resubmit = Resubmit(max_resubmits=limit)
    assert resubmit.limit_at(EntityAddress.parse("orders/$dlq")) == of_dead_letters
    assert resubmit.limit_at(EntityAddress("orders")) == of_others
