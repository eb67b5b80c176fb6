from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from azure.servicebus.exceptions import MessagingEntityDisabledError

from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    Decision,
    Defer,
    EntityAddress,
    Message,
    MessageState,
    OutcomeStatus,
    PeekedMessage,
    Release,
    Report,
    Send,
)
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.actions.deferred import Deferrals
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.sdk import management
from tests.filled_queues import deferred_queue, filled_queue, settle_first
from tests.settlement.deferrals import deferrals_of
from tests.settlement.namespaces import archive_in, namespace_of

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusReceiver

    from sbnotebook.settlement.sdk.receivers import ReceivedLock

pytestmark = pytest.mark.anyio


async def test_those_that_cannot_be_had_are_left_out(namespace: AsyncNamespace) -> None:
    queue = await deferred_queue(namespace, 5, 4)
    async with queue.batch() as other, queue.batch() as batch:
        assert len(await other.receive_deferred([2])) == 1
        locked = await batch.receive_deferred([1, 2, 3, 4, 5, 999])  # 2 is locked, 5 active, 999 not there
        assert [message.sequence_number for message in locked] == [1, 3, 4]
        assert await batch.receive_deferred([]) == ()


async def test_many_that_are_not_deferred_are_not_asked_for_one_by_one(
    namespace: AsyncNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await deferred_queue(namespace, 200, 3)
    receive, asked = management.receive_deferred, list[int]()

    async def counted(receiver: ServiceBusReceiver, numbers: Sequence[int]) -> list[ReceivedLock]:
        asked.append(len(numbers))
        return await receive(receiver, numbers)

    monkeypatch.setattr(management, "receive_deferred", counted)
    async with queue.batch() as other, queue.batch() as batch:
        await other.receive_deferred([2])
        locked = await batch.receive_deferred(range(1, 301))
    assert [message.sequence_number for message in locked] == [1, 3]
    assert len(asked) < 20


async def test_what_is_not_settled_stays_deferred(namespace: AsyncNamespace) -> None:
    queue = await deferred_queue(namespace, 2, 2)
    async with queue.batch() as batch:
        first, _ = await batch.receive_deferred([1, 2])
        assert (await batch.settle(Abandon(), [first])).ok
    assert batch.release_report == Report()
    assert [m.state for m in await queue.peek()] == [MessageState.DEFERRED] * 2


async def test_the_journal_and_the_entity_are_compared(namespace: AsyncNamespace, tmp_path: Path) -> None:
    queue = await deferred_queue(namespace, 5, 3)
    assert (await queue.send([Message(body=b"later")], Send(delay=timedelta(hours=1)))).ok
    async with namespace_of(namespace.connection, tmp_path / "strangers") as other:
        async with other.entity(queue.address).batch() as batch:
            await batch.receive(1)
            (await batch.settle(Defer())).raise_for_failures()  # message 4
            await batch.receive_deferred([1])
            (await batch.settle(Complete())).raise_for_failures()
        theirs = await deferrals_of(other.entity(queue.address))
    found = await deferrals_of(queue)
    assert found.orphans == (4,)
    assert [entry.sequence_number for entry in found.gone] == [1]
    assert found.gone[0].confirmed
    assert theirs.orphans == (2, 3)
    assert theirs.gone == ()
    assert str(found).startswith(f"3 deferred in {queue.address}: 2 in the journal, 1 orphans; 1 in the journal only")
    more = Deferrals(queue.address, dict.fromkeys(range(1, 7)), dict.fromkeys(range(2, 7), found.gone[0]))
    assert str(more).startswith(f"6 deferred in {queue.address}: 5 in the journal, 1 orphans; 0 in the journal only")


async def test_what_is_settled_during_the_comparison_is_not_gone(namespace: AsyncNamespace, tmp_path: Path) -> None:
    queue = await deferred_queue(namespace, 3, 2)
    other = namespace_of(namespace.connection, tmp_path / "other")
    async with other, other.entity(queue.address).batch() as batch:
        await batch.receive_deferred([1])
        assert (await batch.settle(Complete())).ok
    ledger = namespace.tables
    found = await deferrals_of(queue, lambda: ledger.forget([(queue.address, 1)]))
    assert (found.orphans, found.gone) == ((), ())


async def test_what_is_deferred_during_the_comparison_is_no_orphan(namespace: AsyncNamespace) -> None:
    queue = await deferred_queue(namespace, 2, 1)

    async def look() -> dict[int, datetime | None]:
        await settle_first(queue, Defer())
        return {message.sequence_number: message.enqueued_time for message in await queue.peek()}

    found = await queue.compare_deferrals(look)
    assert (len(found.messages), found.orphans, found.gone) == (2, (), ())


@pytest.mark.parametrize("days", [-1, 1])
async def test_an_entry_of_another_time_is_of_another_message(namespace: AsyncNamespace, days: int) -> None:
    queue = await deferred_queue(namespace, 1, 1)

    async def look() -> dict[int, datetime | None]:
        (message,) = await queue.peek()
        assert message.enqueued_time is not None
        return {1: message.enqueued_time + timedelta(days=days)}

    found = await queue.compare_deferrals(look)
    assert (len(found.orphans), found.gone) == (1, ())


async def test_deferred_messages_are_settled_by_a_plan(namespace: AsyncNamespace) -> None:
    queue = await deferred_queue(namespace, 4, 4)
    messages = await queue.peek()
    report = await queue.plan_deferred(messages[:2], Complete()).apply()
    assert [o.status for o in report] == [OutcomeStatus.SETTLED] * 2
    assert (await queue.plan_deferred(messages[2:3], DeadLetter("Late")).apply()).ok
    again = await queue.plan_deferred(messages[1:], Abandon()).apply()
    assert [o.status for o in again] == [OutcomeStatus.NOT_FOUND, OutcomeStatus.NOT_FOUND, OutcomeStatus.SETTLED]
    found = await deferrals_of(queue)
    assert set(found.messages) == {4}
    assert [message.delivery_count for message in await queue.peek()] == [2]
    assert set(found.entries) == {4}
    (dead,) = await namespace.entity(f"{queue.address}/$dlq").peek()
    assert dead.dead_letter_reason == "Late"


async def test_others_with_the_numbers_of_the_plan_stay(namespace: AsyncNamespace) -> None:
    queue = await deferred_queue(namespace, 2, 2)
    first, second = await queue.peek()
    stale = first.with_changes(enqueued_time=datetime(2020, 1, 1, tzinfo=UTC))
    report = await queue.plan_deferred([stale, second], Complete()).apply()
    assert [outcome.status for outcome in report] == [OutcomeStatus.NOT_FOUND, OutcomeStatus.SETTLED]
    assert await queue.peek() == [first]
    async with queue.batch() as batch:
        assert await batch.receive_deferred([1]), "a lock would raise its delivery count"


async def test_deferred_silent_service_blocks_for_a_limited_time(
    own: AsyncNamespace, emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(management, "_DEFERRED_WITHIN", 1.0)
    queue = await deferred_queue(own, 250, 250)
    settle, groups = LockedBatch.settle_group, list[Report]()

    async def freeze_after(batch: LockedBatch, *arguments: Any, **options: Any) -> Report:
        groups.append(await settle(batch, *arguments, **options))
        emulator.freeze(str(queue.address))
        return groups[-1]

    monkeypatch.setattr(LockedBatch, "settle_group", freeze_after)
    with anyio.fail_after(60):
        decisions = {number: Complete() for number in range(1, 251)}
        report = await queue.settle_deferred(decisions, max_in_flight=10)  # one group at a time
    emulator.thaw()
    assert report.counts == {OutcomeStatus.SETTLED: 200, OutcomeStatus.SKIPPED: 50}
    assert report[-1].description == "Not attempted: No answer came within 1 second."


async def test_a_plan_refuses_what_cannot_be(namespace: AsyncNamespace) -> None:
    queue = await deferred_queue(namespace, 2, 1)
    deferred, active = await queue.peek()
    with pytest.raises(DecisionError, match=r"To release deferred messages is not possible"):
        queue.plan_deferred([deferred], Release())
    with pytest.raises(DecisionError, match=r"stays deferred: a delay changes nothing"):
        queue.plan_deferred([deferred], Abandon(timedelta(minutes=1)))
    with pytest.raises(DecisionError, match=r"1 of the messages are not deferred in .* \(the first is #2\)"):
        queue.plan_deferred([deferred, active], Complete())
    scheduled = PeekedMessage(entity=queue.address, sequence_number=3, state=MessageState.SCHEDULED)
    before, behind = (
        PeekedMessage(entity=EntityAddress(name), sequence_number=number, state=MessageState.DEFERRED)
        for name, number in (("a", 4), ("z", 5))
    )
    with pytest.raises(DecisionError, match=r"3 of the messages are not deferred in .* \(the first is #3\)"):
        queue.plan_deferred([deferred, scheduled, before, behind], Complete())


async def test_deferred_are_settled_by_number_each_as_decided(namespace: AsyncNamespace) -> None:
    queue = await deferred_queue(namespace, 9, 8)
    decisions = {
        1: Complete(),
        2: DeadLetter("Bad", "carrier UA"),
        3: DeadLetter("Bad", "carrier UA"),
        4: DeadLetter("Old"),
        5: Abandon(),
        9: Complete(),
        99: Complete(),
    }
    report = await queue.settle_deferred(decisions)
    assert [outcome.sequence_number for outcome in report] == list(decisions)
    assert [outcome.status.value for outcome in report] == ["settled"] * 5 + ["skipped", "not found"]
    assert [outcome.verb for outcome in report[:5]] == ["complete", *["dead-letter"] * 3, "abandon"]
    letters = await namespace.entity(queue.address.dead_letter).peek()
    said = {m.message_id: (m.dead_letter_reason, m.dead_letter_error_description) for m in letters}
    assert said == {"2": ("Bad", "carrier UA"), "3": ("Bad", "carrier UA"), "4": ("Old", "")}
    left = {message.message_id: message for message in await queue.peek()}
    assert left.keys() == {"5", "6", "7", "8", "9"}
    assert left["5"].delivery_count == left["6"].delivery_count + 1
    assert (await deferrals_of(queue)).entries.keys() == {5, 6, 7, 8}, "what is settled is not in the journal any more"
    assert len(archive_in(namespace).find(namespace.identity(), queue.address, numbers=[1, 2, 9])) == 1


async def test_deferred_refuses_invalid_decisions_before_settling(namespace: AsyncNamespace) -> None:
    queue = await deferred_queue(namespace, 2, 2)
    with pytest.raises(DecisionError, match="To defer deferred messages"):
        await queue.settle_deferred({1: Complete(), 2: Defer()})
    assert len(await queue.peek(state=MessageState.DEFERRED)) == 2
    letters = namespace.entity(queue.address.dead_letter)
    with pytest.raises(DecisionError, match="is a dead-letter queue already"):
        await letters.settle_deferred({1: DeadLetter("x")})
    assert len(await queue.settle_deferred({})) == 0


async def test_deferred_without_journal_and_archive_writes_nothing(namespace: AsyncNamespace) -> None:
    queue = await deferred_queue(namespace, 2, 2)
    archive, namespace.archive = archive_in(namespace), None
    assert (await queue.settle_deferred({1: Complete()}, journalled=False)).ok
    assert (await deferrals_of(queue)).entries.keys() == {1, 2}
    assert archive.find(namespace.identity(), queue.address, numbers=[1]) == []


async def test_what_is_there_is_not_told_as_gone(namespace: AsyncNamespace) -> None:
    queue = await deferred_queue(namespace, 4, 3)
    messages = [message for message in await queue.peek() if message.state is MessageState.DEFERRED]
    async with queue.batch() as other:
        assert len(await other.receive_deferred([1])) == 1
        by_plan = await queue.plan_deferred(messages[:2], Complete()).apply()
        by_number = await queue.settle_deferred({1: Complete(), 3: Complete(), 4: Complete(), 9: Complete()})
    settled, skipped, not_found = OutcomeStatus.SETTLED, OutcomeStatus.SKIPPED, OutcomeStatus.NOT_FOUND
    assert [outcome.status for outcome in by_plan] == [skipped, settled]
    assert [outcome.status for outcome in by_number] == [skipped, settled, skipped, not_found]
    said = [str(outcome.description) for outcome in by_number]
    assert "another receiver has its lock" in said[0]
    assert "it is not deferred" in said[2]
    assert [message.sequence_number for message in await queue.peek()] == [1, 4]


async def test_a_decision_that_fails_keeps_the_outcomes_of_others(namespace: AsyncNamespace) -> None:
    queue = await deferred_queue(namespace, 4, 4)
    archive = archive_in(namespace)
    archive.require_room()
    with sqlite3.connect(archive.path) as database:
        (table,) = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name != 'away'").fetchone()
        database.execute(f"ALTER TABLE {table} RENAME TO away")
    database.close()
    report = await queue.settle_deferred({1: DeadLetter("Bad"), 2: Complete(), 3: DeadLetter("Bad"), 4: Complete()})
    assert [outcome.status for outcome in report] == [OutcomeStatus.SETTLED, OutcomeStatus.SKIPPED] * 2
    assert [message.sequence_number for message in await queue.peek()] == [2, 4]


async def test_a_lost_connection_ends_other_decisions_too(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    queue = await filled_queue(own, "each-lost", 4)
    assert (await (await queue.defer_all()).apply()).settled == 4
    emulator.faults.entity("each-lost").drop_after_nth = 2  # the first request receives all of them
    report = await queue.settle_deferred({1: DeadLetter("Bad"), 2: Complete(), 3: DeadLetter("Bad"), 4: Complete()})
    assert [outcome.status for outcome in report] == [OutcomeStatus.UNCONFIRMED, OutcomeStatus.SKIPPED] * 2
    assert "the connection may be lost" in str(report[1].description)
    assert [message.sequence_number for message in await queue.peek()] == [2, 4]


# ---------------------------------------------------------------------- without an archive


async def test_completing_without_an_archive_takes_one_request_each(
    namespace: AsyncNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await filled_queue(namespace, "for-good", 450)
    assert (await (await queue.defer_all()).apply()).settled == 450
    asked: list[int] = []
    delete = management.delete_deferred

    async def delete_deferred(receiver: Any, numbers: Sequence[int]) -> int:
        asked.append(len(numbers))
        return await delete(receiver, numbers)

    monkeypatch.setattr(management, "delete_deferred", delete_deferred)
    monkeypatch.setattr(management, "receive_deferred", None)  # nothing is locked
    queue.namespace.archive = None
    report = await queue.settle_deferred({number: Complete() for number in range(1, 402)})
    assert report.ok
    assert [outcome.sequence_number for outcome in report] == list(range(1, 402))
    assert sum(asked) == 401
    assert len(asked) <= 6
    assert [message.sequence_number for message in await queue.peek()] == list(range(402, 451))
    found = await deferrals_of(queue)
    assert (len(found.messages), len(found.gone)) == (49, 0), "the journal has forgotten the others"


async def test_completing_without_an_archive_explains_the_others(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "for-good-others", 8)
    assert (await (await queue.defer_all(max_messages=6)).apply()).settled == 6
    async with queue.batch() as batch:
        assert len(await batch.receive_deferred([2])) == 1
        decisions: dict[int, Decision] = dict.fromkeys([1, 2, 3, 7, 99], Complete())
        queue.namespace.archive = None
        report = await queue.settle_deferred(decisions | {4: DeadLetter("Bad")})
    assert {outcome.sequence_number: outcome.status.name for outcome in report} == {
        1: "SETTLED",
        2: "SKIPPED",  # another receiver has its lock
        3: "SETTLED",
        7: "SKIPPED",  # it is not deferred
        99: "NOT_FOUND",
        4: "SETTLED",
    }
    assert [message.sequence_number for message in await queue.peek()] == [2, 5, 6, 7, 8]
    assert len(await namespace.entity(f"{queue.address}/$dlq").peek()) == 1


async def test_a_removal_without_an_answer_is_unconfirmed(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    queue = await filled_queue(own, "in-doubt", 30)
    assert (await (await queue.defer_all()).apply()).settled == 30
    emulator.faults.entity("in-doubt").drop_after_nth = 1
    queue.namespace.archive = None
    report = await queue.settle_deferred({number: Complete() for number in range(1, 31)})
    assert emulator.faults.entity("in-doubt").drop_after_nth == 0
    assert {outcome.status.name for outcome in report} == {"UNCONFIRMED"}
    assert "had no answer" in str(report[0].description)
    assert not await queue.peek()


@pytest.mark.parametrize("executed", [True, False])
async def test_a_removal_that_fails_tells_what_is_gone(
    own: AsyncNamespace, monkeypatch: pytest.MonkeyPatch, executed: bool
) -> None:
    queue = await filled_queue(own, "removal-fails", 500)
    assert (await (await queue.defer_all()).apply()).settled == 500
    delete, asked = management.delete_deferred, 0

    async def fail_at_the_fourth(receiver: Any, numbers: Sequence[int]) -> int:
        nonlocal asked
        asked += 1
        is_fourth = asked == 4
        removed = await delete(receiver, numbers) if executed or not is_fourth else 0
        if is_fourth:
            raise MessagingEntityDisabledError(message="It is disabled.")
        return removed

    monkeypatch.setattr(management, "delete_deferred", fail_at_the_fourth)
    queue.namespace.archive = None
    report = await queue.settle_deferred({number: Complete() for number in range(1, 501)})

    there = {message.sequence_number for message in await queue.peek()}
    settled, unknown, skipped = (
        {outcome.sequence_number for outcome in report if outcome.status is status}
        for status in (OutcomeStatus.SETTLED, OutcomeStatus.UNCONFIRMED, OutcomeStatus.SKIPPED)
    )
    assert len(settled | unknown | skipped) == 500
    assert skipped <= there
    assert not settled & there
    # Requests of other groups may be interrupted, too, because their link is closed.
    failed = [o for o in report if "may have removed it: It is disabled." in str(o.description)]
    assert len(failed) >= 100
    assert len((await deferrals_of(queue)).gone) == len(unknown - there), "the journal has forgotten the others"
