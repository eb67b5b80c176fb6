"""Every action where Service Bus does what no source rules out: silent settlements of ranges, releases, empty peeks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import Complete, EntityAddress, MessageState, OutcomeStatus, Resubmit
from sbnotebook.settlement import AsyncEntity, AsyncNamespace, Plan
from sbnotebook.settlement.engine import RunReport
from sbnotebook.settlement.locking.settle import Settling
from tests.filled_queues import filled_queue

pytestmark = pytest.mark.anyio

COUNT: Final = 60
ELSEWHERE: Final = EntityAddress("elsewhere")
MakePlan = Callable[[AsyncEntity], Awaitable[Plan]]


async def third(queue: AsyncEntity, decision: Complete | Resubmit) -> Plan:
    return await queue.pick((await queue.peek())[::3], decision)


async def pick_completes(queue: AsyncEntity) -> Plan:
    return await third(queue, Complete())


async def pick_resubmits(queue: AsyncEntity) -> Plan:
    return await third(queue, Resubmit(to=ELSEWHERE))


async def purge_some(queue: AsyncEntity) -> Plan:
    return await queue.purge(only=lambda messages: messages[::3])


async def defer_all(queue: AsyncEntity) -> Plan:
    return await queue.defer_all()


ACTIONS: Final = (pick_completes, pick_resubmits, purge_some, defer_all)


@pytest.mark.parametrize("make", ACTIONS)
@pytest.mark.parametrize("fault", ["released", "ranges", "empty peeks"])
async def test_each_action_is_done_without_confirmations(
    own: AsyncNamespace, emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch, make: MakePlan, fault: str
) -> None:
    monkeypatch.setattr(Settling, "answer_within", 3.0)
    monkeypatch.setattr(Settling, "released_within", 0.5)
    await own.create_queue("elsewhere")
    queue = await filled_queue(own, "orders", COUNT)
    plan = await make(queue)
    faults = emulator.faults.entity("orders")
    if fault == "empty peeks":
        faults.empty_peeks = 1
    else:
        faults.unconfirmed = fault
    chosen = {message.sequence_number for message in plan.messages}

    report = await plan.apply()

    faults.unconfirmed, faults.empty_peeks = "", 0
    assert report.counts == {OutcomeStatus.SETTLED: len(chosen)}, report.failures
    peeked = await queue.peek()
    defers = "defer" in make.__name__
    assert {m.sequence_number for m in peeked if m.state is MessageState.DEFERRED} == (chosen if defers else set())
    others = [message for message in peeked if message.state is MessageState.ACTIVE]
    assert len(others) == COUNT - len(chosen)
    # All others were released at once, and none of them counts as delivered, confirmed or not.
    assert {message.delivery_count for message in others} <= {0}
    async with queue.batch() as batch:
        assert len(await batch.receive(len(others))) == len(others)
    assert isinstance(report, RunReport)
    if fault == "empty peeks" or not report.rest:
        assert report.rest.ok
    else:
        assert report.rest.counts == {OutcomeStatus.UNCONFIRMED: len(report.rest)}
        assert f"{len(report.rest)} others released without confirmation" in str(report)
    if make is pick_resubmits:
        assert len(await own.entity("elsewhere").peek()) == len(chosen)
