"""Batches that hold more than one link may: Azure stops or detaches a link with too many unsettled messages."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest

from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import DecisionError
from sbnotebook.model import Complete, DeadLetter
from sbnotebook.settlement import AsyncNamespace, Limits
from sbnotebook.settlement.engine import Run
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.sdk import settling
from tests.filled_queues import delivery_counts, filled_queue, session_messages

pytestmark = pytest.mark.anyio

PER_LINK = 20


@pytest.fixture(autouse=True, params=["detach", "stop"])
def limit(emulator: RunningEmulator, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator.faults.max_unsettled, emulator.faults.over_max_unsettled = PER_LINK, request.param
    monkeypatch.setattr(LockedBatch, "per_link", PER_LINK)


async def test_a_batch_holds_over_several_links_what_one_may_not(own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "orders", 50)
    async with queue.batch() as batch:
        held = await batch.receive(50)
        assert [message.sequence_number for message in held] == [*range(1, 51)]
        # Some of each link are settled, and some are released over the link that they came on.
        report = await batch.settle(Complete(), held[::2])
        assert (report.settled, len(report)) == (25, 25)
    assert batch.release_report is not None
    assert (batch.release_report.settled, len(batch.release_report)) == (25, 25)
    assert await delivery_counts(queue) == dict.fromkeys(range(2, 51, 2), 0)


async def test_a_batch_asks_a_link_for_no_more_than_it_may_hold(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    emulator.faults.max_unsettled = 0  # only sbnotebook keeps the limit
    queue = await filled_queue(own, "orders", 30)
    async with queue.batch() as batch:
        assert [len(await batch.receive(15)) for _ in range(2)] == [15, 15]
        parts: Any = batch
        assert [len(settling.on_link(receiver)) for receiver in parts._receivers] == [PER_LINK, 10]  # noqa: SLF001


async def test_messages_with_reasons_of_their_own_do_not_fill_a_link(own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "orders", 90)
    async with queue.batch() as batch:
        for _ in range(6):
            held = await batch.receive(15)
            run = Run(held, DeadLetter("Odd"), Limits())
            pairs = [(message, DeadLetter(f"r{message.sequence_number}")) for message in held]
            assert (await batch.settle_group(run, pairs)).settled == 15
    assert await queue.peek() == []
    dead = await own.entity("orders/$dlq").peek()
    assert [message.dead_letter_reason for message in dead] == [f"r{number}" for number in range(1, 91)]


async def test_messages_left_to_lapse_do_not_fill_a_link_for_ever(own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "orders", 90)
    async with queue.batch() as batch:
        for _ in range(6):
            held = await batch.receive(15)
            assert len(held) == 15
            batch.let_lapse(held)


async def test_a_session_holds_no_more_than_its_one_link(own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "in-session", session_messages("a" * (PER_LINK + 10)), requires_session=True)
    async with queue.session("a") as session:
        held = await session.receive(100)
        assert len(held) == PER_LINK
        with pytest.raises(DecisionError, match="The one link of session 'a' has 20 messages that are not settled"):
            await session.receive(1)
        assert (await session.settle(Complete(), held[:1])).settled == 1
        assert len(await session.receive(100)) == 1, "there is room for one"
        assert (await session.settle(Complete(), held[1:12])).settled == 11
        assert len(await session.receive(100)) == 9
        assert (await session.settle(Complete())).settled == 18
    assert await queue.peek() == []


async def test_a_full_link_serves_again_when_it_was_emptied(own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "orders", 3 * PER_LINK + 1)
    async with queue.batch() as other, queue.batch() as batch:
        adopted = await batch.adopt(await other.receive(1))
        parts: Any = batch
        full = await batch.receive(PER_LINK)
        await batch.receive(PER_LINK)  # it opens another link
        assert len(parts._receivers) == 2  # noqa: SLF001
        used = [await parts.renewal._links.one() for _ in range(4)]  # noqa: SLF001
        assert used[:2] == used[2:], "renewals take turns, because a link without any work is detached"
        assert {*used} == {*parts._receivers}  # noqa: SLF001
        async with anyio.create_task_group() as tasks:
            # The one empties the first link, while the other, which began before that, waits for its turn.
            tasks.start_soon(partial(batch.settle, Complete(), full))
            tasks.start_soon(partial(batch.settle, Complete(), adopted))
        assert len(batch.messages) == PER_LINK
        assert len(await batch.receive(PER_LINK)) == PER_LINK
        assert {*used} == {*parts._receivers}, "no third one is opened"  # noqa: SLF001


async def test_a_full_link_stays_open_until_its_settlements_are_answered(
    own: AsyncNamespace, emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator.faults.max_unsettled = 0
    monkeypatch.setattr(LockedBatch, "per_link", 500)
    queue = await filled_queue(own, "orders", 1_000)
    async with queue.batch() as batch:
        await batch.receive(1_000)
        emulator.faults.network_delay_ms = 25
        report = await batch.settle(Complete())  # in groups, several at once
    assert report.settled == 1_000, report.counts


async def test_links_that_never_serve_again_are_closed(own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "orders", 6 * PER_LINK)
    async with queue.batch(archived=False, journalled=False, keep_bodies=False) as batch:
        parts: Any = batch
        for _ in range(6):
            held = await batch.receive(PER_LINK)
            assert (await batch.settle(Complete(), held)).settled == PER_LINK
            assert len(parts._receivers) == 1, "a link that never serves again is closed"  # noqa: SLF001
    assert await queue.peek() == []
