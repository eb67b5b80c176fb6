"""Locking ahead: over several links, under renewed locks, and without the bodies of other messages."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import anyio
import pytest
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import Complete, Decision, LockedMessage, Message, Report
from sbnotebook.settlement import AsyncEntity, AsyncNamespace, Limits, LockedBatch
from sbnotebook.settlement.engine import Run
from sbnotebook.settlement.locking.ahead import LockedAhead, Search
from tests.filled_queues import delivery_counts, filled_queue, sequence_numbers

pytestmark = pytest.mark.anyio


def ahead_in(queue: AsyncEntity, search: Search) -> LockedAhead:
    return LockedAhead(ahead_batch(queue), search)


def ahead_batch(queue: AsyncEntity) -> LockedBatch:
    return queue.batch(renew_for=timedelta(hours=1))


async def settle(ahead: LockedAhead, decision: Decision, messages: Sequence[LockedMessage]) -> Report:
    return await ahead.batch.settle_group(Run(messages, decision, Limits()), [(each, decision) for each in messages])


async def found_by(ahead: LockedAhead) -> list[LockedMessage]:
    found: list[LockedMessage] = []
    while chosen := await ahead.find():
        found += chosen
    return found


async def test_several_links_hold_what_one_may_not(namespace: AsyncNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LockedBatch, "per_link", 20)
    queue = await filled_queue(namespace, "ahead-links", 95)
    numbers = await sequence_numbers(queue)
    chosen = {numbers[0], numbers[45], numbers[94]}
    ahead = ahead_in(queue, Search(frozenset(chosen), expected=95))
    async with ahead:
        found = await found_by(ahead)
        assert {message.sequence_number for message in found} == chosen
        assert len(await settle(ahead, Complete(), [])) == 0
        report = await settle(ahead, Complete(), found)
        assert report.ok
        assert [outcome.sequence_number for outcome in report] == [message.sequence_number for message in found]
    assert (len(ahead.rest), ahead.rest.ok) == (92, True)
    assert await delivery_counts(queue) == {number: 0 for number in numbers if number not in chosen}


async def test_the_others_are_reported_where_giving_back_fails(
    namespace: AsyncNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await filled_queue(namespace, "ahead-not-given-back", 5)
    (*others, wanted) = await sequence_numbers(queue)
    ahead = ahead_in(queue, Search(frozenset({wanted}), expected=5))

    async def fail(*_: object, **__: object) -> Report:
        raise ServiceBusError("No answer came.")

    monkeypatch.setattr(LockedAhead, "_give_back", fail)
    async with ahead:
        assert [message.sequence_number for message in await found_by(ahead)] == [wanted]
    assert {outcome.sequence_number for outcome in ahead.rest} >= {*others}
    assert await delivery_counts(queue) == dict.fromkeys([*others, wanted], 0)


@pytest.mark.parametrize("per_link", [LockedBatch.per_link, 3])
async def test_a_message_is_not_missing_because_the_link_was_lost(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch, per_link: int
) -> None:
    monkeypatch.setattr(LockedBatch, "per_link", per_link)
    queue = await filled_queue(namespace, f"ahead-dropped-{per_link}", 5)
    numbers = await sequence_numbers(queue)
    to_come = numbers[-1] + 1
    ahead = ahead_in(queue, Search(frozenset({numbers[0], to_come}), max_wait=0.5))
    async with ahead:
        assert await ahead.find()
        shared_emulator.drop_connections(queue.address.path)
        assert not await ahead.find()
    assert ahead.stopped == "The link was lost on which messages were held."
    assert (ahead.left, ahead.missing) == ({to_come}, set())


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


async def test_one_full_link_that_is_the_only_one_ends_the_search(
    namespace: AsyncNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LockedBatch, "per_link", 20)
    queue = await filled_queue(namespace, "ahead-one", 30)
    numbers = await sequence_numbers(queue)
    search = Search(frozenset({numbers[0], numbers[29]}), max_held=20, limit="the one link of a session")
    ahead = ahead_in(queue, search)
    async with ahead:
        assert (await settle(ahead, Complete(), await ahead.find())).ok
        assert await found_by(ahead) == []
        assert ahead.stopped == "20 messages are held, and the one link of a session allows no more."
        parts: Any = ahead.batch
        assert (len(parts._receivers), parts._coming) == (1, None)  # noqa: SLF001
    assert len(ahead.rest) == 20
    assert await delivery_counts(queue) == dict.fromkeys(numbers[1:], 0)


async def test_a_link_that_is_not_needed_any_more_is_closed(
    namespace: AsyncNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LockedBatch, "per_link", 20)
    queue = await filled_queue(namespace, "ahead-unneeded", 30)
    numbers = await sequence_numbers(queue)
    ahead = ahead_in(queue, Search(frozenset(numbers[:1]), expected=30))
    parts: Any = ahead.batch
    async with ahead:
        assert len(await ahead.find()) == 1
        coming = parts._coming  # noqa: SLF001
        assert coming is not None, "30 messages need another link"
    assert coming.cancelled() or coming.result()._handler is None  # noqa: SLF001
    assert await delivery_counts(queue) == dict.fromkeys(numbers, 0)


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
    assert await delivery_counts(queue) == dict.fromkeys(numbers, 0)


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
    assert await delivery_counts(queue) == dict.fromkeys(numbers, 0)


async def test_messages_come_in_order_over_several_links(
    namespace: AsyncNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LockedBatch, "per_link", 40)
    bodies = [b"x" * 30_000] * 120
    queue = await filled_queue(namespace, "ahead-in-order", bodies)
    numbers = await sequence_numbers(queue)
    found: list[int] = []
    async with ahead_in(queue, Search(frozenset(numbers))) as ahead:
        while chosen := await ahead.find():
            found += [message.sequence_number for message in chosen]
            await settle(ahead, Complete(), chosen[::2])
    assert found == numbers


async def test_ahead_gives_back_arrivals_when_cancelled(namespace: AsyncNamespace) -> None:
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
    assert set((await delivery_counts(queue)).values()) == {0}
