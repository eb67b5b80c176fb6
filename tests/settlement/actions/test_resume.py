from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.emulator import QueueOptions, RunningEmulator, running
from sbnotebook.model import Complete, DeadLetter, Defer, EntityAddress, OutcomeStatus, PeekedMessage, Resubmit
from sbnotebook.model.message import ORIGINAL_MESSAGE_ID
from sbnotebook.settlement import AsyncNamespace, Plan
from sbnotebook.settlement.memory.journal import ResubmitState
from tests.filled_queues import settle_first
from tests.settlement.actions.dead_letters import cut_off, dead_letters
from tests.settlement.clerks import CLERK, clerks_connection
from tests.settlement.namespaces import namespace_of

pytestmark = pytest.mark.anyio

SETTLED, UNCONFIRMED, SKIPPED = OutcomeStatus.SETTLED, OutcomeStatus.UNCONFIRMED, OutcomeStatus.SKIPPED


async def the_plan(namespace: AsyncNamespace, *, resend_unknown: bool = False) -> Plan:
    (plan,) = await namespace.resume(resend_unknown=resend_unknown)
    return plan


async def originals(namespace: AsyncNamespace, name: str) -> list[str]:
    """Of which message ids there are clones in an entity."""
    return [str(clone.application_properties[ORIGINAL_MESSAGE_ID]) for clone in await namespace.entity(name).peek()]


def ids(messages: list[PeekedMessage]) -> list[str | None]:
    return [message.message_id for message in messages]


async def test_resume_finishes_each_from_where_it_stopped(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "mixed", 6)
    source = namespace.entity("mixed/$dlq")
    await cut_off(namespace, letters[0], "mixed", sent=True, marked=True)
    await cut_off(namespace, letters[1], "mixed", sent=True)
    await cut_off(namespace, letters[2], "mixed", sent=False)
    await cut_off(namespace, letters[3], "mixed", sent=True, marked=True)
    await cut_off(namespace, letters[4], "mixed", sent=False)
    async with source.batch() as batch:  # 3 and 4 are gone
        locked = await batch.receive(6)
        await batch.settle(Complete(), [m for m in locked if m.message_id in ("m3", "m4")])

    plan = await the_plan(namespace)
    preview = plan.preview(10)
    assert preview.sentence.startswith("finish 5 resubmits of mixed/$dlq that were interrupted: complete the original")
    assert "its clone may have been sent or not (1)" in preview.sentence
    assert "the clone was sent, and the original is gone already (1)" in preview.sentence
    assert "nothing: the original is gone, and its clone is not to be found (1)" in preview.sentence
    assert [change.before for change in preview.changes] == ["sent", "intended", "intended", "sent", "intended"]
    assert len(plan.messages) == len(preview.messages) == 5
    assert len(await source.peek()) == 4, "a preview must not do anything"
    assert len(namespace.journal.unfinished(namespace.identity())) == 5

    seen: list[int] = []
    report = await plan.apply(progress=seen.append)

    assert [outcome.status for outcome in report] == [SETTLED, SETTLED, UNCONFIRMED, SETTLED, OutcomeStatus.NOT_FOUND]
    assert sum(seen) == 5
    assert "resend_unknown" in (report[2].description or "")
    assert "gone already" in (report[3].description or "")
    assert ids(await source.peek()) == ["m2", "m5"]
    assert await originals(namespace, "mixed") == ["m0", "m1", "m3"]
    assert [entry.message_id for entry in namespace.journal.unfinished(namespace.identity())] == ["m2"]

    report = await (await the_plan(namespace, resend_unknown=True)).apply()
    assert [outcome.status for outcome in report] == [SETTLED]
    assert ids(await source.peek()) == ["m5"]
    assert await originals(namespace, "mixed") == ["m0", "m1", "m3", "m2"]
    assert await namespace.resume() == []


@pytest.mark.parametrize("place", ["scheduled", "deferred", "dead-lettered", "forwarded", "subscription"])
async def test_a_clone_is_recognised_wherever_it_went(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, place: str
) -> None:
    name, to = f"went-{place}", f"to-{place}"
    letters = await dead_letters(namespace, name, 1)
    if place == "subscription":
        shared_emulator.create_topic(to)
        shared_emulator.create_subscription(to, "quiet", rules=[])
        shared_emulator.create_subscription(to, "all")
    else:
        shared_emulator.create_queue(f"{to}-next")
        shared_emulator.create_queue(to, QueueOptions(forward_to=f"{to}-next" if place == "forwarded" else None))
    entry = await cut_off(namespace, letters[0], to, sent=True)
    if place == "deferred":
        await settle_first(namespace.entity(to), Defer())
    elif place == "dead-lettered":
        await settle_first(namespace.entity(to), DeadLetter("Bad again"))
    elif place == "subscription":
        await settle_first(namespace.entity(f"{to}/subscriptions/all"), DeadLetter("Bad again"))
    assert entry.clone_id

    report = await (await the_plan(namespace)).apply()

    assert report.ok, report.failures
    assert await namespace.entity(f"{name}/$dlq").peek() == []


async def test_resume_resends_unknown_clones_with_duplicate_detection(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    shared_emulator.create_queue("once", QueueOptions(requires_duplicate_detection=True))
    letters = await dead_letters(namespace, "once", 3)
    await cut_off(namespace, letters[0], "once", sent=True)
    await settle_first(namespace.entity("once"), Complete())  # it had arrived, and was consumed
    await cut_off(namespace, letters[1], "once", sent=False)
    await cut_off(namespace, letters[2], "once", sent=False, edited=True)

    plan = await the_plan(namespace)
    sentence = plan.preview().sentence
    assert sentence.startswith("finish 3 resubmits of once/$dlq that were interrupted: ")
    assert "send the clone again, then complete the original (2)" in sentence
    report = await plan.apply()

    assert [outcome.status for outcome in report] == [SETTLED, SETTLED, UNCONFIRMED]
    assert "same edit" in (report[2].description or "")
    assert await originals(namespace, "once") == ["m1"], "the one that had arrived must not come again"
    assert ids(await namespace.entity("once/$dlq").peek()) == ["m2"]


async def test_resume_resends_a_clone_for_the_time_of_the_first(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "late", 1)
    entry = await cut_off(namespace, letters[0], "late", sent=False, delay=timedelta(hours=1))
    assert (await (await the_plan(namespace, resend_unknown=True)).apply()).ok
    (clone,) = await namespace.entity("late").peek()
    assert clone.scheduled_enqueue_time is not None
    assert entry.scheduled is not None
    assert timedelta() <= entry.scheduled - clone.scheduled_enqueue_time < timedelta(milliseconds=1)


async def test_resume_reports_a_locked_original(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "held", 1)
    await cut_off(namespace, letters[0], "held", sent=True, marked=True)
    async with namespace.entity("held/$dlq").batch() as batch:
        assert await batch.receive(1)
        report = await (await the_plan(namespace)).apply()
        assert [outcome.status for outcome in report] == [SKIPPED]
        assert "max_wait" in (report[0].description or "")
    (unfinished,) = namespace.journal.unfinished(namespace.identity())
    assert unfinished.state is ResubmitState.SENT
    assert (await (await the_plan(namespace)).apply()).ok


async def test_resume_leaves_another_message_with_the_number(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, tmp_path: Path
) -> None:
    letters = await dead_letters(namespace, "anew", 1)
    await cut_off(namespace, letters[0], "anew", sent=True, marked=True)
    await namespace.delete_queue("anew")
    async with namespace_of(shared_emulator, tmp_path) as later:
        (stranger,) = await dead_letters(later, "anew", 1)
        assert stranger.sequence_number == letters[0].sequence_number

        plan = await the_plan(later)
        assert plan.preview().sentence.startswith("finish 1 resubmit of anew/$dlq that was interrupted: ")
        assert "the original is gone already (1)" in plan.preview().sentence
        assert (await plan.apply()).ok
        assert ids(await later.entity("anew/$dlq").peek()) == ["m0"]
        assert await later.resume() == []


async def test_a_plan_that_another_run_overtakes_does_no_harm(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "twice", 2)
    await cut_off(namespace, letters[0], "twice", sent=True, marked=True)
    await cut_off(namespace, letters[1], "twice", sent=False)
    one, two = await the_plan(namespace, resend_unknown=True), await the_plan(namespace, resend_unknown=True)
    assert (await one.apply()).ok
    report = await two.apply()
    assert [outcome.status for outcome in report] == [SETTLED, OutcomeStatus.NOT_FOUND]
    assert await originals(namespace, "twice") == ["m0", "m1"]
    assert namespace.journal.unfinished(namespace.identity()) == []


async def test_resume_continues_past_a_missing_entity(namespace: AsyncNamespace) -> None:
    for name in ("lost", "kept"):
        letters = await dead_letters(namespace, name, 1)
        await cut_off(namespace, letters[0], name, sent=True, marked=True)
    await namespace.delete_queue("lost")
    lost, kept = await namespace.resume()
    assert [plan.entity.name for plan in (lost, kept)] == ["lost", "kept"]
    assert (await lost.apply()).ok
    (only,) = await namespace.resume("KEPT/$dlq")
    assert only.entity == kept.entity
    assert (await only.apply()).ok
    assert await namespace.resume() == []


async def test_an_entity_that_may_be_there_is_not_called_missing(tmp_path: Path) -> None:
    with running(keys=[CLERK]) as emulator:
        async with namespace_of(emulator, tmp_path) as namespace:
            letters = await dead_letters(namespace, "hidden", 1)
            await namespace.create_queue("kept")
            await cut_off(namespace, letters[0], "kept", sent=False)
            await namespace.delete_queue("hidden")
        async with namespace_of(clerks_connection(emulator), tmp_path) as namespace:
            plan = await the_plan(namespace)
            assert "the original could not be looked at (1)" in plan.preview().sentence
            assert [outcome.status for outcome in await plan.apply()] == [OutcomeStatus.FAILED]
            (entry,) = namespace.journal.unfinished(namespace.identity())
            assert entry.state is ResubmitState.INTENDED


async def test_an_original_that_is_locked_is_waited_for(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "awaited", 1)
    await cut_off(namespace, letters[0], "awaited", sent=True, marked=True)
    (plan,) = await namespace.resume(max_wait=60)
    async with anyio.create_task_group() as tasks:
        held = anyio.Event()

        async def hold() -> None:
            async with namespace.entity("awaited/$dlq").batch() as batch:
                assert await batch.receive(1)
                held.set()
                await anyio.sleep(0.7)

        tasks.start_soon(hold)
        await held.wait()
        assert (await plan.apply()).ok
    assert await namespace.entity("awaited/$dlq").peek() == []


async def test_a_resume_that_stops_forgets_no_original(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    letters = await dead_letters(own, "stops", 250)
    for letter in letters:
        await cut_off(own, letter, "stops", sent=False, marked=True)
    plan = await the_plan(own)
    emulator.faults.entity(letters[0].entity.path).drop_after_nth = 130  # while the second group is completed
    report = await plan.apply()
    there = {message.sequence_number for message in await own.entity("stops/$dlq").peek()}
    assert not report.ok
    # No existing message is reported as done or gone, and the journal still knows it.
    ended = {o.sequence_number for o in report if o.status in (SETTLED, OutcomeStatus.NOT_FOUND)}
    assert not ended & there
    assert there <= {entry.sequence_number for entry in own.journal.unfinished(own.identity())}


@pytest.mark.parametrize("empty", [1, 3])
async def test_an_original_that_a_peek_misses_is_looked_for_again(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, empty: int
) -> None:
    """Azure answers a peek with nothing now and then: azure-sdk-for-js issue 12450."""
    name = f"missed-{empty}"
    letters = await dead_letters(namespace, name, 2)
    for letter in letters:
        await cut_off(namespace, letter, name, sent=True, marked=True)
    shared_emulator.faults.entity(f"{name}/$DeadLetterQueue").empty_peeks = empty
    report = await (await the_plan(namespace)).apply()
    assert [(outcome.status, outcome.description) for outcome in report] == [
        (SETTLED, f"An earlier run had sent its clone to {name}.")
    ] * 2
    assert await namespace.entity(f"{name}/$dlq").peek() == []


@pytest.mark.parametrize("known", [True, False])
async def test_an_original_that_reappears_is_not_sent_twice(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, known: bool
) -> None:
    """A resume takes it for gone, because no peek showed it; its clone was sent and consumed meanwhile."""
    name = f"back-{known}".lower()
    letters = await dead_letters(namespace, name, 1)
    await cut_off(namespace, letters[0], name, sent=True, marked=known)
    await settle_first(namespace.entity(name), Complete())
    faults = shared_emulator.faults.entity(f"{name}/$DeadLetterQueue")
    faults.empty_peeks = 4 if known else 6  # its clone is looked for there, too
    plan = await the_plan(namespace)
    await plan.apply()
    assert faults.empty_peeks == 0
    assert namespace.journal.unfinished(namespace.identity()) == []

    source = namespace.entity(f"{name}/$dlq")
    report = await source.plan_resubmit(await source.peek(), Resubmit()).apply()

    assert [outcome.status for outcome in report] == [SETTLED if known else UNCONFIRMED]
    assert await namespace.entity(name).peek() == [], "its clone was sent a second time"
    assert ids(await source.peek()) == ([] if known else ["m0"])
    if not known:
        again = source.plan_resubmit(await source.peek(), Resubmit(resend_unknown=True))
        assert (await again.apply()).ok
        assert await originals(namespace, name) == ["m0"]
        assert await source.peek() == []
        states = [entry.state for entry in namespace.journal.resubmits(namespace.identity())]
        assert states == [ResubmitState.DONE, ResubmitState.GONE]


@pytest.mark.parametrize("resend_unknown", [False, True])
async def test_a_clone_that_cannot_be_looked_for_is_not_given_up(
    namespace: AsyncNamespace, monkeypatch: pytest.MonkeyPatch, resend_unknown: bool
) -> None:
    """The interrupted run had completed the original; its destination cannot be peeked at for a while."""
    name = f"unseen-{resend_unknown}".lower()
    letters = await dead_letters(namespace, name, 1)
    await cut_off(namespace, letters[0], name, sent=True)
    await settle_first(namespace.entity(f"{name}/$dlq"), Complete())
    with monkeypatch.context() as patch:

        async def no_answer(*_: object, **__: object) -> list[bytes]:
            raise ServiceBusError("It does not answer.")

        patch.setattr(namespace.peeker(EntityAddress(name)), "page", no_answer)
        plan = await the_plan(namespace, resend_unknown=resend_unknown)
        assert "its clone could not be looked for (1)" in plan.preview().sentence
        report = await plan.apply()
    assert [outcome.status for outcome in report] == [UNCONFIRMED]
    assert f"{name} could not be looked into" in (report[0].description or "")
    assert len(namespace.journal.unfinished(namespace.identity())) == 1

    assert [outcome.status for outcome in await (await the_plan(namespace)).apply()] == [SETTLED]
    assert namespace.journal.unfinished(namespace.identity()) == []
