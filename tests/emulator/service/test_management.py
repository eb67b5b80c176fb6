"""Requests over ``$management``, by the real SDK."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import MessageNotFoundError, MessageSizeExceededError

from sbnotebook.amqp import AmqpValue, Array, Long, Timestamp, UInt
from sbnotebook.emulator import ManualClock, RunningEmulator
from sbnotebook.emulator.entities.box import Counts
from tests.emulator.service.conftest import Connect
from tests.emulator.service.management_node import Node


def send(client: ServiceBusClient, *messages: ServiceBusMessage) -> None:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(list(messages))


def in_seconds(clock: ManualClock, seconds: float) -> datetime:
    return datetime.fromtimestamp(clock.now() / 1000, UTC) + timedelta(seconds=seconds)


def test_peek_pages_to_the_end_and_starts_anywhere(client: ServiceBusClient) -> None:
    send(client, *(ServiceBusMessage(str(number)) for number in range(1, 601)))
    with client.get_queue_receiver("orders") as receiver:
        pages = [receiver.peek_messages(1000) for _ in range(4)]
        assert [len(page) for page in pages] == [250, 250, 100, 0]
        assert [message.sequence_number for page in pages for message in page] == list(range(1, 601))
        assert [str(message) for message in receiver.peek_messages(2, sequence_number=300)] == ["300", "301"]


def test_a_page_of_large_messages_is_short_but_never_empty(client: ServiceBusClient) -> None:
    with client.get_queue_sender("orders") as sender:
        for size in (300_000, 300_000, 300_000, 300_000, 1_040_000):
            sender.send_messages(ServiceBusMessage(b"x" * size))
    with client.get_queue_receiver("orders") as receiver:
        assert [len(receiver.peek_messages(10)) for _ in range(4)] == [3, 1, 1, 0]


def test_deferred_messages_are_received_by_number(client: ServiceBusClient, emulator: RunningEmulator) -> None:
    send(client, *(ServiceBusMessage(str(number)) for number in range(1, 5)))
    with client.get_queue_receiver("orders") as receiver:
        for message in receiver.receive_messages(4, max_wait_time=5):
            receiver.defer_message(message)
        assert receiver.receive_messages(max_wait_time=0.2) == []
        three, one = receiver.receive_deferred_messages([3, 1])
        assert (str(three), str(one), one.delivery_count) == ("3", "1", 1)
        receiver.complete_message(three)
        receiver.abandon_message(one)
        assert [message.sequence_number for message in receiver.peek_messages(10, sequence_number=1)] == [1, 2, 4]
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages([2, 3])
        (two,) = receiver.receive_deferred_messages(2)
        receiver.dead_letter_message(two, reason="Bad", error_description="It is bad")
    with client.get_queue_receiver("orders", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        assert [str(message) for message in receiver.receive_deferred_messages([4, 1])] == ["4", "1"]
    assert emulator.counts("orders") == Counts(0, 0, 0, 0, 1)
    with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (dead,) = receiver.peek_messages()
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("Bad", "It is bad")


def test_scheduled_messages_come_when_it_is_time(client: ServiceBusClient, clock: ManualClock) -> None:
    with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
        early, late = (ServiceBusMessage("early"), ServiceBusMessage("late"))
        assert sender.schedule_messages([early], in_seconds(clock, 10)) == [1]
        sender.send_messages(ServiceBusMessage("own", scheduled_enqueue_time_utc=in_seconds(clock, 10)))
        numbers = sender.schedule_messages([late, late], in_seconds(clock, 20))
        assert numbers == [3, 4]
        assert receiver.receive_messages(max_wait_time=0.2) == []
        clock.advance(10)
        got = [message for _ in range(2) for message in receiver.receive_messages(max_wait_time=5)]
        assert [(str(message), message.sequence_number) for message in got] == [("early", 5), ("own", 6)]
        assert got[0].enqueued_time_utc == in_seconds(clock, 0)
        assert got[0].scheduled_enqueue_time_utc == in_seconds(clock, 0)
        assert {message.state for message in got} == {ServiceBusMessageState.SCHEDULED}
        receiver.abandon_message(got[0])
        assert receiver.peek_messages(1, sequence_number=5)[0].state is ServiceBusMessageState.ACTIVE
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages([*numbers, 999])
        sender.cancel_scheduled_messages(numbers)
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages(numbers)
        clock.advance(10)
        assert len(receiver.peek_messages(10, sequence_number=1)) == 2


@pytest.mark.parametrize("sizes", [[1_050_000], [3_000_000], [600_000, 600_000]])
def test_too_large_a_schedule_request_is_refused(
    client: ServiceBusClient, clock: ManualClock, sizes: list[int]
) -> None:
    with client.get_queue_sender("orders") as sender:
        with pytest.raises(MessageSizeExceededError, match="1048576"):
            sender.schedule_messages([ServiceBusMessage(b"x" * size) for size in sizes], in_seconds(clock, 10))
        assert sender.schedule_messages(ServiceBusMessage("small"), in_seconds(clock, 10)) == [1]


def test_the_arguments_are_checked(connect: Connect) -> None:
    node = Node(connect(), "orders")
    requests: list[tuple[str, AmqpValue, int]] = [
        ("get-session-state", {}, 501),
        ("peek-message", None, 400),
        ("peek-message", {}, 400),
        ("peek-message", {"from-sequence-number": "x", "message-count": 1}, 400),
        ("renew-lock", {"lock-tokens": 5}, 400),
        ("renew-lock", {"lock-tokens": [uuid4()]}, 410),
        ("update-disposition", {"disposition-status": "eaten", "lock-tokens": []}, 400),
        ("schedule-message", {"messages": [{"message": b"garbage"}]}, 400),
        ("cancel-scheduled-message", {"sequence-numbers": [1]}, 404),
    ]
    for operation, body, status in requests:
        assert node.ask(operation, body)[0] == status, operation
        assert "TrackingId" in node.description


def test_answers_have_the_types_that_clients_expect(client: ServiceBusClient, connect: Connect) -> None:
    node = Node(connect(), "orders")
    scheduled = node.ask("schedule-message", {"messages": [{"message": b"\x00\x53\x75\xa0\x00"}]})[2]
    assert isinstance(scheduled["sequence-numbers"], Array)
    assert scheduled["sequence-numbers"].element_type is Long
    with client.get_queue_receiver("orders") as receiver:
        (locked,) = receiver.receive_messages(max_wait_time=5)
    token = UUID(str(locked.lock_token))
    renewed = node.ask("renew-lock", {"lock-tokens": [token]})[2]
    assert isinstance(renewed["expirations"], Array)
    assert renewed["expirations"].element_type is Timestamp
    assert node.ask("update-disposition", {"disposition-status": "defered", "lock-tokens": Array([token])})[0] == 200
    wanted: AmqpValue = {"sequence-numbers": Array([Long(1)], Long), "receiver-settle-mode": UInt(1)}
    (received,) = node.ask("receive-by-sequence-number", wanted)[2]["messages"]
    assert (set(received), type(received["lock-token"])) == ({"message", "lock-token"}, UUID)
