from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sbnotebook.client.dead_letters import _last, _look, look_at  # pyright: ignore[reportPrivateUsage]
from sbnotebook.emulator import QueueOptions, RunningEmulator
from sbnotebook.model import Complete, EntityAddress, Message
from sbnotebook.settlement import AsyncNamespace
from tests.filled_queues import filled_queue, sequence_numbers
from tests.settlement.namespaces import namespace_of

pytestmark = pytest.mark.anyio


@pytest.fixture
async def namespace(shared_emulator: RunningEmulator, tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    async with namespace_of(shared_emulator, tmp_path) as namespace:
        yield namespace


async def test_a_queue_that_goes_between_count_and_peek_is_told(namespace: AsyncNamespace) -> None:
    queue, sample = await _look(namespace, EntityAddress.parse("gone/$dlq"), 3, None, 250)
    assert (queue.count, queue.newest, sample) == (3, None, ())
    assert queue.problem is not None
    assert queue.problem.startswith("There is no queue or topic 'gone/$dlq'")


async def test_a_journal_that_cannot_be_used_leaves_the_growth_unknown(namespace: AsyncNamespace) -> None:
    await filled_queue(namespace, "kept", 1)
    namespace.journal.path.write_bytes(b"no database, but text of some length" * 40)
    found = await look_at(namespace, [EntityAddress("kept")], sample=1)
    assert (list(found), found.entities) == ([], 1)


@pytest.mark.parametrize(
    ("gone", "said", "sample"),
    [
        (range(0), 10, 3),
        (range(0), 10, 10),
        (range(0), 12, 3),
        (range(0), 4, 3),
        (range(2, 7), 5, 2),
        (range(4, 10), 4, 2),
    ],
    ids=["whole", "all seen", "too many counted", "too few counted", "gap", "gap behind the sample"],
)
async def test_the_last_message_is_found_in_any_queue(
    namespace: AsyncNamespace, gone: range, said: int, sample: int, request: pytest.FixtureRequest
) -> None:
    queue = await filled_queue(namespace, f"last-{request.node.callspec.id}".replace(" ", "-"), 10)
    (await (await queue.pick(list(gone), Complete())).apply()).raise_for_failures()
    found, first = await _look(namespace, queue.address, said, None, sample)
    assert [message.sequence_number for message in first] == (await sequence_numbers(queue))[:sample]
    last = await _last(namespace.entity(queue.address), first, max(said, len(first)))
    assert last is not None
    assert (last.sequence_number, last.message_id, found.newest) == (10, "m9", last.enqueued_time)


async def test_the_last_message_of_partitions_is_known_if_all_are(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    shared_emulator.create_queue("parted", QueueOptions(enable_partitioning=True))
    queue = namespace.entity("parted")
    assert (await queue.send([Message(partition_key=str(n)) for n in range(40)])).ok
    numbers = await sequence_numbers(queue)
    for sample in (1, 39):
        assert (await _look(namespace, queue.address, 40, None, sample))[0].newest is None
    found, first = await _look(namespace, queue.address, 40, None, 40)
    assert found.newest is not None
    assert first[-1].sequence_number == numbers[-1]
