"""Locks that are kept, and reports of locks that are not, on a clock that the tests set."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import anyio
import pytest

from sbnotebook.emulator import QueueOptions, RunningEmulator
from sbnotebook.model import Abandon, Complete, DeadLetter, Defer, Message, OutcomeStatus
from sbnotebook.model.message import partition_of
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.locking.lock_table import LockEvent, LockEventKind
from sbnotebook.settlement.sdk import connections
from tests.filled_queues import filled_queue
from tests.hand_clock import HandClock
from tests.settlement.waiting import until

pytestmark = pytest.mark.anyio

RENEWING, LATE, FAILING = LockEventKind.RENEWING, LockEventKind.LATE, LockEventKind.FAILING
ENDED, LOST = LockEventKind.ENDED, LockEventKind.LOST
MINUTE = timedelta(minutes=1)
A_LOT = 1_000_000


class World(NamedTuple):
    """An emulator and a namespace whose time passes only when the test sets the clock."""

    emulator: RunningEmulator
    namespace: AsyncNamespace
    clock: HandClock

    def pause(self, seconds: float) -> None:
        """Let time pass while this machine does nothing."""
        self.clock.emulators.advance(seconds)

    async def turn_until(self, condition: Callable[[], object]) -> None:
        """Turn the clock on, slowly, until something has happened."""
        with anyio.fail_after(60):
            while not condition():
                await self.clock.turn(1)
                await anyio.sleep(0.1)


@pytest.fixture
def world(emulator_by_hand: RunningEmulator, namespace_by_hand: AsyncNamespace, clock: HandClock) -> World:
    return World(emulator_by_hand, namespace_by_hand, clock)


def kinds(batch: LockedBatch) -> list[LockEventKind]:
    return [event.kind for event in batch.renewal.events]


def numbers(messages: Iterable[Message]) -> set[int]:
    return {int(message.body) + 1 for message in messages}


async def test_renewal_after_a_survived_pause_is_immediate(world: World) -> None:
    queue = await filled_queue(world.namespace, "paused", 3, lock_duration=MINUTE)
    async with queue.batch() as batch:
        held = await batch.receive(3)
        world.pause(50)
        # Nothing has run yet on this event loop, which counts as blocked.
        assert (batch.renewal.state.kind, set(batch.renewal.state.sequence_numbers)) == (LATE, numbers(held))
        assert "stood still for 50 s" in (batch.renewal.fault or "")
        await world.clock.turn(1)
        await until(lambda: batch.renewal.state.kind is RENEWING)
        assert kinds(batch) == [LATE, RENEWING]
        await world.clock.turn(20)
        assert batch.table.lost == ()
        assert (await batch.settle(Complete())).ok


@pytest.mark.parametrize(
    ("lasts", "pause", "is_late"), [(6, 4.9, False), (6, 5, True), (60, 40, False), (60, 40.1, True)]
)
async def test_a_standstill_is_late_when_less_than_a_third_is_left(
    world: World, lasts: float, pause: float, is_late: bool
) -> None:
    queue = await filled_queue(world.namespace, "still", 1, lock_duration=timedelta(seconds=lasts))
    async with queue.batch() as batch:
        await batch.receive(1)
        world.pause(pause)
        assert (batch.renewal.state.kind is LATE) is is_late


async def test_renewal_reports_locks_lost_in_a_pause(world: World) -> None:
    queue = await filled_queue(world.namespace, "overslept", 3, lock_duration=MINUTE)
    told: list[LockEvent] = []
    async with queue.batch() as batch:
        batch.renewal.watch(told.append)
        held = await batch.receive(3)
        world.pause(120)
        await world.clock.turn(1)
        await until(lambda: LOST in kinds(batch))
        assert kinds(batch)[:2] == [LATE, LOST]
        assert list(batch.renewal.events) == told
        assert set(batch.table.lost) == set(told[1].sequence_numbers) == numbers(held)
        report = await batch.settle(Complete(), held)
        assert set(report.counts) == {OutcomeStatus.LOCK_LOST}
        assert "refused to renew" in (report[0].description or "")
    assert batch.release_report is not None
    assert len(batch.release_report) == 0
    assert [message.delivery_count for message in await queue.peek()] == [1, 1, 1]


async def test_a_renewal_that_fails_is_reported_at_once_and_tried_again(world: World) -> None:
    queue = await filled_queue(world.namespace, "busy", 3, lock_duration=MINUTE)
    async with queue.batch() as batch:
        held = await batch.receive(3)
        world.emulator.faults.entity("busy").server_busy = 3
        await world.clock.turn(20)
        await until(lambda: FAILING in kinds(batch))
        event = batch.renewal.events[0]
        assert set(event.sequence_numbers) == numbers(held)
        assert "ServiceBusServerBusyError" in event.description
        assert (batch.renewal.state, batch.renewal.fault) == (event, event.description)
        assert not links_of(batch)._avoids_own, "over another link, the service would be as busy"  # noqa: SLF001
        await world.turn_until(lambda: batch.renewal.state.kind is RENEWING)
        assert kinds(batch) == [FAILING, RENEWING], "one event, not one each second"
        assert (await batch.settle(Complete())).ok


async def test_locks_that_end_while_renewing_fails_say_so_in_the_report(world: World) -> None:
    queue = await filled_queue(world.namespace, "down", 2, lock_duration=MINUTE)
    async with queue.batch() as batch:
        held = await batch.receive(2)
        world.emulator.faults.entity("down").server_busy = A_LOT
        await world.clock.turn(61)
        await until(lambda: LOST in kinds(batch))
        assert set(batch.table.lost) == numbers(held)
        world.emulator.faults.entity("down").server_busy = 0
        report = await batch.settle(Complete())  # all that are not settled yet
        assert report.counts == {OutcomeStatus.LOCK_LOST: 2}
        assert len(await batch.settle(Complete())) == 0, "they were reported before"
        assert await batch.settle(Complete(), held) == report
        assert "ServiceBusServerBusyError" in (report[0].description or "")
    assert len(await queue.peek()) == 2


async def test_after_renew_for_it_is_told_that_renewing_ended(world: World) -> None:
    queue = await filled_queue(world.namespace, "ended", 2, lock_duration=MINUTE)
    async with queue.batch(renew_for=timedelta(seconds=30)) as batch:
        held = await batch.receive(2)
        await world.clock.turn(29)
        assert kinds(batch) == []
        await world.clock.turn(1)
        await until(lambda: kinds(batch) == [ENDED])
        assert batch.renewal.state.kind is ENDED
        assert set(batch.renewal.state.sequence_numbers) == numbers(held)
        assert "renew_for" in (batch.renewal.fault or "")
        assert batch.table.lost == (), "the locks have not ended yet"
        await world.clock.turn(60)
        assert kinds(batch) == [ENDED, LOST]
        assert set(batch.table.lost) == numbers(held)


async def test_renewal_uses_another_connection_when_its_own_is_gone(world: World) -> None:
    queue = await filled_queue(world.namespace, "dropped", 5, lock_duration=MINUTE)
    async with queue.batch() as batch:
        held = await batch.receive(5)
        for _ in range(3):
            world.emulator.drop_connections("dropped")
            await world.clock.turn(24)
            # It takes the SDK half a second to open another connection, and the clock goes faster here.
            await until(lambda: all(end_of(batch, n) - world.clock.now() > MINUTE / 3 for n in numbers(held)))
        assert batch.table.lost == ()
        assert (await batch.settle(Complete())).settled == 5
    assert await queue.peek() == []


async def test_renewal_continues_while_a_settlement_waits(world: World) -> None:
    queue = await filled_queue(world.namespace, "stuck", 5, lock_duration=timedelta(seconds=10))
    async with queue.batch() as batch:
        held = await batch.receive(5)
        world.emulator.freeze("stuck")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(batch.settle, Complete(), held[:1])
            await anyio.sleep(0.1)
            for _ in range(3):
                await world.clock.turn(6)
                await until(lambda: all(end_of(batch, n) - world.clock.now() > MINUTE / 12 for n in numbers(held)))
            tasks.cancel_scope.cancel()
        world.emulator.thaw()
        assert batch.table.lost == ()


async def test_renewal_returns_to_its_own_link_once_that_answers(world: World) -> None:
    queue = await filled_queue(world.namespace, "thawed", 5, lock_duration=timedelta(seconds=12))
    async with queue.batch() as batch:
        held = await batch.receive(5)
        world.emulator.freeze("thawed")
        await world.clock.turn(7)
        await until(lambda: FAILING in kinds(batch))
        # Another connection renews while the own one is silent, and is closed when that answers again.
        await world.clock.turn(1)
        await until(lambda: kinds(batch) == [FAILING, RENEWING])
        spare = spare_of(batch)
        assert connections.is_open(spare)
        world.emulator.thaw()
        await world.clock.turn(7)
        await until(lambda: spare_of(batch) is None)
        await until(lambda: not connections.is_open(spare))
        assert {message.sequence_number for message in batch.messages} == numbers(held)
    assert batch.release_report is not None
    assert batch.release_report.settled == 5
    assert [message.delivery_count for message in await queue.peek()] == [0] * 5


def spare_of(batch: LockedBatch) -> Any:
    return links_of(batch)._spare  # noqa: SLF001


def links_of(batch: LockedBatch) -> Any:
    renewal: Any = batch.renewal
    return renewal._links  # noqa: SLF001


async def test_the_own_link_is_not_avoided_because_the_other_one_failed(world: World) -> None:
    queue = await filled_queue(world.namespace, "silent", 1, lock_duration=MINUTE)
    async with queue.batch() as batch:
        links = links_of(batch)
        own = await links.one()
        links.is_silent = True
        assert await links.one() is not own
        links.is_silent = True  # the first look of the renewal may have come meanwhile
        await links.failed()
        links.is_silent = False
        assert await links.one() is own


def end_of(batch: LockedBatch, number: int) -> datetime:
    found = batch.table.locked_until(number)
    assert found is not None
    return found


def requests(world: World, name: str) -> int:
    """How many sends, settlements and requests came since this was asked last, by a countdown that never ends."""
    faults = world.emulator.faults.entity(name)
    made = A_LOT - faults.drop_before_nth
    faults.drop_before_nth = A_LOT
    return made


async def test_a_thousand_locks_are_renewed_in_few_requests(world: World) -> None:
    queue = await filled_queue(world.namespace, "thousand", 1000, lock_duration=MINUTE)
    async with queue.batch() as batch:
        assert len(await batch.receive(1000)) == 1000
        requests(world, "thousand")
        await world.clock.turn(22)
        # A minute each, of which 38 seconds were left.
        await until(lambda: min(end_of(batch, n) for n in range(1, 1001)) > world.clock.now() + MINUTE * 5 / 6)
        assert 5 <= requests(world, "thousand") <= 10
        assert (await batch.settle(Complete(), max_in_flight=50)).settled == 1000


async def test_a_request_renews_locks_of_one_partition_only(world: World) -> None:
    world.emulator.create_queue("parts", QueueOptions(lock_duration=60_000, enable_partitioning=True))
    world.emulator.faults.entity("parts").mixed_partitions = "refused"
    queue = world.namespace.entity("parts")
    await queue.send([Message(partition_key=f"key{n}") for n in range(60)])
    async with queue.batch() as batch:
        held = await batch.receive(60)
        partitions = {partition_of(message.sequence_number) for message in held}
        assert len(partitions) > 2
        requests(world, "parts")
        await world.clock.turn(22)
        await until(lambda: all(end_of(batch, m.sequence_number) - world.clock.now() > MINUTE / 2 for m in held))
        assert requests(world, "parts") == len(partitions), "none is refused and halved"
        assert kinds(batch) == []
        assert (await batch.settle(Complete())).settled == 60


async def test_a_lock_that_is_lost_costs_no_other_one(world: World) -> None:
    queue = await filled_queue(world.namespace, "hundred", 100, lock_duration=MINUTE)
    async with queue.batch() as batch, queue.batch() as thief:
        held = await batch.receive(100)
        stolen = held[41]
        assert (await queue.plan_by_token(Abandon(), [stolen]).apply()).ok
        (again,) = await thief.receive(1)
        assert again.sequence_number == stolen.sequence_number
        requests(world, "hundred")
        await world.clock.turn(24)
        await until(lambda: batch.table.lost == (stolen.sequence_number,))
        assert requests(world, "hundred") <= 20, "it is found by halving"
        assert [event.sequence_numbers for event in batch.renewal.events] == [(stolen.sequence_number,)]
        assert (await batch.settle(Complete(), held)).counts == {
            OutcomeStatus.SETTLED: 99,
            OutcomeStatus.LOCK_LOST: 1,
        }
        assert (await thief.settle(Complete())).ok


async def test_a_watcher_that_fails_ends_nothing_and_can_leave(world: World) -> None:
    queue = await filled_queue(world.namespace, "watched", 1, lock_duration=MINUTE)
    told: list[LockEvent] = []

    def fail(event: LockEvent) -> None:
        told.append(event)
        sys.exit("a bug")

    async with queue.batch() as batch:
        leave = batch.renewal.watch(fail)
        await batch.receive(1)
        world.pause(50)
        await world.clock.turn(1)
        await until(lambda: batch.renewal.state.kind is RENEWING)
        assert len(told) == 2
        leave()
        leave()
        world.pause(50)
        await world.clock.turn(1)
        await until(lambda: kinds(batch) == [LATE, RENEWING] * 2)
        assert len(told) == 2
        assert batch.table.lost == ()


async def refuse_on_links(world: World, batch: LockedBatch) -> None:
    """Renew until the links refuse to settle what they delivered."""
    world.emulator.faults.link_settles_minutes = 1
    await world.clock.turn(61)
    await until(lambda: batch.renewal.state.kind is RENEWING)


async def test_a_renewed_lock_that_its_link_calls_lost_is_settled(world: World) -> None:
    queue = await filled_queue(world.namespace, "old-link", 6, lock_duration=MINUTE)
    async with queue.batch() as batch:
        held = await batch.receive(6)
        await refuse_on_links(world, batch)
        assert (await queue.plan_by_token(Abandon(), held[:1]).apply()).ok
        report = await batch.settle(Complete(), held[:3])
        assert report.counts == {OutcomeStatus.LOCK_LOST: 1, OutcomeStatus.SETTLED: 2}
        assert (await batch.settle(DeadLetter("Odd"), held[3:4])).ok
        assert (await batch.settle(Defer(), held[4:5])).ok
    # Nothing but the link releases, so that the last one comes again when its lock ends.
    assert batch.release_report is not None
    assert batch.release_report.counts == {OutcomeStatus.FAILED: 1}
    assert "comes again when that ends" in (batch.release_report[0].description or "")
    assert {message.sequence_number for message in await queue.peek()} == {1, 5, 6}


async def test_a_session_that_its_link_calls_lost_is_settled_by_tokens(world: World) -> None:
    await world.namespace.create_queue("old-session", lock_duration=MINUTE, requires_session=True)
    queue = world.namespace.entity("old-session")
    await queue.send([Message(body=b"%d" % n, session_id="a") for n in range(3)])
    async with queue.session("a") as session:
        await session.receive(3)
        await refuse_on_links(world, session)
        assert (await session.settle(Complete())).settled == 3
    assert await queue.peek() == []


class WrongClock(HandClock):
    """A machine's clock that differs from the service's."""

    off = timedelta()

    def now(self) -> datetime:
        return super().now() + self.off

    async def sleep(self, seconds: float) -> None:
        until = self.now() - self.off + timedelta(seconds=seconds)
        while self.now() - self.off < until:  # noqa: ASYNC110 (as above)
            await anyio.sleep(0.01)


class TestWithAWrongClock:
    @pytest.fixture
    def clock(self) -> HandClock:
        return WrongClock()

    @pytest.mark.parametrize(("before", "later"), [(-0.5, -0.5), (3, 3), (0, -60)], ids=["slow", "fast", "set back"])
    async def test_locks_are_kept(self, world: World, before: float, later: float) -> None:
        """The clock is off by these minutes, before and after ten seconds."""
        assert isinstance(world.clock, WrongClock)
        world.clock.off = timedelta(minutes=before)
        queue = await filled_queue(world.namespace, "off", 3, lock_duration=MINUTE)
        async with queue.batch() as batch:
            await batch.receive(3)
            await world.clock.turn(10)
            world.clock.off = timedelta(minutes=later)
            for _ in range(6):
                await world.clock.turn(15)
                await anyio.sleep(0.1)
            assert batch.table.lost == ()
            assert (await batch.settle(Complete())).settled == 3

    async def test_a_session_is_kept_when_the_clock_is_set_back(self, world: World) -> None:
        assert isinstance(world.clock, WrongClock)
        await world.namespace.create_queue("set-back-session", lock_duration=MINUTE, requires_session=True)
        queue = world.namespace.entity("set-back-session")
        await queue.send([Message(session_id="a")])
        async with queue.session("a") as session:
            await session.receive(1)
            await world.clock.turn(10)
            world.clock.off = -timedelta(hours=1)
            for _ in range(6):
                await world.clock.turn(15)
                await anyio.sleep(0.1)
            assert not session.is_lost
            assert (await session.settle(Complete())).settled == 1
