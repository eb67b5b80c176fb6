"""The one loop of every action, alone and under each action."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

import anyio
import anyio.lowlevel
import pytest

from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    Complete,
    EntityAddress,
    LockedMessage,
    OutcomeStatus,
    PeekedMessage,
    ReceivedMessage,
    Report,
    Resubmit,
)
from sbnotebook.settlement import AsyncNamespace, Limits
from sbnotebook.settlement.engine import BESIDE, Run, RunReport
from sbnotebook.settlement.interrupts import Watch
from sbnotebook.settlement.pace import Pause
from tests.filled_queues import filled_queue

pytestmark = pytest.mark.anyio

QUEUE = EntityAddress("orders")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def peeked(*numbers: int, at: datetime | None = None) -> list[PeekedMessage]:
    return [PeekedMessage(entity=QUEUE, sequence_number=number, enqueued_time=at) for number in numbers]


def locked(number: int, token: int) -> LockedMessage:
    return LockedMessage(entity=QUEUE, sequence_number=number, enqueued_time=NOW, lock_token=UUID(int=token))


async def settle(run: Run, messages: Sequence[ReceivedMessage]) -> None:
    run.expect_end(messages, OutcomeStatus.SETTLED)


async def statuses(messages: Sequence[ReceivedMessage], taken: Sequence[ReceivedMessage]) -> list[OutcomeStatus]:
    """Return the outcomes of a plan of some messages whose steps settle others."""

    async def look(run: Run) -> None:
        await run.take(taken, partial(settle, run))

    return [outcome.status for outcome in await Run(messages, Complete(), Limits()).carry_out(look)]


async def test_a_message_that_comes_again_has_its_later_outcome() -> None:
    first_lock, second_lock = peeked(1, 2), peeked(1)
    came_again = anyio.Event()

    async def steps(run: Run, group: Sequence[ReceivedMessage]) -> None:
        if group[0] is not first_lock[0]:
            came_again.set()
            run.expect_end(group, OutcomeStatus.SETTLED)
            return
        with anyio.move_on_after(0.05):  # as for the answer to its other message
            await came_again.wait()
        run.expect_end(group, OutcomeStatus.LOCK_LOST)

    async def look(run: Run) -> None:
        await run.take(first_lock, partial(steps, run), beside=BESIDE)
        await run.take(second_lock, partial(steps, run), beside=BESIDE)

    report = await Run(peeked(1, 2), Complete(), Limits()).carry_out(look)
    assert [outcome.status for outcome in report] == [OutcomeStatus.SETTLED, OutcomeStatus.LOCK_LOST]


async def test_messages_with_one_number_have_their_own_outcomes() -> None:
    first, second = locked(1, 7), locked(1, 8)
    done, left = OutcomeStatus.SETTLED, OutcomeStatus.SKIPPED
    assert await statuses([first, second], [first]) == [done, left]
    assert await statuses([first, second], [second]) == [left, done]


async def test_an_error_that_is_no_failure_of_a_run_is_raised() -> None:
    async def look(run: Run) -> None:
        await run.take(run.messages, partial(settle, run))
        raise RuntimeError("A defect.")

    with Watch() as watch, pytest.raises(RuntimeError, match="A defect"):
        await Run(peeked(1, 2), Complete(), Limits()).carry_out(look)
    assert watch.report.settled == 2


@pytest.mark.parametrize("end", ["stop", "interrupt", "error"])
async def test_a_group_that_waits_for_its_pace_may_not_begin(end: str) -> None:
    scope, pause = anyio.CancelScope(), Pause()

    async def steps(run: Run, group: Sequence[ReceivedMessage]) -> None:
        if group[0].sequence_number == 2:
            while not pause.holds:  # until the third waits
                await anyio.lowlevel.checkpoint()
            pause.end()
            match end:
                case "stop":
                    run.stop("Not attempted: the connection was lost before.")
                case "interrupt":
                    scope.cancel()
                case _:
                    raise DecisionError("The disk is full.")
        await settle(run, group)

    async def look(run: Run) -> None:
        await run.take(run.messages[:1], partial(steps, run))
        await run.take(run.messages[1:2], partial(steps, run), beside=BESIDE)
        pause.begin()
        await run.take(run.messages[2:], partial(steps, run), beside=BESIDE)

    with Watch() as watch, scope, anyio.fail_after(10):
        await Run(peeked(1, 2, 3), Complete(), Limits(pause=pause)).carry_out(look)
    assert [outcome.ok for outcome in watch.report] == [True, end != "error", False]
    assert watch.report[2].status is OutcomeStatus.SKIPPED


async def test_an_empty_plan_has_a_report_like_any_other(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "nothing-there", 0)
    for plan in (
        await queue.pick([], Complete()),
        await queue.purge(),
        await queue.defer_all(),
        queue.plan_deferred([], Complete()),
        queue.plan_resubmit([], Resubmit(to=EntityAddress("never-made"))),
    ):
        report = await plan.apply()
        assert isinstance(report, RunReport)
        assert (len(report), report.rest) == (0, Report())
