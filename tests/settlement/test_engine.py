"""The one loop of every action, alone and under each action."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import anyio.lowlevel
import pytest

from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    Complete,
    EntityAddress,
    Outcome,
    OutcomeStatus,
    PeekedMessage,
    ReceivedMessage,
    Report,
    Resubmit,
)
from sbnotebook.settlement import AsyncNamespace, Limits
from sbnotebook.settlement.engine import BESIDE, GROUP, PickReport, Run
from sbnotebook.settlement.pace import Pause
from sbnotebook.settlement.terms import outcome_for
from sbnotebook.settlement.watch import Watch

pytestmark = pytest.mark.anyio

QUEUE = EntityAddress("orders")


def peeked(count: int) -> list[PeekedMessage]:
    return [PeekedMessage(entity=QUEUE, sequence_number=number) for number in range(1, count + 1)]


async def settle(messages: Sequence[ReceivedMessage]) -> list[Outcome]:
    return [outcome_for(message, Complete(), OutcomeStatus.SETTLED) for message in messages]


async def test_groups_are_no_larger_than_allowed() -> None:
    sizes: list[int] = []

    async def steps(messages: Sequence[ReceivedMessage]) -> list[Outcome]:
        sizes.append(len(messages))
        return await settle(messages)

    async def look(run: Run) -> None:
        await run.take(run.messages, steps)

    told: list[int] = []
    report = await Run(peeked(GROUP + 1), Complete(), Limits(), told.append).carry_out(look)
    assert (sizes, told, report.settled) == ([GROUP, 1], [GROUP, 1], GROUP + 1)


@pytest.mark.parametrize("limits", [Limits(), Limits(max_in_flight=7)], ids=["auto", "number"])
async def test_the_next_group_is_received_beside_the_last(limits: Limits) -> None:
    second_came = anyio.Event()

    async def steps(group: Sequence[ReceivedMessage]) -> list[Outcome]:
        await second_came.wait()
        return await settle(group)

    async def look(run: Run) -> None:
        first, second = run.messages
        await run.take([first], steps, beside=1)
        second_came.set()  # the first group waits for this
        await run.take([second], steps, beside=1)

    with anyio.fail_after(10):
        report = await Run(peeked(2), Complete(), limits).carry_out(look)
    assert report.settled == 2


@pytest.mark.parametrize(("limits", "most"), [(Limits(), BESIDE), (Limits(max_in_flight=7), 1)])
async def test_groups_overlap_where_no_number_limits_them(limits: Limits, most: int) -> None:
    under_way: list[int] = [0]

    async def steps(group: Sequence[ReceivedMessage]) -> list[Outcome]:
        under_way.append(under_way[-1] + 1)
        await anyio.sleep(0.01)
        under_way.append(under_way[-1] - 1)
        return await settle(group)

    async def look(run: Run) -> None:
        await run.take(run.messages, steps, size=2, beside=BESIDE)

    report = await Run(peeked(20), Complete(), limits).carry_out(look)
    assert (report.settled, max(under_way)) == (20, most)


async def test_a_message_that_comes_again_has_its_later_outcome() -> None:
    first_lock, second_lock = peeked(2), peeked(1)
    came_again = anyio.Event()

    async def steps(group: Sequence[ReceivedMessage]) -> list[Outcome]:
        if group[0] is not first_lock[0]:
            came_again.set()
            return await settle(group)
        with anyio.move_on_after(0.05):  # as for the answer to its other message
            await came_again.wait()
        return [outcome_for(message, Complete(), OutcomeStatus.LOCK_LOST) for message in group]

    async def look(run: Run) -> None:
        await run.take(first_lock, steps, beside=BESIDE)
        await run.take(second_lock, steps, beside=BESIDE)

    report = await Run(peeked(2), Complete(), Limits()).carry_out(look)
    assert [outcome.status for outcome in report] == [OutcomeStatus.SETTLED, OutcomeStatus.LOCK_LOST]


async def test_an_interrupt_lets_all_groups_end_that_are_under_way() -> None:
    scope = anyio.CancelScope()

    async def steps(messages: Sequence[ReceivedMessage]) -> list[Outcome]:
        if messages[0].sequence_number == 3:
            scope.cancel()
        await anyio.sleep(0.01)
        return await settle(messages)

    async def look(run: Run) -> None:
        await run.take(run.messages, steps, size=1, beside=3)

    with Watch() as watch, scope:
        await Run(peeked(6), Complete(), Limits()).carry_out(look)
    assert [outcome.status for outcome in watch.report] == [OutcomeStatus.SETTLED] * 3 + [OutcomeStatus.SKIPPED] * 3


@pytest.mark.parametrize("beside", [0, 1])
async def test_an_error_after_the_first_group_ends_the_run(beside: int) -> None:
    async def steps(messages: Sequence[ReceivedMessage]) -> list[Outcome]:
        if messages[0].sequence_number > 2:
            raise DecisionError("The disk is full.")
        return await settle(messages)

    async def look(run: Run) -> None:
        await run.take(run.messages, steps, size=2, beside=beside)

    report = await Run(peeked(6), Complete(), Limits()).carry_out(look)
    assert [outcome.status for outcome in report] == [OutcomeStatus.SETTLED] * 2 + [OutcomeStatus.SKIPPED] * 4
    assert {outcome.description for outcome in report[2:]} == {"Not attempted: The disk is full."}


async def test_an_error_before_any_outcome_is_raised() -> None:
    async def look(_: Run) -> None:
        raise DecisionError("There is no such queue.")

    with pytest.raises(DecisionError, match="no such queue"):
        await Run(peeked(2), Complete(), Limits()).carry_out(look)


async def test_an_error_that_is_no_failure_of_a_run_is_raised() -> None:
    async def look(run: Run) -> None:
        await run.take(run.messages, settle)
        raise RuntimeError("A defect.")

    with Watch() as watch, pytest.raises(RuntimeError, match="A defect"):
        await Run(peeked(2), Complete(), Limits()).carry_out(look)
    assert watch.report.settled == 2


async def test_steps_that_raise_leave_what_they_noted() -> None:
    async def steps(messages: Sequence[ReceivedMessage]) -> list[Outcome]:
        run_of[0].expect(messages[:1], [outcome_for(messages[0], Complete(), OutcomeStatus.UNCONFIRMED, "Half done.")])
        raise DecisionError("The disk is full.")

    run_of: list[Run] = []

    async def look(run: Run) -> None:
        run_of.append(run)
        await run.take(run.messages, steps)

    half, rest = await Run(peeked(2), Complete(), Limits()).carry_out(look)
    assert (half.status, half.description) == (OutcomeStatus.UNCONFIRMED, "Half done.")
    assert (rest.status, rest.description) == (OutcomeStatus.SKIPPED, "Not attempted: The disk is full.")


@pytest.mark.parametrize("beside", [0, 1])
async def test_an_interrupt_takes_effect_between_two_groups(beside: int) -> None:
    scope = anyio.CancelScope()

    async def steps(messages: Sequence[ReceivedMessage]) -> list[Outcome]:
        scope.cancel()
        await anyio.sleep(0.01)  # it is not left half done
        return await settle(messages)

    async def look(run: Run) -> None:
        await run.take(run.messages, steps, size=2, beside=beside)

    with Watch() as watch, scope:
        await Run(peeked(4), Complete(), Limits()).carry_out(look)
    assert [outcome.status for outcome in watch.report] == [OutcomeStatus.SETTLED] * 2 + [OutcomeStatus.SKIPPED] * 2


@pytest.mark.parametrize(
    ("settled", "unknown", "failed", "said"),
    [
        (0, 0, 0, ""),
        (2, 0, 0, "; 2 others released unchanged"),
        (0, 1, 0, "; 1 other released without confirmation"),
        (0, 0, 1, "; 1 other not released"),
        (
            3,
            1,
            0,
            "; 3 others released unchanged, 1 other released without confirmation",
        ),
        (5, 0, 1, "; 5 others released unchanged, 1 other not released"),
    ],
)
async def test_a_report_says_how_others_were_given_back(settled: int, unknown: int, failed: int, said: str) -> None:
    counts = {OutcomeStatus.SETTLED: settled, OutcomeStatus.UNCONFIRMED: unknown, OutcomeStatus.FAILED: failed}
    rest = [Outcome(status, "release", QUEUE) for status, count in counts.items() for _ in range(count)]
    report = PickReport([Outcome(OutcomeStatus.SETTLED, "complete", QUEUE)], Report(rest))
    assert (
        str(report).removesuffix(": their delivery counts go up when their locks end") == f"complete: 1 settled{said}"
    )


async def test_a_group_with_a_time_limit_is_cut_off_after_it() -> None:
    scope = anyio.CancelScope()

    async def steps(_: Sequence[ReceivedMessage]) -> list[Outcome]:
        scope.cancel()
        await anyio.sleep_forever()
        return []

    async def look(run: Run) -> None:
        await run.take(run.messages, steps, finish_within=0.01)

    with Watch() as watch, scope:
        await Run(peeked(1), Complete(), Limits()).carry_out(look)
    assert [outcome.status for outcome in watch.report] == [OutcomeStatus.UNCONFIRMED]


async def test_a_stop_says_how_to_go_on() -> None:
    async def steps(messages: Sequence[ReceivedMessage]) -> list[Outcome]:
        run_of[0].stop("Not attempted: the connection was lost before.")
        return await settle(messages)

    run_of: list[Run] = []

    async def look(run: Run) -> None:
        run_of.append(run)
        await run.take(run.messages, steps, size=1)

    done, left = await Run(peeked(2), Complete(), Limits()).carry_out(look)
    assert done.ok
    assert left.description == "Not attempted: the connection was lost before. Complete again to continue."


@pytest.mark.parametrize("end", ["stop", "interrupt", "error"])
async def test_a_group_that_waits_for_its_pace_may_not_begin(end: str) -> None:
    scope, pause = anyio.CancelScope(), Pause()

    async def steps(group: Sequence[ReceivedMessage]) -> list[Outcome]:
        if group[0].sequence_number == 2:
            while not pause.holds:  # until the third waits
                await anyio.lowlevel.checkpoint()
            pause.end()
            match end:
                case "stop":
                    run_of[0].stop("Not attempted: the connection was lost before.")
                case "interrupt":
                    scope.cancel()
                case _:
                    raise DecisionError("The disk is full.")
        return await settle(group)

    run_of: list[Run] = []

    async def look(run: Run) -> None:
        run_of.append(run)
        await run.take(run.messages[:1], steps)
        await run.take(run.messages[1:2], steps, beside=BESIDE)
        pause.begin()
        await run.take(run.messages[2:], steps, beside=BESIDE)

    with Watch() as watch, scope, anyio.fail_after(10):
        await Run(peeked(3), Complete(), Limits(pause=pause)).carry_out(look)
    assert [outcome.ok for outcome in watch.report] == [True, end != "error", False]
    assert watch.report[2].status is OutcomeStatus.SKIPPED


async def test_an_empty_plan_has_a_report_like_any_other(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("nothing-there")
    queue = namespace.entity("nothing-there")
    for plan in (
        await queue.pick([], Complete()),
        await queue.purge(),
        await queue.defer_all(),
        queue.plan_deferred([], Complete()),
        queue.plan_resubmit([], Resubmit(to=EntityAddress("never-made"))),
    ):
        report = await plan.apply()
        assert isinstance(report, PickReport)
        assert (len(report), report.rest) == (0, Report())
