"""A batch without bodies: its locks, sizes and outcomes are those of any other batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from sbnotebook.emulator import QueueOptions, RunningEmulator
from sbnotebook.model import Abandon, Complete, LockedMessage, Message, Outcome, OutcomeStatus
from sbnotebook.model.message import partition_of
from sbnotebook.settlement import AsyncEntity, AsyncNamespace
from sbnotebook.settlement.locking import settle
from tests.filled_queues import delivery_counts, filled_queue

pytestmark = pytest.mark.anyio

SETTLED, LOCK_LOST, UNCONFIRMED = OutcomeStatus.SETTLED, OutcomeStatus.LOCK_LOST, OutcomeStatus.UNCONFIRMED
COUNT = 500


@pytest.fixture
async def queue(own: AsyncNamespace) -> AsyncEntity:
    return await filled_queue(own, "orders", [b"x" * n for n in range(COUNT)])


async def left(queue: AsyncEntity) -> dict[int, int]:
    """Return the delivery counts of the messages, by number, over a separate connection."""
    await queue.namespace.peeker(queue.address).close()
    return await delivery_counts(queue)


def of(outcomes: Iterable[Outcome], status: OutcomeStatus) -> set[int | None]:
    return {outcome.sequence_number for outcome in outcomes if outcome.status is status}


def numbers(messages: Iterable[LockedMessage]) -> set[int]:
    return {message.sequence_number for message in messages}


async def test_messages_have_numbers_times_and_sizes(queue: AsyncEntity) -> None:
    whole = {message.sequence_number: message for message in await queue.peek()}
    async with queue.batch(archived=False, journalled=False, keep_bodies=False) as batch:
        held = await batch.receive(COUNT)
        assert numbers(held) == whole.keys()
        assert {message.body for message in held} == {b""}
        assert all(message.enqueued_time == whole[message.sequence_number].enqueued_time for message in held)
        sizes = [batch.table.size_of(message) for message in held]
        assert sizes == sorted(sizes)
        assert COUNT <= sizes[-1] < COUNT + 500
    assert set(Counter((await left(queue)).values())) == {0}, "they are released, which costs no delivery"


async def test_many_messages_are_completed_by_few_requests(queue: AsyncEntity, emulator: RunningEmulator) -> None:
    async with queue.batch(archived=False, journalled=False, keep_bodies=False) as batch:
        held = await batch.receive(COUNT)
        emulator.faults.entity("orders").drop_after_nth = 4  # the fourth settlement would lose its answer
        assert of(await batch.settle(Complete(), held), SETTLED) == numbers(held)
    assert await left(queue) == {}


async def test_few_requests_complete_many_partitions(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    emulator.create_queue("parted", QueueOptions(enable_partitioning=True))
    queue = own.entity("parted")
    assert (await queue.send(Message(partition_key=f"k{n}") for n in range(COUNT))).ok
    async with queue.batch(archived=False, journalled=False, keep_bodies=False) as batch:
        held = await batch.receive(COUNT)
        partitions = len({partition_of(message.sequence_number) for message in held})
        assert partitions > 2
        emulator.faults.entity("parted").drop_after_nth = partitions + 3  # this settlement would lose its answer
        mixed = sorted(held, key=lambda message: message.sequence_number % 2**48)  # as Service Bus sends them
        assert of(await batch.settle(Complete(), mixed), SETTLED) == numbers(held)


@pytest.mark.parametrize("busy", [3, 11], ids=["for two attempts", "until the link is used"])
async def test_messages_are_completed_over_their_link_if_refused(
    queue: AsyncEntity, emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch, busy: int
) -> None:
    monkeypatch.setattr(settle, "_PAUSES", (0.1, 0.1))
    async with queue.batch(archived=False, journalled=False, keep_bodies=False) as batch:
        held = await batch.receive(100)
        assert (await queue.plan_by_token(Abandon(), held[:10]).apply()).ok
        emulator.faults.entity("orders").server_busy = busy  # one request, and two times its parts of 20
        outcomes = await batch.settle(Complete(), held)
        assert emulator.faults.entity("orders").server_busy == 0
        assert of(outcomes, SETTLED) == numbers(held[10:])
        assert of(outcomes, LOCK_LOST) == numbers(held[:10]), "a busy service has settled none of them"


@pytest.mark.parametrize("refused", ["kept", "settled"])
async def test_refused_request_to_complete_many_hides_no_outcome(
    queue: AsyncEntity, emulator: RunningEmulator, refused: str
) -> None:
    emulator.faults.entity("orders").refused_tokens = refused
    async with queue.batch(archived=False, journalled=False, keep_bodies=False) as batch:
        held = await batch.receive(100)
        assert (await queue.plan_by_token(Complete(), held[:10]).apply()).ok
        assert (await queue.plan_by_token(Abandon(), held[10:20]).apply()).ok
        outcomes = await batch.settle(Complete(), held)
        assert of(outcomes, LOCK_LOST) == numbers(held[10:20])
        unknown = held[:10] if refused == "kept" else (*held[:10], *held[20:])
        assert of(outcomes, UNCONFIRMED) == numbers(unknown)
    assert set(await left(queue)) == numbers(held[10:20]) | set(range(101, COUNT + 1))


async def test_lost_connection_leaves_the_rest_to_complete(queue: AsyncEntity, emulator: RunningEmulator) -> None:
    async with queue.batch(archived=False, journalled=False, keep_bodies=False) as batch:
        held = await batch.receive(COUNT)
        emulator.faults.entity("orders").drop_before_nth = 2
        outcomes = await batch.settle(Complete(), held)
        undecided = [message for message, end in zip(held, outcomes, strict=True) if end.status is not SETTLED]
        assert undecided
        again = await batch.settle(Complete(), undecided)
        assert of(again, SETTLED) | of(again, UNCONFIRMED) | of(again, OutcomeStatus.ALREADY_SETTLED) == numbers(
            undecided
        )
    assert await left(queue) == {}
