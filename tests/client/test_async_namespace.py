"""The asynchronous verbs, with the types that users give, on an event loop of the user."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pandas as pd
import pytest

from sbnotebook import AsyncNamespace
from sbnotebook.client import AsyncEntity
from sbnotebook.emulator import RunningEmulator

pytestmark = pytest.mark.anyio


@pytest.fixture
async def namespace(shared_emulator: RunningEmulator) -> AsyncGenerator[AsyncNamespace]:
    async with await AsyncNamespace.connect(shared_emulator.connection_string) as connected:
        yield connected


@pytest.fixture
async def orders(namespace: AsyncNamespace, request: pytest.FixtureRequest) -> AsyncEntity:
    """A queue with three dead letters, of which two are late, and a consumer's lock of 30 seconds."""
    name = f"async-{abs(hash(request.node.name)) % 10**8}"
    await namespace.create_queue(name, lock_duration="30s")
    queue = namespace.entity(name)
    await queue.send(pd.DataFrame({"subject": ["late", "late", "early"], "body": [b"1", b"2", b"3"]}))
    async with await queue.lock(3) as batch:
        await batch.dead_letter(reason="Bad")
    return queue


def letters_of(namespace: AsyncNamespace, queue: AsyncEntity) -> AsyncEntity:
    return namespace.entity(queue.address.dead_letter)


async def test_verbs_take_the_types_of_users(namespace: AsyncNamespace, orders: AsyncEntity) -> None:
    letters = letters_of(namespace, orders)
    found = await letters.peek(where="subject = 'late' and body_text <> '1'")
    assert [message.body for message in found] == [b"2"]
    plan = await letters.resubmit(found.to_pandas(), to=orders, delay="10m")
    assert "resubmit 1 message" in (await plan.preview()).sentence
    assert (await plan.apply(rate=100)).settled == 1
    assert [message.body for message in await orders.scheduled()] == [b"2"]
    parts = [len(part) async for part in letters.parts(1)]
    assert parts == [1, 1]


async def test_a_forgotten_batch_is_released(namespace: AsyncNamespace, orders: AsyncEntity) -> None:
    letters = letters_of(namespace, orders)
    batch = await letters.lock(3)
    with pytest.warns(ResourceWarning, match="was forgotten while it was open"):  # noqa: PT031 (nothing else warns)
        del batch
        gc.collect()
    with anyio.fail_after(20):
        async with await letters.lock(3, max_wait=10) as again:
            assert [message.delivery_count for message in again] == [0, 0, 0]


async def test_copies_notes_and_searches_have_await(
    namespace: AsyncNamespace, orders: AsyncEntity, tmp_path: Path
) -> None:
    letters = letters_of(namespace, orders)
    cause = (await letters.peek()).groups()[0]
    await namespace.note(cause.fingerprint, "known")
    assert (await namespace.notes())[cause.fingerprint] == "known"
    assert len(await namespace.find(letters.address, where="subject = 'late'")) == 2
    async with await namespace.copy_to("emulator", letters.address) as copy:
        assert len(await copy.entity(letters.address).peek()) == 3
        await copy.save(tmp_path / "orders.sbcopy")
    rehearsal = await namespace.rehearse(await letters.resubmit(await letters.peek()))
    assert [len(rehearsal), len(await letters.peek())] == [3, 3]
