"""Requests about sessions, by the real SDK and as other SDKs send them."""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver
from azure.servicebus.exceptions import ServiceBusError, SessionLockLostError

from sbnotebook.amqp import AmqpValue, Array, Int, Long, Symbol, Timestamp, UInt
from sbnotebook.emulator import ManualClock, QueueOptions, RunningEmulator
from sbnotebook.emulator.amqp.performatives import RECEIVER, Attach, Source
from sbnotebook.emulator.entities.box import Counts
from tests.emulator.service.conftest import Connect, RawClient
from tests.emulator.service.management_node import Node

EVER = Timestamp(253_402_300_800_000)


@pytest.fixture
def emulator(emulator: RunningEmulator) -> RunningEmulator:
    """Has the queue ``chats`` with sessions: locks of 30 seconds, three deliveries."""
    emulator.create_queue("chats", QueueOptions(30_000, 3, requires_session=True))
    return emulator


def send(client: ServiceBusClient, session_id: str, *bodies: str) -> None:
    with client.get_queue_sender("chats") as sender:
        sender.send_messages([ServiceBusMessage(body, session_id=session_id) for body in bodies])


def session(client: ServiceBusClient, session_id: str) -> ServiceBusReceiver:
    return client.get_queue_receiver("chats", session_id=session_id)


def hold(client: RawClient, session_id: str, handle: int = 1) -> str:
    """Accept a session; the name of the link."""
    source = Source("chats", filter={Symbol("com.microsoft:session-filter"): session_id})
    name = f"link of {session_id}"
    client.write(Attach(name=name, handle=handle, role=RECEIVER, source=source, initial_delivery_count=0))
    client.read(Attach)
    return name


def test_the_state_stays_with_the_session(client: ServiceBusClient, emulator: RunningEmulator) -> None:
    del emulator
    with session(client, "a") as receiver:
        assert receiver.session.get_state() is None
        receiver.session.set_state(b"\x00half")
        assert receiver.session.get_state() == b"\x00half"
    with session(client, "a") as receiver, session(client, "b") as other:
        assert (receiver.session.get_state(), other.session.get_state()) == (b"\x00half", None)
        receiver.session.set_state(None)
        assert receiver.session.get_state() is None


def test_the_state_has_a_limit_and_needs_the_lock(client: ServiceBusClient, emulator: RunningEmulator) -> None:
    with session(client, "a") as receiver:
        with pytest.raises(ServiceBusError, match="the limit is 1048576"):
            receiver.session.set_state(b"x" * 1_048_577)
        emulator.lose_locks("chats")
        with pytest.raises(SessionLockLostError):
            receiver.session.set_state(b"x")
        with pytest.raises(SessionLockLostError):
            receiver.session.renew_lock()


def test_a_lost_session_belongs_to_its_new_holder(client: ServiceBusClient, emulator: RunningEmulator) -> None:
    send(client, "a", "1", "2")
    with session(client, "a") as former:
        former.defer_message(former.receive_messages(1, max_wait_time=5)[0])
        former.session.get_state()  # opens the link for requests
        emulator.lose_locks("chats")
        with session(client, "a") as holder:
            holder.session.set_state(b"new")
            with pytest.raises(SessionLockLostError):
                former.session.set_state(b"old")
            with pytest.raises(SessionLockLostError):
                former.session.renew_lock()
            with pytest.raises(SessionLockLostError):
                former.receive_deferred_messages([1])
            assert holder.session.get_state() == b"new"


def test_a_holder_settles_messages_of_its_session_only(client: ServiceBusClient, emulator: RunningEmulator) -> None:
    send(client, "a", "a1")
    with session(client, "a") as receiver, session(client, "b") as other:
        message = receiver.receive_messages(1, max_wait_time=5)[0]
        other.session.get_state()
        with pytest.raises(SessionLockLostError):
            other.complete_message(message)
        assert emulator.counts("chats").locked == 1


def test_the_state_is_bytes(connect: Connect, emulator: RunningEmulator) -> None:
    del emulator
    client = connect()
    hold(client, "a")
    node = Node(client, "chats")
    assert node.ask("set-session-state", {"session-id": "a", "session-state": "x"})[0] == 400
    assert node.ask("set-session-state", {"session-id": "b", "session-state": b"x"})[0] == 410
    assert node.ask("get-session-state", {"session-id": "a"}) == (200, "", {"session-state": None})


def test_sessions_are_listed(client: ServiceBusClient, emulator: RunningEmulator) -> None:
    del emulator
    assert list(client.list_queue_sessions("chats")) == []
    send(client, "b", "1")
    send(client, "a", "1")
    with session(client, "with state") as receiver:
        receiver.session.set_state(b"x")
    with session(client, "b") as receiver:
        receiver.complete_message(receiver.receive_messages(max_wait_time=5)[0])
    assert list(client.list_queue_sessions("chats")) == ["a", "with state"]


def test_lists_come_in_pages(connect: Connect, client: ServiceBusClient, emulator: RunningEmulator) -> None:
    del emulator
    for number in range(3):
        send(client, f"s{number}", "x")
    node = Node(connect(), "chats")
    answers = [node.ask("get-message-sessions", _page(skip, 2)) for skip in (0, 2, 4)]
    assert [status for status, _, _ in answers] == [200, 200, 204]
    assert [list(body["sessions-ids"]) for _, _, body in answers[:2]] == [["s0", "s1"], ["s2"]]
    assert node.ask("get-message-sessions", _page(-1, 2))[:2] == (400, "com.microsoft:argument-error")


def test_a_deferred_message_goes_back_with_its_session(client: ServiceBusClient, emulator: RunningEmulator) -> None:
    send(client, "a", "a1")
    with session(client, "a") as receiver:
        receiver.defer_message(receiver.receive_messages(max_wait_time=5)[0])
        receiver.receive_deferred_messages([1])
        assert emulator.counts("chats").locked == 1
        emulator.lose_locks("chats")
    assert emulator.counts("chats") == Counts(0, 0, 1, 0, 0)


def test_a_link_says_which_session_is_meant(
    connect: Connect, client: ServiceBusClient, emulator: RunningEmulator
) -> None:
    """The SDK for Go sends no session id."""
    send(client, "a", "a1", "a2")
    send(client, "b", "b1")
    with session(client, "a") as receiver:
        receiver.defer_message(receiver.receive_messages(max_wait_time=5)[0])
    holder = connect()
    name = hold(holder, "a")
    node = Node(holder, "chats")
    wanted: AmqpValue = {"sequence-numbers": Array([Long(1)], Long), "receiver-settle-mode": UInt(1)}
    assert node.ask("receive-by-sequence-number", wanted)[0] == 400
    assert node.ask("receive-by-sequence-number", wanted, associated_link_name="another")[0] == 400
    status, _, body = node.ask("receive-by-sequence-number", wanted, associated_link_name=name)
    assert (status, len(body["messages"])) == (200, 1)
    peek: AmqpValue = {"from-sequence-number": Long(0), "message-count": Int(10)}
    assert len(node.ask("peek-message", peek)[2]["messages"]) == 3
    assert len(node.ask("peek-message", peek, associated_link_name=name)[2]["messages"]) == 2
    emulator.lose_locks("chats")
    assert node.ask("receive-by-sequence-number", wanted, associated_link_name=name)[0] == 400


def test_messages_of_a_held_session_are_deleted_in_batches(
    connect: Connect, client: ServiceBusClient, clock: ManualClock, emulator: RunningEmulator
) -> None:
    send(client, "a", "a1", "a2", "a3")
    send(client, "b", "b1")
    holder = connect()
    hold(holder, "a")
    node = Node(holder, "chats")
    body: dict[str, Any] = {"message-count": Int(2), "enqueued-time-utc": Timestamp(clock.now() + 1)}
    assert node.ask("batch-delete-messages", body)[0] == 400
    assert node.ask("batch-delete-messages", {**body, "session-id": "b"})[0] == 410
    found = [node.ask("batch-delete-messages", {**body, "session-id": "a"}) for _ in range(3)]
    assert found == [(200, "", {"message-count": 2}), (200, "", {"message-count": 1}), (204, "", None)]
    assert emulator.counts("chats") == Counts(1, 0, 0, 0, 0)


def test_update_disposition_within_a_session(
    connect: Connect, client: ServiceBusClient, emulator: RunningEmulator
) -> None:
    send(client, "a", "1", "2", "3")
    with session(client, "a") as receiver:
        first, second, third = receiver.receive_messages(3, max_wait_time=5)
        node = Node(connect(), "chats")

        def settle(message: Any, **body: AmqpValue) -> int:
            tokens = Array([message.lock_token])
            described = {key.replace("_", "-"): value for key, value in body.items()}
            return node.ask("update-disposition", {"lock-tokens": tokens, **described})[0]

        assert settle(first, disposition_status="completed", session_id="other") == 410
        assert settle(first, disposition_status="completed", session_id="a") == 200
        assert settle(second, disposition_status="suspended", session_id="a", deadletter_reason="Bad") == 200
        assert settle(third, disposition_status="defered") == 200
        assert settle(third, disposition_status="completed", session_id="a") == 410
        assert emulator.counts("chats") == Counts(0, 0, 1, 0, 1)
        renew = node.ask("renew-lock", {"lock-tokens": Array([third.lock_token])})
        assert renew[:2] == (400, "amqp:not-allowed")


def _page(skip: int, top: int) -> AmqpValue:
    return {"last-updated-time": EVER, "skip": Int(skip), "top": Int(top)}
