"""Messages in the middle of a queue are settled, all others stay as they were, and bad input is refused."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.amqp import AmqpValue, Long, Symbol, encode
from sbnotebook.emulator import QueueOptions, RunningEmulator
from sbnotebook.errors import ArchiveError, DecisionError
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
    Resubmit,
    Send,
)
from sbnotebook.settlement import AsyncEntity, AsyncNamespace
from sbnotebook.settlement.engine import RunReport
from sbnotebook.settlement.locking import ahead
from sbnotebook.settlement.memory.archive import Archive, ArchivedMessage
from sbnotebook.settlement.plan import Plan
from sbnotebook.settlement.sdk import clients
from tests.filled_queues import delivery_counts, filled_queue, sequence_numbers, session_messages, settle_first
from tests.hand_clock import HandClock
from tests.settlement.deferrals import deferrals_of
from tests.settlement.namespaces import archive_in
from tests.settlement.waiting import append_to

pytestmark = pytest.mark.anyio


async def heads(queue: AsyncEntity, count: int) -> list[int]:
    """The numbers that a receiver gets first."""
    async with queue.batch() as batch:
        return [message.sequence_number for message in await batch.receive(count, max_wait=2)]


@pytest.fixture
def small_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have 3,000 messages come by several requests."""
    monkeypatch.setattr(ahead, "_CHUNK", 900)


def after(locked: int, act: Callable[[], None]) -> Callable[[int], None]:
    """A progress that does something once, when so many messages were locked.

    A request may bring fewer messages than it asks for. With small requests and 1,000, this acts at 1,899 or earlier,
    and the next request ends at 2,799 or earlier: before the last of 3,000.
    """
    so_far = 0

    def progress(count: int) -> None:
        nonlocal so_far
        if so_far < locked <= so_far + count:
            act()
        so_far += count

    return progress


async def test_ten_of_ten_thousand_are_settled_and_no_other_changes(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "pick-ten-thousand", 10_000)
    numbers = await sequence_numbers(queue)
    chosen = numbers[999::1000]

    plan = await queue.pick(chosen, Complete())

    assert plan.total == 10_000
    assert "9,990 other messages before the last of them" in plan.preview().sentence
    assert list(await delivery_counts(queue)) == numbers, "making a plan must do nothing"

    told: list[int] = []
    report = await plan.apply(progress=told.append)

    assert report.ok
    assert [outcome.sequence_number for outcome in report] == chosen
    assert [outcome.message_id for outcome in report] == [f"m{n}" for n in range(999, 10_000, 1000)]
    assert sum(told) == 10_000
    assert isinstance(report, RunReport)
    assert (len(report.rest), report.rest.ok) == (9_990, True)
    assert "9,990 others released unchanged" in str(report)
    rest = [number for number in numbers if number not in chosen]
    assert await delivery_counts(queue) == dict.fromkeys(rest, 0)
    assert await heads(queue, 50) == rest[:50], "they come in their order again"


@pytest.mark.parametrize(
    ("name", "decision"),
    [
        ("complete", Complete()),
        ("dead-letter", DeadLetter("Bad", "no good")),
        ("defer", Defer()),
        ("abandon", Abandon()),
    ],
)
async def test_each_decision_reaches_the_chosen_ones_only(
    namespace: AsyncNamespace, name: str, decision: Decision
) -> None:
    queue = await filled_queue(namespace, f"pick-{name}", 40)
    numbers = await sequence_numbers(queue)
    chosen = [numbers[30], numbers[3]]

    report = await (await queue.pick(chosen, decision)).apply()

    assert report.ok, report.failures
    assert [(outcome.message_id, outcome.verb) for outcome in report] == [("m30", name), ("m3", name)]
    there = {message.sequence_number: message for message in await queue.peek()}
    others = {number: there[number].delivery_count for number in numbers if number not in chosen}
    assert set(others.values()) == {0}
    found = [there.get(number) for number in chosen]
    if isinstance(decision, Defer):
        assert [message.state for message in found if message] == [MessageState.DEFERRED] * 2
        assert set((await deferrals_of(queue)).entries) == set(chosen), "a pick that defers is in the journal"
    elif isinstance(decision, Abandon):
        assert [message.delivery_count for message in found if message] == [1, 1]
    else:
        assert found == [None, None]
    dead = await namespace.entity(f"pick-{name}/$dlq").peek()
    assert {message.message_id for message in dead} == ({"m3", "m30"} if name == "dead-letter" else set())


async def test_pick_resubmits_from_the_middle_of_a_dead_letter_queue(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "pick-again", 30)
    numbers = await sequence_numbers(queue)
    dlq = namespace.entity("pick-again/$dlq")
    await (await queue.pick(numbers, DeadLetter("Bad"))).apply()
    dead = await dlq.peek()
    assert len(dead) == 30
    first, second = dead[20], dead[10]

    def mended(message: Message) -> Message:
        return message.with_changes(body=b"mended " + message.body)

    plan = await dlq.pick([first, second.sequence_number], Resubmit(), edit=mended)
    preview = plan.preview()
    assert plan.others == 19
    assert "19 other messages before the last of them" in preview.sentence
    assert "delivered before" not in preview.sentence
    # A number without a message is not another message, and neither is a chosen one.
    assert (await dlq.pick([dead[0], dead[-1].sequence_number + 1], Resubmit())).others == 0
    assert (await dlq.pick(dead, Resubmit())).others == 0
    assert [change.after for change in preview.changes] == [f"mended {m.body.decode()}" for m in (first, second)]
    report = await plan.apply()

    assert report.ok, report.failures
    assert isinstance(report, RunReport)
    assert (len(report.rest), report.rest.ok) == (19, True)
    assert {message.body for message in await queue.peek()} == {b"mended " + first.body, b"mended " + second.body}
    left = [message.sequence_number for message in dead if message not in (first, second)]
    assert await delivery_counts(dlq) == dict.fromkeys(left, 0)


async def test_a_plan_says_how_many_were_delivered_before(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "pick-delivered", 10)
    await settle_first(queue, Abandon(), 3)
    numbers = await sequence_numbers(queue)
    await (await queue.pick([numbers[0]], Defer())).apply()
    plan = await queue.pick([numbers[0], numbers[5]], Complete())
    assert "2 of all these were delivered before: a consumer may be at work." in plan.preview().sentence


async def test_the_preview_of_a_pick_counts_what_is_in_the_way(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "pick-counted", 8)
    numbers = await sequence_numbers(queue)
    began = anyio.current_time()
    sentence = (await queue.pick([numbers[1]], Complete())).preview().sentence
    longest = max(1, round(2 * (anyio.current_time() - began)))
    assert "1 other message before the last of them: locked for about " in sentence
    assert "consumers do not receive it, and you" in sentence
    (seconds,) = re.findall(r"locked for about (\d+)s and then released", sentence)
    assert 1 <= int(seconds) <= longest
    assert "delivered before" not in sentence
    assert "in the entity" not in sentence

    await (await queue.pick(numbers[:2], Defer())).apply()
    assert (await queue.send([Message(), Message()], Send(delay=timedelta(hours=1)))).ok
    later = [message.sequence_number for message in await queue.peek(state=MessageState.SCHEDULED)]
    absent = [numbers[-1] + 1_000 + n for n in range(3)]
    plan = await queue.pick([*numbers[:2], *later, *absent, numbers[2]], Complete())
    sentence = plan.preview().sentence
    assert "other message" not in sentence
    assert "Of the chosen messages, 2 are deferred" in sentence
    assert "Of the chosen messages, 2 are scheduled" in sentence
    assert "Of the chosen messages, 3 are not in the entity." in sentence


# ---------------------------------------------------------------------- what does not come


async def test_what_cannot_be_had_is_told_apart(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "pick-told-apart", 40, lock_duration=timedelta(seconds=5))
    numbers = await sequence_numbers(queue)
    scheduled = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0)
    await queue.send([Message(body=b"later", scheduled_enqueue_time=scheduled)])
    later = next(m.sequence_number for m in await queue.peek() if m.state is MessageState.SCHEDULED)
    settled, deferred, held, never = numbers[5], numbers[6], numbers[0], 2**63 - 1
    await (await queue.pick([settled], Complete())).apply()
    await (await queue.pick([deferred], Defer())).apply()

    async with queue.batch() as other:
        assert [message.sequence_number for message in await other.receive(1)] == [held]
        plan = await queue.pick([settled, deferred, held, never, later, numbers[20]], Complete())
        report = await plan.apply()
        assert [outcome.status for outcome in report] == [
            OutcomeStatus.NOT_FOUND,
            OutcomeStatus.SETTLED,
            OutcomeStatus.SKIPPED,
            OutcomeStatus.NOT_FOUND,
            OutcomeStatus.SKIPPED,
            OutcomeStatus.SETTLED,
        ], report.failures
        assert "not there any more" in str(report[0].description)
        assert "another receiver has its lock" in str(report[2].description)
        assert "scheduled" in str(report[4].description)
    left = await delivery_counts(queue)
    assert set(left) == set(numbers) - {settled, deferred, numbers[20]} | {later}
    assert set(left.values()) == {0}


async def hold_for(queue: AsyncEntity, seconds: float, held: anyio.Event) -> None:
    """Be another receiver for a while, and give back what it holds."""
    async with queue.batch() as other:
        assert await other.receive(1)
        held.set()
        await anyio.sleep(seconds)


async def pick_all(queue: AsyncEntity) -> Plan:
    return await queue.pick(await queue.peek(), Complete())


async def purge_all(queue: AsyncEntity) -> Plan:
    return await queue.purge()


async def resubmit_all(queue: AsyncEntity) -> Plan:
    return queue.plan_resubmit(await queue.peek(), Resubmit(to=EntityAddress("pick-elsewhere")))


@pytest.mark.parametrize("make", [pick_all, purge_all, resubmit_all])
async def test_what_does_not_come_is_waited_for(
    own: AsyncNamespace, emulator: RunningEmulator, make: Callable[[AsyncEntity], Awaitable[Plan]]
) -> None:
    """Another receiver has a lock for a while, or Service Bus says nothing for longer than an action waits at first."""
    await own.create_queue("pick-elsewhere")
    queue = await filled_queue(own, "pick-waits", 3)
    plan, held = await make(queue), anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold_for, queue, 0.8, held)
        await held.wait()
        assert (await plan.apply()).counts == {OutcomeStatus.SETTLED: 3}

    await queue.send(Message(body=b"%d" % n, message_id=f"m{n}") for n in range(300))
    plan = await make(queue)
    thaw, frozen = threading.Timer(0.8, emulator.thaw), list[int]()

    def freeze(count: int) -> None:
        if not frozen:
            emulator.freeze("pick-waits")
            thaw.start()
        frozen.append(count)

    report = await plan.apply(progress=freeze)
    thaw.join()
    assert frozen
    assert report.counts == {OutcomeStatus.SETTLED: 300}
    assert await queue.peek() == []


async def test_one_that_is_deferred_or_settled_after_the_plan_was_made(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "pick-meanwhile", 200)
    numbers = await sequence_numbers(queue)
    plan = await queue.pick([numbers[3], numbers[4], numbers[5]], Complete())
    await (await queue.pick([numbers[3]], Defer())).apply()
    await (await queue.pick([numbers[4]], Complete())).apply()

    report = await plan.apply()

    assert [outcome.status for outcome in report] == [
        OutcomeStatus.SETTLED,
        OutcomeStatus.NOT_FOUND,
        OutcomeStatus.SETTLED,
    ]
    assert await delivery_counts(queue) == dict.fromkeys([*numbers[:3], *numbers[6:]], 0)


async def test_deferring_what_is_deferred_says_so(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "pick-twice-deferred", 3)
    numbers = await sequence_numbers(queue)
    await (await queue.pick([numbers[1]], Defer())).apply()
    (outcome,) = await (await queue.pick([numbers[1]], Defer())).apply()
    assert outcome.status is OutcomeStatus.SKIPPED
    assert "deferred already" in str(outcome.description)


async def test_pick_gives_up_a_missing_message_while_queue_fills(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "pick-busy", 20, lock_duration=timedelta(seconds=5))
    numbers = await sequence_numbers(queue)
    async with queue.batch() as other:
        await other.receive(1)
        plan = await queue.pick([numbers[0]], Complete())
        report = Report()
        async with anyio.create_task_group() as tasks:

            async def keep_sending() -> None:
                while True:
                    await queue.send((Message(body=b"more") for _ in range(50)), batch_size=50)
                    await anyio.sleep(0.05)

            tasks.start_soon(keep_sending)
            with anyio.fail_after(120):
                report = await plan.apply()
            tasks.cancel_scope.cancel()
    assert [outcome.status for outcome in report] == [OutcomeStatus.SKIPPED]
    assert set((await delivery_counts(queue)).values()) == {0}


async def test_with_a_consumer_at_work_each_message_is_settled_once(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "pick-competing", 600)
    numbers = await sequence_numbers(queue)
    chosen = numbers[50::100]
    plan = await queue.pick(chosen, Complete())
    consumed: list[int] = []
    picked_all = anyio.Event()
    report = Report()
    async with anyio.create_task_group() as tasks:

        async def consume() -> None:
            async with queue.batch() as batch:
                while not picked_all.is_set():
                    got = await batch.receive(10, max_wait=1)
                    done = await batch.settle(Complete(), got)
                    consumed.extend(outcome.sequence_number or 0 for outcome in done if outcome.ok)

        tasks.start_soon(consume)
        report = await plan.apply()
        picked_all.set()
    picked = [outcome.sequence_number or 0 for outcome in report if outcome.ok]
    others = {outcome.status for outcome in report.failures}
    assert others <= {OutcomeStatus.NOT_FOUND}
    left = await delivery_counts(queue)
    assert sorted([*picked, *consumed, *left]) == numbers
    assert set(left.values()) <= {0}


async def test_in_an_entity_with_sessions_it_picks_within_each(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    shared_emulator.create_queue("pick-sessions", QueueOptions(requires_session=True))
    queue = namespace.entity("pick-sessions")
    await queue.send((Message(message_id=f"m{n}", session_id="ABC"[n % 3]) for n in range(60)), max_in_flight=1)
    peeked = await queue.peek()
    numbers = [message.sequence_number for message in peeked]
    in_a, in_b, in_c = ([m.sequence_number for m in peeked if m.session_id == name] for name in "ABC")
    a, deferred, b, held = in_a[10], in_a[11], in_b[15], in_c[0]
    first = await (await queue.pick([deferred], Defer())).apply()
    assert first.ok, first.failures

    async with queue.session("C"):
        report = await (await queue.pick([a, held, b, deferred], Complete())).apply()

    assert [outcome.status for outcome in report] == [
        OutcomeStatus.SETTLED,
        OutcomeStatus.SKIPPED,
        OutcomeStatus.SETTLED,
        OutcomeStatus.SETTLED,
    ], report.failures
    assert isinstance(report, RunReport)
    assert (len(report.rest), report.rest.ok) == (10 + 15, True), "those before it in its session, and no others"
    assert await delivery_counts(queue) == {number: 0 for number in numbers if number not in (a, b, deferred)}


class Closing(Archive):
    """An archive that calls a function when it is written to for the first time."""

    def __init__(self, path: Path, act: Callable[[], None]) -> None:
        super().__init__(path)
        self._act = [act]

    def keep(self, messages: Sequence[ArchivedMessage]) -> list[int]:
        if self._act:
            self._act.pop()()
        return super().keep(messages)


@pytest.mark.parametrize("when", ["locked", "archived"])
async def test_a_pick_continues_after_a_session_is_lost(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, tmp_path: Path, when: str
) -> None:
    name = f"pick-session-lost-{when}"
    queue = await filled_queue(namespace, name, session_messages("aab"), requires_session=True)
    plan = await queue.pick(await sequence_numbers(queue), Complete())
    if when == "archived":
        namespace.archive = Closing(tmp_path / "archive.sqlite", lambda: shared_emulator.close_links(name))
    progress = after(1, lambda: shared_emulator.close_links(name)) if when == "locked" else None
    report = await plan.apply(progress=progress)
    lost, settled = OutcomeStatus.LOCK_LOST, OutcomeStatus.SETTLED
    assert [outcome.status for outcome in report] == [lost, lost, settled]
    assert len(await queue.peek()) == 2


@pytest.mark.parametrize("decision", [Complete(), Abandon()])
async def test_another_message_with_the_same_number_is_not_settled(
    namespace: AsyncNamespace, decision: Decision
) -> None:
    name = f"pick-anew-{decision.verb}"
    queue = await filled_queue(namespace, name, 5)
    messages = await queue.peek()
    numbers = [message.sequence_number for message in messages]
    plan = await queue.pick([messages[3]], decision)
    await namespace.delete_queue(name)
    await namespace.peeker(queue.address).close()  # its link was detached, and so were those of the senders
    await namespace.pool(queue.address).close()
    queue = await filled_queue(namespace, name, 5)
    numbers_now = await sequence_numbers(queue)
    assert numbers_now == numbers
    (outcome,) = await plan.apply()
    assert outcome.status is OutcomeStatus.NOT_FOUND
    assert "another message has its number now" in str(outcome.description)
    assert await delivery_counts(queue) == dict.fromkeys(numbers, 0)


# ---------------------------------------------------------------------- cut off


@pytest.mark.usefixtures("small_requests")
async def test_cancelling_in_the_middle_gives_everything_back(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "pick-cancelled", 3_000)
    numbers = await sequence_numbers(queue)
    plan = await queue.pick([numbers[0], numbers[-1]], Complete())
    with anyio.CancelScope() as scope:
        await plan.apply(progress=after(1_000, scope.cancel))
    assert scope.cancelled_caught
    assert await delivery_counts(queue) == dict.fromkeys(numbers[1:], 0)
    assert await heads(queue, 10) == numbers[1:11]


@pytest.mark.usefixtures("small_requests")
async def test_pick_reports_a_dropped_connection_and_ends(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    queue = await filled_queue(namespace, "pick-dropped", 3_000)
    numbers = await sequence_numbers(queue)
    plan = await queue.pick([numbers[0], numbers[-1]], Complete())

    report = await plan.apply(progress=after(1_000, lambda: shared_emulator.drop_connections("pick-dropped")))

    # The first one is settled beside the search.
    assert report[0].status in (OutcomeStatus.SETTLED, OutcomeStatus.UNCONFIRMED)
    assert report[1].status is OutcomeStatus.SKIPPED
    assert "Not attempted" in str(report[1].description)
    assert isinstance(report, RunReport)
    assert not report.rest.ok
    assert "others not released: their delivery counts go up when their locks end" in str(report)
    left = await delivery_counts(queue)
    assert left.pop(numbers[0], None) is None or not report[0].ok
    assert left == dict.fromkeys(numbers[1:], 0)


async def test_pick_abandons_what_it_cannot_release_if_allowed(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    queue = await filled_queue(namespace, "pick-dropped-allowed", 300)
    numbers = await sequence_numbers(queue)
    plan = await queue.pick([numbers[0], numbers[-1]], Complete(), abandon_rest=True)
    assert "abandoned where that is not possible" in plan.preview().sentence
    released = await queue.pick([numbers[0], numbers[-1]], Complete())
    assert "and then released. Meanwhile" in released.preview().sentence

    report = await plan.apply(progress=after(100, lambda: shared_emulator.drop_connections("pick-dropped-allowed")))

    assert isinstance(report, RunReport)
    assert report.rest.ok
    assert {outcome.verb for outcome in report.rest} == {"abandon"}
    assert set((await delivery_counts(queue)).values()) <= {0, 1}
    assert await heads(queue, 5) == [number for number in numbers if number in await delivery_counts(queue)][:5]


@pytest.mark.usefixtures("small_requests")
async def test_pick_ends_its_search_when_locks_are_lost(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    queue = await filled_queue(namespace, "pick-lost", 3_000)
    numbers = await sequence_numbers(queue)
    plan = await queue.pick([numbers[-1]], Complete())
    report = await plan.apply(progress=after(1_000, lambda: shared_emulator.lose_locks("pick-lost")))
    assert [outcome.status for outcome in report] == [OutcomeStatus.SKIPPED]
    assert "were lost" in str(report[0].description)
    left = await delivery_counts(queue)
    assert set(left) == set(numbers)
    assert max(left.values()) <= 1, "no message may be lost twice, which would dead-letter it soon"


async def test_a_pick_that_abandons_later_holds_the_locks_until_then(
    namespace_by_hand: AsyncNamespace, clock: HandClock
) -> None:
    queue = await filled_queue(namespace_by_hand, "pick-later", 3)
    numbers = await sequence_numbers(queue)
    plan = await queue.pick([numbers[1]], Abandon(timedelta(minutes=5)))
    reports: list[Report] = []

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append_to, reports, plan.apply)
        await anyio.sleep(1.0)
        assert not reports
        assert set((await delivery_counts(queue)).values()) == {0}
        with anyio.fail_after(30):
            while not reports:
                await clock.turn(30)
    assert reports[0].ok
    assert await delivery_counts(queue) == {numbers[0]: 0, numbers[1]: 1, numbers[2]: 0}


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize("number", [0, -1, True, 1.5, "7", None, 2**63, b"8", "\x00" * 10_000])
async def test_what_is_no_sequence_number_is_refused(namespace: AsyncNamespace, number: object) -> None:
    wrong: Sequence[int] = [number]  # pyright: ignore[reportAssignmentType]
    with pytest.raises(DecisionError, match="is not a sequence number") as raised:
        await namespace.entity("orders").pick(wrong, Complete())
    assert len(str(raised.value)) < 300


async def test_decisions_that_make_no_sense_are_refused(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "pick-senseless", 3)
    numbers = await sequence_numbers(queue)
    with pytest.raises(DecisionError, match="would change nothing"):
        await queue.pick(numbers, Release())
    with pytest.raises(DecisionError, match="An edit changes what a resubmit sends"):
        await queue.pick(numbers, Complete(), edit=lambda message: message)
    with pytest.raises(DecisionError, match="is a dead-letter queue already"):
        await namespace.entity("pick-senseless/$dlq").pick(numbers, DeadLetter())
    for other in ("a", "z"):
        with pytest.raises(DecisionError, match="pick it there"):
            await queue.pick([PeekedMessage(entity=namespace.entity(other).address, sequence_number=1)], Complete())
    with pytest.raises(DecisionError, match=r"2 other messages are before .* allow more with max_held \(it is 2\)"):
        await queue.pick(numbers[2:], Complete(), max_held=2)
    with pytest.raises(DecisionError, match=r"2 other messages are before .* \(it is 1\)"):
        await queue.pick(numbers[2:], Complete(), max_held=1)
    with pytest.raises(DecisionError, match="max_held is 1 or more"):
        await queue.pick(numbers, Complete(), max_held=0)
    assert await delivery_counts(queue) == dict.fromkeys(numbers, 0)


async def test_only_others_count_for_how_many_are_held(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "pick-all-but-one", 30)
    numbers = await sequence_numbers(queue)
    report = await (await queue.pick(numbers[1:], Complete(), max_held=2)).apply()
    assert [outcome.status for outcome in report] == [OutcomeStatus.SETTLED] * 29
    assert await delivery_counts(queue) == {numbers[0]: 0}


async def test_nothing_chosen_is_nothing_done(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "pick-nothing", 3)
    numbers = await sequence_numbers(queue)
    plan = await queue.pick([], Complete())
    assert plan.preview().sentence == "complete 0 messages of pick-nothing."
    assert len(await plan.apply()) == 0
    again = await (await queue.pick([numbers[1], numbers[1]], Complete())).apply()
    assert [outcome.status for outcome in again] == [OutcomeStatus.SETTLED], "one chosen twice is chosen once"


def section(code: int, value: AmqpValue) -> bytes:
    return bytes((0x00, 0x53, code)) + encode(value)


async def test_pick_handles_odd_messages_like_others(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "pick-odd", 3)
    body = section(0x75, b"x")
    odd = [
        b"\x00\x53\x75\xa1\x03bad",  # a data section that holds text
        b"\x00\x53\x75",  # a section without its value
        b"\xff\xff\xff",  # nothing at all
        section(0x72, {Symbol("x-opt-sequence-number"): Long(5), Symbol("x-opt-locked-until"): "soon"}) + body,
        section(0x72, {Symbol("x-opt-sequence-number"): "text"}) + section(0x74, {"": None, "\x00": [1]}) + body,
        section(0x77, [[[[[None]]]]]),
    ]
    accepted = 0
    async with namespace.connection.sender(queue.address) as sender:
        for payload in odd:
            with contextlib.suppress(ServiceBusError):  # the service may refuse invalid messages
                await clients.make_ready(sender)
                await clients.send_payload(sender, payload)
                accepted += 1
    assert accepted >= 4
    await queue.send((Message(message_id=f"n{n}") for n in range(3)), max_in_flight=1)
    numbers = [message.sequence_number for message in await queue.peek()]
    assert numbers == list(range(1, 7 + accepted)), "the service numbers them, whatever the sender says"

    report = await (await queue.pick([numbers[-1]], Complete())).apply()
    assert report.ok, report.failures
    assert isinstance(report, RunReport)
    assert (len(report.rest), report.rest.ok) == (5 + accepted, True)
    assert await delivery_counts(queue) == dict.fromkeys(numbers[:-1], 0)

    report = await (await queue.pick(numbers[:-1], Complete())).apply()
    assert report.ok, report.failures
    assert await delivery_counts(queue) == {}


@pytest.mark.parametrize("is_pick", [False, True])
async def test_room_in_the_archive_is_for_whole_rows(namespace: AsyncNamespace, *, is_pick: bool) -> None:
    name = f"no-room-for-rows-{is_pick}"
    queue = await filled_queue(namespace, name, 300)
    await namespace.create_queue(f"{name}-to")
    decision = Resubmit(to=EntityAddress(f"{name}-to"))
    messages = await queue.peek()
    plan = await queue.pick(messages, decision) if is_pick else queue.plan_resubmit(messages, decision)
    archive_in(namespace).max_bytes = archive_in(namespace).size + 50_000
    with pytest.raises(ArchiveError, match="is full"):
        await plan.apply()
    assert await namespace.entity(f"{name}-to").peek() == [], "no message is there twice"
    assert len(await queue.peek()) == 300
    archive_in(namespace).max_bytes = 10**9
    assert (await plan.apply()).settled == 300, "it had done nothing, so it is applied now"


async def test_a_purge_without_room_in_the_archive_removes_nothing(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "no-room-to-purge", 2_000)
    archive_in(namespace).max_bytes = archive_in(namespace).size + 400_000
    plan = await queue.purge()
    assert "it will be refused" in plan.preview().sentence
    with pytest.raises(ArchiveError, match="is full"):
        await plan.apply()
    assert (await queue.peek())[0].sequence_number == 1, "not even those that there is room for"
