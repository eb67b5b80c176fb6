"""The four ways to delay: what docs/how-to/delay.md says of each of them."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import anyio
import pytest

from sbnotebook.errors import DecisionError
from sbnotebook.model import Abandon, Complete, Defer, LockedMessage, Message, OutcomeStatus, Report, Resubmit, Send
from sbnotebook.settlement import AsyncNamespace
from tests.filled_queues import filled_queue, settle_first
from tests.hand_clock import HandClock
from tests.settlement.waiting import append_to

pytestmark = pytest.mark.anyio
DELAY = timedelta(minutes=5)


async def test_a_lock_that_lapses_gives_the_message_back_when_it_ends(
    namespace_by_hand: AsyncNamespace, clock: HandClock
) -> None:
    await filled_queue(namespace_by_hand, "lapse", 3, lock_duration=timedelta(minutes=1))
    queue = namespace_by_hand.entity("lapse")
    async with queue.batch() as batch:
        first, second, _ = await batch.receive(3)
        until = batch.let_lapse([first])
        assert until is not None
        assert timedelta(seconds=55) < until - clock.now() <= timedelta(minutes=1)
        assert first not in batch.messages
        report = await batch.settle(Complete(), [first, second])
        assert [outcome.status for outcome in report] == [OutcomeStatus.SKIPPED, OutcomeStatus.SETTLED]
    assert batch.table.lost == ()
    assert batch.release_report is not None
    assert batch.release_report.settled == 1  # the third; the first is not released
    async with queue.batch() as batch:
        assert [m.message_id for m in await batch.receive(3, max_wait=1)] == ["m2"]
        await clock.turn(61)
        assert [(m.message_id, m.delivery_count) for m in await batch.receive(3, max_wait=1)] == [("m0", 1)]


async def turned(clock: HandClock, by: timedelta) -> None:
    await clock.turn(by.total_seconds())


async def test_an_abandon_with_a_delay_holds_the_lock_until_then(
    namespace_by_hand: AsyncNamespace, clock: HandClock
) -> None:
    await filled_queue(namespace_by_hand, "abandon", 3, lock_duration=timedelta(minutes=1))
    queue = namespace_by_hand.entity("abandon")
    async with queue.batch(renew_for=DELAY) as batch, queue.batch() as other:
        (first,) = await batch.receive(1)
        reports: list[Report] = []

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append_to, reports, partial(batch.settle, Abandon(delay=DELAY), [first]))
            await anyio.sleep(0.1)
            await turned(clock, DELAY - timedelta(seconds=5))
            assert [m.message_id for m in await other.receive(5, max_wait=1)] == ["m1", "m2"]  # it is locked still
            await turned(clock, timedelta(seconds=6))
        assert reports[0].ok
        (again,) = await other.receive(1)
        assert (again.message_id, again.delivery_count) == ("m0", 1)


async def test_a_delay_longer_than_the_renewals_is_refused(namespace: AsyncNamespace) -> None:
    await filled_queue(namespace, "too-long", 3, lock_duration=timedelta(minutes=1))
    async with namespace.entity("too-long").batch(renew_for=timedelta(minutes=1)) as batch:
        await batch.receive(1)
        with pytest.raises(DecisionError, match=r"which is before the delay of 5m ends: lock with a longer"):
            await batch.settle(Abandon(delay=DELAY))
    with pytest.raises(DecisionError, match="delay is nothing or more"):
        Abandon(delay=-DELAY)


async def test_an_abandon_that_is_cut_off_while_it_waits_was_not_done(
    namespace_by_hand: AsyncNamespace, clock: HandClock
) -> None:
    await filled_queue(namespace_by_hand, "cut-off", 3, lock_duration=timedelta(minutes=1))
    queue = namespace_by_hand.entity("cut-off")
    async with queue.batch() as batch:
        await batch.receive(1)
        with anyio.move_on_after(0.2):
            await batch.settle(Abandon(delay=DELAY))
        assert len(batch.messages) == 1
    assert [m.delivery_count for m in await queue.peek()] == [0, 0, 0]  # released
    assert clock.now() is not None


async def received_after(namespace: AsyncNamespace, name: str, clock: HandClock, by: timedelta) -> list[LockedMessage]:
    clock.emulators.advance(by.total_seconds())
    async with namespace.entity(name).batch() as batch:
        return list(await batch.receive(10, max_wait=1))


@pytest.mark.parametrize("way", ["abandon", "defer", "resubmit"])
async def test_delivery_counts_and_order_of_each_way(
    namespace_by_hand: AsyncNamespace, clock: HandClock, way: str
) -> None:
    await filled_queue(namespace_by_hand, way, 3, lock_duration=timedelta(minutes=1))
    queue = namespace_by_hand.entity(way)
    if way == "resubmit":
        (first, *_) = await queue.peek()
        (await queue.plan_resubmit([first], Resubmit(delay=DELAY)).apply()).raise_for_failures()
    else:
        await settle_first(queue, Abandon() if way == "abandon" else Defer(wake_after=DELAY))
    found = await received_after(namespace_by_hand, way, clock, DELAY + timedelta(seconds=1))
    seen = [(m.message_id, m.delivery_count, m.resubmit_count) for m in found]
    if way == "abandon":
        assert seen == [("m0", 1, 0), ("m1", 0, 0), ("m2", 0, 0)]  # at the front, counted
    elif way == "defer":
        assert seen[:2] == [("m1", 0, 0), ("m2", 0, 0)]  # then its wake-up; the message itself is counted
        assert [m.delivery_count for m in await queue.peek() if m.sequence_number == 1] == [1]
    else:
        assert [each[1:] for each in seen] == [(0, 0), (0, 0), (0, 1)]  # a new message at the end


async def test_a_queue_of_one_message_has_one_again_after_it_had_two(
    namespace_by_hand: AsyncNamespace, clock: HandClock
) -> None:
    queue = await filled_queue(namespace_by_hand, "one", 0)
    twice = [Message(body=b"x", message_id="tick")] * 2  # as after a crash between the clone and the original
    (await queue.send(twice)).raise_for_failures()
    done = 0
    for _ in range(3):  # each round is later, with the message that is left
        async with queue.batch() as batch:
            while messages := await batch.receive(1, max_wait=1):
                (counts,) = await namespace_by_hand.counts(["one"])
                if counts.active + counts.scheduled == 1:
                    done += 1
                    (await queue.send(messages, Send(at=clock.now() + timedelta(seconds=5)))).raise_for_failures()
                (await batch.settle(Complete(), messages)).raise_for_failures()
        (counts,) = await namespace_by_hand.counts(["one"])
        assert (counts.active, counts.scheduled) == (0, 1)
        await clock.turn(6)
    assert done == 3
