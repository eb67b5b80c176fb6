"""The outcomes that a run keeps: of messages that come twice, that wait, or that are not attempted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import anyio
import pytest

from sbnotebook.model import (
    Complete,
    EntityAddress,
    LockedMessage,
    Outcome,
    OutcomeStatus,
    PeekedMessage,
    Purge,
    ReceivedMessage,
    Report,
)
from sbnotebook.settlement import Limits
from sbnotebook.settlement.engine import GROUP, PickReport, Run, carry_out
from sbnotebook.settlement.terms import outcome_for
from sbnotebook.settlement.watch import Watch

pytestmark = pytest.mark.anyio

QUEUE = EntityAddress("orders")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def peeked(*numbers: int, at: datetime | None = None) -> list[PeekedMessage]:
    return [PeekedMessage(entity=QUEUE, sequence_number=number, enqueued_time=at) for number in numbers]


def locked(number: int, token: int) -> LockedMessage:
    return LockedMessage(entity=QUEUE, sequence_number=number, enqueued_time=NOW, lock_token=UUID(int=token))


def settled(message: ReceivedMessage, status: OutcomeStatus = OutcomeStatus.SETTLED) -> Outcome:
    return outcome_for(message, Complete(), status)


async def settle(messages: Sequence[ReceivedMessage]) -> list[Outcome]:
    return [settled(message) for message in messages]


async def statuses(messages: Sequence[ReceivedMessage], taken: Sequence[ReceivedMessage]) -> list[OutcomeStatus]:
    """Return the outcomes of a plan of some messages whose steps settle others."""

    async def look(run: Run) -> None:
        await run.take(taken, settle)

    return [outcome.status for outcome in await carry_out(messages, Complete(), look, Limits())]


async def test_a_group_has_its_outcomes_before_the_next_is_looked_for() -> None:
    async def steps(messages: Sequence[ReceivedMessage]) -> list[Outcome]:
        await anyio.sleep(0.01)
        return await settle(messages)

    async def look(run: Run) -> None:
        for message in run.messages:
            await run.take([message], steps)
            assert run.outcome_of(message) is not None

    assert (await carry_out(peeked(1, 2), Complete(), look, Limits())).settled == 2


@pytest.mark.parametrize(("limits", "size"), [(Limits(), GROUP), (Limits(rate=3), 3), (Limits(rate=1_000), GROUP)])
async def test_a_group_is_no_larger_than_its_second(limits: Limits, size: int) -> None:
    run = Run(peeked(1), Complete(), limits)
    assert (run.group_size(), run.group_size(2)) == (size, 2)


async def test_a_message_that_comes_twice_has_one_outcome() -> None:
    first, second, other = *peeked(1, at=NOW), *peeked(1, at=NOW), *peeked(2, at=NOW)
    done, left = OutcomeStatus.SETTLED, OutcomeStatus.SKIPPED
    assert await statuses([first, second, other], [first]) == [done, done, left]
    assert await statuses([first, second, other], [second]) == [done, done, left]
    # By its number alone, none is known to be the same.
    assert await statuses(peeked(1, 1), peeked(1)) == [left, done]
    assert await statuses([locked(1, 7), locked(1, 8)], [locked(1, 8)]) == [left, done]


@pytest.mark.parametrize("at", [0, 1])
async def test_a_number_means_the_message_whose_time_is_known(at: int) -> None:
    messages = [*peeked(1), *peeked(1)]
    messages[at : at + 1] = peeked(1, at=NOW)
    found = await statuses(messages, peeked(1))
    assert (found[at], found[1 - at]) == (OutcomeStatus.SETTLED, OutcomeStatus.SKIPPED)


async def test_an_outcome_is_told_once_and_counted_once() -> None:
    told: list[Outcome] = []
    counted: list[int] = []

    async def look(run: Run) -> None:
        for status in (OutcomeStatus.LOCK_LOST, OutcomeStatus.LOCK_LOST, OutcomeStatus.SETTLED):
            run.note(run.messages[:1], [settled(run.messages[0], status)])

    with Watch(told.extend):
        await carry_out(peeked(1, 2), Complete(), look, Limits(), counted.append)
    assert [outcome.status for outcome in told] == [OutcomeStatus.LOCK_LOST, OutcomeStatus.SETTLED]
    assert counted == [1]


async def test_what_waits_or_is_left_out_is_not_in_progress() -> None:
    seen: list[list[OutcomeStatus]] = []

    async def look(run: Run) -> None:
        def see() -> None:
            seen.append([outcome.status for outcome in run.report()])

        async def steps(messages: Sequence[ReceivedMessage]) -> list[Outcome | None]:
            see()
            with run.waiting(messages[:1]):
                see()
            see()
            return [None, settled(messages[1])]

        await run.take(run.messages, steps)
        see()

    await carry_out(peeked(1, 2), Complete(), look, Limits())
    skipped, unknown = OutcomeStatus.SKIPPED, OutcomeStatus.UNCONFIRMED
    assert seen == [[unknown, unknown], [skipped, unknown], [unknown, unknown], [skipped, OutcomeStatus.SETTLED]]


async def test_what_is_tried_once_more_has_no_outcome_until_then() -> None:
    async def look(run: Run) -> None:
        run.expect(run.messages, await settle(run.messages))
        run.forget(run.messages[1:])
        assert [run.outcome_of(message) is None for message in run.messages] == [False, True]
        assert run.without_outcome() == [run.messages[1]]

    report = await carry_out(peeked(1, 2), Complete(), look, Limits())
    assert [outcome.status for outcome in report] == [OutcomeStatus.SETTLED, OutcomeStatus.SKIPPED]


async def test_an_outcome_tells_of_the_action_on_the_message_of_the_plan() -> None:
    known, by_number, letter = (replace(each, message_id=None) for each in peeked(1, 2, 3, at=NOW))
    by_number = replace(by_number, enqueued_time=None)

    async def steps(messages: Sequence[ReceivedMessage]) -> list[Outcome]:
        ends = [replace(settled(each), message_id="found") for each in messages]
        return [*ends[:2], replace(ends[2], verb="dead-letter")]

    async def look(run: Run) -> None:
        await run.take(run.messages, steps)

    report = await carry_out([known, by_number, letter], Purge(), look, Limits())
    assert [(each.verb, each.message_id) for each in report] == [
        ("purge", None), ("purge", "found"), ("dead-letter", None)
    ]  # fmt: skip
    assert type(report) is Report
    assert type(await carry_out([known], Purge(), look_for_nothing, Limits(), rest=Report())) is PickReport


async def look_for_nothing(_: Run) -> None:
    """Find no message."""


async def test_the_first_reason_to_stop_is_the_one_told() -> None:
    async def look(run: Run) -> None:
        run.stop("Not attempted: the connection was lost.")
        run.stop("Not attempted: the queue is gone.")

    (left,) = await carry_out(peeked(1), Complete(), look, Limits())
    assert left.description == "Not attempted: the connection was lost. Complete again to continue."


@pytest.mark.parametrize(("beside", "count"), [(0, 2), (1, 2), (1, 1)])
async def test_messages_are_held_until_an_interrupted_group_ends(beside: int, count: int) -> None:
    scope, steps_of = anyio.CancelScope(), list[str]()

    async def steps(messages: Sequence[ReceivedMessage]) -> list[Outcome]:
        scope.cancel()
        await anyio.sleep(0.01)
        steps_of.append("settled")
        return await settle(messages)

    async def look(run: Run) -> None:
        try:
            async with run.ending_groups():
                try:
                    await run.take(run.messages, steps, size=1, beside=beside)
                finally:
                    steps_of.append("no more taken")
        finally:
            steps_of.append("let go")

    with scope:
        await carry_out(peeked(*range(count)), Complete(), look, Limits())
    # With one group beside it, all are taken before the interrupt.
    ends = ["settled", "no more taken"] if count > 1 else ["no more taken", "settled"]
    assert steps_of == [*ends, "let go"]


async def test_a_report_tells_the_seconds_of_its_run() -> None:
    async def look(run: Run) -> None:
        await run.take(run.messages, settle)

    start = anyio.current_time()
    report = await carry_out(peeked(*range(1, 201)), Complete(), look, Limits())
    assert report.speed is not None
    assert 0 < report.speed.seconds <= anyio.current_time() - start
