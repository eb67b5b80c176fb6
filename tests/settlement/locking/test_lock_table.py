from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from sbnotebook.errors import DecisionError
from sbnotebook.model import Complete, EntityAddress, LockedMessage, OutcomeStatus
from sbnotebook.settlement.locking.lock_table import HeldMessages, Hold
from sbnotebook.settlement.terms import outcome_for

ORDERS = EntityAddress("orders")


def test_how_messages_ended_is_not_remembered_for_ever() -> None:
    held, now, nothing = HeldMessages(ORDERS), datetime.now(UTC), None
    received: Any = nothing
    messages = [LockedMessage(entity=ORDERS, sequence_number=n, lock_token=UUID(int=n)) for n in range(100_002)]
    for message in messages:
        hold = Hold(message, received, now, now + timedelta(minutes=1))
        held.add(hold)
        held.note(hold, outcome_for(message, Complete(), OutcomeStatus.SETTLED), was_in_doubt=False)
    held.check_ours(messages[2:])
    assert held.outcome_of(messages[-1], Complete()).status is OutcomeStatus.ALREADY_SETTLED
    with pytest.raises(DecisionError, match="2 messages are not of this batch"):
        held.check_ours(messages)
