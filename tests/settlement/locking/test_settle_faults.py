"""Settling while the service loses locks, detaches links, drops connections and falls silent: nothing is lost."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    Decision,
    Defer,
    LockedMessage,
    Message,
    OutcomeStatus,
    Release,
    Report,
)
from sbnotebook.settlement import AsyncEntity, AsyncNamespace, Limits
from sbnotebook.settlement.engine import Run
from sbnotebook.settlement.locking import settle
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.locking.settle import Settling
from sbnotebook.settlement.pace import InFlight
from sbnotebook.settlement.sdk import connections, settling
from tests.filled_queues import delivery_counts, filled_queue
from tests.settlement.namespaces import namespace_of

pytestmark = pytest.mark.anyio

SETTLED, LOCK_LOST, UNCONFIRMED = OutcomeStatus.SETTLED, OutcomeStatus.LOCK_LOST, OutcomeStatus.UNCONFIRMED
SKIPPED, ALREADY_SETTLED = OutcomeStatus.SKIPPED, OutcomeStatus.ALREADY_SETTLED
COUNT = 100


@pytest.fixture
async def own(emulator: RunningEmulator, tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    async with namespace_of(emulator, tmp_path, archive=False) as namespace:
        yield namespace


@pytest.fixture
async def queue(own: AsyncNamespace) -> AsyncEntity:
    return await filled_queue(own, "orders", COUNT)


async def standing(queue: AsyncEntity) -> dict[int, int]:
    """Return the delivery counts of the messages, by number, over a separate connection."""
    await queue.namespace.peeker(queue.address).close()
    return await delivery_counts(queue)


async def until_gone(batch: LockedBatch) -> None:
    """Wait until what the service did to the link has arrived here."""
    receiver = batch._receivers[-1]  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    assert receiver is not None
    with anyio.fail_after(30):
        while connections.is_open(receiver):
            await connections.catch_up(receiver)


def of(report: Report, *statuses: OutcomeStatus) -> set[int]:
    return {outcome.sequence_number or 0 for outcome in report if outcome.status in statuses}


def numbers(messages: tuple[LockedMessage, ...]) -> set[int]:
    return {message.sequence_number for message in messages}


async def test_locks_that_are_lost_on_the_way(queue: AsyncEntity, emulator: RunningEmulator) -> None:
    async with queue.batch() as batch:
        held = await batch.receive(COUNT)
        assert (await batch.settle(Complete(), held[:30])).ok
        emulator.lose_locks("orders")
        report = await batch.settle(Complete(), held)
        assert report.counts == {LOCK_LOST: COUNT - 30, ALREADY_SETTLED: 30}
        assert batch.messages == ()
        assert set(batch.table.lost) == numbers(held[30:])
        again = await batch.settle(Complete(), held)
        assert again.counts == report.counts
    assert set(await standing(queue)) == numbers(held[30:])


@pytest.mark.parametrize("max_in_flight", ["auto", 80])  # with a number, a frame completes several
async def test_messages_that_others_settled_meanwhile(queue: AsyncEntity, max_in_flight: InFlight) -> None:
    async with queue.batch() as batch:
        held = await batch.receive(COUNT)
        assert (await queue.plan_by_token(Complete(), held[:10]).apply()).ok
        assert (await queue.plan_by_token(Abandon(), held[10:20]).apply()).ok
        report = await batch.settle(Complete(), held, max_in_flight=max_in_flight)
        assert report.counts == {SETTLED: COUNT - 20, LOCK_LOST: 20}
        assert of(report, LOCK_LOST) == numbers(held[:20])
    assert await standing(queue) == dict.fromkeys(numbers(held[10:20]), 1)


@pytest.mark.parametrize("decision", [Complete(), Abandon(), DeadLetter("Bad")], ids=lambda decision: decision.verb)
async def test_an_entity_that_was_changed(
    queue: AsyncEntity, emulator: RunningEmulator, decision: Complete | Abandon | DeadLetter
) -> None:
    async with queue.batch() as batch:
        held = await batch.receive(COUNT)
        emulator.close_links("orders")
        await until_gone(batch)
        # The link that they came on is gone: they are settled by their lock tokens.
        report = await batch.settle(decision, held)
        assert report.counts == {SETTLED: COUNT}
    left = await standing(queue)
    expected: dict[int, int] = dict.fromkeys(numbers(held), 1) if isinstance(decision, Abandon) else {}
    assert left == expected
    dead = await AsyncEntity(queue.namespace, queue.address.dead_letter).peek()
    assert len(dead) == (COUNT if isinstance(decision, DeadLetter) else 0)


async def test_requests_stay_within_what_a_namespace_allows(queue: AsyncEntity, emulator: RunningEmulator) -> None:
    await queue.send(Message(body=b"%d" % n) for n in range(19 * COUNT))
    async with queue.batch() as batch, queue.batch() as another:
        locked: list[LockedMessage] = []
        while len(locked) < 20 * COUNT:
            locked += await batch.receive(20 * COUNT - len(locked))
        held = await another.adopt(locked)
        emulator.faults.operations_per_second = 5 * COUNT
        assert (await another.settle(DeadLetter("Bad"), held)).counts == {SETTLED: 20 * COUNT}
        emulator.faults.operations_per_second = 0
    assert await standing(queue) == {}


async def test_a_link_for_requests_that_is_gone_is_replaced(queue: AsyncEntity, emulator: RunningEmulator) -> None:
    async with queue.batch() as batch, queue.batch() as another:
        held = await another.adopt(await batch.receive(COUNT))
        assert (await another.settle(Complete(), held[:10])).ok
        emulator.close_links("orders/$management")  # Service Bus does it after ten minutes without a request
        receiver = another._receivers[-1]  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        assert receiver is not None
        for _ in range(20):
            await connections.catch_up(receiver)
        assert (await another.settle(Complete(), held[10:])).counts == {SETTLED: COUNT - 10}
    assert await standing(queue) == {}


async def test_a_release_when_the_entity_was_changed_is_told(queue: AsyncEntity, emulator: RunningEmulator) -> None:
    async with queue.batch() as batch:
        held = await batch.receive(COUNT)
        emulator.close_links("orders")
        report = await batch.settle(Release(), held)
        assert of(report, UNCONFIRMED, SKIPPED) == numbers(held)
        later = await batch.settle(Release(), held)
        assert of(later, UNCONFIRMED, SKIPPED) == numbers(held)
        assert any("the link that it came on is gone" in (outcome.description or "") for outcome in later)
    assert set(await standing(queue)) == numbers(held)


async def test_a_release_that_is_not_confirmed_keeps_no_others_from_it(
    queue: AsyncEntity, emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Settling, "released_within", 0.1)
    monkeypatch.setattr(settling, "_RANGE", 20)
    async with queue.batch() as batch:
        held = await batch.receive(COUNT)
        emulator.faults.entity("orders").settle_delay_ms = 3_000
        report = await batch.settle(Release(), held, max_in_flight=1)
        assert of(report, UNCONFIRMED) == numbers(held)
        # All of them are there again for others, and none counts it.
        async with queue.batch() as other:
            again: set[int] = set()
            with anyio.fail_after(60):
                while len(again) < COUNT:
                    again |= numbers(await other.receive(COUNT))
        assert {message.delivery_count for message in await queue.peek()} == {0}


@pytest.mark.parametrize("carried_out", [False, True])
async def test_a_connection_that_drops_in_the_middle(
    queue: AsyncEntity, emulator: RunningEmulator, *, carried_out: bool
) -> None:
    faults = emulator.faults.entity("orders")
    async with queue.batch() as batch:
        held = await batch.receive(COUNT)
        faults.drop_after_nth, faults.drop_before_nth = (50, 0) if carried_out else (0, 50)
        first = await batch.settle(Complete(), held, max_in_flight=10)
        assert set(first.counts) == {SETTLED, UNCONFIRMED, SKIPPED}
        assert 1 <= len(of(first, UNCONFIRMED)) <= 10, "no more than were in flight"
        gone = numbers(held) - set(await standing(queue))
        assert of(first, SETTLED) <= gone <= of(first, SETTLED, UNCONFIRMED)
        assert numbers(batch.messages) == of(first, UNCONFIRMED, SKIPPED)
        second = await batch.settle(Complete(), held)
        assert of(second, ALREADY_SETTLED) == of(first, SETTLED)
        assert of(second, SETTLED) >= of(first, SKIPPED)
        # Settlements without an answer can be neither confirmed nor denied.
        assert of(second, UNCONFIRMED) == gone - of(first, SETTLED)
    assert await standing(queue) == {}


async def test_a_service_that_falls_silent(
    queue: AsyncEntity, emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queue.batch() as batch:
        held = await batch.receive(COUNT)
        emulator.freeze("orders")
        with monkeypatch.context() as soon:
            soon.setattr(Settling, "answer_within", 1.5)
            report = await batch.settle(Complete(), held, max_in_flight=7)
        assert report.counts == {UNCONFIRMED: 7, SKIPPED: COUNT - 7}
        assert not report.ok
        assert numbers(batch.messages) == numbers(held), "it is held until it is known to be gone"
        emulator.thaw()
        then = await batch.settle(Complete(), held)
        assert of(then, SETTLED, UNCONFIRMED) == numbers(held)
        assert of(then, UNCONFIRMED) <= of(report, UNCONFIRMED)
    assert await standing(queue) == {}


async def test_batch_close_reports_what_it_could_not_release(queue: AsyncEntity, emulator: RunningEmulator) -> None:
    batch: LockedBatch = queue.batch()
    held: tuple[LockedMessage, ...] = ()
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 (the raise is the body's)
        async with batch:
            held = await batch.receive(COUNT)
            emulator.drop_connections("orders")
            raise ZeroDivisionError
    report = batch.release_report
    assert report is not None
    assert of(report, UNCONFIRMED, SKIPPED) == numbers(held)
    assert set(await standing(queue)) == numbers(held)


async def test_a_batch_that_is_cancelled_releases_everything(queue: AsyncEntity) -> None:
    batch = queue.batch()
    with anyio.CancelScope() as scope:
        async with batch:
            await batch.receive(COUNT)
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert batch.release_report is not None
    assert batch.release_report.counts == {SETTLED: COUNT}
    assert set((await standing(queue)).values()) == {0}
    async with queue.batch() as second:
        assert len(await second.receive(COUNT)) == COUNT, "they can be locked at once"


async def test_releases_without_a_confirmation_are_awaited_once(
    queue: AsyncEntity, emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Settling, "released_within", 1.0)
    monkeypatch.setattr(Settling, "unanswered_within", 0.1)
    monkeypatch.setattr(settling, "_RANGE", 1)  # so that they are released in a hundred frames, ten at a time
    emulator.faults.entity("orders").unconfirmed = "released"
    async with queue.batch() as batch:
        assert len(await batch.receive(COUNT)) == COUNT
        began = anyio.current_time()
    assert batch.release_report is not None
    assert batch.release_report.counts == {UNCONFIRMED: COUNT}
    assert anyio.current_time() - began < 5.5, "each ten frames were awaited for as long"
    assert set((await standing(queue)).values()) == {0}
    async with queue.batch() as batch:
        assert len(await batch.receive(COUNT)) == COUNT


@pytest.mark.parametrize(("refused", "most"), [("kept", 20), ("settled", 20), ("kept", 8)])
async def test_unconfirmed_ranges_of_completions_hide_no_outcome(
    queue: AsyncEntity, emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch, refused: str, most: int
) -> None:
    monkeypatch.setattr(Settling, "answer_within", 1.5)
    faults = emulator.faults.entity("orders")
    faults.unconfirmed, faults.refused_tokens = "ranges", refused
    async with queue.batch() as batch:
        held = await batch.receive(COUNT)
        report = await batch.settle(Complete(), held[:60], max_in_flight=most)
        assert of(report, UNCONFIRMED) == numbers(held[:most]), "no more than were in flight"
        assert of(report, SETTLED) == numbers(held[most:60])
        assert (await batch.settle(Complete(), held[60:], max_in_flight=most)).settled == 40, "now each by a frame"
    assert await standing(queue) == {}


async def test_first_range_of_completions_risks_two_outcomes(
    queue: AsyncEntity, emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Settling, "answer_within", 1.5)
    emulator.faults.entity("orders").unconfirmed = "ranges"
    async with queue.batch() as batch:
        held = await batch.receive(COUNT)
        reports = [await batch.settle(Complete(), held[:5])]  # each by a frame, which says nothing about ranges
        monkeypatch.setattr(settle, "_BEFORE_RANGES", 0)  # as if single messages were answered already
        reports += [await batch.settle(Complete(), held[start : start + 50]) for start in range(5, COUNT, 50)]
    assert sum(report.counts.get(UNCONFIRMED, 0) for report in reports) == 2
    assert sum(report.settled for report in reports) == COUNT - 2
    assert await standing(queue) == {}


@pytest.mark.parametrize("refused", ["kept", "settled"])
async def test_lost_locks_among_deferred_messages_hide_no_outcome(
    queue: AsyncEntity, emulator: RunningEmulator, refused: str
) -> None:
    async with queue.batch() as batch, queue.batch() as rival:
        (await batch.settle(Defer(), await batch.receive(20))).raise_for_failures()
        deferred = await batch.receive_deferred(range(1, 21))
        gone, there = await rival.adopt(deferred[3:5])
        assert (await rival.settle(Complete(), [gone])).ok
        assert (await rival.settle(Abandon(), [there])).ok
        emulator.faults.entity("orders").refused_tokens = refused
        report = await batch.settle(Complete(), deferred)
    assert of(report, LOCK_LOST) == {there.sequence_number}
    unknown = {gone.sequence_number} if refused == "kept" else numbers(deferred) - {there.sequence_number}
    assert of(report, UNCONFIRMED) == unknown, "the first request may have settled them"
    assert of(report, SETTLED) == numbers(deferred) - unknown - {there.sequence_number}
    assert set(await standing(queue)) & numbers(deferred) == {there.sequence_number}


@pytest.mark.parametrize("effect", ["kept", "busy"])
@pytest.mark.parametrize("decision", [Complete(), DeadLetter("Bad"), Abandon(), Defer()], ids=lambda each: each.verb)
async def test_a_settlement_that_is_broken_off_is_tried_again(
    queue: AsyncEntity, emulator: RunningEmulator, decision: Decision, effect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "_PAUSES", (0.1, 0.1))
    async with queue.batch() as batch:
        held = await batch.receive(10)
        # Three over the link, and one request for those three.
        emulator.faults.entity("orders").broken_off = 4 if not isinstance(decision, Defer) else 1
        emulator.faults.entity("orders").broken_off_is = effect
        report = await batch.settle(decision, held)
        assert report.counts == {SETTLED: 10}, report.failures
    assert emulator.faults.entity("orders").broken_off == 0


@pytest.mark.parametrize("over_link", [True, False])
async def test_a_description_that_is_not_utf8_is_no_obstacle(
    own: AsyncNamespace, queue: AsyncEntity, over_link: bool
) -> None:
    file_name = os.fsdecode(b"caf\xe9")
    async with queue.batch() as batch:
        held = await batch.receive(6)
        if not over_link:
            (await batch.settle(Defer(), held)).raise_for_failures()
            held = await batch.receive_deferred(numbers(held))
        bad, own_words = DeadLetter("Bad", file_name), DeadLetter("Bad", f"No file {file_name}")
        pairs = [(held[0], own_words), *((message, bad) for message in held[1:])]
        (await batch.settle_group(Run(held, bad, Limits()), pairs)).raise_for_failures()
    dead = await own.entity("orders/$dlq").peek()
    assert sorted(str(message.dead_letter_error_description) for message in dead) == ["No file caf?", *5 * ["caf?"]]


@pytest.mark.parametrize(("effect", "over_link"), [("settled", True), ("settled", False), ("kept", False)])
async def test_broken_off_settlements_hide_no_outcome(
    queue: AsyncEntity, emulator: RunningEmulator, effect: str, over_link: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "_PAUSES", (0.1, 0.1))
    async with queue.batch() as batch:
        held = await batch.receive(10)
        if not over_link:
            (await batch.settle(Defer(), held)).raise_for_failures()
            held = await batch.receive_deferred(numbers(held))
        emulator.faults.entity("orders").broken_off, emulator.faults.entity("orders").broken_off_is = 1, effect
        report = await batch.settle(Complete(), held)
    # One message over its link, or all by their tokens.
    unknown = numbers(held[:1] if over_link else held) if effect == "settled" else set[int]()
    assert of(report, UNCONFIRMED) == unknown
    assert of(report, SETTLED) == numbers(held) - unknown
    assert not set(await standing(queue)) & numbers(held)


async def test_a_service_that_goes_on_breaking_off_is_left_alone(
    queue: AsyncEntity, emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "_PAUSES", (0.1, 0.1))
    async with queue.batch() as batch:
        held = await batch.receive(COUNT)
        emulator.faults.entity("orders").broken_off = 1_000
        report = await batch.settle(Complete(), held)
        assert report.counts == {UNCONFIRMED: COUNT}
        left = emulator.faults.entity("orders").broken_off
        assert 1_000 - left == COUNT + 3, "each once over its link, and all three times by their tokens"
        emulator.faults.entity("orders").broken_off = 0
        assert (await batch.settle(Complete(), held)).settled == COUNT


async def test_deferred_messages_are_settled_in_few_requests(queue: AsyncEntity, emulator: RunningEmulator) -> None:
    async with queue.batch() as batch:
        (await batch.settle(Defer(), await batch.receive(COUNT))).raise_for_failures()
        deferred = await batch.receive_deferred(range(1, COUNT + 1))
        emulator.faults.entity("orders").drop_after_nth = 2  # the second request would lose its answer
        assert (await batch.settle(Complete(), deferred)).settled == COUNT
    assert await standing(queue) == {}


async def test_no_more_deferred_messages_than_asked_for_are_in_flight(
    queue: AsyncEntity, emulator: RunningEmulator
) -> None:
    async with queue.batch() as batch:
        (await batch.settle(Defer(), await batch.receive(COUNT))).raise_for_failures()
        deferred = await batch.receive_deferred(range(1, COUNT + 1))
        emulator.faults.entity("orders").drop_after_nth = 2
        report = await batch.settle(Complete(), deferred, max_in_flight=3)
    assert report.counts == {SETTLED: 3, UNCONFIRMED: 3, SKIPPED: COUNT - 6}
