from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pytest

from sbnotebook.errors import DecisionError
from sbnotebook.model import Complete, EntityAddress, LockedMessage, OutcomeStatus
from sbnotebook.settlement.locking.lock_table import HeldMessages, Hold
from sbnotebook.settlement.plan import outcome_for

ORDERS = EntityAddress("orders")


def test_how_messages_ended_is_not_remembered_for_ever() -> None:
    held, now, nothing = HeldMessages(ORDERS), datetime.now(UTC), None
    received: Any = nothing
    messages = [LockedMessage(entity=ORDERS, sequence_number=n, lock_token=UUID(int=n)) for n in range(100_002)]
    for message in messages:
        hold = Hold(message, received, now, now + timedelta(minutes=1))
        held.add(hold)
        held.note(hold, outcome_for(message, Complete(), OutcomeStatus.SETTLED))
    held.check_ours(messages[2:])
    assert held.outcome_of(messages[-1], Complete()).status is OutcomeStatus.ALREADY_SETTLED
    with pytest.raises(DecisionError, match=r"^2 messages are not in this batch \(the first is #0\)"):
        held.check_ours(messages)


@pytest.mark.parametrize(
    ("status", "later"),
    [(OutcomeStatus.UNCONFIRMED, OutcomeStatus.UNCONFIRMED), (OutcomeStatus.FAILED, OutcomeStatus.LOCK_LOST)],
)
def test_a_lock_in_doubt_stays_so_when_it_ends(status: OutcomeStatus, later: OutcomeStatus) -> None:
    hold, _ = held_for(60)
    held = HeldMessages(ORDERS)
    held.add(hold)
    held.note(hold, outcome_for(hold.message, Complete(), status))
    held.lose(hold)
    assert held.outcome_of(hold.message, Complete()).status is later


def test_a_lost_message_is_unsettled_until_an_outcome_tells_of_it() -> None:
    held, now, received = HeldMessages(ORDERS), datetime.now(UTC), cast("Any", None)

    def take(number: int, delivery: int = 1) -> Hold:
        message = LockedMessage(entity=ORDERS, sequence_number=number, lock_token=UUID(int=10 * delivery + number))
        hold = Hold(message, received, now, now + timedelta(minutes=1))
        held.add(hold)
        return hold

    settled, told, left, lost = [take(number) for number in range(4)]
    held.note(settled, outcome_for(settled.message, Complete(), OutcomeStatus.SETTLED))
    held.note(told, outcome_for(told.message, Complete(), OutcomeStatus.LOCK_LOST))
    held.leave(left)
    held.lose(lost)
    assert held.unsettled == (lost.message,)
    again = take(3, delivery=2)
    assert (held.unsettled, held.lost) == ((again.message,), (1,))
    held.lose(again)
    assert (held.unsettled, held.lost) == ((again.message,), (1, 3))
    assert held.outcome_of(again.message, Complete()).status is OutcomeStatus.LOCK_LOST
    assert (held.unsettled, held.lost) == ((), (1, 3))
    assert [*held.lost_messages.values()] == [told.message, again.message]
    held.forget_ended()
    assert (held.unsettled, held.lost) == ((), ())


def held_for(seconds: float, *, slow_by: float = 0) -> tuple[Hold, datetime]:
    """Return a lock that lasts so long, and when it was asked for by a clock that is so many seconds slow."""
    nothing: Any = None
    asked = datetime.now(UTC)
    message = LockedMessage(entity=ORDERS, sequence_number=1, lock_token=UUID(int=1))
    return Hold(message, nothing, asked, asked + timedelta(seconds=seconds + slow_by)), asked


@pytest.mark.parametrize(
    ("lasts", "held", "after"),
    [
        (5, 1, 2.5),
        (30, 1, 15),
        (40, 1, 20),
        (60, 1, 20),
        (60, 1_000, 20),
        (60, 1_001, 30),
        (300, 1, 100),
        (300, 20_000, 150),
        (320, 1, 100),
        (3_600, 20_000, 30),
    ],
)
def test_renewals_are_rarer_for_long_locks_and_for_many(lasts: float, held: int, after: float) -> None:
    hold, asked = held_for(lasts)
    assert not hold.is_due(asked + timedelta(seconds=after - 0.1), held=held)
    assert hold.is_due(asked + timedelta(seconds=after), held=held)


@pytest.mark.parametrize(("slow_by", "after"), [(60, 40), (90, 50), (261, 20), (600, 20), (3600, 20)])
def test_a_slow_clock_does_not_put_a_renewal_off_too_long(slow_by: float, after: float) -> None:
    hold, asked = held_for(60, slow_by=slow_by)
    assert not hold.is_due(asked + timedelta(seconds=after - 0.1), held=1)
    assert hold.is_due(asked + timedelta(seconds=after), held=1)
    assert hold.ends == asked + min(timedelta(minutes=5), timedelta(seconds=60 + slow_by))
