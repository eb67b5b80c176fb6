from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import anyio
import pytest
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from sbnotebook.emulator import QueueOptions, RunningEmulator, SubscriptionOptions
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import (
    Complete,
    DeadLetter,
    Defer,
    LockedMessage,
    Message,
    MessageState,
    OutcomeStatus,
    Release,
    Report,
)
from sbnotebook.settlement import AsyncEntity, AsyncNamespace, Limits
from sbnotebook.settlement.locking.lock_table import LockEventKind
from tests.filled_queues import filled_queue, session_messages
from tests.hand_clock import HandClock
from tests.settlement.waiting import until

pytestmark = pytest.mark.anyio

SESSIONS = QueueOptions(requires_session=True)


async def turn_until(clock: HandClock, condition: Callable[[], object]) -> None:
    """Turn the clock on until something has happened."""
    with anyio.fail_after(60):
        while not condition():
            await clock.turn(1)


async def test_sessions_are_listed_and_browsed_without_locking_them(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "listed", session_messages("abac"), requires_session=True)
    async with queue.session("a"):
        assert sorted(await queue.sessions()) == ["a", "b", "c"]
        seen = await queue.peek(session_id="a")
        assert [(message.message_id, message.session_id) for message in seen] == [("m0", "a"), ("m2", "a")]
        assert {message.message_id for message in await queue.peek()} == {"m0", "m1", "m2", "m3"}
        assert await queue.peek(session_id="nobody") == []


async def test_more_sessions_than_one_page_are_listed(namespace: AsyncNamespace) -> None:
    names = [f"s{n:03}" for n in range(230)]
    queue = await filled_queue(namespace, "pages", session_messages(names), requires_session=True)
    assert sorted(await queue.sessions()) == names


async def test_sessions_whose_state_was_set_are_found_by_time(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "updated", session_messages("a"), requires_session=True)
    before = datetime.now(UTC) - timedelta(minutes=1)

    async def found() -> list[str]:
        listed = namespace.connection.browser(queue.address).list_sessions(state_updated_after=before)
        return [session_id async for session_id in listed]

    assert await found() == []
    async with queue.session("b") as session:
        await session.set_state("begun")
    assert await found() == ["b"]


async def test_a_subscription_has_sessions_too(namespace: AsyncNamespace, shared_emulator: RunningEmulator) -> None:
    shared_emulator.create_topic("news")
    shared_emulator.create_subscription("news", "all", SubscriptionOptions(requires_session=True))
    assert (await namespace.entity("news").send([Message(session_id="a")])).ok
    subscription = namespace.entity("news/subscriptions/all")
    assert await subscription.sessions() == ["a"]
    async with subscription.session(None, max_wait=5) as session:
        assert session.session_id == "a"
        assert (await session.settle(Complete(), await session.receive(1))).ok


async def test_the_next_session_and_a_named_one_are_held_alone(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "alone", session_messages("ab"), requires_session=True)
    async with queue.session("a") as named, queue.session(None, max_wait=5) as following:
        assert (named.session_id, following.session_id) == ("a", "b")
        with pytest.raises(SessionCannotBeLockedError):
            async with queue.session("a"):
                pytest.fail("two hold it")
        with pytest.raises(
            OperationTimeoutError, match=r"^No session of alone that has messages was free within 1s\.$"
        ):
            async with queue.session(None, max_wait=1):
                pytest.fail("there is none")
    async with queue.session("a") as again:
        assert again.session_id == "a"


async def test_a_session_id_that_is_too_long_is_refused(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "long-ids", session_messages(["s" * 128]), requires_session=True)
    async with queue.session("s" * 128) as session:
        assert len(await session.receive(1)) == 1
    for length in (129, 70_000):
        with pytest.raises(ConfigurationError, match=f"at most 128 characters; this one has {length:,}"):
            queue.session("s" * length)
    absent = namespace.entity("no-such-queue")  # whether there is one is asked when it is opened
    with pytest.raises(ConfigurationError, match="at most 128 characters"):
        absent.session("s" * 129)


async def test_session_settles_messages_and_releases_the_rest(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "settled", session_messages("aaaaab"), requires_session=True)
    async with queue.session("a") as session:
        held = await session.receive(10, max_wait=1)
        assert [message.message_id for message in held] == ["m0", "m1", "m2", "m3", "m4"]
        for decision, message in zip((Complete(), DeadLetter("Bad"), Defer(), Release()), held, strict=False):
            report = await session.settle(decision, [message])
            assert [outcome.status for outcome in report] == [OutcomeStatus.SETTLED], report[0].description
    left = {message.message_id: (message.state, message.delivery_count) for message in await queue.peek()}
    assert left == {
        "m2": (MessageState.DEFERRED, 1),
        "m3": (MessageState.ACTIVE, 0),
        "m4": (MessageState.ACTIVE, 0),
        "m5": (MessageState.ACTIVE, 0),
    }
    (dead,) = await namespace.entity("settled/$dlq").peek()
    assert (dead.message_id, dead.session_id, dead.dead_letter_reason) == ("m1", "a", "Bad")


async def test_deferred_messages_are_had_within_their_session(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "deferred-session", session_messages("aab"), requires_session=True)
    async with queue.session("a") as session:
        held = await session.receive(2, max_wait=1)
        assert (await session.settle(Defer(), held)).ok
    numbers = [message.sequence_number for message in held]
    async with queue.session("b") as other:
        assert await other.receive_deferred(numbers) == ()
    async with queue.session("a") as session:
        deferred = await session.receive_deferred(numbers)
        assert [message.sequence_number for message in deferred] == numbers
        assert (await session.settle(Complete(), deferred)).ok
    assert [message.message_id for message in await queue.peek()] == ["m2"]


@pytest.mark.parametrize("state", [b"\x00\xff", "größer", {"step": 3, "done": ["a"]}, [1, None], b"", None])
async def test_a_state_outlives_the_lock_and_the_messages(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, state: object
) -> None:
    name = f"state-{type(state).__name__}-{len(str(state))}"
    shared_emulator.create_queue(name, SESSIONS)
    queue = namespace.entity(name)
    async with queue.session("a") as session:
        await session.set_state(state)  # pyright: ignore[reportArgumentType]
    async with queue.session("a") as session:
        match state:
            case None:
                assert await session.get_state() is await session.get_state_text() is None
                assert await session.get_state_json() is None
            case bytes():
                assert await session.get_state() == state
                with pytest.raises(DecisionError, match="not JSON"):
                    await session.get_state_json()
            case str():
                assert await session.get_state_text() == state
            case _:
                assert await session.get_state_json() == state


async def test_a_hostile_state_is_told_and_not_followed(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    shared_emulator.create_queue("hostile", SESSIONS)
    async with namespace.entity("hostile").session("a") as session:
        await session.set_state(b"[" * 100_000)
        with pytest.raises(DecisionError, match="not JSON"):
            await session.get_state_json()
        await session.set_state(b"\xc3(")
        assert await session.get_state_text() == "\\xc3("


@pytest.fixture
async def session_by_hand(namespace_by_hand: AsyncNamespace) -> AsyncEntity:
    return await filled_queue(namespace_by_hand, "by-hand", session_messages("aa"), requires_session=True)


async def test_the_sessions_lock_is_renewed_also_without_a_message(
    session_by_hand: AsyncEntity, clock: HandClock
) -> None:
    async with session_by_hand.session("a") as session:
        await clock.turn(100)  # a lock lasts a minute
        assert not session.is_lost
        (first, _) = await session.receive(2, max_wait=1)
        await clock.turn(100)
        until = session.table.locked_until(first.sequence_number)
        assert until is not None
        assert until > clock.now()
        assert (await session.settle(Complete())).ok
        assert session.renewal.fault is None
    assert await session_by_hand.peek() == []


@pytest.mark.parametrize(("lasts", "after"), [(30, 15), (60, 20), (300, 100)])
async def test_a_session_with_long_locks_is_renewed_rarely(
    namespace_by_hand: AsyncNamespace, clock: HandClock, lasts: int, after: int
) -> None:
    options = {"requires_session": True, "lock_duration": timedelta(seconds=lasts)}
    queue = await filled_queue(namespace_by_hand, "long", session_messages("a"), **options)
    async with queue.session("a") as session:
        await clock.turn(2)  # it is renewed at once
        held, *_ = await session.receive(1, max_wait=1)
        first = session.table.locked_until(held.sequence_number)
        await clock.turn(after - 5)
        assert session.table.locked_until(held.sequence_number) == first
        await clock.turn(5)
        assert session.table.locked_until(held.sequence_number) != first


async def test_after_renew_for_the_session_is_lost_with_all_its_messages(
    session_by_hand: AsyncEntity, clock: HandClock
) -> None:
    told: list[LockEventKind] = []
    async with session_by_hand.session("a", renew_for=timedelta(seconds=10)) as session:
        session.renewal.watch(lambda event: told.append(event.kind))
        held = await session.receive(2, max_wait=1)
        await clock.turn(9)
        assert session.renewal.state.kind is LockEventKind.RENEWING
        await clock.turn(1)
        await until(lambda: session.renewal.state.kind is LockEventKind.ENDED)
        await clock.turn(65)
        assert session.is_lost
        assert session.renewal.state.kind is LockEventKind.LOST
        assert session.table.lost == tuple(message.sequence_number for message in held)
        assert session.messages == ()
        report = await session.settle(Complete(), held)
        assert [outcome.status for outcome in report] == [OutcomeStatus.LOCK_LOST] * 2
        with pytest.raises(SessionLockLostError):
            await session.receive(1)
        with pytest.raises(SessionLockLostError):
            await session.set_state("late")
    assert told == [LockEventKind.ENDED, LockEventKind.LOST]
    assert len(await session_by_hand.peek()) == 2


async def test_a_renewal_of_a_session_that_fails_is_tried_again(
    session_by_hand: AsyncEntity, emulator_by_hand: RunningEmulator, clock: HandClock
) -> None:
    async with session_by_hand.session("a") as session:
        (held, _) = await session.receive(2, max_wait=1)
        await clock.turn(2)
        emulator_by_hand.faults.entity("by-hand").server_busy = 3
        await clock.turn(20)
        await turn_until(clock, lambda: session.renewal.state.kind is LockEventKind.FAILING)
        assert "ServiceBusServerBusyError" in (session.renewal.fault or "")
        await turn_until(clock, lambda: session.renewal.state.kind is LockEventKind.RENEWING)
        told = [event.kind for event in session.renewal.events]
        assert told == [LockEventKind.FAILING, LockEventKind.RENEWING], "one event, not one each second"
        assert session.renewal.fault is None
        assert session.lock_ends[held.sequence_number] > clock.now() + timedelta(seconds=50)
        assert (await session.settle(Complete())).settled == 2


@pytest.mark.parametrize("fault", ["lose_locks", "close_links", "drop_connections"])
async def test_session_taken_away_settles_nothing(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, fault: str
) -> None:
    name = fault.replace("_", "-")
    queue = await filled_queue(namespace, name, session_messages("aaa"), requires_session=True)
    async with queue.session("a") as session:
        held = await session.receive(3, max_wait=1)
        assert (await session.settle(Complete(), held[:1])).ok
        getattr(shared_emulator, fault)(name)
        report = await session.settle(Complete(), held[1:])
        assert report.counts == {OutcomeStatus.LOCK_LOST: 2}
        assert (session.renewal.state.kind, session.is_lost) == (LockEventKind.LOST, True)
        assert "lock was lost" in (session.renewal.fault or "")
        with pytest.raises(ServiceBusError):
            await session.receive(1, max_wait=1)
    left = await queue.peek()
    assert len(left) == 2
    async with queue.session("a") as again:
        came = await again.receive(3, max_wait=1)
        assert [message.message_id for message in came] == [message.message_id for message in left]


async def test_what_has_no_sessions_says_so(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("plain")
    for address in ("plain/$dlq", "plain/$transfer"):
        with pytest.raises(DecisionError, match="has no sessions"):
            namespace.entity(address).session("a")
        with pytest.raises(DecisionError, match="has no sessions"):
            await namespace.entity(address).sessions()
    with pytest.raises(ServiceBusError, match="session"):
        async with namespace.entity("plain").session("a"):
            pytest.fail("it was opened")


@pytest.mark.parametrize("order", ["front", "place", "back"])
async def test_messages_come_in_order_while_the_session_is_renewed(
    own: AsyncNamespace, emulator: RunningEmulator, order: str
) -> None:
    queue = await filled_queue(own, "renewed", 0, requires_session=True)
    emulator.faults.entity("renewed").order_after_release = order
    emulator.faults.network_delay_ms = 20
    got: list[LockedMessage] = []
    async with queue.session("a") as session, anyio.create_task_group() as tasks:

        async def ask() -> None:  # as a renewal does, but often: for an answer, before which messages arrive
            while len(got) < 120:
                await session.get_state()

        async def send() -> None:
            for _ in range(20):
                await queue.send([Message(session_id="a")])

        tasks.start_soon(ask)
        for _ in range(6):
            tasks.start_soon(send)
        with anyio.fail_after(60):
            while len(got) < 120:
                got += await session.receive(50, max_wait=0.5)
    assert [message.sequence_number for message in got] == list(range(1, 121))


async def test_message_between_two_receives_waits_for_the_next(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    queue = await filled_queue(own, "between", [Message(session_id="a")] * 2, requires_session=True)
    emulator.faults.entity("between").order_after_release = "front"  # released, the second would come first
    emulator.faults.network_delay_ms = 220  # an answer to a drain comes too late
    async with queue.session("a") as session:
        first = [*await session.receive(2, max_wait=0.1)]
        await session.get_state()
        for _ in range(2):
            first += await session.receive(1, max_wait=2)
        assert [message.sequence_number for message in first] == [1, 2]
    assert [message.delivery_count for message in await queue.peek()] == [0, 0]


async def test_a_session_is_renewed_while_a_pick_settles_one_by_one(
    clock: HandClock, namespace_by_hand: AsyncNamespace, emulator_by_hand: RunningEmulator
) -> None:
    clock.emulators.advance(600)  # the SDK sees the end of a session's lock by the machine's clock
    messages, five = session_messages("a" * 120), timedelta(seconds=5)
    queue = await filled_queue(namespace_by_hand, "slow", messages, requires_session=True, lock_duration=five)
    plan = await queue.pick(range(1, 121), Complete())
    emulator_by_hand.faults.network_delay_ms = 10
    reports = list[Report]()
    async with anyio.create_task_group() as tasks:

        async def turn() -> None:
            while True:
                await clock.turn(1)
                await anyio.sleep(0.2)

        tasks.start_soon(turn)
        reports.append(await plan.apply(Limits(1)))
        tasks.cancel_scope.cancel()
    assert reports[0].settled == 120, reports[0].counts
