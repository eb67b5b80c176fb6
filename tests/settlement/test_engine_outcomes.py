"""The outcomes that a run keeps: of messages that come twice, that wait, or that are not attempted."""

from __future__ import annotations

from collections.abc import Sequence
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
    ReceivedMessage,
)
from sbnotebook.settlement import Limits
from sbnotebook.settlement.engine import Run
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

    return [outcome.status for outcome in await Run(messages, Complete(), Limits()).carry_out(look)]


async def test_a_message_that_comes_twice_has_one_outcome() -> None:
    first, second, other = *peeked(1, at=NOW), *peeked(1, at=NOW), *peeked(2, at=NOW)
    done, left = OutcomeStatus.SETTLED, OutcomeStatus.SKIPPED
    assert await statuses([first, second, other], [first]) == [done, done, left]
    assert await statuses([first, second, other], [second]) == [done, done, left]
    # By its number alone, none is known to be the same.
    assert await statuses(peeked(1, 1), peeked(1)) == [left, done]
    assert await statuses([locked(1, 7), locked(1, 8)], [locked(1, 8)]) == [left, done]


async def test_an_outcome_is_told_once_and_counted_once() -> None:
    told: list[Outcome] = []
    counted: list[int] = []

    async def look(run: Run) -> None:
        for status in (OutcomeStatus.LOCK_LOST, OutcomeStatus.LOCK_LOST, OutcomeStatus.SETTLED):
            run.note(run.messages[:1], [settled(run.messages[0], status)])

    with Watch(told.extend):
        await Run(peeked(1, 2), Complete(), Limits(), counted.append).carry_out(look)
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

    await Run(peeked(1, 2), Complete(), Limits()).carry_out(look)
    skipped, unknown = OutcomeStatus.SKIPPED, OutcomeStatus.UNCONFIRMED
    assert seen == [[unknown, unknown], [skipped, unknown], [unknown, unknown], [skipped, OutcomeStatus.SETTLED]]


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
        await Run(peeked(*range(count)), Complete(), Limits()).carry_out(look)
    # With one group beside it, all are taken before the interrupt.
    ends = ["settled", "no more taken"] if count > 1 else ["no more taken", "settled"]
    assert steps_of == [*ends, "let go"]
