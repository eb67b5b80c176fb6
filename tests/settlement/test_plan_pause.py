"""Every kind of plan can be paused: requests in progress finish, none begin, nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial

import anyio
import pytest

from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import Complete, EntityAddress, Message, MessageState, Outcome, Report, Resubmit, Send
from sbnotebook.model.message import ORIGINAL_MESSAGE_ID
from sbnotebook.settlement import AsyncEntity, AsyncNamespace, Limits, Plan
from sbnotebook.settlement.interrupts import Watch
from sbnotebook.settlement.pace import Pause
from tests.filled_queues import delivery_counts, filled_queue
from tests.hand_clock import HandClock
from tests.settlement.waiting import append_to

pytestmark = pytest.mark.anyio

COUNT = 505
"""More than are worked on together."""
MakePlan = Callable[[AsyncNamespace, AsyncEntity, AsyncExitStack], Awaitable[Plan]]


async def settle(_: AsyncNamespace, queue: AsyncEntity, stack: AsyncExitStack) -> Plan:
    batch = await stack.enter_async_context(queue.batch())
    while len(batch.messages) < COUNT:
        await batch.receive(COUNT)
    return queue.plan(batch, Complete())


async def purge(_: AsyncNamespace, queue: AsyncEntity, __: AsyncExitStack) -> Plan:
    return await queue.purge()


async def resubmit(namespace: AsyncNamespace, queue: AsyncEntity, _: AsyncExitStack) -> Plan:
    again = EntityAddress(f"{queue.address}-again")
    await namespace.create_queue(str(again))
    return queue.plan_resubmit(await queue.peek(), Resubmit(to=again))


async def undo(namespace: AsyncNamespace, queue: AsyncEntity, _: AsyncExitStack) -> Plan:
    return await namespace.undo(await (await queue.purge()).apply())


async def cancel_scheduled(_: AsyncNamespace, queue: AsyncEntity, __: AsyncExitStack) -> Plan:
    (await (await queue.purge()).apply()).raise_for_failures()
    await queue.send([Message(message_id=str(n)) for n in range(COUNT)], Send(at=datetime.now(UTC) + timedelta(days=1)))
    return queue.plan_cancel_scheduled(await queue.peek(state=MessageState.SCHEDULED))


@pytest.mark.parametrize(
    "make_plan",
    [settle, purge, resubmit, undo, cancel_scheduled],
    ids=lambda make_plan: make_plan.__name__.replace("_", "-"),
)
async def test_a_pause_holds_it_up_and_then_it_goes_on(
    namespace: AsyncNamespace, make_plan: MakePlan, request: pytest.FixtureRequest
) -> None:
    name = f"paused-{request.node.callspec.id}"
    queue = await filled_queue(namespace, name, COUNT)
    pause, told = Pause(), list[Outcome]()
    reports: list[Report] = []

    def note(outcomes: Iterable[Outcome]) -> None:
        if not told:
            pause.begin()
        told.extend(outcomes)

    async def apply(plan: Plan) -> None:
        with Watch(note):
            reports.append(await plan.apply(Limits(max_in_flight=5, pause=pause)))

    async with AsyncExitStack() as stack:
        plan = await make_plan(namespace, queue, stack)
        before = len(await queue.peek())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(apply, plan)
            while not pause.holds:
                await queue.peek(1)
            held = len(told)
            assert 0 < held < COUNT
            # Reported messages are done, and nothing more is in progress.
            assert abs(before - len(await queue.peek())) == held
            assert len(told) == held
            assert await namespace.resume() == [], "another kernel has nothing to finish"
            pause.end()
    (report,) = reports
    assert report.ok, report
    assert len(report) == COUNT
    assert {(o.sequence_number, o.status, o.verb) for o in told} == {
        (o.sequence_number, o.status, o.verb) for o in report
    }
    assert len(told) == COUNT
    assert abs(before - len(await queue.peek())) == COUNT
    if make_plan is resubmit:
        clones = await namespace.entity(f"{name}-again").peek()
        originals = sorted(str(clone.application_properties[ORIGINAL_MESSAGE_ID]) for clone in clones)
        assert originals == sorted(f"m{n}" for n in range(COUNT))


@pytest.mark.parametrize("session_id", [None, "s"])
@pytest.mark.parametrize("decision", [Send(), Send(delay=timedelta(days=1))], ids=["send", "schedule"])
async def test_a_pause_holds_a_send_up_once_no_transfer_is_left(
    own: AsyncNamespace, emulator: RunningEmulator, decision: Send, session_id: str | None
) -> None:
    await own.create_queue("orders")
    queue, pause, reports = own.entity("orders"), Pause(), list[Report]()
    emulator.faults.accept_delay_ms = 50
    done = 0

    def progress(count: int) -> None:
        nonlocal done
        if not done:
            pause.begin()
        done += count

    def messages() -> list[Message]:
        return [Message(message_id=str(n), session_id=session_id) for n in range(COUNT)]

    plan = queue.plan_send(messages, decision, batch_size=10)
    apply = partial(plan.apply, Limits(max_in_flight=5, pause=pause), progress)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append_to, reports, apply)
            while not pause.holds:
                await queue.peek(1)
            held = done
            assert 0 < held <= 50
            assert len(await queue.peek()) == held == done
            await queue.peek()
            assert (pause.holds, done) == (True, held)
            pause.end()
    assert reports[0].settled == len(await queue.peek()) == COUNT


async def test_what_is_locked_stays_locked_however_long_it_is_held_up(
    namespace_by_hand: AsyncNamespace, clock: HandClock
) -> None:
    queue = await filled_queue(namespace_by_hand, "held-up", 5, lock_duration=timedelta(seconds=10))
    plan, pause = await queue.pick([2, 4], Complete()), Pause()
    pause.begin()
    reports: list[Report] = []

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append_to, reports, partial(plan.apply, Limits(pause=pause)))
        while not pause.holds:
            await queue.peek(1)
        await clock.turn(30)
        pause.end()
    assert reports[0].ok, reports[0]
    assert await delivery_counts(queue) == {1: 0, 3: 0, 5: 0}
