from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from sbnotebook.amqp import type_name
from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    Complete,
    Defer,
    EntityAddress,
    Message,
    MessageState,
    OutcomeStatus,
    ReceivedMessage,
    Report,
    Resubmit,
)
from sbnotebook.model.message import ORIGINAL_MESSAGE_ID
from sbnotebook.settlement import AsyncNamespace, Limits, Watch
from sbnotebook.settlement.engine import RunReport
from sbnotebook.settlement.pace import Pause
from tests.filled_queues import filled_queue, settle_first
from tests.settlement.actions.dead_letters import cut_off, dead_letters

pytestmark = pytest.mark.anyio

NEXT_YEAR = datetime.now(UTC) + timedelta(days=365)


async def test_resubmit_sends_and_completes_chosen_leaves_others(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "chosen", 8)
    source = namespace.entity("chosen/$dlq")
    before = {letter.message_id: letter.delivery_count for letter in letters}
    chosen = [letters[2], letters[5]]

    plan = source.plan_resubmit(
        chosen, Resubmit(to=EntityAddress("chosen")), edit=lambda message: message.with_changes(body=b"mended")
    )
    assert plan.others == 0
    assert "resubmit 2 messages of chosen/$dlq to chosen, edited" in str(plan.preview())
    assert [(change.field, change.before, change.after) for change in plan.preview(1).changes] == [
        ("body", "2", "mended")
    ]
    assert len(await source.peek()) == 8, "a preview must not do anything"
    report = await plan.apply(Limits(max_in_flight=3))

    assert [outcome.status for outcome in report] == [OutcomeStatus.SETTLED] * 2
    assert [outcome.sequence_number for outcome in report] == [letter.sequence_number for letter in chosen]
    clones = {clone.message_id: clone for clone in await namespace.entity("chosen").peek()}
    assert sorted(name.split("~")[0] for name in clones if name) == ["m2", "m5"]
    (clone,) = [clone for clone in clones.values() if clone.application_properties[ORIGINAL_MESSAGE_ID] == "m2"]
    assert clone.body == b"mended"
    assert clone.resubmit_count == 1
    assert clone.application_properties[ORIGINAL_MESSAGE_ID] == "m2"
    assert type_name(clone.application_properties["n"]) == "long"
    assert clone.dead_letter_reason is None
    assert clone.dead_letter_error_description is None
    left = await source.peek()
    assert {message.message_id: message.delivery_count for message in left} == {
        name: count for name, count in before.items() if name not in ("m2", "m5")
    }
    assert namespace.journal.unfinished(namespace.identity()) == []


async def test_resubmit_reports_a_missing_message_and_sends_nothing(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "went", 2)
    source = namespace.entity("went/$dlq")
    await settle_first(source, Complete())

    report = await source.plan_resubmit(letters, Resubmit(to=EntityAddress("went"))).apply()

    assert [outcome.status for outcome in report] == [OutcomeStatus.NOT_FOUND, OutcomeStatus.SETTLED]
    (clone,) = await namespace.entity("went").peek()
    assert clone.application_properties[ORIGINAL_MESSAGE_ID] == "m1"


async def test_a_refused_clone_leaves_the_original_where_it_is(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "refused", 1)
    source = namespace.entity("refused/$dlq")

    def too_large(message: ReceivedMessage) -> Message:
        return message.with_changes(body=b"x" * 2_000_000)

    report = await source.plan_resubmit(letters, Resubmit(to=EntityAddress("refused")), edit=too_large).apply()

    assert [outcome.status for outcome in report] == [OutcomeStatus.FAILED]
    assert "Sending the clone" in (report[0].description or "")
    (still_there,) = await source.peek()
    assert still_there.delivery_count == letters[0].delivery_count
    assert await namespace.entity("refused").peek() == []
    assert namespace.journal.unfinished(namespace.identity()) == []


async def test_resubmit_failing_edit_leaves_that_message_only(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "edited", 3)

    def edit(message: ReceivedMessage) -> Message:
        if message.message_id == "m1":
            raise KeyError("carrier", "password=c2VjcmV0")
        return message

    plan = namespace.entity("edited/$dlq").plan_resubmit(letters, Resubmit(to=EntityAddress("edited")), edit=edit)
    assert ": KeyError" in str(plan.preview())
    report = await plan.apply()

    assert [outcome.status for outcome in report] == [
        OutcomeStatus.SETTLED,
        OutcomeStatus.FAILED,
        OutcomeStatus.SETTLED,
    ]
    assert "KeyError: ('carrier', 'password=***')" in (report[1].description or "")
    assert "c2VjcmV0" not in str(plan.preview())
    assert [message.message_id for message in await namespace.entity("edited/$dlq").peek()] == ["m1"]


async def test_resubmit_refuses_edits_that_are_async_or_no_message(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "nothing", 1)
    source = namespace.entity("nothing/$dlq")

    async def later(message: ReceivedMessage) -> Message:
        return message

    with pytest.raises(DecisionError, match="not an async one"):
        source.plan_resubmit(letters, edit=later)  # pyright: ignore[reportArgumentType]
    plan = source.plan_resubmit(letters, Resubmit(to=EntityAddress("nothing")), edit=lambda _message: None)  # pyright: ignore[reportArgumentType]
    assert [outcome.status for outcome in await plan.apply()] == [OutcomeStatus.FAILED]

    def verbose(_message: ReceivedMessage) -> Message:
        raise ValueError("no such carrier " * 100)

    (failed,) = await source.plan_resubmit(letters, Resubmit(to=EntityAddress("nothing")), edit=verbose).apply()
    assert len(failed.description or "") == 500
    assert len(await source.peek()) == 1


async def test_resubmit_refuses_messages_of_another_queue(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "mine", 1)
    own = await dead_letters(namespace, "yours", 1)
    theirs = letters[0].with_changes(entity=EntityAddress("theirs"))
    why = r"^2 of the messages are not in yours/\$dlq \(the first is in mine/\$dlq\)"
    with pytest.raises(DecisionError, match=why):
        namespace.entity("yours/$dlq").plan_resubmit([*own, *letters, theirs])


async def test_resubmit_resends_an_unknown_clone_only_if_asked(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "unknown", 1)
    await cut_off(namespace, letters[0], "unknown", sent=False)
    source = namespace.entity("unknown/$dlq")

    report = await source.plan_resubmit(letters, Resubmit(to=EntityAddress("unknown"))).apply()

    assert [outcome.status for outcome in report] == [OutcomeStatus.UNCONFIRMED]
    assert "resend_unknown" in (report[0].description or "")
    assert len(await source.peek()) == 1
    again = Resubmit(to=EntityAddress("unknown"), resend_unknown=True)
    assert (await source.plan_resubmit(letters, again).apply()).ok
    assert len(await namespace.entity("unknown").peek()) == 1
    assert namespace.journal.unfinished(namespace.identity()) == []
    assert len(namespace.journal.resubmits(namespace.identity())) == 1, "it is the same resubmit"


async def test_the_next_clones_are_sent_while_originals_are_completed(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    letters = await dead_letters(namespace, "beside", 400)
    source, queue = namespace.entity("beside/$dlq"), namespace.entity("beside")
    faults = shared_emulator.faults.entity("beside/$DeadLetterQueue")
    faults.settle_delay_ms = 2_500

    async def look_when_two_groups_are_sent() -> None:
        while len(await queue.peek()) < 300:
            pass
        assert watch.report.settled == 0
        faults.settle_delay_ms = 0

    with Watch() as watch:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look_when_two_groups_are_sent)
            await source.plan_resubmit(letters, Resubmit(to=queue.address)).apply()

    assert watch.report.counts == {OutcomeStatus.SETTLED: 400}
    assert (len(await queue.peek()), len(await source.peek())) == (400, 0)
    assert namespace.journal.unfinished(namespace.identity()) == []


async def test_clones_keep_their_order_though_the_first_edit_is_slow(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "slow-edit", 400)
    queue = namespace.entity("slow-edit")

    def edit(message: ReceivedMessage) -> Message:
        if message.message_id == "m0":
            time.sleep(1)
        return message.with_changes(session_id="one")

    plan = namespace.entity("slow-edit/$dlq").plan_resubmit(letters, Resubmit(to=queue.address), edit=edit)
    assert (await plan.apply()).ok

    clones = await queue.peek()
    assert [clone.body for clone in clones] == [b"%d" % n for n in range(400)]
    assert {clone.session_id for clone in clones} == {"one"}


async def test_resubmit_interrupt_completes_originals_of_sent_clones(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    letters = await dead_letters(namespace, "midway", 300)
    source, queue = namespace.entity("midway/$dlq"), namespace.entity("midway")
    shared_emulator.faults.entity("midway").accept_delay_ms = 3_000

    scope = anyio.CancelScope()

    async def stop_when_clones_have_arrived() -> None:
        while not await queue.peek(1):
            pass
        assert watch.report.counts == {OutcomeStatus.UNCONFIRMED: 200, OutcomeStatus.SKIPPED: 100}
        scope.cancel()

    with Watch() as watch:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stop_when_clones_have_arrived)
            with scope:
                await source.plan_resubmit(letters, Resubmit(to=queue.address)).apply()
    assert scope.cancelled_caught
    assert watch.report.counts == {OutcomeStatus.SETTLED: 200, OutcomeStatus.SKIPPED: 100}
    assert (len(await queue.peek()), len(await source.peek())) == (200, 100)
    assert {message.delivery_count for message in await source.peek()} == {0}
    assert namespace.journal.unfinished(namespace.identity()) == []


async def test_resubmit_takes_deferred_originals_by_number(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "aside", 4)
    before = await queue.peek()
    async with queue.batch() as batch:
        locked = await batch.receive(4)
        await batch.settle(Defer(), [message for message in locked if message.body in b"02"])
    peeked = [message for message in await queue.peek() if message.body == b"0"]
    assert peeked[0].state is MessageState.DEFERRED
    others = [message for message in before if message.body in b"12"]  # 2 was active when it was peeked

    report = await queue.plan_resubmit([*peeked, *others], Resubmit(to=EntityAddress("aside"))).apply()

    assert report.ok, report.failures
    assert [message.body for message in await queue.peek()] == [b"3", b"1", b"0", b"2"]
    assert namespace.journal.unfinished(namespace.identity()) == []


async def test_resubmit_skips_scheduled_and_locked_originals(namespace: AsyncNamespace) -> None:
    messages = [b"held", Message(scheduled_enqueue_time=NEXT_YEAR)]
    queue = await filled_queue(namespace, "out-of-reach", messages, lock_duration=timedelta(seconds=5))
    chosen = await queue.peek()
    async with queue.batch() as batch:
        assert await batch.receive(1)
        report = await queue.plan_resubmit(chosen, Resubmit(to=EntityAddress("out-of-reach"))).apply()
    assert [outcome.status for outcome in report] == [OutcomeStatus.SKIPPED] * 2
    assert "another receiver has its lock" in (report[0].description or "")
    assert "scheduled" in (report[1].description or "")
    assert len(await queue.peek()) == 2


async def test_nothing_is_locked_to_look_for_what_is_scheduled(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "not-locked", [b"now", Message(scheduled_enqueue_time=NEXT_YEAR)])
    report = await queue.plan_resubmit(await queue.peek(state=MessageState.SCHEDULED)).apply()
    assert [outcome.status for outcome in report] == [OutcomeStatus.SKIPPED]
    assert isinstance(report, RunReport)
    assert report.rest == Report()


@pytest.mark.parametrize("limits", [Limits(rate=1_000), Limits(pause=Pause())], ids=["rate", "pause"])
async def test_what_is_done_is_recorded_before_a_long_wait(namespace: AsyncNamespace, limits: Limits) -> None:
    name = "recorded-rate" if limits.rate else "recorded-pause"
    letters = await dead_letters(namespace, name, 3)
    unfinished: list[int] = []

    def look(_count: int) -> None:
        unfinished.append(len(namespace.journal.unfinished(namespace.identity())))

    plan = namespace.entity(f"{name}/$dlq").plan_resubmit(letters, Resubmit(to=EntityAddress(name)))
    assert (await plan.apply(limits, look)).ok
    assert set(unfinished) == {0}
