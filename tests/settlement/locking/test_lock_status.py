"""For how long locks are held, on a clock that is turned by hand."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sbnotebook.errors import BatchClosedError, ConfigurationError, DecisionError
from sbnotebook.model import Abandon, Complete
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.locking.lock_events import LockEventKind
from sbnotebook.testing.clock import HandClock
from tests.filled_queues import filled_queue, session_messages

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
RENEWING, ENDED = LockEventKind.RENEWING, LockEventKind.ENDED


async def test_extend_renews_before_and_after_renewal_ended(
    namespace_by_hand: AsyncNamespace, clock: HandClock
) -> None:
    queue = await filled_queue(namespace_by_hand, "longer", 2, lock_duration=MINUTE)
    async with queue.batch(renew_for=timedelta(seconds=30)) as batch:
        held = await batch.receive(2)
        begin = clock.now()
        assert batch.extend(timedelta(seconds=1)) == begin + timedelta(seconds=30), "never for less than before"
        assert batch.extend(MINUTE) == begin + MINUTE
        await clock.turn(45)
        assert batch.status.kind is RENEWING
        await clock.turn(20)
        assert batch.status.kind is ENDED
        batch.extend(2 * MINUTE)
        assert batch.status.kind is RENEWING
        await clock.turn(90)
        assert batch.status.kind is RENEWING
        assert batch.lost == ()
        assert min(batch.lock_ends.values()) > clock.now()
        with pytest.raises(ConfigurationError, match="30m"):
            batch.extend(timedelta())
        with pytest.raises(ConfigurationError, match="longer than nothing"):
            batch.extend(-MINUTE)
        assert (await batch.settle(Complete(), held)).ok
        assert batch.lock_ends == {}
    with pytest.raises(BatchClosedError):
        batch.extend(MINUTE)


async def test_locks_are_renewed_for_half_an_hour_by_default(
    namespace_by_hand: AsyncNamespace, clock: HandClock
) -> None:
    queue = await filled_queue(namespace_by_hand, "default", 1)
    async with queue.batch() as batch:
        assert batch.renew_until == clock.now() + timedelta(minutes=30)
        with pytest.raises(DecisionError, match="which is before the delay of 31m ends"):
            await batch.settle(Abandon(delay=31 * MINUTE), await batch.receive(1))


async def test_extend_renews_a_session_and_its_messages(namespace_by_hand: AsyncNamespace, clock: HandClock) -> None:
    queue = await filled_queue(
        namespace_by_hand, "sessions", session_messages("aa"), lock_duration=MINUTE, requires_session=True
    )
    async with queue.session("a", renew_for=timedelta(seconds=10)) as session:
        held = await session.receive(2, max_wait=1)
        await clock.turn(12)
        assert session.status.kind is ENDED
        session.extend(2 * MINUTE)
        await clock.turn(90)
        assert not session.is_lost
        ends = session.lock_ends
        assert list(ends) == [message.sequence_number for message in held]
        assert len(set(ends.values())) == 1, "one lock holds all of them"
        assert min(ends.values()) > clock.now()
        assert (await session.settle(Complete(), held)).ok
