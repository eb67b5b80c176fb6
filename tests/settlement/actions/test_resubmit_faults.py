"""Resubmits that something goes wrong with, and those that an earlier run had begun."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.emulator import QueueOptions, RunningEmulator, running
from sbnotebook.errors import JournalError
from sbnotebook.model import Complete, EntityAddress, Message, OutcomeStatus, ReceivedMessage, Resubmit
from sbnotebook.settlement import AsyncNamespace, Journal
from sbnotebook.settlement.actions.resubmit import TOO_OFTEN
from sbnotebook.settlement.engine import GROUP
from sbnotebook.settlement.memory.journal import OriginalKey, ResubmitEntry, ResubmitState
from tests.filled_queues import filled_queue, settle_first
from tests.hand_clock import HandClock
from tests.settlement.actions.dead_letters import cut_off, dead_letters
from tests.settlement.clerks import CLERK, clerks_connection
from tests.settlement.namespaces import namespace_of
from tests.settlement.waiting import until

pytestmark = pytest.mark.anyio

SETTLED, UNCONFIRMED, FAILED = OutcomeStatus.SETTLED, OutcomeStatus.UNCONFIRMED, OutcomeStatus.FAILED


class Tampered(Journal):
    """A journal that calls a function when a state is recorded for the first time."""

    def __init__(self, path: Path, state: ResubmitState, act: Callable[[], None]) -> None:
        super().__init__(path)
        self._state, self._act = state, [act]

    def mark(self, ids: Iterable[int], state: ResubmitState) -> None:
        super().mark(ids, state)
        if state is self._state and self._act:
            self._act.pop()()


def resubmit(to: str, **options: object) -> Resubmit:
    return Resubmit(to=EntityAddress(to), **options)  # pyright: ignore[reportArgumentType]


async def bodies(namespace: AsyncNamespace, name: str) -> list[bytes]:
    return [message.body for message in await namespace.entity(name).peek()]


async def test_resubmit_dead_letters_past_max_resubmits(namespace: AsyncNamespace) -> None:
    properties = [{"ResubmitCount": count} for count in (2, 3, 0)]
    messages = [Message(message_id=f"m{n}", application_properties=each) for n, each in enumerate(properties)]
    queue = await filled_queue(namespace, "often", messages)

    plan = queue.plan_resubmit(await queue.peek(), resubmit("often", max_resubmits=3))
    assert "at most 3 times each (then dead-lettered)" in plan.preview().sentence
    report = await plan.apply()

    assert report.ok, report.failures
    assert [outcome.verb for outcome in report] == ["resubmit", "dead-letter", "resubmit"]
    assert "dead-lettered" in (report[1].description or "")
    (dead,) = await namespace.entity("often/$dlq").peek()
    assert (dead.message_id, dead.dead_letter_reason) == ("m1", TOO_OFTEN)
    assert "3 times" in (dead.dead_letter_error_description or "")
    assert [message.resubmit_count for message in await queue.peek()] == [3, 1]


async def test_resubmit_completes_what_an_earlier_run_sent(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "before", 2)
    await namespace.create_queue("elsewhere")
    await cut_off(namespace, letters[0], "before", sent=True, marked=True)
    await cut_off(namespace, letters[1], "before", sent=True)

    def broken(_message: ReceivedMessage) -> Message:
        raise KeyError("carrier")

    source = namespace.entity("before/$dlq")
    report = await source.plan_resubmit(letters, resubmit("elsewhere", max_resubmits=1), edit=broken).apply()

    assert report.ok, report.failures
    assert report[0].description == "An earlier run had sent its clone to before."
    assert await source.peek() == []
    assert await bodies(namespace, "before") == [b"0", b"1"]
    assert await bodies(namespace, "elsewhere") == []


async def test_resubmit_forgets_an_unknown_clone_sent_elsewhere(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "here", 1)
    await namespace.create_queue("there")
    await cut_off(namespace, letters[0], "here", sent=False)
    plan = namespace.entity("here/$dlq").plan_resubmit(letters, resubmit("there", resend_unknown=True))
    assert (await plan.apply()).ok
    assert await bodies(namespace, "there") == [b"0"]
    assert namespace.journal.unfinished(namespace.identity()) == []
    known = namespace.journal.resubmits(namespace.identity())
    assert [(entry.destination, entry.state) for entry in known] == [
        ("there", ResubmitState.DONE),
        ("here", ResubmitState.GONE),
    ]


@pytest.mark.parametrize(
    ("seconds", "begun_to", "status"),
    [
        (0, "once", SETTLED),
        (420, "once", SETTLED),
        (500, "once", UNCONFIRMED),
        (10**6, "once", UNCONFIRMED),
        (-60, "once", UNCONFIRMED),
        (0, "elsewhere", UNCONFIRMED),
    ],
)
async def test_resubmit_resends_only_while_duplicates_are_dropped(
    own: AsyncNamespace, emulator: RunningEmulator, seconds: int, begun_to: str, status: OutcomeStatus
) -> None:
    """The destination drops them for ten minutes; the interrupted resubmit began so many seconds ago."""
    for name in ("once", "elsewhere"):
        emulator.create_queue(name, QueueOptions(requires_duplicate_detection=True))
    letters = await dead_letters(own, "begun", 1)
    await cut_off(own, letters[0], begun_to, sent=False)
    begun = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()
    with own.journal.transaction() as database:
        database.execute("UPDATE resubmits SET changed = ?", (begun,))
    (outcome,) = await own.entity("begun/$dlq").plan_resubmit(letters, resubmit("once")).apply()
    assert outcome.status is status
    assert ("resend_unknown" in (outcome.description or "")) is (status is UNCONFIRMED)


@pytest.mark.parametrize("edited", [False, True])
async def test_a_second_attempt_that_is_refused_leaves_the_first_open(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, edited: bool
) -> None:
    """The first one may have arrived nevertheless."""
    name = f"refused-again-{edited}".lower()
    shared_emulator.create_queue(f"{name}-to", QueueOptions(requires_duplicate_detection=True))
    letters = await dead_letters(namespace, name, 1)
    await cut_off(namespace, letters[0], f"{name}-to", sent=False)
    faults = shared_emulator.faults.entity(f"{name}-to")
    faults.reject_nth, faults.reject_condition = 1, "amqp:resource-limit-exceeded"
    plan = namespace.entity(f"{name}/$dlq").plan_resubmit(
        letters, resubmit(f"{name}-to"), edit=(lambda message: message.with_changes(body=b"x")) if edited else None
    )
    assert [outcome.status for outcome in await plan.apply()] == [FAILED]
    (entry,) = namespace.journal.unfinished(namespace.identity())
    assert (entry.state, entry.edited) == (ResubmitState.INTENDED, edited)


async def test_resubmit_relocks_after_sending_and_sends_once(shared_emulator: RunningEmulator, tmp_path: Path) -> None:
    journal = Tampered(
        tmp_path / "journal.sqlite", ResubmitState.SENT, lambda: shared_emulator.lose_locks("again/$dlq")
    )
    async with namespace_of(shared_emulator, tmp_path, journal=journal) as namespace:
        letters = await dead_letters(namespace, "again", 5)
        plan = namespace.entity("again/$dlq").plan_resubmit(letters, resubmit("again"))
        seen: list[int] = []
        report = await plan.apply(progress=seen.append)
        assert report.ok, report.failures
        assert sum(seen) == 5
        assert await namespace.entity("again/$dlq").peek() == []
        assert await bodies(namespace, "again") == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("when", ["after the intent", "between two attempts"])
async def test_resubmit_looks_at_the_lock_before_each_attempt(tmp_path: Path, clock: HandClock, when: str) -> None:
    """The lock ends while the intent is written, or while the destination is busy."""

    class Slow(Journal):
        def intend(self, entries: Sequence[ResubmitEntry]) -> list[int]:
            ids = super().intend(entries)
            if when == "after the intent":
                clock.emulators.advance(61)
            return ids

    async def turn_while_it_is_busy() -> None:
        await until(lambda: not faults.server_busy)
        clock.emulators.advance(61)

    with running(clock=clock.emulators) as emulator:
        journal = Slow(tmp_path / "journal.sqlite")
        slow = namespace_of(emulator, tmp_path, journal=journal, clock=clock)
        async with slow as namespace, anyio.create_task_group() as tg:
            letters = await dead_letters(namespace, "slow", 3)
            await namespace.create_queue("target")
            faults = emulator.faults.entity("target")
            if when == "between two attempts":
                faults.server_busy = 1
                tg.start_soon(turn_while_it_is_busy)
            report = await namespace.entity("slow/$dlq").plan_resubmit(letters, resubmit("target")).apply()
            assert report.counts == {OutcomeStatus.LOCK_LOST: 3}
            assert {outcome.description for outcome in report} == {
                "The lock had ended before its clone was sent: nothing was sent."
            }
            assert await bodies(namespace, "target") == []
            assert journal.unfinished(namespace.identity()) == []


async def test_a_group_that_fails_ends_those_in_progress_behind_it(emulator: RunningEmulator, tmp_path: Path) -> None:
    """The journal fails for the second group, while the third one waits for its turn to send."""
    third = threading.Event()

    class Full(Journal):
        def find_begun(self, namespace: str, keys: Collection[OriginalKey]) -> dict[OriginalKey, ResubmitEntry]:
            if max(number for _, number, _ in keys) > 2 * GROUP:
                third.set()
            return super().find_begun(namespace, keys)

        def intend(self, entries: Sequence[ResubmitEntry]) -> list[int]:
            if GROUP < entries[0].sequence_number <= 2 * GROUP:
                assert third.wait(30)
                raise JournalError("The disk is full.")
            return super().intend(entries)

    async with namespace_of(emulator, tmp_path, journal=Full(tmp_path / "journal.sqlite")) as namespace:
        letters = await dead_letters(namespace, "full", 3 * GROUP)
        await namespace.create_queue("target")
        report = await namespace.entity("full/$dlq").plan_resubmit(letters, resubmit("target")).apply()
        assert report.settled == GROUP
        assert await bodies(namespace, "target") == [b"%d" % n for n in range(GROUP)]


@pytest.mark.parametrize("arrived", [True, False])
@pytest.mark.parametrize("once", [True, False])
async def test_resubmit_unanswered_clone_is_unconfirmed_then_finished(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, arrived: bool, once: bool
) -> None:
    name = f"cut-{arrived}-{once}".lower()
    shared_emulator.create_queue(f"{name}-to", QueueOptions(requires_duplicate_detection=once))
    letters = await dead_letters(namespace, name, 1)
    source = namespace.entity(f"{name}/$dlq")
    faults = shared_emulator.faults.entity(f"{name}-to")
    if arrived:
        faults.drop_after_nth = 1
    else:
        faults.drop_before_nth = 1

    report = await source.plan_resubmit(letters, resubmit(f"{name}-to")).apply()
    assert [outcome.status for outcome in report] == [UNCONFIRMED]
    assert len(await source.peek()) == 1
    report = await source.plan_resubmit(letters, resubmit(f"{name}-to")).apply()

    finished = arrived or once
    assert [outcome.status for outcome in report] == [SETTLED if finished else UNCONFIRMED]
    assert await bodies(namespace, f"{name}-to") == ([b"0"] if finished else [])
    assert len(await source.peek()) == (0 if finished else 1)


async def test_resubmit_without_manage_right_sends_nothing_twice(tmp_path: Path) -> None:
    with running(keys=[CLERK]) as emulator:
        async with namespace_of(emulator, tmp_path) as namespace:
            emulator.create_queue("asked", QueueOptions(requires_duplicate_detection=True))
            letters = await dead_letters(namespace, "asked", 1)
            await cut_off(namespace, letters[0], "asked", sent=False)
        async with namespace_of(clerks_connection(emulator), tmp_path) as namespace:
            report = await namespace.entity("asked/$dlq").plan_resubmit(letters, resubmit("asked")).apply()
            assert [outcome.status for outcome in report] == [UNCONFIRMED]
            assert "the right Manage is needed" in (report[0].description or "")
            assert "topic" not in (report[0].description or "")
            assert "Y2xlcms" not in str(report[0])
            assert await bodies(namespace, "asked") == []


async def test_resubmit_unsendable_edit_fails_for_that_message_only(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "odd", 3)

    def odd(message: ReceivedMessage) -> Message:
        return message.with_changes(application_properties={"n": object() if message.message_id == "m1" else 1})

    report = await namespace.entity("odd/$dlq").plan_resubmit(letters, resubmit("odd"), edit=odd).apply()
    assert [outcome.status for outcome in report] == [SETTLED, FAILED, SETTLED]
    assert namespace.journal.unfinished(namespace.identity()) == []
    assert [message.message_id for message in await namespace.entity("odd/$dlq").peek()] == ["m1"]


async def test_resubmit_checks_the_destination_before_locking(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "nowhere", 1)
    source = namespace.entity("nowhere/$dlq")
    with pytest.raises(ServiceBusError):
        await source.plan_resubmit(letters, resubmit("not-there")).apply()
    assert namespace.journal.unfinished(namespace.identity()) == []
    async with source.batch() as batch:
        assert len(await batch.receive(1)) == 1


async def test_resubmit_keeps_the_edit_of_a_second_attempt(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    shared_emulator.create_queue("mend", QueueOptions(requires_duplicate_detection=True))
    letters = await dead_letters(namespace, "mend", 1)
    await cut_off(namespace, letters[0], "mend", sent=False)
    drops = [1]

    def mend(message: ReceivedMessage) -> Message:
        shared_emulator.faults.entity("mend").drop_before_nth = drops.pop() if drops else 0
        return message.with_changes(body=b"mended")

    source = namespace.entity("mend/$dlq")
    report = await source.plan_resubmit(letters, resubmit("mend"), edit=mend).apply()
    assert [outcome.status for outcome in report] == [UNCONFIRMED]
    (plan,) = await namespace.resume()
    assert [outcome.status for outcome in await plan.apply()] == [UNCONFIRMED]
    assert (await source.plan_resubmit(letters, resubmit("mend"), edit=mend).apply()).ok
    assert await bodies(namespace, "mend") == [b"mended"]


@pytest.mark.parametrize("atomic", [False, True])
async def test_no_second_clone_is_sent_that_is_not_dropped(
    namespace_by_hand: AsyncNamespace, emulator_by_hand: RunningEmulator, clock: HandClock, atomic: bool
) -> None:
    """An earlier run's clone was consumed, and the edit outlasts the ten minutes in which a second one is dropped."""
    options = QueueOptions(requires_duplicate_detection=True, lock_duration=300_000)
    emulator_by_hand.create_queue("once", options)
    (letter,) = await dead_letters(namespace_by_hand, "once", 1)
    await cut_off(namespace_by_hand, letter, "once", sent=True)
    await settle_first(namespace_by_hand.entity("once"), Complete())
    clock.emulators.advance(420)

    def slow(message: ReceivedMessage) -> Message:
        clock.emulators.advance(200)
        return message

    source = namespace_by_hand.entity("once/$dlq")
    report = await source.plan_resubmit([letter], resubmit("once", atomic=atomic), edit=slow).apply()

    assert [outcome.status for outcome in report] == [UNCONFIRMED]
    assert "Resubmit again" in (report[0].description or "")
    assert await bodies(namespace_by_hand, "once") == []
    assert len(await source.peek()) == 1
    (entry,) = namespace_by_hand.journal.unfinished(namespace_by_hand.identity())
    assert entry.state is ResubmitState.INTENDED
