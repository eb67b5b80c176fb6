"""Locking ahead: over several links, under renewed locks, and without the bodies of other messages."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from datetime import timedelta

import anyio
import pytest
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import Abandon, Complete, Decision, LockedMessage, Message, OutcomeStatus, Report
from sbnotebook.settlement import AsyncEntity, AsyncNamespace, Limits, LockedBatch
from sbnotebook.settlement.engine import Run
from sbnotebook.settlement.locking import ahead as locking_ahead
from sbnotebook.settlement.locking.ahead import LockedAhead, Search
from sbnotebook.testing.clock import HandClock
from tests.filled_queues import filled_queue, sequence_numbers

pytestmark = pytest.mark.anyio


async def counts(queue: AsyncEntity) -> dict[int, int]:
    return {message.sequence_number: message.delivery_count for message in await queue.peek()}


def ahead_in(queue: AsyncEntity, search: Search) -> LockedAhead:
    return LockedAhead(lambda: ahead_batch(queue), search)


def ahead_batch(queue: AsyncEntity) -> LockedBatch:
    return queue.batch_of(Complete.verb, renew_for=timedelta(hours=1))


async def settle(ahead: LockedAhead, decision: Decision, messages: Sequence[LockedMessage]) -> Report:
    return await ahead.settle_group(Run(messages, decision, Limits()), [(each, decision) for each in messages])


async def found_by(ahead: LockedAhead) -> list[LockedMessage]:
    found: list[LockedMessage] = []
    while chosen := await ahead.find():
        found += chosen
    return found


async def test_several_links_hold_what_one_may_not(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "ahead-links", 95)
    numbers = await sequence_numbers(queue)
    chosen = {numbers[0], numbers[45], numbers[94]}
    ahead = ahead_in(queue, Search(frozenset(chosen), expected=95, per_link=20))
    async with ahead:
        found = await found_by(ahead)
        assert {message.sequence_number for message in found} == chosen
        assert len(await settle(ahead, Complete(), [])) == 0
        report = await settle(ahead, Complete(), found)
        assert report.ok
        assert [outcome.sequence_number for outcome in report] == [message.sequence_number for message in found]
    assert (len(ahead.rest), ahead.rest.ok) == (92, True)
    assert await counts(queue) == {number: 0 for number in numbers if number not in chosen}


async def test_the_others_are_reported_where_giving_back_fails(
    namespace: AsyncNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await filled_queue(namespace, "ahead-not-given-back", 5)
    (*others, wanted) = await sequence_numbers(queue)
    ahead = ahead_in(queue, Search(frozenset({wanted}), expected=5))

    async def fail(*_: object, **__: object) -> Report:
        raise ServiceBusError("No answer came.")

    monkeypatch.setattr(locking_ahead, "give_back", fail)
    async with ahead:
        assert [message.sequence_number for message in await found_by(ahead)] == [wanted]
    assert {outcome.sequence_number for outcome in ahead.rest} >= {*others}
    assert await counts(queue) == dict.fromkeys([*others, wanted], 0)


async def test_the_chosen_ones_are_whole_and_the_others_are_locks_alone(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "ahead-whole", [b"x" * 700] * 30)
    numbers = await sequence_numbers(queue)
    peeked = {message.sequence_number: message for message in await queue.peek()}
    async with ahead_batch(queue) as batch:
        locked = await batch.lock_ahead(30, {numbers[7]}, max_wait=5)
        assert [message.sequence_number for message in locked] == numbers
        assert [len(message.body) for message in locked] == [700 if number == numbers[7] else 0 for number in numbers]
        (whole,) = batch.messages
        assert (whole.message_id, whole.body) == ("m7", peeked[numbers[7]].body)
        assert whole.enqueued_time == peeked[numbers[7]].enqueued_time
        assert all(batch.locked_until(number) is not None for number in numbers)
    assert await counts(queue) == dict.fromkeys(numbers, 0)


async def test_a_chosen_message_of_several_frames_is_whole(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "ahead-frames", [b"x" * 200_000] * 5)
    numbers = await sequence_numbers(queue)
    ahead = ahead_in(queue, Search(frozenset(numbers[2:3])))
    async with ahead:
        (message,) = await found_by(ahead)
        assert len(message.body) == 200_000
    assert await counts(queue) == dict.fromkeys(numbers, 0)


async def test_bodies_of_what_is_held_do_not_stay_in_memory(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "ahead-memory", [b"x" * 200_000] * 160)
    numbers = await sequence_numbers(queue)
    ahead = ahead_in(queue, Search(frozenset({numbers[0], numbers[-1]}), expected=160))
    tracemalloc.start()
    try:
        async with ahead:
            await found_by(ahead)
            held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 4_000_000, "of 32 MB of bodies"
    assert most < 16_000_000, "also while they came"


async def test_locks_are_renewed_for_as_long_as_the_search_goes_on(
    namespace_by_hand: AsyncNamespace, clock: HandClock
) -> None:
    queue = await filled_queue(namespace_by_hand, "ahead-renewed", 400)
    numbers = await sequence_numbers(queue)
    ahead = ahead_in(queue, Search(frozenset({numbers[0], numbers[-1]}), expected=400, per_link=150))
    async with ahead:
        await found_by(ahead)
        await clock.turn(200)  # more than three times the minute that a lock lasts
    assert (len(ahead.rest), ahead.rest.ok) == (398, True)
    assert await counts(queue) == dict.fromkeys(numbers, 0)


async def test_one_full_link_that_is_the_only_one_ends_the_search(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "ahead-one", 30)
    numbers = await sequence_numbers(queue)
    search = Search(frozenset({numbers[0], numbers[29]}), max_held=20, per_link=20, limit="the one link of a session")
    batches: list[LockedBatch] = []

    def make_batch() -> LockedBatch:
        batches.append(ahead_batch(queue))
        return batches[-1]

    ahead = LockedAhead(make_batch, search)
    async with ahead:
        assert (await settle(ahead, Complete(), await ahead.find())).ok
        assert await found_by(ahead) == []
        assert ahead.stopped == "20 messages are held, and the one link of a session allows no more."
    assert len(batches) == 1
    assert len(ahead.rest) == 20
    assert await counts(queue) == dict.fromkeys(numbers[1:], 0)


async def test_no_more_are_held_than_allowed(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "ahead-limit", 40)
    numbers = await sequence_numbers(queue)
    ahead = ahead_in(queue, Search(frozenset({numbers[0], numbers[39]}), max_held=30))
    async with ahead:
        assert [message.sequence_number for message in await found_by(ahead)] == [numbers[0]]
        assert ahead.left == {numbers[39]}
        assert ahead.stopped is not None
        assert "max_held allows no more" in ahead.stopped
    assert len(ahead.rest) == 30
    assert await counts(queue) == dict.fromkeys(numbers, 0)


@pytest.mark.parametrize("behind", [99, 100])
async def test_one_is_missing_after_a_hundred_later_ones(namespace: AsyncNamespace, behind: int) -> None:
    queue = await filled_queue(namespace, f"ahead-missing-{behind}", behind + 1)
    async with queue.batch() as batch:
        (gone,) = await batch.receive(1)
        assert (await batch.settle(Complete(), [gone])).ok
    numbers = await sequence_numbers(queue)
    async with ahead_in(queue, Search(frozenset({gone.sequence_number, numbers[-1]}))) as ahead:
        assert [message.sequence_number for message in await ahead.find()] == numbers[-1:]
        is_missing = behind == 100
        assert (ahead.missing, ahead.left) == (
            ({gone.sequence_number}, set()) if is_missing else (set(), {gone.sequence_number})
        )
    assert await counts(queue) == dict.fromkeys(numbers, 0)


@pytest.mark.parametrize("expected", [1, 9, 10])
async def test_more_messages_than_expected_are_searched(namespace: AsyncNamespace, expected: int) -> None:
    queue = await filled_queue(namespace, f"ahead-more-{expected}", 20)
    numbers = await sequence_numbers(queue)
    async with ahead_in(queue, Search(frozenset({numbers[14]}), expected=expected)) as ahead:
        assert [message.sequence_number for message in await found_by(ahead)] == [numbers[14]]
        assert (ahead.missing, ahead.stopped) == (set(), None)
    assert await counts(queue) == dict.fromkeys(numbers, 0)


async def test_a_message_that_could_not_be_settled_is_kept(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    queue = await filled_queue(own, "ahead-lost", 1)
    async with ahead_in(queue, Search(frozenset(await sequence_numbers(queue)))) as ahead:
        found = await ahead.find()
        emulator.lose_locks("ahead-lost")
        for _ in range(2):
            assert [outcome.status for outcome in await settle(ahead, Complete(), found)] == [OutcomeStatus.LOCK_LOST]


@pytest.mark.parametrize("place", [1, 3])
async def test_one_that_is_wanted_once_more_is_given_again(namespace: AsyncNamespace, place: int) -> None:
    queue = await filled_queue(namespace, f"ahead-again-{place}", 4)
    numbers = await sequence_numbers(queue)
    wanted = numbers[place]
    ahead = ahead_in(queue, Search(frozenset({wanted}), max_wait=30.0))
    async with ahead:
        (first,) = await ahead.find()
        await settle(ahead, Abandon(), [first])
        ahead.left.add(wanted)
        (second,) = await ahead.find()
        assert second.sequence_number == wanted
        assert [outcome.status for outcome in await settle(ahead, Complete(), [second])] == [OutcomeStatus.SETTLED]
    assert await counts(queue) == {number: 0 for number in numbers if number != wanted}


async def test_messages_come_in_order_over_several_links(namespace: AsyncNamespace) -> None:
    bodies = [b"x" * 30_000] * 120
    queue = await filled_queue(namespace, "ahead-in-order", bodies)
    numbers = await sequence_numbers(queue)
    found: list[int] = []
    async with ahead_in(queue, Search(frozenset(numbers), per_link=40)) as ahead:
        while chosen := await ahead.find():
            found += [message.sequence_number for message in chosen]
            await settle(ahead, Complete(), chosen[::2])
    assert found == numbers


async def test_ahead_gives_back_arrivals_when_cancelled(
    namespace: AsyncNamespace,
) -> None:
    queue = await filled_queue(namespace, "between", 2)
    numbers = await sequence_numbers(queue)
    async with ahead_batch(queue) as batch:
        locked = await batch.lock_ahead(10, frozenset[int](), max_wait=5)
        assert [message.sequence_number for message in locked] == numbers
        await queue.send([Message(message_id="late"), Message(message_id="later")])
        await batch.settle(Complete(), locked)  # reads from the link, and so receives messages that arrived meanwhile
        with anyio.move_on_after(0.3):
            await batch.lock_ahead(10, frozenset[int](), max_wait=30)
            await batch.lock_ahead(10, frozenset[int](), max_wait=30)
    async with queue.batch() as batch:
        assert [message.message_id for message in await batch.receive(2)] == ["late", "later"]
    assert set((await counts(queue)).values()) == {0}


@pytest.mark.parametrize(("place", "per_link"), [(120, 400), (130, 100)], ids=["one link", "two links"])
async def test_no_more_are_asked_for_than_come_before_the_last(
    namespace: AsyncNamespace, place: int, per_link: int
) -> None:
    queue = await filled_queue(namespace, f"ahead-last-{place}", 300)
    numbers = await sequence_numbers(queue)
    batches: list[LockedBatch] = []

    def make_batch() -> LockedBatch:
        batches.append(ahead_batch(queue))
        return batches[-1]

    async with LockedAhead(make_batch, Search(frozenset({numbers[place]}), per_link=per_link)) as ahead:
        assert [message.sequence_number for message in await found_by(ahead)] == [numbers[place]]
        assert not any(batch.has_more_coming for batch in batches), "others would be locked, and given back"
    assert len(ahead.rest) == place
