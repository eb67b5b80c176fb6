from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.amqp import Timestamp, UByte, ULong
from sbnotebook.emulator import QueueOptions, RunningEmulator, running
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import (
    Complete,
    DeadLetter,
    Defer,
    EntityAddress,
    Message,
    Outcome,
    OutcomeStatus,
    ReceivedMessage,
    Release,
    Report,
)
from sbnotebook.settlement import AsyncEntity, AsyncNamespace
from sbnotebook.settlement.memory.archive import ArchiveState
from tests.filled_queues import filled_queue, session_messages, settle_first
from tests.settlement.clerks import CLERK, clerks_connection
from tests.settlement.full_disk import fill_up
from tests.settlement.namespaces import archive_in, namespace_of

pytestmark = pytest.mark.anyio

PROPERTIES: dict[str, Any] = {
    "number": 7,
    "small": UByte(3),
    "large": ULong(2**63),
    "when": Timestamp(1_700_000_000_123),
    "who": uuid4(),
    "bytes": b"\x00\xff",
    "nothing": None,
    "text": "grüße 🚚",
}


async def complete(entity: AsyncEntity, count: int) -> Report:
    return await settle_first(entity, Complete(), count)


def ids(messages: Iterable[ReceivedMessage]) -> list[str]:
    return [message.message_id or "" for message in messages]


def states(namespace: AsyncNamespace) -> list[ArchiveState]:
    return [each.state for each in archive_in(namespace).find(namespace.identity())]


async def test_undo_restores_bodies_and_types_of_a_report(namespace: AsyncNamespace) -> None:
    original = Message(
        body=b"\x00exact\xff",
        message_id="m0",
        session_id=None,
        partition_key="p",
        correlation_id="c",
        subject="s",
        content_type="application/json",
        to="there",
        reply_to="here",
        time_to_live=timedelta(hours=3),
        application_properties=PROPERTIES,
    )
    value = Message.of_value([1, "two", None], message_id="m1")
    queue = await filled_queue(namespace, "undo-types", [original, value])
    before = await queue.peek()
    report = await complete(queue, 2)
    assert await queue.peek() == []

    plan = await namespace.undo(report)
    assert plan.preview().sentence == "send back 2 messages: 2 of undo-types to undo-types."
    assert await queue.peek() == [], "a plan does nothing"
    undone = await plan.apply()

    assert undone.ok
    assert [outcome.verb for outcome in undone] == ["undo", "undo"]
    after = await queue.peek()
    same = [*Message.__dataclass_fields__]
    assert [[getattr(m, name) for name in same] for m in after] == [[getattr(m, name) for name in same] for m in before]
    typed = [{name: type(value) for name, value in m.application_properties.items()} for m in after]
    assert typed == [{name: type(value) for name, value in m.application_properties.items()} for m in before]
    assert not {m.sequence_number for m in after} & {m.sequence_number for m in before}
    assert [m.delivery_count for m in after] == [0, 0]


async def test_undoing_twice_sends_nothing_twice(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "undo-twice", 3)
    report = await complete(queue, 3)
    first, second = await namespace.undo(report), await namespace.undo(report)
    assert (await first.apply()).ok
    late = await second.apply()
    assert {outcome.status for outcome in late} == {OutcomeStatus.SKIPPED}
    assert "Another undo" in (late[0].description or "")
    with pytest.raises(DecisionError, match=r"nothing to send back\. Left out: 3 sent back before"):
        await namespace.undo(report)
    assert sorted(ids(await queue.peek())) == ["m0", "m1", "m2"]


async def test_what_was_sent_back_can_be_removed_and_sent_back_again(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "undo-again", 1)
    for _ in range(3):
        report = await complete(queue, 1)
        assert (await (await namespace.undo(report)).apply()).ok
    assert ids(await queue.peek()) == ["m0"]


async def test_what_was_removed_from_an_entity_since(namespace: AsyncNamespace) -> None:
    orders, others = await filled_queue(namespace, "since-orders", 2), await filled_queue(namespace, "since-others", 1)
    await complete(orders, 1)
    middle = datetime.now(UTC)
    await complete(orders, 1)
    await complete(others, 1)
    plan = await namespace.undo(entity="SINCE-ORDERS", since=middle)
    assert ids(plan.messages) == ["m1"]
    everything = await namespace.undo(since=timedelta(hours=1))
    assert len(everything.messages) == 3
    assert everything.entity == orders.address
    assert "2 of since-orders to since-orders, 1 of since-others to since-others" in everything.preview().sentence
    assert (await everything.apply()).settled == 3
    assert sorted(ids(await orders.peek())) == ["m0", "m1"]
    assert ids(await others.peek()) == ["m0"]


async def test_dead_letters_go_to_their_queue_and_the_preview_says_so(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "undo-letters", 1)
    await settle_first(queue, DeadLetter("Bad", "no good"))
    report = await complete(namespace.entity("undo-letters/$dlq"), 1)
    plan = await namespace.undo(report)
    assert plan.preview().sentence.startswith("send back 1 message: 1 of undo-letters/$dlq to undo-letters.")
    assert "Service Bus accepts no messages into a dead-letter queue" in plan.preview().sentence
    assert (await plan.apply()).ok
    (back,) = await queue.peek()
    assert back.dead_letter_reason == "Bad", "the same properties"


async def test_a_subscriptions_messages_go_where_it_is_said(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    shared_emulator.create_topic("events")
    for name in ("audit", "mail"):
        shared_emulator.create_subscription("events", name)
    await filled_queue(namespace, "undo-elsewhere", 0)
    assert (await namespace.entity("events").send([Message(message_id="m0")])).ok
    report = await complete(namespace.entity("events/subscriptions/audit"), 1)
    with pytest.raises(DecisionError, match="would go to all of its subscriptions"):
        await namespace.undo(report)
    assert (await (await namespace.undo(report, to="undo-elsewhere")).apply()).ok
    assert ids(await namespace.entity("undo-elsewhere").peek()) == ["m0"]
    assert len(await namespace.entity("events/subscriptions/mail").peek()) == 1


async def test_of_a_resubmit_it_is_refused_unless_asked_for(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "undo-resubmitted", 2)
    report = await queue.plan_resubmit(await queue.peek()).apply()
    assert report.ok
    hint = r"^There is nothing to send back\. Left out: 2 resubmitted\. Their clones exist.*include_resubmitted=True"
    with pytest.raises(DecisionError, match=hint):
        await namespace.undo(report)
    with pytest.raises(DecisionError, match=hint):
        await namespace.undo(entity="undo-resubmitted")
    removed = await complete(await filled_queue(namespace, "undo-resubmitted-too", 1), 1)
    both = await namespace.undo([*report, *removed])
    assert both.preview().sentence.startswith("send back 1 message: 1 of undo-resubmitted-too to undo-resubmitted-too.")
    assert "Left out: 2 resubmitted. Their clones exist" in both.preview().sentence
    plan = await namespace.undo(report, include_resubmitted=True)
    assert "restore the originals of 2 messages" in plan.preview().sentence
    assert "does not remove their clones, so there will be both" in plan.preview().sentence
    assert (await plan.apply()).ok
    assert len(await queue.peek()) == 4


async def test_duplicate_detection_does_not_swallow_what_is_sent_back(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    shared_emulator.create_queue("undo-detects", QueueOptions(requires_duplicate_detection=True))
    queue = namespace.entity("undo-detects")
    # With the 22 characters that mark an undo, an id has at most 128.
    sent = ["m0", "x" * 128, "y" * 106, "z" * 107]
    assert (await queue.send(Message(message_id=name) for name in sent)).ok
    report = await complete(queue, 4)
    plan = await namespace.undo(report)
    assert "new message ids, so that undo-detects does not drop them as duplicates" in plan.preview().sentence
    assert (await plan.apply()).ok
    back = await queue.peek()
    assert len(back) == 4
    found = {str(message.application_properties["OriginalMessageId"]): message.message_id or "" for message in back}
    assert found.keys() == {*sent}
    assert {len(found[name]) for name in sent[1:]} == {64 + 22, 128}
    assert [name for name in sent if found[name].startswith(f"{name}~undo-")] == ["m0", "y" * 106]


async def test_scheduled_times_that_are_over_are_left_out(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "undo-scheduled", 0)
    soon = datetime.now(UTC) + timedelta(seconds=1)
    assert (await queue.send([Message(message_id="m0", scheduled_enqueue_time=soon)])).ok
    async with queue.batch() as batch:
        held = await batch.receive(1, max_wait=30)
        report = await batch.settle(Complete(), held)
    plan = await namespace.undo(report)
    assert plan.messages[0].scheduled_enqueue_time is None
    assert (await plan.apply()).ok


# ------------------------------------------------------------------ unknown outcomes


async def unconfirmed(namespace: AsyncNamespace, emulator: RunningEmulator, name: str) -> Report:
    queue = await filled_queue(namespace, name, 1)
    async with queue.batch() as batch:
        await batch.receive(1)
        emulator.faults.entity(name).drop_after_nth = 1
        report = await batch.settle(Complete())
    assert report.counts == {OutcomeStatus.UNCONFIRMED: 1}
    return report


async def test_undo_includes_unknown_removals_only_if_asked(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    report = await unconfirmed(own, emulator, "doubt")
    with pytest.raises(DecisionError, match="Left out: 1 in doubt"):
        await own.undo(report)
    plan = await own.undo(report, include_unknown=True)
    assert "there may be duplicates" in plan.preview().sentence
    assert (await plan.apply()).ok
    assert ids(await own.entity("doubt").peek()) == ["m0"]


async def test_undo_repeats_an_unanswered_undo_only_if_asked(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    queue = await filled_queue(own, "unanswered", 3)
    report = await complete(queue, 3)
    plan = await own.undo(report)
    emulator.faults.entity("unanswered").drop_after_nth = 1
    undone = await plan.apply()
    assert undone.counts == {OutcomeStatus.UNCONFIRMED: 3}
    assert states(own) == [ArchiveState.RETURNING] * 3
    with pytest.raises(DecisionError, match="Left out: 3 in doubt"):
        await own.undo(report)
    assert len(await queue.peek()) == 3
    assert len((await own.undo(report, include_unknown=True)).messages) == 3


async def test_what_the_service_refuses_can_be_tried_again(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    queue = await filled_queue(own, "refused", 2)
    report = await complete(queue, 2)
    emulator.faults.entity("refused").reject_nth = 1
    emulator.faults.entity("refused").reject_condition = "amqp:resource-limit-exceeded"
    undone = await (await own.undo(report)).apply()
    assert undone.counts == {OutcomeStatus.FAILED: 2}
    assert states(own) == [ArchiveState.REMOVED] * 2
    assert (await (await own.undo(report)).apply()).ok
    assert sorted(ids(await queue.peek())) == ["m0", "m1"]


async def test_undo_missing_destination_marks_nothing(own: AsyncNamespace) -> None:
    report = await complete(await filled_queue(own, "gone", 1), 1)
    plan = await own.undo(report, to="never-made", new_ids=False)
    with pytest.raises(ServiceBusError):
        await plan.apply()
    assert states(own) == [ArchiveState.REMOVED]
    await own.delete_queue("gone")
    with pytest.raises(DecisionError, match="There is no queue or topic gone any more"):
        await own.undo(report)


@pytest.mark.parametrize(("count", "size", "group"), [(550, 1, 500), (130, 60_000, 100)], ids=["small", "large"])
async def test_a_cancelled_undo_ends_between_two_groups(
    own: AsyncNamespace, emulator: RunningEmulator, count: int, size: int, group: int
) -> None:
    queue = await filled_queue(own, "cut", [bytes(size)] * count)
    report = await complete(queue, count)
    plan = await own.undo(report)
    with anyio.CancelScope() as scope:
        await plan.apply(progress=lambda _: scope.cancel())
    assert scope.cancelled_caught
    known = states(own)
    assert known.count(ArchiveState.RETURNED) == group == emulator.counts("cut").active
    assert known.count(ArchiveState.REMOVED) == count - group
    assert (await (await own.undo(report)).apply()).settled == count - group
    assert sorted(ids(await queue.peek())) == sorted(f"m{n}" for n in range(count))


async def test_an_archive_that_breaks_after_sending_hides_no_outcome(namespace: AsyncNamespace) -> None:
    report = await complete(await filled_queue(namespace, "undo-breaks", 1), 1)
    plan = await namespace.undo(report)
    fill_up(archive_in(namespace).path, "archived", "UPDATE OF state", when="new.state = 'returned'")
    assert (await plan.apply()).ok
    assert states(namespace) == [ArchiveState.RETURNING], "unknown, and never sent again by itself"


# ------------------------------------------------------------------ messages that cannot be undone


async def test_only_what_was_removed_is_sent_back(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "undo-released", 1)
    async with queue.batch() as batch:
        await batch.receive(1)
        released = await batch.settle(Release())
    await complete(queue, 1)
    with pytest.raises(DecisionError, match=r"^There is nothing to send back\.$"):
        await namespace.undo(released)


async def test_what_was_settled_by_numbers_is_sent_back(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "undo-settled", 1)
    await settle_first(queue, Defer())
    assert (await queue.settle_deferred({1: Complete()})).ok
    plan = await namespace.undo(entity="undo-settled")
    assert plan.preview().sentence == "send back 1 message: 1 of undo-settled to undo-settled."


async def test_what_is_not_in_the_archive_is_said(namespace: AsyncNamespace) -> None:
    stranger = Outcome(OutcomeStatus.SETTLED, "complete", EntityAddress("orders"), 7, "m7")
    with pytest.raises(DecisionError, match="Left out: 1 not in the archive"):
        await namespace.undo([stranger])
    report = await complete(await filled_queue(namespace, "undo-known", 1), 1)
    plan = await namespace.undo([*report, stranger])
    assert "Left out: 1 not in the archive" in plan.preview().sentence
    purged = Outcome(OutcomeStatus.SETTLED, "purge", EntityAddress("orders"), 8, "m8")
    with pytest.raises(DecisionError, match="Left out: 2 not in the archive"):
        await namespace.undo([stranger, purged])
    stayed = Outcome(OutcomeStatus.NOT_FOUND, "complete", EntityAddress("orders"), 9, "m9")
    with pytest.raises(DecisionError, match=r"^There is nothing to send back\.$"):
        await namespace.undo([stayed])


async def test_what_could_not_be_removed_does_not_stop_an_undo(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    queue = await filled_queue(own, "kept", 2)
    async with queue.batch() as batch:
        await batch.receive(1)
        emulator.lose_locks("kept")
        assert (await batch.settle(Complete())).counts == {OutcomeStatus.LOCK_LOST: 1}
    async with queue.batch() as batch:
        _, second = await batch.receive(2)
        await batch.settle(Complete(), [second])
    assert states(own) == [ArchiveState.KEPT, ArchiveState.REMOVED]
    plan = await own.undo(entity="kept")
    assert ids(plan.messages) == ["m1"]


async def test_undo_asks_without_the_right_manage(tmp_path: Path) -> None:
    with running(keys=[CLERK], queues=["guarded"]) as emulator:
        async with namespace_of(clerks_connection(emulator), tmp_path) as namespace:
            queue = namespace.entity("guarded")
            assert (await queue.send([Message(message_id="m0")])).ok
            report = await complete(queue, 1)
            asked = "guarded drops duplicates, which needs the right Manage.* new_ids=True, or else new_ids=False"
            with pytest.raises(DecisionError, match=asked):
                await namespace.undo(report)
            assert ids((await namespace.undo(report, new_ids=False)).messages) == ["m0"]
            (renamed,) = (await namespace.undo(report, new_ids=True)).messages
            assert (renamed.message_id or "").startswith("m0~undo-")


async def test_in_a_queue_made_anew_each_report_means_its_message(
    own: AsyncNamespace, emulator: RunningEmulator, tmp_path: Path
) -> None:
    before = await complete(await filled_queue(own, "anew", [Message(body=b"old", message_id="m")]), 1)
    await own.delete_queue("anew")
    async with namespace_of(emulator, tmp_path) as later:
        queue = await filled_queue(later, "anew", [Message(body=b"new", message_id="m")])
        report = await complete(queue, 1)
        assert [outcome.sequence_number for outcome in report] == [1]
        for some, body in ((before, b"old"), (before[:1], b"old"), (before + report, b"new"), ([*before], b"new")):
            plan = await later.undo(some)
            assert [message.body for message in plan.messages] == [body]
            assert "Left out: 1 with the same numbers and ids" in plan.preview().sentence
        assert len((await later.undo(entity="anew")).messages) == 2


async def test_without_an_archive_it_says_why(shared_emulator: RunningEmulator, tmp_path: Path) -> None:
    async with namespace_of(shared_emulator, tmp_path, archive=False) as namespace:
        with pytest.raises(ConfigurationError, match=r"archive=False or SBNOTEBOOK_ARCHIVE=off"):
            await namespace.undo(since=timedelta(hours=1))


async def test_it_has_to_be_said_what_to_undo(namespace: AsyncNamespace) -> None:
    with pytest.raises(DecisionError, match="Choose what to undo"):
        await namespace.undo()
    with pytest.raises(DecisionError, match="leave entity and since out"):
        await namespace.undo([], entity="orders")
    with pytest.raises(DecisionError, match="cannot be sent to orders/"):
        await namespace.undo([], to="orders/$dlq")


async def test_undo_of_a_pruned_plan_leaves_later_removals(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "undo-pruned", 2)
    plan = await namespace.undo(await complete(queue, 1))
    archive = archive_in(namespace)
    archive.prune(older_than=timedelta(0))
    later = await complete(queue, 1)
    assert [outcome.status for outcome in await plan.apply()] == [OutcomeStatus.SKIPPED]
    assert (await (await namespace.undo(later)).apply()).ok
    assert ids(await queue.peek()) == ["m1"]


async def test_messages_of_a_session_come_back_in_their_order(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "undo-session", session_messages("ssss"), requires_session=True)
    async with queue.session("s") as batch:
        held = await batch.receive(4)
        for message in (held[2], held[0], held[3], held[1]):
            assert (await batch.settle(Complete(), [message])).ok
    assert (await (await namespace.undo(entity="undo-session")).apply()).ok
    assert ids(await queue.peek()) == ["m0", "m1", "m2", "m3"]
