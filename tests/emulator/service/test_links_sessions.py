"""Receiving from sessions, by the real SDK and frame by frame."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage, ServiceBusReceiver
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    ServiceBusConnectionError,
    ServiceBusError,
    SessionLockLostError,
)

from sbnotebook.amqp import AmqpValue, Described, Symbol, UInt, ULong
from sbnotebook.emulator import ManualClock, QueueOptions, RunningEmulator, SubscriptionOptions
from sbnotebook.emulator.amqp.performatives import (
    RECEIVER,
    Attach,
    Detach,
    Disposition,
    Flow,
    Rejected,
    Source,
    Transfer,
)
from tests.emulator.service.conftest import Connect, RawClient

FILTER = Symbol("com.microsoft:session-filter")


@pytest.fixture
def emulator(emulator: RunningEmulator) -> RunningEmulator:
    """Has the queue ``chats`` with sessions: locks of 30 seconds, three deliveries."""
    emulator.create_queue("chats", QueueOptions(30_000, 3, requires_session=True))
    return emulator


@pytest.fixture
def send(client: ServiceBusClient, emulator: RunningEmulator) -> Iterator[Any]:
    """Send bodies to a session."""
    del emulator
    with client.get_queue_sender("chats") as sender:

        def send(session_id: str, *bodies: str) -> None:
            sender.send_messages([ServiceBusMessage(body, session_id=session_id) for body in bodies])

        yield send


def bodies(receiver: ServiceBusReceiver, count: int = 10, wait: float = 0.3) -> list[str]:
    return [str(message) for message in receiver.receive_messages(count, max_wait_time=wait)]


def session(client: ServiceBusClient, session_id: Any) -> ServiceBusReceiver:
    return client.get_queue_receiver("chats", session_id=session_id, max_wait_time=5)


@contextmanager
def turning(clock: ManualClock) -> Generator[None]:
    """Time goes by, ten times as fast as it does."""
    ended = threading.Event()

    def turn() -> None:
        while not ended.wait(0.1):
            clock.advance(1)

    thread = threading.Thread(target=turn)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_a_session_is_received_in_order_and_alone(client: ServiceBusClient, clock: ManualClock, send: Any) -> None:
    send("a", "a1")
    send("b", "b1")
    send("a", "a2")
    with session(client, "a") as a, session(client, "b") as b:
        assert (bodies(a), bodies(b)) == (["a1", "a2"], ["b1"])
        assert a.session.session_id == "a"
        locked_until = a.session.locked_until_utc
        assert locked_until is not None
        assert round(locked_until.timestamp() * 1000) == clock.now() + 30_000
        send("b", "b2")
        assert bodies(b, wait=5) == ["b2"]


def test_a_session_without_messages_can_be_accepted(client: ServiceBusClient, send: Any) -> None:
    with session(client, "later") as receiver:
        send("later", "1")
        assert bodies(receiver, wait=5) == ["1"]


def test_the_next_session_is_the_one_waiting_longest(client: ServiceBusClient, send: Any) -> None:
    send("z", "1")
    send("a", "2")
    with session(client, NEXT_AVAILABLE_SESSION) as first, session(client, NEXT_AVAILABLE_SESSION) as second:
        assert [each.session.session_id for each in (first, second)] == ["z", "a"]


def test_a_client_waits_for_the_next_session(client: ServiceBusClient, send: Any) -> None:
    found: list[str] = []

    def receive() -> None:
        with session(client, NEXT_AVAILABLE_SESSION) as receiver:
            found.extend([receiver.session.session_id, *bodies(receiver, wait=5)])

    thread = threading.Thread(target=receive)
    thread.start()
    thread.join(0.8)  # long enough to be attached; nothing depends on it
    assert found == []
    send("a", "1")
    thread.join(20)
    assert found == ["a", "1"]


def test_a_session_that_becomes_free_is_the_next_one(client: ServiceBusClient, clock: ManualClock, send: Any) -> None:
    send("a", "1")
    with session(client, "a"):
        clock.advance(26)
        with turning(clock), session(client, NEXT_AVAILABLE_SESSION) as receiver:
            assert receiver.session.session_id == "a"


def test_waiting_for_a_session_ends_at_its_timeout(
    connect: Connect, clock: ManualClock, emulator: RunningEmulator
) -> None:
    del emulator
    waiting, watching = connect(), connect()
    ask(waiting, None, properties={Symbol("com.microsoft:timeout"): UInt(5_000)})
    watching.receiver("orders")  # answered after the turn in which the other began to wait
    clock.advance(4.999)
    watching.receiver("orders", 2)
    clock.advance(0.001)
    assert waiting.read(Attach).source is None
    assert "com.microsoft:timeout" in waiting.refusal()


def test_a_client_that_goes_waits_no_longer(connect: Connect, client: ServiceBusClient, send: Any) -> None:
    waiting = connect()
    ask(waiting, None)
    waiting.write(Detach(handle=1, closed=True))
    waiting.read(Detach)
    send("a", "1")
    with session(client, NEXT_AVAILABLE_SESSION) as receiver:
        assert receiver.session.session_id == "a"


def test_a_lost_lock_ends_the_link_and_costs_a_delivery(
    client: ServiceBusClient, clock: ManualClock, send: Any
) -> None:
    send("a", "1", "2")
    with session(client, "a") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=5)
        clock.advance(30)
        with pytest.raises(SessionLockLostError):
            receiver.complete_message(message)
        clock.advance(1)
        with pytest.raises(SessionLockLostError):
            receiver.receive_messages(max_wait_time=1)
    with session(client, "a") as receiver:
        counts = [(str(each), each.delivery_count) for each in receiver.receive_messages(2, max_wait_time=5)]
        assert counts == [("1", 1), ("2", 0)]


def test_a_lost_lock_is_reported_frame_by_frame(connect: Connect, clock: ManualClock, send: Any) -> None:
    send("a", "1", "2")
    holder = connect()
    ask(holder, "a")
    holder.read(Attach)
    clock.advance(30)
    holder.flow(1, 2, drain=True)
    assert holder.read(Flow).link_credit == 0  # The link is there for a second yet, and nothing is received over it.
    clock.advance(1)
    assert "com.microsoft:session-lock-lost" in holder.refusal()


def test_an_entity_with_sessions_needs_a_session_receiver(client: ServiceBusClient, send: Any) -> None:
    send("a", "1")
    with pytest.raises(ServiceBusError, match="non-sessionful"), client.get_queue_receiver("chats") as receiver:
        receiver.receive_messages(max_wait_time=1)
    with client.get_queue_sender("chats") as sender, pytest.raises(ServiceBusError, match="SessionId was not set"):
        sender.send_messages(ServiceBusMessage("x"))


def test_a_changed_entity_ends_the_sessions(client: ServiceBusClient, emulator: RunningEmulator, send: Any) -> None:
    send("a", "1")
    with session(client, "a") as receiver:
        receiver.receive_messages(max_wait_time=5)
        emulator.close_links("chats")
        with pytest.raises(ServiceBusConnectionError):
            receiver.receive_messages(max_wait_time=1)
    assert emulator.counts("chats").locked == 0


def test_a_deleted_entity_ends_the_waiting(client: ServiceBusClient, emulator: RunningEmulator) -> None:
    threading.Timer(0.8, emulator.delete, ["chats"]).start()
    with pytest.raises(MessagingEntityNotFoundError), session(client, NEXT_AVAILABLE_SESSION):
        pass


def test_a_session_of_a_subscription(client: ServiceBusClient, emulator: RunningEmulator) -> None:
    emulator.create_topic("events")
    emulator.create_subscription("events", "audit", SubscriptionOptions(requires_session=True))
    with client.get_topic_sender("events") as sender:
        sender.send_messages([ServiceBusMessage("1", session_id="a"), ServiceBusMessage("none")])
    with client.get_subscription_receiver("events", "audit", session_id=NEXT_AVAILABLE_SESSION) as receiver:
        assert bodies(receiver) == ["1"]
    with client.get_subscription_receiver("events", "audit", sub_queue="deadletter") as receiver:
        (dead,) = receiver.receive_messages(max_wait_time=5)
        assert (str(dead), dead.dead_letter_reason) == ("none", "Session ID is null.")


@pytest.mark.parametrize("wanted", ["a", None])
def test_a_described_filter_is_answered_alike_for_the_sdk_for_go(
    connect: Connect, send: Any, wanted: AmqpValue
) -> None:
    send("a", "1")
    client = connect()
    ask(client, Described(ULong(0x00000137000000C), wanted))
    source = client.read(Attach).source
    assert source is not None
    assert source.filter == {FILTER: Described(ULong(0x00000137000000C), "a")}


@pytest.mark.parametrize("wanted", [5, b"a", ["a"], Described(ULong(1), 5)])
def test_a_session_id_is_a_string(connect: Connect, emulator: RunningEmulator, wanted: AmqpValue) -> None:
    del emulator
    client = connect()
    ask(client, wanted)
    assert "com.microsoft:argument-error" in client.refusal()


def test_a_dead_letter_in_a_session_has_its_echo(connect: Connect, send: Any, emulator: RunningEmulator) -> None:
    send("a", "1")
    client = connect()
    ask(client, "a")
    client.read(Attach)
    client.flow(1, 1)
    transfer = client.read(Transfer)
    client.write(Disposition(role=RECEIVER, first=transfer.delivery_id or 0, settled=False, state=Rejected()))
    assert client.read(Disposition).state == Rejected()
    assert emulator.counts("chats").dead_letter == 1


def ask(client: RawClient, session_id: AmqpValue, **fields: Any) -> None:
    """Ask for a session, without waiting for the answer."""
    source = Source("chats", filter={FILTER: session_id})
    client.write(Attach(name="s", handle=1, role=RECEIVER, source=source, initial_delivery_count=0, **fields))
