from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from sbnotebook.emulator import QueueOptions, RunningEmulator
from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    Complete,
    Defer,
    Message,
    MessageState,
    OutcomeStatus,
    PeekedMessage,
    ReceivedMessage,
    Send,
)
from sbnotebook.settlement import AsyncEntity, AsyncNamespace, Limits, Plan
from sbnotebook.settlement.actions.reach import MessageFilter
from sbnotebook.settlement.memory.archive import ArchiveState
from tests.filled_queues import filled_queue, settle_first
from tests.settlement.deferrals import deferrals_of
from tests.settlement.namespaces import archive_in
from tests.settlement.waiting import until

pytestmark = pytest.mark.anyio


def numbers(messages: Sequence[ReceivedMessage]) -> list[int]:
    return [int((message.message_id or "m-1")[1:]) for message in messages]


def states(namespace: AsyncNamespace) -> dict[str | None, ArchiveState]:
    return {each.message_id: each.state for each in archive_in(namespace).find(namespace.identity())}


async def test_all_that_stands_there_goes_and_what_came_later_stays(own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "orders", 7)
    plan = await queue.purge()
    assert (await queue.send([Message(message_id="m7"), Message(message_id="m8")])).ok
    report = await plan.apply()
    assert report.counts == {OutcomeStatus.SETTLED: 7}
    assert {outcome.verb for outcome in report} == {"purge"}
    assert [outcome.message_id for outcome in report] == [f"m{n}" for n in range(7)]
    left = await queue.peek()
    assert numbers(left) == [7, 8]
    assert [message.delivery_count for message in left] == [0, 0]
    assert states(own) == dict.fromkeys([f"m{n}" for n in range(7)], ArchiveState.REMOVED)


async def test_the_preview_shows_what_goes(own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "orders", 5)
    async with queue.batch() as batch:
        held = await batch.receive(2)
        await batch.settle(Defer(), held[:1])
    soon = datetime.now(UTC) + timedelta(hours=1)
    assert (await queue.send([Message(message_id="m9", scheduled_enqueue_time=soon)])).ok
    preview = (await queue.purge()).preview(rows=2)
    assert preview.sentence.startswith(
        "purge 6 messages of orders: 4 active, 1 deferred, 1 scheduled; 5 bytes of bodies, enqueued from "
    )
    assert "By subject: 'even' 3, 'odd' 2, none 1." in preview.sentence
    assert "other messages" not in preview.sentence
    assert preview.sentence.endswith("They are kept in the archive for 7 days, and undo sends them back.")
    assert [message.body for message in preview.messages] == [b"0", b"1"]
    forever = (await queue.purge(to_sequence_number=9, archived=False)).preview()
    assert forever.sentence.endswith("They are removed for good: nothing is archived.")
    assert len(await queue.peek()) == 6, "a plan does nothing"


async def test_names_from_messages_are_cut_and_quoted(own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "hostile", 0)
    assert (await queue.send([Message(subject="\x1b[2J" + "x" * 1000)])).ok
    sentence = (await queue.purge()).preview().sentence
    assert "\x1b" not in sentence
    assert sentence.startswith("purge 1 message of hostile: 1 active;")
    assert f"[2J{'x' * 56}' 1." in sentence
    assert (await queue.send(Message(subject=f"s{n}") for n in range(5))).ok
    assert "'s3' 1 and 1 more." in (await queue.purge()).preview().sentence


def odd(messages: Sequence[PeekedMessage]) -> Sequence[PeekedMessage]:
    return [message for message in messages if message.subject == "odd" and message.body != b"19"]


async def test_only_what_was_enqueued_before(own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "orders", 2)
    assert len((await queue.purge(before=timedelta(hours=1))).messages) == 0
    (_, last) = await queue.peek()
    assert last.enqueued_time is not None
    await anyio.sleep(0.01)  # the service counts in milliseconds
    assert (await queue.send([Message(message_id="m2")])).ok
    plan = await queue.purge(before=last.enqueued_time + timedelta(milliseconds=1))
    assert numbers(plan.messages) == [0, 1]
    assert 1 not in numbers((await queue.purge(before=last.enqueued_time)).messages), "it is not before itself"
    assert (await plan.apply()).ok
    assert numbers(await queue.peek()) == [2]
    assert len(states(own)) == 2


async def test_only_up_to_a_number_and_only_in_a_state(own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "orders", 6)
    async with queue.batch() as batch:
        await batch.settle(Defer(), (await batch.receive(6))[1:2])
    assert numbers((await queue.purge(to_sequence_number=4)).messages) == [0, 1, 2, 3]
    deferred = await queue.purge(state=MessageState.DEFERRED)
    assert numbers(deferred.messages) == [1]
    assert "other messages" not in deferred.preview().sentence
    assert (await (await queue.purge(to_sequence_number=4, state=MessageState.ACTIVE)).apply()).settled == 3
    assert numbers(await queue.peek()) == [1, 4, 5]


@pytest.mark.parametrize("archived", [True, False])
async def test_deferred_and_scheduled_messages_go_as_well(own: AsyncNamespace, archived: bool) -> None:
    queue = await filled_queue(own, "orders", 3)
    async with queue.batch() as batch:
        await batch.settle(Defer(), (await batch.receive(3))[:1])
    soon = datetime.now(UTC) + timedelta(hours=1)
    assert (await queue.send([Message(message_id="m3", scheduled_enqueue_time=soon)])).ok
    report = await (await queue.purge(archived=archived)).apply()
    assert report.counts == {OutcomeStatus.SETTLED: 4}
    assert {outcome.verb for outcome in report} == {"purge"}
    assert await queue.peek() == []
    if not archived:
        assert states(own) == {}
        return
    assert set(states(own).values()) == {ArchiveState.REMOVED}
    assert (await (await own.undo(report)).apply()).settled == 4
    back = await queue.peek()
    assert sorted(numbers(back)) == [0, 1, 2, 3]
    assert [message.state for message in back if message.message_id == "m3"] == [MessageState.SCHEDULED]


@pytest.mark.parametrize("verb", ["purge", "pick"])
async def test_a_message_that_became_active_is_reached(
    own: AsyncNamespace, emulator: RunningEmulator, verb: str
) -> None:
    """Also where a peek says that it is scheduled still."""
    emulator.faults.activated_state = "scheduled"
    queue = await filled_queue(own, "orders", 2)
    soon, late = (datetime.now(UTC) + timedelta(seconds=seconds) for seconds in (0.2, 3600))
    for name, when in (("m2", soon), ("m3", late)):
        assert (await queue.send([Message(message_id=name, scheduled_enqueue_time=when)])).ok
    await until(lambda: emulator.counts("orders").scheduled == 1)
    found = {message.message_id: message for message in await queue.peek()}
    assert [found[name].state for name in ("m2", "m3")] == [MessageState.ACTIVE, MessageState.SCHEDULED]
    plan = await (queue.purge() if verb == "purge" else queue.pick([found["m2"]], Complete()))
    report = await plan.apply()
    assert report.counts == {OutcomeStatus.SETTLED: 4 if verb == "purge" else 1}
    assert numbers(await queue.peek()) == ([] if verb == "purge" else [0, 1, 3])


@pytest.mark.parametrize("odd_only", [False, True])
async def test_an_entity_with_sessions_is_purged_session_by_session(
    own: AsyncNamespace, emulator: RunningEmulator, odd_only: bool
) -> None:
    emulator.create_queue("sessions", QueueOptions(requires_session=True))
    queue = own.entity("sessions")
    sent = [Message(message_id=f"m{n}", session_id=f"s{n // 4}", subject=("even", "odd")[n % 2]) for n in range(12)]
    assert (await queue.send(sent, max_in_flight=1)).ok
    async with queue.session("s0") as session:
        await session.settle(Defer(), (await session.receive(2))[:2])
    plan = await queue.purge(only=odd if odd_only else None)
    async with queue.session("s2"):  # a consumer is at work there
        report = await plan.apply()
    assert [outcome.message_id for outcome in report if not outcome.ok] == [
        f"m{n}" for n in range(8, 12) if n % 2 or not odd_only
    ]
    assert (await (await queue.purge(only=odd if odd_only else None)).apply()).ok
    left = await queue.peek()
    assert numbers(left) == ([0, 2, 4, 6, 8, 10] if odd_only else [])
    assert {message.delivery_count for message in left if message.state is MessageState.ACTIVE} <= {0}


async def test_a_purge_locks_nothing_that_came_later(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    queue = await filled_queue(own, "orders", 3)
    plan, locked = await queue.purge(), list[int]()
    assert (await queue.send([Message(message_id=f"m{n}") for n in range(3, 9)])).ok
    assert (await plan.apply(progress=lambda _: locked.append(emulator.counts("orders").locked))).settled == 3
    assert locked
    assert max(locked) <= 3
    assert numbers(await queue.peek()) == [3, 4, 5, 6, 7, 8]


# ------------------------------------------------------------------ deferring


async def test_all_that_is_active_is_deferred_and_what_came_later_stays(own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "orders", 7)
    assert (await queue.send([Message(message_id="later")], Send(delay=timedelta(hours=1)))).ok
    plan = await queue.defer_all()
    assert (await queue.send([Message(message_id="m7")])).ok
    sentence = plan.preview().sentence
    assert sentence.startswith("defer 7 messages of orders: 7 active; 7 bytes of bodies, enqueued from ")
    assert "written to the journal of this machine before. This counts as a delivery: at its maximum" in sentence
    report = await plan.apply()
    assert str(report) == "Deferred 7 messages"
    assert [outcome.message_id for outcome in report] == [f"m{n}" for n in range(7)]
    found = await deferrals_of(queue)
    assert (len(found.messages), found.orphans, found.gone) == (7, (), ())
    assert [message.message_id for message in await queue.peek(state=MessageState.ACTIVE)] == ["m7"]
    assert [message.message_id for message in await queue.peek(state=MessageState.SCHEDULED)] == ["later"]


async def test_the_first_ones_only_and_only_what_was_there_before(own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "orders", 6)
    assert len((await queue.defer_all(before=timedelta(hours=1))).messages) == 0
    assert len((await queue.defer_all(max_messages=0)).messages) == 0
    assert (await (await queue.defer_all(max_messages=2, only=odd)).apply()).settled == 2
    assert [message.message_id for message in await queue.peek(state=MessageState.DEFERRED)] == ["m1", "m3"]
    with pytest.raises(DecisionError, match="max_messages"):
        await queue.defer_all(max_messages=-1)


# ------------------------------------------------------------------ both


def sweep(queue: AsyncEntity, verb: str, only: MessageFilter | None = None) -> Awaitable[Plan]:
    return queue.purge(only=only) if verb == "purge" else queue.defer_all(only=only)


@pytest.mark.parametrize("verb", ["purge", "defer"])
async def test_chosen_ones_go_and_those_between_stay_as_they_are(own: AsyncNamespace, verb: str) -> None:
    queue = await filled_queue(own, "orders", 20)
    plan = await sweep(queue, verb, odd)
    assert "9 other messages between them" in plan.preview().sentence
    report = await plan.apply()
    assert report.settled == len(report) == 9
    assert "9 others released unchanged" in str(report)
    left = await queue.peek(state=MessageState.ACTIVE)
    assert numbers(left) == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 19]
    assert {message.delivery_count for message in left} == {0}
    async with queue.batch() as batch:
        assert len(await batch.receive(11, max_wait=2)) == 11, "they can be received at once"


@pytest.mark.parametrize("verb", ["purge", "defer"])
async def test_a_sweep_that_is_cut_off_goes_on_with_a_new_plan(own: AsyncNamespace, verb: str) -> None:
    queue = await filled_queue(own, "orders", 700)
    plan = await sweep(queue, verb)
    with anyio.CancelScope() as scope:
        await plan.apply(Limits(max_in_flight=10), progress=lambda _: scope.cancel())
    assert scope.cancelled_caught
    left = await queue.peek(state=MessageState.ACTIVE)
    assert len(left) == 500
    assert {message.delivery_count for message in left} == {0}, "what was locked is released"
    if verb == "purge":
        assert list(states(own).values()) == [ArchiveState.REMOVED] * 200
    else:
        found = await deferrals_of(queue)
        assert (len(found.messages), found.orphans, found.gone) == (200, (), ())
    counted: list[int] = []
    assert (await (await sweep(queue, verb)).apply(progress=counted.append)).settled == sum(counted) == 500


@pytest.mark.parametrize("verb", ["purge", "defer"])
async def test_a_broken_connection_leaves_each_message_in_its_record(
    own: AsyncNamespace, emulator: RunningEmulator, verb: str
) -> None:
    queue = await filled_queue(own, "orders", 450)
    plan = await sweep(queue, verb)
    emulator.faults.entity("orders").drop_after_nth = 230
    report = await plan.apply(Limits(max_in_flight=10))
    assert len(report) == 450
    assert not report.ok
    assert f"{verb.capitalize()} again to continue" in (report[-1].description or "")
    stays = {message.message_id for message in await queue.peek(state=MessageState.ACTIVE)}
    recorded, found = states(own), await deferrals_of(queue)
    assert found.orphans == (), "each was written to the journal before"
    for outcome in report:
        if outcome.message_id not in stays:
            assert outcome.status in (OutcomeStatus.SETTLED, OutcomeStatus.UNCONFIRMED)
            if verb == "purge":
                ended = ArchiveState.REMOVED if outcome.ok else ArchiveState.REMOVING
                assert recorded[outcome.message_id] is ended
        assert not outcome.ok or outcome.message_id not in stays


# ------------------------------------------------------------------ failures


@pytest.mark.parametrize("archived", [True, False])
async def test_purge_leaves_other_messages_with_planned_numbers(own: AsyncNamespace, archived: bool) -> None:
    queue = await filled_queue(own, "orders", 5)
    assert (await queue.send([Message(message_id="m5")], Send(delay=timedelta(hours=1)))).ok
    await settle_first(queue, Defer())
    chosen = [1, 2, 4, 5, 6]
    plan = await queue.purge(only=lambda found: [m for m in found if m.sequence_number in chosen], archived=archived)
    earlier = datetime(2020, 1, 1, tzinfo=UTC)
    stale = tuple(message.with_changes(enqueued_time=earlier) for message in plan.messages)
    report = await replace(plan, messages=stale).apply()
    assert report.counts == {OutcomeStatus.NOT_FOUND: 5}
    assert numbers(await queue.peek()) == [0, 1, 2, 3, 4, 5]
    # The messages examined for that are unchanged.
    assert {message.delivery_count for message in await queue.peek(state=MessageState.ACTIVE)} == {0}


async def test_more_others_than_can_be_locked_are_refused(own: AsyncNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbnotebook.settlement.actions.reach.DEFAULT_MAX_HELD", 5)
    queue = await filled_queue(own, "orders", 20)
    with pytest.raises(DecisionError, match="9 other messages are between"):
        await queue.purge(only=odd)
    assert len((await queue.purge(only=odd, to_sequence_number=11)).messages) == 5, "five are between them"
