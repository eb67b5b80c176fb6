"""Resubmits whose first messages are watched, with a real consumer at the other end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from sbnotebook.emulator import QueueOptions, RunningEmulator, running
from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    Decision,
    EntityAddress,
    Fate,
    FateStatus,
    LockedMessage,
    Message,
    OutcomeStatus,
    PeekedMessage,
    Report,
    Resubmit,
    Send,
)
from sbnotebook.settlement import AsyncNamespace, Limits, Watch
from sbnotebook.settlement.actions.ramp import in_words
from sbnotebook.settlement.engine import RunReport
from sbnotebook.settlement.place import Waits
from sbnotebook.settlement.plan import Plan, Ramp, RampStep
from tests.filled_queues import filled_queue, settle_first
from tests.hand_clock import HandClock
from tests.settlement.actions.dead_letters import cut_off, dead_letters
from tests.settlement.clerks import CLERK, clerks_connection
from tests.settlement.namespaces import namespace_of
from tests.settlement.waiting import append_to, until

pytestmark = pytest.mark.anyio

SETTLED, SKIPPED = OutcomeStatus.SETTLED, OutcomeStatus.SKIPPED
CONSUMED, CAME_BACK = FateStatus.CONSUMED, FateStatus.CAME_BACK
FEW = Ramp((3,), timedelta(seconds=30))


def plan_of(namespace: AsyncNamespace, name: str, letters: Sequence[PeekedMessage], to: str = "") -> Plan:
    return namespace.entity(f"{name}/$dlq").plan_resubmit(letters, Resubmit(to=EntityAddress(to or name)))


@asynccontextmanager
async def consuming(
    namespace: AsyncNamespace, address: str, decide: Callable[[LockedMessage], Decision]
) -> AsyncGenerator[None]:
    """Consume in the background while the block runs."""

    async def consume() -> None:
        async with namespace.entity(address).batch() as batch:
            while True:
                for message in await batch.receive(1, max_wait=0.5):
                    await batch.settle(decide(message), [message])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consume)
        yield
        tasks.cancel_scope.cancel()


async def until_left(namespace: AsyncNamespace, address: str, count: int) -> None:
    while len(await namespace.entity(address).peek()) > count:  # noqa: ASYNC110 (the emulator has no event for it)
        await anyio.sleep(0.02)


async def applied(plan: Plan, ramp: Ramp = FEW) -> RunReport:
    report = await plan.apply(Limits(ramp=ramp))
    assert isinstance(report, RunReport)
    return report


@pytest.mark.parametrize("atomic", [False, True], ids=["journal", "transaction"])
async def test_others_follow_when_all_canaries_are_consumed(namespace: AsyncNamespace, atomic: bool) -> None:
    name = f"healthy-{atomic}"
    letters = await dead_letters(namespace, name, 8)
    done: list[int] = []
    seen: list[Sequence[RampStep]] = []
    decision = Resubmit(to=EntityAddress(name), atomic=atomic)
    async with consuming(namespace, name, lambda _: Complete()):
        plan = namespace.entity(f"{name}/$dlq").plan_resubmit(letters, decision)
        report = await plan.apply(Limits(ramp=FEW, seen=seen.append), done.append)
    assert [outcome.status for outcome in report] == [SETTLED] * 8
    assert [outcome.sequence_number for outcome in report] == [letter.sequence_number for letter in letters]
    assert isinstance(report, RunReport)
    assert report.stopped is None
    assert str(report) == "Resubmitted 8 messages; ramp: 3 consumed"
    assert (sum(done), seen[-1]) == (8, (RampStep(3, 3),))


async def test_others_stay_when_a_first_message_comes_back(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "sick", 8)

    def decide(message: LockedMessage) -> Decision:
        is_bad = message.application_properties["OriginalMessageId"] == "m1"
        return DeadLetter("CarrierAway", "no such carrier") if is_bad else Complete()

    async with consuming(namespace, "sick", decide):
        report = await applied(plan_of(namespace, "sick", letters))
    assert [outcome.status for outcome in report] == [SETTLED] * 3 + [SKIPPED] * 5
    why = "Not attempted: 1 of 3 came back ('CarrierAway' 1 times). Resubmit again to continue."
    assert {outcome.description for outcome in report[3:]} == {why}
    (back,) = [fate for fate in report.fates if fate.status is CAME_BACK]
    assert (back.reason, back.description) == ("CarrierAway", "no such carrier")
    assert "1 came back" in str(report)
    left = await namespace.entity("sick/$dlq").peek()
    assert [message.delivery_count for message in left[:5]] == [letter.delivery_count for letter in letters[3:]]
    # It is applied again: the others follow, and the canaries are gone.
    again = await plan_of(namespace, "sick", letters).apply()
    assert [outcome.status for outcome in again] == [OutcomeStatus.NOT_FOUND] * 3 + [SETTLED] * 5


async def test_a_ramp_grows_and_stops_at_the_share_that_came_back(namespace: AsyncNamespace) -> None:
    """The third batch has one bad message of five; the others stay as they were."""
    letters = await dead_letters(namespace, "growing", 12)
    seen: list[Sequence[RampStep]] = []
    plan = plan_of(namespace, "growing", letters)

    def decide(message: LockedMessage) -> Decision:
        return DeadLetter("Bad") if message.application_properties["OriginalMessageId"] == "m4" else Complete()

    async with consuming(namespace, "growing", decide):
        report = await plan.apply(Limits(ramp=Ramp((1, 2, 5, 100), timedelta(seconds=30), 0.2), seen=seen.append))
    assert isinstance(report, RunReport)
    assert [outcome.status for outcome in report] == [SETTLED] * 8 + [SKIPPED] * 4
    assert not report.rest  # those of later batches, which are held on the way, are not others
    assert report.steps[:2] == (RampStep(1, 1), RampStep(2, 2))
    assert (report.steps[2].sent, report.steps[2].back) == (5, 1)
    assert [len(steps) for steps in seen][-1] == 3
    assert report.stopped == "Not attempted: 1 of 5 came back ('Bad' 1 times). Resubmit again to continue."
    assert "; ramp: 1 sent, 1 consumed → 2 sent, 2 consumed → 5 sent, " in str(report)
    left = [letter for letter in await namespace.entity("growing/$dlq").peek() if not letter.resubmit_count]
    assert [letter.message_id for letter in left] == ["m8", "m9", "m10", "m11"]
    # Below the limit, it continues to the end; a ramp longer than the plan ends with it.
    async with consuming(namespace, "growing", decide):
        report = await plan_of(namespace, "growing", left).apply(Limits(ramp=Ramp((1, 50), timedelta(seconds=30))))
    assert report.counts == {SETTLED: 4}
    assert str(report).endswith("; ramp: 1 sent, 1 consumed → 3 sent, 3 consumed")


async def test_others_follow_within_the_allowed_number(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "tolerated", 5)
    bad, seen = iter([True]), list[Sequence[RampStep]]()
    plan = plan_of(namespace, "tolerated", letters)
    async with consuming(namespace, "tolerated", lambda _: DeadLetter("Bad") if next(bad, False) else Complete()):
        report = await plan.apply(Limits(ramp=Ramp((3,), timedelta(seconds=30), 0.5), seen=seen.append))
    assert isinstance(report, RunReport)
    assert report.ok
    assert seen[-1] == report.steps == (RampStep(3, 2, 1),)
    assert sorted(fate.status for fate in report.fates) == [CAME_BACK, CONSUMED, CONSUMED]


async def test_a_clone_that_a_last_peek_misses_is_looked_for_again(
    namespace_by_hand: AsyncNamespace, emulator_by_hand: RunningEmulator, clock: HandClock
) -> None:
    letters = await dead_letters(namespace_by_hand, "missed", 3)
    plan, reports = plan_of(namespace_by_hand, "missed", letters), list[Report]()
    faults = emulator_by_hand.faults.entity("missed")

    def seen(_: object) -> None:
        faults.empty_peeks = 0  # it shows its messages again

    apply = partial(plan.apply, Limits(ramp=Ramp((1,), timedelta(minutes=1)), seen=seen))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append_to, reports, apply)
        await until_left(namespace_by_hand, "missed/$dlq", 2)
        await clock.turn(50)
        faults.empty_peeks = 1_000
        clock.emulators.advance(60)
        while not reports:
            await clock.turn(1)
    (report,) = reports
    assert [outcome.status for outcome in report] == [SETTLED, SKIPPED, SKIPPED]
    assert "1 of 1 still waits after 1m" in (report[2].description or "")


async def test_each_kind_of_fate_is_told_where_they_differ(
    namespace_by_hand: AsyncNamespace, emulator_by_hand: RunningEmulator, clock: HandClock
) -> None:
    emulator_by_hand.create_topic("mixed")
    for name in ("one", "two"):
        emulator_by_hand.create_subscription("mixed", name)
    letters = await dead_letters(namespace_by_hand, "mixer", 4)
    plan, reports = plan_of(namespace_by_hand, "mixer", letters, "mixed"), list[Report]()

    apply = partial(plan.apply, Limits(ramp=Ramp((3,), timedelta(minutes=1), 0.5)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append_to, reports, apply)
        await until_left(namespace_by_hand, "mixer/$dlq", 1)
        for name in ("one", "two"):
            async with namespace_by_hand.entity(f"mixed/subscriptions/{name}").batch() as batch:
                back, waiting, consumed = await batch.receive(3)
                await batch.settle(DeadLetter("Bad"), [back])
                await batch.settle(Complete(), [consumed])
                await batch.settle(Abandon(), [waiting])
        while not reports:
            await clock.turn(5)
    (report,) = reports
    assert isinstance(report, RunReport)
    assert [fate.status for fate in report.fates] == [CAME_BACK, FateStatus.WAITING, FateStatus.UNKNOWN]
    assert report.stopped is not None
    assert report.stopped.startswith("Not attempted: the fate of 1 of 3 is unknown (It is not to be found")
    assert "; 1 of 3 still waits after 1m. Resubmit again" in report.stopped
    assert "came back" not in report.stopped, "one may"


@pytest.mark.parametrize("delay", [None, timedelta(hours=1)])
@pytest.mark.parametrize("atomic", [False, True])
async def test_a_topic_hides_canaries_that_are_scheduled(
    own: AsyncNamespace, emulator: RunningEmulator, atomic: bool, delay: timedelta | None
) -> None:
    emulator.create_topic("news")
    emulator.create_subscription("news", "all")
    await own.entity("news").send([Message(message_id=f"m{n}") for n in range(2)])
    await settle_first(own.entity("news/subscriptions/all"), DeadLetter("Bad"), 2)
    source = own.entity("news/subscriptions/all/$dlq")
    plan = source.plan_resubmit(await source.peek(), Resubmit(delay=delay, atomic=atomic))
    async with consuming(own, "news/subscriptions/all", lambda _: Complete()):
        report = await applied(plan, Ramp((1,), timedelta(seconds=30)))
    if delay is None:
        assert (report.ok, report.stopped) == (True, None)
    else:
        assert "scheduled messages of the topic news cannot be looked at" in (report.stopped or "")


@pytest.mark.parametrize(
    ("atomic", "far", "forwards"),
    [(False, "far", False), ("forward", "forwarded", True), ("forward", "over", True), ("forward", "near-own", False)],
)
async def test_a_first_message_goes_to_another_queue(
    namespace: AsyncNamespace, atomic: Any, far: str, forwards: bool
) -> None:
    near = f"near-{far.removeprefix('near-')}"
    letters = await dead_letters(namespace, near, 5)
    if far != near:
        await namespace.create_queue(far)
    decision = Resubmit(to=EntityAddress(far), atomic=atomic)
    plan = namespace.entity(f"{near}/$dlq").plan_resubmit(letters[::2], decision)
    async with consuming(namespace, far, lambda _: Complete()):
        report = await applied(plan, Ramp((2,), timedelta(seconds=30)))
    if forwards:
        assert f"{near} stores it first, and forwards it later" in (report.stopped or "")
    else:
        assert str(report) == "Resubmitted 3 messages; 2 others released unchanged; ramp: 2 consumed"


async def test_a_destination_that_goes_before_the_others_is_told(
    own: AsyncNamespace, emulator: RunningEmulator
) -> None:
    emulator.create_queue("going")
    own.waits = Waits()  # a sender that was idle for a second is looked at
    letters = await dead_letters(own, "goer", 3)

    def seen(steps: Sequence[RampStep]) -> None:
        if steps[-1].consumed:
            emulator.delete("going")

    report = Report()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(settle_first, own.entity("going"), Complete())
        report = await plan_of(own, "goer", letters, "going").apply(Limits(ramp=Ramp((1,)), seen=seen))
    assert [outcome.status for outcome in report] == [SETTLED, SKIPPED, SKIPPED]
    assert isinstance(report, RunReport)
    assert (report.stopped or "").startswith("Not attempted: There is no queue or topic 'going'")
    assert (report.stopped or "").endswith(" Resubmit again to continue.")
    (first, *others) = [outcome.description for outcome in report]
    assert first is None
    assert {*others} == {report.stopped}


async def test_a_message_that_is_scheduled_is_not_sent_first(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("planned-to")
    queue = await filled_queue(namespace, "planned", 2)
    assert (await queue.send([Message(message_id="later")], Send(delay=timedelta(hours=1)))).ok
    plan = queue.plan_resubmit(await queue.peek(), Resubmit(to=EntityAddress("planned-to")))
    async with consuming(namespace, "planned-to", lambda _: Complete()):
        report = await applied(plan, Ramp((1,), timedelta(seconds=30)))
    assert sorted(outcome.status for outcome in report) == [SETTLED, SETTLED, SKIPPED]
    assert len(report.fates) == 1


def test_a_report_of_a_ramp_names_the_most_frequent_reasons() -> None:
    counts = {"x" * 100: 4, "Second": 3, "Third": 2, "Fourth": 1}
    fates = [Fate(CAME_BACK, f"{reason}{n}", reason=reason) for reason, count in counts.items() for n in range(count)]
    others = [Fate(status, status, reason="Old") for status in FateStatus if status is not CAME_BACK]
    said = in_words([*others, *fates], ())
    assert said.endswith(f"('{'x' * 80}' 4 times, 'Second' 3 times, 'Third' 2 times)")
    assert "10 came back" in said
    assert in_words([], ()) == "ramp: nothing was sent"


async def test_a_first_message_that_cannot_be_watched_is_not_sent(tmp_path: Path) -> None:
    with running(keys=[CLERK], queues=["unwatched"], topics={"told": ["only"]}) as emulator:
        async with namespace_of(clerks_connection(emulator), tmp_path) as namespace:
            await namespace.entity("unwatched").send([Message()] * 3)
            await settle_first(namespace.entity("unwatched"), DeadLetter(), 3)
            letters = await namespace.entity("unwatched/$dlq").peek()
            # Only the right Manage shows a topic's subscriptions.
            with pytest.raises(DecisionError, match="Nothing was sent: the clones could not be watched"):
                await applied(plan_of(namespace, "unwatched", letters, "told"))
            assert len(await namespace.entity("unwatched/$dlq").peek()) == 3


async def test_a_cancelled_ramp_reports_what_was_sent(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "cancelled", 5)
    with Watch() as watch:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(plan_of(namespace, "cancelled", letters).apply, Limits(ramp=Ramp((2,)))))
            await until(lambda: watch.report.settled == 2)
            tasks.cancel_scope.cancel()
    assert [outcome.status for outcome in watch.report] == [SETTLED] * 2 + [SKIPPED] * 3
    assert "interrupted" in (watch.report[4].description or "")
    assert len(await namespace.entity("cancelled/$dlq").peek()) == 3


async def test_canaries_are_messages_that_the_resubmit_sends(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "often", 4)
    limited, unlimited = (Resubmit(to=EntityAddress("often"), max_resubmits=limit) for limit in (1, None))
    for again in ([letters[0], letters[1]], [letters[1]]):
        there = await namespace.entity("often/$dlq").peek()
        chosen = [letter for letter in there if letter.message_id in [each.message_id for each in again]]
        chosen = chosen or [letter for letter in there if letter.resubmit_count][-1:]
        assert (await namespace.entity("often/$dlq").plan_resubmit(chosen, unlimited).apply()).ok
        await settle_first(namespace.entity("often"), DeadLetter("Again"), len(chosen))
    peeked = await namespace.entity("often/$dlq").peek()
    there = sorted(peeked, key=lambda letter: -letter.resubmit_count)
    assert [letter.resubmit_count for letter in there] == [2, 1, 0, 0]
    async with consuming(namespace, "often", lambda _: Complete()):
        report = await applied(namespace.entity("often/$dlq").plan_resubmit(there, limited), Ramp((2,)))
    assert [outcome.status for outcome in report] == [SKIPPED, SKIPPED, SETTLED, SETTLED]
    assert len(report.fates) == 2


async def test_a_first_one_that_is_gone_or_refused_holds_the_others_back(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    letters = await dead_letters(namespace, "absent", 3)
    await settle_first(namespace.entity("absent/$dlq"), Complete())
    report = await applied(plan_of(namespace, "absent", letters), Ramp((1,)))
    assert [outcome.status for outcome in report] == [OutcomeStatus.NOT_FOUND, SKIPPED, SKIPPED]
    assert "no message of the batch was there" in (report.stopped or "")

    shared_emulator.create_queue("in-sessions", QueueOptions(requires_session=True))
    report = await applied(plan_of(namespace, "absent", letters[1:], "in-sessions"), Ramp((1,)))
    assert [outcome.status for outcome in report] == [OutcomeStatus.FAILED, SKIPPED]
    assert "1 of 1 was not resubmitted" in (report.stopped or "")
    assert report.fates == ()
    report = await applied(plan_of(namespace, "absent", letters[1:], "in-sessions"), Ramp((2,)))
    assert "2 of 2 were not resubmitted" in (report.stopped or "")
    assert report.fates == ()


async def test_an_unconfirmed_message_holds_the_others_back(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "unsure", 2)
    await cut_off(namespace, letters[0], "unsure", sent=False)
    report = await applied(plan_of(namespace, "unsure", letters), Ramp((1,), timedelta(seconds=1)))
    assert [outcome.status for outcome in report] == [OutcomeStatus.UNCONFIRMED, SKIPPED]
    assert report.stopped == "Not attempted: Service Bus did not confirm 1 of 1. Resubmit again to continue."
    assert report.fates == ()


async def test_ramp_refuses_other_plans_and_numbers(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "refusing", 1)
    plan = await namespace.entity("refusing/$dlq").pick(letters, Complete())
    with pytest.raises(DecisionError, match="goes with a resubmit"):
        await plan.apply(Limits(ramp=Ramp((1,))))
    assert len(await plan_of(namespace, "refusing", []).apply(Limits(rate=1, ramp=Ramp((1,))))) == 0
