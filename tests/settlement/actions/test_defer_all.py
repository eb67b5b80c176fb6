from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import anyio
import pytest

from sbnotebook.emulator import RunningEmulator
from sbnotebook.emulator.entities import QueueOptions
from sbnotebook.errors import DecisionError
from sbnotebook.model import Complete, DeadLetter, Message, MessageState, OutcomeStatus, PeekedMessage
from sbnotebook.settlement import AsyncEntity, AsyncNamespace, Limits
from tests.filled_queues import filled_queue
from tests.settlement.full_disk import fill_up

pytestmark = pytest.mark.anyio


def odd(messages: Sequence[PeekedMessage]) -> Sequence[PeekedMessage]:
    return [message for message in messages if message.subject == "odd"]


async def in_state(entity: AsyncEntity, state: MessageState) -> list[str | None]:
    return [message.message_id for message in await entity.peek(state=state)]


async def test_all_that_is_active_is_deferred_and_what_came_later_stays(own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "orders", 7)
    assert (await queue.schedule([Message(message_id="later")], delay=timedelta(hours=1))).ok
    plan = await queue.defer_all()
    assert len(plan.messages) == 7
    assert (await queue.send([Message(message_id="m7")])).ok
    report = await plan.apply()
    assert str(report) == "defer: 7 settled"
    assert [outcome.message_id for outcome in report] == [f"m{n}" for n in range(7)]
    assert await in_state(queue, MessageState.DEFERRED) == [f"m{n}" for n in range(7)]
    assert await in_state(queue, MessageState.ACTIVE) == ["m7"]
    assert await in_state(queue, MessageState.SCHEDULED) == ["later"]
    found = await queue.deferred()
    assert len(found.messages) == 7
    assert (found.orphans, found.gone) == ((), ())


async def test_what_was_deferred_is_settled_by_its_numbers(own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "orders", 5)
    await (await queue.defer_all()).apply()
    there = (await queue.deferred()).messages.values()
    assert (await queue.plan_deferred(there, Complete()).apply()).settled == 5
    assert await queue.peek() == []
    assert (await queue.deferred()).entries == {}


async def test_the_preview_tells_what_is_deferred_and_does_nothing(own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "orders", 5)
    preview = (await queue.defer_all()).preview(rows=2)
    assert preview.sentence.startswith("defer 5 messages of orders: 5 active; 5 bytes of bodies, enqueued from ")
    assert "By subject: 'even' 3, 'odd' 2." in preview.sentence
    assert preview.sentence.endswith("written to the journal of this machine before.")
    assert [message.body for message in preview.messages] == [b"0", b"1"]
    assert await in_state(queue, MessageState.DEFERRED) == []
    await (await queue.defer_all()).apply()
    sentence = (await queue.defer_all()).preview().sentence
    assert sentence.startswith("defer 0 messages of orders. Messages looked at: 5, ")


async def test_defer_all_leaves_unchosen_messages_as_they_are(own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "orders", 20)
    plan = await queue.defer_all(only=odd, to_sequence_number=18)
    assert "9 other messages between them" in plan.preview().sentence
    report = await plan.apply()
    assert report.settled == 9
    assert "9 others were given back as they were" in str(report)
    assert await in_state(queue, MessageState.DEFERRED) == [f"m{n}" for n in range(1, 18, 2)]
    active = await queue.peek(state=MessageState.ACTIVE)
    assert [message.message_id for message in active] == [*(f"m{n}" for n in range(0, 18, 2)), "m18", "m19"]
    assert {message.delivery_count for message in active} == {0}


async def test_the_first_ones_only_and_only_what_was_there_before(own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "orders", 6)
    assert len((await queue.defer_all(before=timedelta(hours=1))).messages) == 0
    assert len((await queue.defer_all(max_messages=0)).messages) == 0
    assert (await (await queue.defer_all(max_messages=2, only=odd)).apply()).settled == 2
    assert await in_state(queue, MessageState.DEFERRED) == ["m1", "m3"]
    with pytest.raises(DecisionError, match="max_messages"):
        await queue.defer_all(max_messages=-1)


async def test_dead_letters_are_deferred_where_they_stand(own: AsyncNamespace) -> None:
    queue, letters = await filled_queue(own, "orders", 3), own.entity("orders/$dlq")
    async with queue.batch() as batch:
        await batch.receive(3)
        await batch.settle(DeadLetter("Invalid"))
    assert (await (await letters.defer_all()).apply()).settled == 3
    assert await in_state(letters, MessageState.DEFERRED) == ["m0", "m1", "m2"]
    assert len((await letters.deferred()).messages) == 3


async def test_an_entity_with_sessions_is_deferred_session_by_session(
    own: AsyncNamespace, emulator: RunningEmulator
) -> None:
    emulator.create_queue("sessions", QueueOptions(requires_session=True))
    queue = own.entity("sessions")
    sent = [Message(message_id=f"m{n}", session_id=f"s{n // 3}") for n in range(9)]
    assert (await queue.send(sent, max_in_flight=1)).ok
    plan = await queue.defer_all()
    async with queue.session("s2"):  # a consumer is at work there
        report = await plan.apply()
    assert report.counts == {OutcomeStatus.SETTLED: 6, OutcomeStatus.SKIPPED: 3}
    assert await in_state(queue, MessageState.DEFERRED) == [f"m{n}" for n in range(6)]


async def test_defer_all_cut_off_releases_and_resumes_with_a_new_plan(own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "orders", 700)
    assert len((await queue.defer_all(max_messages=650)).messages) == 650
    plan = await queue.defer_all()
    with anyio.CancelScope() as scope:
        await plan.apply(Limits(max_in_flight=20), progress=lambda _: scope.cancel())
    assert scope.cancelled_caught
    found = await queue.deferred()
    assert (len(found.messages), found.orphans, found.gone) == (200, (), ())
    active = await queue.peek(state=MessageState.ACTIVE)
    assert {message.delivery_count for message in active} == {0}, "what was locked is released"
    assert (await (await queue.defer_all()).apply()).settled == len(active) == 500


async def test_defer_all_journals_every_message_when_connection_breaks(
    own: AsyncNamespace, emulator: RunningEmulator
) -> None:
    queue = await filled_queue(own, "orders", 450)
    plan = await queue.defer_all()
    emulator.faults.entity("orders").drop_after_nth = 230
    report = await plan.apply(Limits(max_in_flight=10))
    assert len(report) == 450
    assert not report.ok
    assert "Defer again to continue" in (report[-1].description or "")
    found = await queue.deferred()
    assert found.orphans == (), "each was written to the journal before"
    settled = {outcome.sequence_number for outcome in report if outcome.ok}
    assert settled <= found.messages.keys()
    unknown = {o.sequence_number for o in report if o.status is OutcomeStatus.UNCONFIRMED}
    assert found.messages.keys() <= settled | unknown


async def test_defer_all_stops_when_the_journal_breaks_keeping_outcomes(own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "orders", 450)
    plan = await queue.defer_all()
    with own.journal.database.transaction():  # makes the file
        pass
    fill_up(own.journal.database.path, "deferrals", rows=200)
    report = await plan.apply()
    assert report.counts == {OutcomeStatus.SETTLED: 200, OutcomeStatus.SKIPPED: 250}
    assert "(database or disk is full)" in (report[-1].description or "")
    assert len(await in_state(queue, MessageState.DEFERRED)) == 200
