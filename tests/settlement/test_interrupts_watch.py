from __future__ import annotations

import gc
import weakref
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext

import anyio
import pytest

from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import Complete, EntityAddress, Message, Outcome, OutcomeStatus, Report, Tally
from sbnotebook.settlement import AsyncEntity, AsyncNamespace, Plan
from sbnotebook.settlement.interrupts import Watch, reporting
from sbnotebook.settlement.plan import Limits
from tests.filled_queues import filled_queue

pytestmark = pytest.mark.anyio


def done(number: int) -> Outcome:
    return Outcome(OutcomeStatus.SETTLED, "send", EntityAddress("orders"), message_id=str(number))


async def test_a_report_tells_the_speed_and_the_messages_in_flight(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "in-flight", 0)
    with Watch() as watch:
        sent = await queue.send((Message() for _ in range(300)), max_in_flight=3, batch_size=10)
    assert sent.speed is not None
    assert (sent.speed.count, sent.speed.in_flight % 10) == (300, 0)
    assert 10 <= sent.speed.in_flight == watch.flight.most <= 30
    removed = await (await queue.purge()).apply(Limits(max_in_flight=7))
    assert removed.speed is not None
    assert (removed.speed.count, removed.speed.in_flight, watch.flight.now) == (300, 7, 0)
    assert 0 < removed.speed.seconds < 600
    # A short run says nothing about the speed.
    assert (await queue.send(Message() for _ in range(99))).speed is None


async def work(numbers: range, *, until: float | None = None) -> Report:
    tally = Tally()
    with reporting(tally.report):
        for index, number in enumerate(numbers):
            tally.note(index, done(number))
        if until is not None:
            await anyio.sleep(until)
    return tally.report()


def ids(report: Report) -> list[int]:
    return [int(outcome.message_id or "") for outcome in report]


async def test_works_one_after_the_other_and_side_by_side_are_all_in_it() -> None:
    with Watch() as watch:
        await work(range(2))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work, range(2, 4))
            tasks.start_soon(work, range(4, 6))
    assert ids(watch.report) == [0, 1, 2, 3, 4, 5]


async def _picked(queue: AsyncEntity) -> Plan:
    return await queue.pick([1, 2, 3], Complete())


@pytest.mark.parametrize("make_plan", [_picked, AsyncEntity.purge], ids=["pick", "purge"])
async def test_what_is_under_way_is_unconfirmed_until_its_end_is_known(
    namespace: AsyncNamespace,
    shared_emulator: RunningEmulator,
    make_plan: Callable[[AsyncEntity], Awaitable[Plan]],
    request: pytest.FixtureRequest,
) -> None:
    name = request.node.callspec.id
    queue = await filled_queue(namespace, f"under-way-{name}", 3)
    plan = await make_plan(queue)
    faults = shared_emulator.faults.entity(queue.address.path)
    faults.settle_delay_ms = 1_500
    seen: list[Report] = []

    async def look_when_one_is_gone() -> None:
        while len(await queue.peek(3)) == 3:
            pass
        seen.append(watch.report)

    with Watch() as watch:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look_when_one_is_gone)
            await plan.apply()
    assert seen[0].counts == {OutcomeStatus.UNCONFIRMED: 3}
    assert watch.report.counts == {OutcomeStatus.SETTLED: 3}


@pytest.mark.parametrize("delay", [500, 60_000])
async def test_settling_that_is_cut_off_tells_what_is_settled(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, delay: int
) -> None:
    name = f"settling-cut-off-{delay}"
    queue = await filled_queue(namespace, name, 30)
    async with queue.batch() as batch:
        await batch.receive(30)
        done, faults = 0, shared_emulator.faults.entity(name)
        with anyio.CancelScope() as scope, Watch() as watch:

            def advance(count: int) -> None:
                nonlocal done
                done += count
                if done == 10:
                    faults.settle_delay_ms = delay
                    scope.cancel()

            await batch.settle(Complete(), max_in_flight=5, progress=advance)
        assert scope.cancelled_caught
        faults.settle_delay_ms = 0
    counts = watch.report.counts
    assert len(watch.report) == 30
    unknown = counts.get(OutcomeStatus.UNCONFIRMED, 0)
    assert unknown == 0 if delay == 500 else 1 <= unknown <= 5, "what is under way is waited for, but not for ever"
    assert counts[OutcomeStatus.SKIPPED] >= 10
    assert counts[OutcomeStatus.SETTLED] + counts[OutcomeStatus.SKIPPED] + unknown == 30
    assert batch.release_report is not None
    assert batch.release_report.settled == counts[OutcomeStatus.SKIPPED], "what was not begun is given back"


async def test_outcomes_are_told_as_they_come_to_all_who_watch() -> None:
    outer: list[Outcome] = []
    inner: list[Outcome] = []

    async def step(number: int) -> None:
        with reporting(Report) as tell:
            tell([done(number)])

    async def plan() -> None:
        with reporting(Report) as tell:
            await step(100)  # a part of it, which the plan tells in its own words
            tell(done(number) for number in range(2))

    with Watch(outer.extend):
        with Watch(inner.extend):
            await plan()
        await step(2)
    await step(3)
    assert (ids(Report(inner)), ids(Report(outer))) == ([0, 1], [0, 1, 2])


@pytest.mark.parametrize("around", [nullcontext, Watch])
def test_a_work_is_freed_when_none_looks_at_it(around: Callable[[], AbstractContextManager[object]]) -> None:
    class Work:
        """Keeps what tells of it, as a run does with all its messages."""

        def __init__(self) -> None:
            with reporting(self.report) as self.tell:
                self.tell([])

        def report(self) -> Report:
            return Report()

    gc.collect()
    gc.disable()
    try:
        with around():
            freed = weakref.ref(Work())
        assert freed() is None
    finally:
        gc.enable()
