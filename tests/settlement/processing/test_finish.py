from __future__ import annotations

import anyio
import pytest

from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import Abandon, EntityAddress, Outcome, OutcomeStatus
from sbnotebook.settlement import AsyncNamespace, Policy, PolicyRow, Then
from sbnotebook.settlement.processing.calls import EndedCall
from sbnotebook.settlement.processing.finish import Finisher, can_retry
from sbnotebook.settlement.processing.policy import End
from tests.filled_queues import filled_queue

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("end", [End.COMPLETED, End.FAILED])
async def test_a_forgotten_lock_does_not_fail_other_messages(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch, end: End
) -> None:
    monkeypatch.setattr("sbnotebook.settlement.locking.lock_table._REMEMBERED", 1)
    queue = await filled_queue(namespace, f"forgotten-{end}", 3)
    finisher = Finisher(Policy(failed=PolicyRow(Abandon(), Then.GO_ON)), "local", {}, abandons=True)
    async with queue.batch() as batch:
        lost = await batch.receive(3)
        shared_emulator.lose_locks(str(queue.address))
        with anyio.fail_after(20):
            while len(held := batch.messages) < 3 or batch.holds(lost[2]):
                await batch.receive(3)
        ends = [EndedCall(message, end) for message in (lost[0], *held)]
        first, *others = await finisher.settle(batch, ends)
    assert (first.status, first.retryable) == (OutcomeStatus.LOCK_LOST, None)
    assert first.description == "The lock had ended before: nothing was done, and the message is delivered again."
    assert [outcome.status for outcome in others] == [OutcomeStatus.SETTLED] * 3


@pytest.mark.parametrize("status", list(OutcomeStatus))
def test_settlements_that_may_succeed_are_tried_again(status: OutcomeStatus) -> None:
    always = status in (OutcomeStatus.UNCONFIRMED, OutcomeStatus.SKIPPED)
    for retryable in (True, False, None):
        outcome = Outcome(status, "complete", EntityAddress("orders"), retryable=retryable)
        assert can_retry(outcome) is (always or (status is OutcomeStatus.FAILED and retryable is True))
