"""Sending, receiving and settling, by the real SDK over a real socket."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    ServiceBusError,
)

from sbnotebook.emulator import ManualClock, RunningEmulator
from sbnotebook.emulator.entities.box import Counts


def send(client: ServiceBusClient, *bodies: str) -> None:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages([ServiceBusMessage(body) for body in bodies])


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return [str(message) for message in messages]


def test_a_message_arrives_as_it_was_sent(client: ServiceBusClient, clock: ManualClock) -> None:
    sent = ServiceBusMessage(
        b"\x00\xffbody",
        application_properties={"count": 5, "share": 0.5, "yes": True, "text": "ü"},
        message_id="id-1",
        session_id="s",
        reply_to_session_id="r",
        correlation_id="c",
        content_type="application/json",
        subject="label",
        to="t",
        reply_to="back",
        time_to_live=timedelta(hours=1),
        partition_key="s",
    )
    with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
        sender.send_messages(sent)
        (got,) = receiver.receive_messages(max_wait_time=5)
        assert b"".join(got.body) == b"\x00\xffbody"
        assert got.application_properties == {b"count": 5, b"share": 0.5, b"yes": True, b"text": "ü".encode()}
        names = (
            "message_id session_id reply_to_session_id correlation_id content_type subject to reply_to partition_key"
        )
        assert [getattr(got, name) for name in names.split()] == [getattr(sent, name) for name in names.split()]
        assert got.time_to_live == timedelta(hours=1)
        assert (got.sequence_number, got.enqueued_sequence_number, got.delivery_count) == (1, None, 0)
        assert got.enqueued_time_utc is not None
        assert round(got.enqueued_time_utc.timestamp() * 1000) == clock.now()
        assert got.expires_at_utc == got.enqueued_time_utc + timedelta(hours=1)
        assert got.locked_until_utc is not None
        assert round(got.locked_until_utc.timestamp() * 1000) == clock.now() + 30_000
        receiver.complete_message(got)


def test_a_list_is_one_batch_and_a_large_message_many_frames(
    client: ServiceBusClient, emulator: RunningEmulator
) -> None:
    large = "x" * 900_000
    send(client, "one", "two", "three")
    send(client, large)
    with client.get_queue_receiver("orders") as receiver:
        assert bodies(receiver.peek_messages(10)) == ["one", "two", "three", large]
        assert bodies(receiver.receive_messages(4, max_wait_time=5)) == ["one", "two", "three", large]
    assert emulator.counts("orders").locked == 4


def test_too_large_a_message_is_refused(client: ServiceBusClient, emulator: RunningEmulator) -> None:
    with client.get_queue_sender("orders") as sender:
        with pytest.raises(MessageSizeExceededError, match="1048576"):
            sender.send_messages(ServiceBusMessage(b"x" * 1_050_000))
        sender.send_messages(ServiceBusMessage("small"))  # the link continues
    assert emulator.counts("orders").active == 1


def test_each_settlement_does_what_it_says(client: ServiceBusClient, emulator: RunningEmulator) -> None:
    send(client, "complete", "abandon", "defer", "dead-letter", "leave")
    with client.get_queue_receiver("orders") as receiver:
        complete, abandon, defer, dead_letter = receiver.receive_messages(4, max_wait_time=5)
        receiver.complete_message(complete)
        receiver.defer_message(defer)
        receiver.dead_letter_message(dead_letter, reason="Bad", error_description="It is bad")
        assert emulator.counts("orders") == Counts(2, 1, 1, 0, 1)
        receiver.abandon_message(abandon)
        again, left = receiver.receive_messages(2, max_wait_time=5)
        assert (str(again), again.delivery_count, str(left), left.delivery_count) == ("abandon", 1, "leave", 0)
    with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (dead,) = receiver.receive_messages(max_wait_time=5)
        assert (str(dead), dead.sequence_number) == ("dead-letter", 4)
        assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("Bad", "It is bad")
        with pytest.raises(ServiceBusError, match="cannot be dead-lettered"):
            receiver.dead_letter_message(dead)
    assert emulator.counts("orders").dead_letter == 1


def test_a_lost_lock_is_reported_and_costs_a_delivery(
    client: ServiceBusClient, clock: ManualClock, emulator: RunningEmulator
) -> None:
    send(client, "slow")
    with client.get_queue_receiver("orders") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=5)
        clock.advance(30)
        with pytest.raises(MessageLockLostError, match=r"(?i)trackingid:[0-9a-f-]{36}"):
            receiver.complete_message(message)
        (again,) = receiver.receive_messages(max_wait_time=5)
        assert again.delivery_count == 1
        clock.advance(30)
        (third,) = receiver.receive_messages(max_wait_time=5)
        receiver.abandon_message(third)
        (dead,) = client.get_queue_receiver("orders", sub_queue="deadletter").peek_messages()
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert emulator.counts("orders") == Counts(0, 0, 0, 0, 1)


def test_a_waiting_receiver_gets_what_becomes_free(client: ServiceBusClient, clock: ManualClock) -> None:
    send(client, "only")
    with client.get_queue_receiver("orders") as first, client.get_queue_receiver("orders") as second:
        (held,) = first.receive_messages(max_wait_time=5)
        assert second.receive_messages(max_wait_time=0.3) == []
        clock.advance(30)  # without a request, the emulator's own alarm gives the message to the waiting receiver
        (taken,) = second.receive_messages(max_wait_time=5)
        assert taken.message_id == held.message_id


def test_a_lock_outlives_its_link_and_is_settled_from_another(
    client: ServiceBusClient, emulator: RunningEmulator
) -> None:
    send(client, "one", "two")
    with client.get_queue_receiver("orders") as first, client.get_queue_receiver("orders") as second:
        one, two = first.receive_messages(2, max_wait_time=5)
        assert emulator.counts("orders").locked == 2
        second.peek_messages()
        second.complete_message(one)
        first.close()
        assert emulator.counts("orders").locked == 1
        second.dead_letter_message(two, reason="Bad")
    assert emulator.counts("orders") == Counts(0, 0, 0, 0, 1)


def test_prefetched_messages_go_back_without_a_failed_delivery(
    client: ServiceBusClient, emulator: RunningEmulator
) -> None:
    send(client, *(str(number) for number in range(20)))
    with client.get_queue_receiver("orders", prefetch_count=10) as receiver:
        assert bodies(receiver.receive_messages(1, max_wait_time=5)) == ["0"]
    deadline = time.monotonic() + 60
    while emulator.counts("orders").locked > 1:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with client.get_queue_receiver("orders") as receiver:
        counts = {message.delivery_count for message in receiver.peek_messages(20)}
        assert counts == {0}
        assert str(receiver.receive_messages(1, max_wait_time=5)[0]) == "1"


@pytest.mark.thorough  # it asserts a time
def test_confirmations_are_held_back_at_the_same_time(client: ServiceBusClient, emulator: RunningEmulator) -> None:
    with client.get_queue_sender("orders") as one, client.get_queue_sender("orders") as other:
        one.send_messages(ServiceBusMessage("warm"))
        other.send_messages(ServiceBusMessage("warm"))
        emulator.faults.accept_delay_ms = 300
        begun = time.monotonic()
        one.send_messages([ServiceBusMessage(str(number)) for number in range(50)])
        assert 0.3 <= time.monotonic() - begun < 5  # one after the other, they take 15
        assert emulator.counts("orders").active == 52
