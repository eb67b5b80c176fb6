"""Settling what another receiver locked, by lock tokens."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from sbnotebook.errors import BatchClosedError, DecisionError
from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    Decision,
    Defer,
    LockedMessage,
    MessageState,
    OutcomeStatus,
    Release,
)
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.plan import Limits
from tests.filled_queues import filled_queue
from tests.hand_clock import HandClock

pytestmark = pytest.mark.anyio


def tokens(held: tuple[LockedMessage, ...]) -> list[tuple[int, str]]:
    """As another process has them."""
    return [(message.sequence_number, str(message.lock_token)) for message in held]


@pytest.mark.parametrize(
    "decision", [Complete(), Abandon(), DeadLetter("Bad", "no good"), Defer()], ids=lambda d: d.verb
)
async def test_a_message_is_settled_by_its_token(namespace: AsyncNamespace, decision: Decision) -> None:
    queue = await filled_queue(namespace, f"by-token-{decision.verb}", 2)
    async with queue.batch() as batch:
        held = await batch.receive(1)
        plan = queue.plan_by_token(decision, tokens(held))
        report = await plan.apply()
        assert [(o.status, o.sequence_number, o.verb) for o in report] == [(OutcomeStatus.SETTLED, 1, decision.verb)]
        # The batch that locked it finds out when it tries.
        late = await batch.settle(Complete())
        assert set(late.counts) == {OutcomeStatus.LOCK_LOST}
    left = {message.sequence_number: message for message in await queue.peek()}
    assert set(left) == ({2} if isinstance(decision, Complete | DeadLetter) else {1, 2})
    assert left[2].delivery_count == 0
    if isinstance(decision, Abandon):
        assert left[1].delivery_count == 1
    if isinstance(decision, Defer):
        assert left[1].state is MessageState.DEFERRED
    if isinstance(decision, DeadLetter):
        (dead,) = await namespace.entity(f"by-token-{decision.verb}/$dlq").peek()
        assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("Bad", "no good")


async def test_many_are_settled_pipelined_and_each_has_its_outcome(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "by-token-many", 60)
    async with queue.batch() as batch:
        held = await batch.receive(60)
        assert (await batch.settle(Abandon(), held[10:20])).ok
        plan = queue.plan_by_token(Complete(), tokens(held))
        report = await plan.apply(Limits(max_in_flight=20))
        statuses = [outcome.status for outcome in report]
        assert statuses[10:20] == [OutcomeStatus.LOCK_LOST] * 10
        assert report.counts == {OutcomeStatus.SETTLED: 50, OutcomeStatus.LOCK_LOST: 10}
    assert {message.sequence_number for message in await queue.peek()} == set(range(11, 21))


async def test_settle_by_token_reports_ended_or_unknown_locks_as_lost(
    namespace_by_hand: AsyncNamespace, clock: HandClock
) -> None:
    queue = await filled_queue(namespace_by_hand, "by-token-late", 2)
    async with queue.batch() as batch:
        (held,) = await batch.receive(1)
        # A request for both was refused: it may have settled the missing message.
        stranger, absent = (2, uuid4()), (99, uuid4())
        report = await queue.plan_by_token(Complete(), [stranger, absent]).apply()
        assert [outcome.status for outcome in report] == [OutcomeStatus.LOCK_LOST, OutcomeStatus.UNCONFIRMED]
        report = await queue.plan_by_token(Complete(), [absent]).apply()
        assert [outcome.status for outcome in report] == [OutcomeStatus.LOCK_LOST]
        clock.emulators.advance(61)
        report = await queue.plan_by_token(Complete(), [held]).apply()
        assert [outcome.status for outcome in report] == [OutcomeStatus.LOCK_LOST]
    assert len(await queue.peek()) == 2


async def test_settle_by_token_archives_and_does_not_release_adopted(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "by-token-adopted", 3)
    async with queue.batch() as batch:
        held = await batch.receive(3)
        async with queue.batch() as other:
            adopted = await other.adopt(held)
            assert [message.body for message in adopted] == [b"0", b"1", b"2"]
            assert other.messages == adopted
            assert await other.adopt(held) == adopted
            assert (await other.settle(Complete(), adopted[:1])).ok
        assert other.release_report is not None
        assert len(other.release_report) == 0
        assert (await batch.settle(Complete(), held[1:])).ok, "the locks are still the first batch's"
    with pytest.raises(BatchClosedError):
        await other.adopt(held)


async def test_adopted_locks_are_renewed(namespace_by_hand: AsyncNamespace, clock: HandClock) -> None:
    queue = await filled_queue(namespace_by_hand, "by-token-renewed", 1)
    first = queue.batch()
    async with first:
        held = await first.receive(1)
        async with queue.batch() as other:
            (adopted,) = await other.adopt(held)
            await clock.turn(2)
            end = other.table.locked_until(adopted.sequence_number)
            assert end is not None
            assert end > clock.now()
            await clock.turn(100)
            assert (await other.settle(Complete())).ok
    assert await queue.peek() == []


@pytest.mark.parametrize("lock", [7, (7,), (7, "no token"), ("seven", str(uuid4())), (1, 2, 3), None])
async def test_what_is_no_lock_is_refused(namespace: AsyncNamespace, lock: Any) -> None:
    with pytest.raises(DecisionError, match="its sequence number and its lock token"):
        namespace.entity("orders").plan_by_token(Complete(), [lock])


async def test_strangers_and_releases_are_refused(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "by-token-refused", 1)
    async with queue.batch() as batch:
        held = await batch.receive(1)
        with pytest.raises(DecisionError, match="is in by-token-refused"):
            namespace.entity("elsewhere").plan_by_token(Complete(), held)
        with pytest.raises(DecisionError, match="released only by the batch that locked it"):
            queue.plan_by_token(Release(), held)
        with pytest.raises(DecisionError, match="dead-letter queue already"):
            namespace.entity("by-token-refused/$dlq").plan_by_token(DeadLetter("x"), [])
