from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import anyio.from_thread
import pytest

from sbnotebook.amqp import Short, Symbol
from sbnotebook.emulator import QueueOptions, RunningEmulator, running
from sbnotebook.errors import DecisionError
from sbnotebook.model import EntityAddress, Message, MessageState, OutcomeStatus, PeekedMessage, Report, Send
from sbnotebook.settlement import AsyncNamespace, Limits, Watch
from sbnotebook.settlement.actions import send
from sbnotebook.settlement.memory.archive import ArchivedMessage, ArchiveState
from tests.filled_queues import filled_queue
from tests.hand_clock import HandClock
from tests.settlement.namespaces import archive_in, namespace_of
from tests.settlement.waiting import until

pytestmark = pytest.mark.anyio

LATER = datetime(2099, 1, 2, 3, 4, 5, tzinfo=UTC)


def numbered(count: int) -> list[Message]:
    return [Message(body=b"%d" % number, message_id=f"m{number}") for number in range(count)]


def numbers(report: Report) -> list[int]:
    return [outcome.sequence_number or 0 for outcome in report]


async def test_scheduled_messages_keep_types_and_their_numbers_are_told(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "typed", 0)
    typed = Message.of_value(
        {"a": Short(5)},
        message_id="typed",
        session_id="s",
        application_properties={"symbol": Symbol("x"), "n": Short(1)},
    )
    report = await queue.send([*numbered(250), typed], Send(at=LATER))
    assert report.ok
    assert {outcome.verb for outcome in report} == {"schedule"}
    listed = await queue.peek(state=MessageState.SCHEDULED)
    assert {message.message_id: message.sequence_number for message in listed} == {
        outcome.message_id: outcome.sequence_number for outcome in report
    }
    found = next(message for message in listed if message.message_id == "typed")
    assert (found.body, found.body_type, found.session_id) == (typed.body, typed.body_type, "s")
    properties = {name: (type(value), value) for name, value in found.application_properties.items()}
    assert properties == {"symbol": (Symbol, "x"), "n": (Short, 1)}
    assert {message.scheduled_enqueue_time for message in listed} == {LATER}


async def test_cancelling_has_an_outcome_for_each_number(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "cancelled-some", 0)
    scheduled = numbers(await queue.send(numbered(25), Send(delay=timedelta(hours=1))))
    first = await queue.plan_cancel_scheduled(scheduled[:3]).apply()
    assert first.ok
    assert {outcome.description for outcome in first} == {None}
    listed = await queue.peek(state=MessageState.SCHEDULED)
    plan = queue.plan_cancel_scheduled([*scheduled[:4], *listed[5:], 987654])
    assert str(plan.preview()) == "cancel 22 messages of cancelled-some."
    report = await plan.apply(Limits(max_in_flight=4))
    assert numbers(report) == [*scheduled[:4], *scheduled[8:], 987654]
    assert [outcome.status for outcome in report[:5]] == [OutcomeStatus.NOT_FOUND] * 3 + [OutcomeStatus.SETTLED] * 2
    assert report[-1].status is OutcomeStatus.NOT_FOUND
    assert "not scheduled any more" in (report[-1].description or "")
    assert report.settled == 18
    assert [message.sequence_number for message in await queue.peek(state=MessageState.SCHEDULED)] == scheduled[4:8]


@pytest.mark.parametrize(("count", "went"), [(20, [3, 11]), (2, [1])])
async def test_cancelling_together_finds_those_that_went_meanwhile(
    own: AsyncNamespace, monkeypatch: pytest.MonkeyPatch, count: int, went: list[int]
) -> None:
    queue = await filled_queue(own, "went-meanwhile", 0)
    scheduled = numbers(await queue.send(numbered(count), Send(at=LATER)))
    gone = [scheduled[index] for index in went]
    archive = archive_in(own)
    keep = archive.keep

    async def cancel(chosen: Sequence[int]) -> None:
        async with own.connection.sender(queue.address) as sender:
            await sender.cancel_scheduled_messages([*chosen])

    def keep_while_some_go(messages: Sequence[ArchivedMessage]) -> list[int]:
        anyio.from_thread.run(cancel, gone)
        return keep(messages)

    monkeypatch.setattr(archive, "keep", keep_while_some_go)
    report = await queue.plan_cancel_scheduled(scheduled).apply()
    ends = {outcome.sequence_number: outcome.status for outcome in report}
    unknown = {number for number, status in ends.items() if status is OutcomeStatus.UNCONFIRMED}
    assert unknown == {*gone}
    assert report.settled == count - len(gone)
    assert await queue.peek(state=MessageState.SCHEDULED) == []


async def test_what_is_cancelled_is_kept_and_can_be_scheduled_again(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "undone", 0)
    report = await queue.send(numbered(3), Send(at=LATER))
    cancelled = await queue.plan_cancel_scheduled(numbers(report)).apply()
    assert cancelled.ok
    assert await queue.peek(state=MessageState.SCHEDULED) == []
    undone = await (await namespace.undo(cancelled)).apply()
    assert undone.ok
    again = await queue.peek(state=MessageState.SCHEDULED)
    assert {(message.body, message.scheduled_enqueue_time) for message in again} == {
        (message.body, LATER) for message in numbered(3)
    }


async def test_cancelling_says_what_no_peek_has_shown(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    queue = await filled_queue(namespace, "unseen", 0)
    report = await queue.send(numbered(2), Send(at=LATER))
    shared_emulator.faults.entity("unseen").empty_peeks = 2  # A peek that is empty is asked for once more.
    cancelled = await queue.plan_cancel_scheduled(numbers(report)).apply()
    assert [(outcome.status, outcome.description) for outcome in cancelled] == 2 * [
        (OutcomeStatus.SETTLED, "No peek showed it, so it is not in the archive and cannot be sent back.")
    ]


@pytest.mark.parametrize("archived", [True, False])
async def test_another_message_with_the_number_of_a_chosen_one_stays(namespace: AsyncNamespace, archived: bool) -> None:
    name = f"cancelled-other-{archived}".lower()
    queue = await filled_queue(namespace, name, 0)
    assert (await queue.send(numbered(2), Send(at=LATER))).ok
    first, second = await queue.peek(state=MessageState.SCHEDULED)
    stale = first.with_changes(enqueued_time=LATER)
    if not archived:
        namespace.archive = None
    report = await queue.plan_cancel_scheduled([stale, second]).apply()
    assert [outcome.status for outcome in report] == [OutcomeStatus.NOT_FOUND, OutcomeStatus.SETTLED]
    assert report[1].description is None
    assert await queue.peek(state=MessageState.SCHEDULED) == [first]


async def test_those_of_a_topic_are_cancelled_by_their_numbers(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    shared_emulator.create_topic("later-topic")
    topic = namespace.entity("later-topic")
    report = await topic.send(numbered(3), Send(at=LATER))
    assert (await topic.plan_cancel_scheduled(numbers(report)).apply()).ok


async def test_large_ones_are_scheduled_alone(namespace: AsyncNamespace, shared_emulator: RunningEmulator) -> None:
    shared_emulator.create_queue("large-later", QueueOptions(max_message_size_kb=8_192))
    queue = namespace.entity("large-later")
    large = Message(body=bytes(range(256)) * 4096 * 3, message_id="large")
    report = await queue.send([*numbered(3), large, *numbered(3)], Send(at=LATER))
    assert report.ok
    bodies = {message.message_id: message.body for message in await queue.peek(state=MessageState.SCHEDULED)}
    assert bodies["large"] == large.body


async def test_of_a_refused_request_only_the_culprit_fails(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    shared_emulator.create_queue("culprit-later", QueueOptions(requires_duplicate_detection=True))
    culprit = Message(message_id="x" * 129)
    report = await namespace.entity("culprit-later").send([*numbered(9), culprit, *numbered(9)], Send(at=LATER))
    assert [outcome.message_id for outcome in report.failures] == [culprit.message_id]
    assert report.failures[0].retryable is False


@pytest.mark.parametrize("kept", [True, False])
async def test_who_gives_no_answer_leaves_it_open(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, kept: bool
) -> None:
    name = f"open-{kept}"
    queue = await filled_queue(namespace, name, 0)
    await namespace.pool(EntityAddress(name)).warm(1)
    faults = shared_emulator.faults.entity(name)
    faults.drop_after_nth, faults.drop_before_nth = (2, 0) if kept else (0, 2)
    report = await queue.send(numbered(4), Send(at=LATER), max_in_flight=1, batch_size=1)
    assert [outcome.status for outcome in report.failures] == [OutcomeStatus.UNCONFIRMED]
    assert len(await queue.peek(state=MessageState.SCHEDULED)) == (4 if kept else 3)
    listed = await queue.peek(state=MessageState.SCHEDULED)
    faults.drop_after_nth, faults.drop_before_nth = (2, 0) if kept else (0, 2)  # the first looks at the message
    cancelled = await queue.plan_cancel_scheduled(listed).apply(Limits(max_in_flight=1))
    assert [outcome.status for outcome in cancelled.failures] == [OutcomeStatus.UNCONFIRMED]
    left = {message.sequence_number for message in await queue.peek(state=MessageState.SCHEDULED)}
    assert left == (set() if kept else {listed[0].sequence_number})


async def test_a_request_for_several_without_an_answer_is_not_repeated(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    queue = await filled_queue(namespace, "open-together", 0)
    assert (await queue.send(numbered(3), Send(at=LATER))).ok
    listed = await queue.peek(state=MessageState.SCHEDULED)
    shared_emulator.faults.entity("open-together").drop_before_nth = 2  # the first looks at the messages
    cancelled = await queue.plan_cancel_scheduled(listed).apply()
    assert [outcome.status for outcome in cancelled] == [OutcomeStatus.UNCONFIRMED] * 3
    assert len(await queue.peek(state=MessageState.SCHEDULED)) == 3


async def test_what_cannot_be_asked_for_is_not_cancelled(tmp_path: Path) -> None:
    with running(queues=["shut"]) as emulator:
        namespace = namespace_of(emulator, tmp_path, archive=None)
    async with namespace:
        report = await namespace.entity("shut").plan_cancel_scheduled([1]).apply()
    assert [outcome.status for outcome in report] == [OutcomeStatus.FAILED]


async def test_one_that_became_active_does_not_keep_others_scheduled(
    namespace_by_hand: AsyncNamespace, clock: HandClock
) -> None:
    queue = await filled_queue(namespace_by_hand, "became-active", 0)
    soon = Message(message_id="soon", scheduled_enqueue_time=clock.now() + timedelta(seconds=5))
    late = [Message(message_id=f"m{n}", scheduled_enqueue_time=LATER) for n in range(3)]
    scheduled = numbers(await queue.send([soon, *late], own_times=True))
    await clock.turn(6)
    report = await queue.plan_cancel_scheduled(scheduled).apply()
    assert [outcome.status for outcome in report] == [OutcomeStatus.NOT_FOUND] + [OutcomeStatus.SETTLED] * 3
    assert [message.message_id for message in await queue.peek()] == ["soon"]


async def test_a_busy_service_is_asked_again(namespace: AsyncNamespace, shared_emulator: RunningEmulator) -> None:
    queue = await filled_queue(namespace, "busy-later", 0)
    await namespace.pool(queue.address).warm(2)
    shared_emulator.faults.entity("busy-later").server_busy = 1
    report = await queue.send(numbered(3), Send(at=LATER), max_in_flight=2)
    assert report.ok
    await namespace.peeker(queue.address).page(1)
    plan = queue.plan_cancel_scheduled(await queue.peek(state=MessageState.SCHEDULED))
    shared_emulator.faults.entity("busy-later").server_busy = 2
    assert (await plan.apply()).ok


async def test_a_service_that_stays_busy_keeps_what_is_scheduled(
    own: AsyncNamespace, emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await filled_queue(own, "busy", 0)
    # By the number alone, nothing is peeked: a peek would be refused, too.
    own.archive = None
    plan = queue.plan_cancel_scheduled(numbers(await queue.send(numbered(1), Send(at=LATER))))
    emulator.faults.entity("busy").server_busy = 1_000
    monkeypatch.setattr(send, "OUTAGE_PATIENCE", 1.5)
    with anyio.fail_after(30):
        (outcome,) = await plan.apply()
    emulator.faults.entity("busy").server_busy = 0
    assert outcome.status is OutcomeStatus.FAILED
    assert len(await queue.peek(state=MessageState.SCHEDULED)) == 1


async def test_cancelling_that_cannot_go_on_tells_what_is_cancelled(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    queue = await filled_queue(namespace, "gone-meanwhile", 0)
    scheduled = await queue.send(numbered(30), Send(at=LATER))

    def delete(_count: int) -> None:
        shared_emulator.delete("gone-meanwhile")

    report = await queue.plan_cancel_scheduled(numbers(scheduled)).apply(Limits(10), delete)
    assert report.counts == {OutcomeStatus.SETTLED: 10, OutcomeStatus.SKIPPED: 20}
    assert "There is no queue" in (report.failures[0].description or "")


async def test_cancel_scheduled_unanswered_is_cut_off_unconfirmed(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbnotebook.settlement.actions.send.FINISH_WITHIN", 0.3)
    namespace.archive = None
    queue = await filled_queue(namespace, "frozen-later", 0)
    report = await queue.send(numbered(9), Send(at=LATER))
    await namespace.pool(queue.address).warm(3)
    scope = anyio.CancelScope()

    def freeze(_: int) -> None:
        shared_emulator.freeze("frozen-later")
        scope.cancel()

    with Watch() as watch, scope:
        await queue.plan_cancel_scheduled(numbers(report)).apply(Limits(3), freeze)
    shared_emulator.thaw()
    assert [outcome.status for outcome in watch.report] == [OutcomeStatus.SETTLED] * 3 + [OutcomeStatus.SKIPPED] * 6

    scope = anyio.CancelScope()
    left = numbers(report)[3:]
    with Watch() as watch:
        async with anyio.create_task_group() as tasks:
            shared_emulator.freeze("frozen-later")
            tasks.start_soon(queue.plan_cancel_scheduled(left).apply, Limits(3))
            await until(lambda: watch.report.counts.get(OutcomeStatus.UNCONFIRMED) == 3)
            tasks.cancel_scope.cancel()
    shared_emulator.thaw()
    assert [outcome.status for outcome in watch.report] == [OutcomeStatus.UNCONFIRMED] * 3 + [OutcomeStatus.SKIPPED] * 3


@pytest.mark.parametrize("cut_off", ["while it looks", "while it archives"])
async def test_what_was_not_asked_to_be_cancelled_is_skipped(
    own: AsyncNamespace, emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch, cut_off: str
) -> None:
    monkeypatch.setattr("sbnotebook.settlement.actions.send.FINISH_WITHIN", 0.0)
    queue = await filled_queue(own, "not-asked", 0)
    report = await queue.send(numbered(3), Send(at=LATER))
    archive, scope = archive_in(own), anyio.CancelScope()
    keep = archive.keep

    def keep_slowly(messages: Sequence[ArchivedMessage]) -> list[int]:
        anyio.from_thread.run_sync(scope.cancel)
        return keep(messages)

    plan = queue.plan_cancel_scheduled(numbers(report))
    if cut_off == "while it looks":
        await queue.peek(state=MessageState.SCHEDULED)  # its link is open
        emulator.freeze("not-asked")
        scope.deadline = anyio.current_time() + 0.3
    else:
        monkeypatch.setattr(archive, "keep", keep_slowly)
    with Watch() as watch, scope:
        await plan.apply()
    emulator.thaw()
    assert scope.cancelled_caught
    assert {(outcome.status, outcome.description) for outcome in watch.report} == {
        (OutcomeStatus.SKIPPED, "It was interrupted before.")
    }
    assert len(await queue.peek(state=MessageState.SCHEDULED)) == 3
    assert {row.state for row in archive.find(own.identity())} <= {ArchiveState.KEPT}


async def test_times_and_messages_that_cannot_be_are_refused(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "refused-later", 0)
    with pytest.raises(DecisionError, match="not both"):
        await queue.send([], Send(at=LATER, delay=timedelta(1)))
    with pytest.raises(DecisionError, match="time zone"):
        await queue.send([], Send(at=datetime(2030, 1, 1)))  # noqa: DTZ001
    with pytest.raises(DecisionError, match="less than no time"):
        await queue.send([], Send(delay=timedelta(seconds=-1)))
    await queue.send([], Send(delay=timedelta(0)))
    with pytest.raises(DecisionError, match="scheduled_enqueue_time"):
        await queue.send(numbered(1), own_times=True)
    stranger = PeekedMessage(entity=EntityAddress("other"), sequence_number=1, state=MessageState.SCHEDULED)
    active = PeekedMessage(entity=queue.address, sequence_number=1)
    with pytest.raises(DecisionError, match="is in other"):
        queue.plan_cancel_scheduled([stranger])
    with pytest.raises(DecisionError, match="is active, not scheduled"):
        queue.plan_cancel_scheduled([active])
    assert await queue.plan_cancel_scheduled([]).apply() == Report()
