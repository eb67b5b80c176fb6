"""A plain script as in the SDK's documentation: all it knows is a connection string and a queue's name."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue

CONNECTION_STRING = os.environ["SERVICEBUS_CONNECTION_STR"]
QUEUE = os.environ["SERVICEBUS_QUEUE_NAME"]


def send(client: ServiceBusClient) -> None:
    with client.get_queue_sender(QUEUE) as sender:
        sender.send_messages(ServiceBusMessage("Single message"))
        sender.send_messages([ServiceBusMessage("Message in list") for _ in range(10)])
        batch = sender.create_message_batch()
        while True:
            try:
                batch.add_message(ServiceBusMessage("Message inside a ServiceBusMessageBatch" * 20))
            except ValueError:
                break  # the batch is full
            if len(batch) == 10:
                break
        sender.send_messages(batch)


def peek_and_receive(client: ServiceBusClient) -> None:
    with client.get_queue_receiver(QUEUE, max_wait_time=1) as receiver:
        assert len(receiver.peek_messages(max_message_count=2)) == 2
        received = 0
        for message in receiver:
            str(message)
            receiver.complete_message(message)
            received += 1
        assert received == 21, received


def defer(client: ServiceBusClient) -> None:
    with client.get_queue_sender(QUEUE) as sender, client.get_queue_receiver(QUEUE) as receiver:
        sender.send_messages([ServiceBusMessage(f"Message to be deferred {n}") for n in range(3)])
        numbers: list[int] = []
        while len(numbers) < 3:
            for message in receiver.receive_messages(max_message_count=3, max_wait_time=2):
                numbers.append(message.sequence_number or 0)
                receiver.defer_message(message)
        deferred = receiver.receive_deferred_messages(sequence_numbers=numbers)
        assert len(deferred) == 3
        for message in deferred:
            receiver.renew_message_lock(message)
            receiver.complete_message(message)


def schedule(client: ServiceBusClient) -> None:
    with client.get_queue_sender(QUEUE) as sender, client.get_queue_receiver(QUEUE) as receiver:
        soon = datetime.now(UTC) + timedelta(seconds=1)
        numbers = sender.schedule_messages([ServiceBusMessage("Message to be scheduled") for _ in range(3)], soon)
        sender.cancel_scheduled_messages(numbers[:1])
        (first, second) = receiver.receive_messages(max_message_count=2, max_wait_time=5)
        assert datetime.now(UTC) >= soon
        for message in (first, second):
            receiver.complete_message(message)


def dead_letter(client: ServiceBusClient) -> None:
    with client.get_queue_sender(QUEUE) as sender, client.get_queue_receiver(QUEUE) as receiver:
        sender.send_messages(ServiceBusMessage("Message to be dead-lettered", application_properties={"n": 1}))
        (message,) = receiver.receive_messages(max_wait_time=2)
        receiver.abandon_message(message)
        (message,) = receiver.receive_messages(max_wait_time=2)
        assert message.delivery_count == 1
        receiver.dead_letter_message(message, reason="Invalid", error_description="It is not valid.")
    with client.get_queue_receiver(
        QUEUE, sub_queue=ServiceBusSubQueue.DEAD_LETTER, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
    ) as receiver:
        (message,) = receiver.receive_messages(max_wait_time=2)
        assert (message.dead_letter_reason, message.dead_letter_error_description) == ("Invalid", "It is not valid.")
        assert receiver.peek_messages() == []


if __name__ == "__main__":
    with ServiceBusClient.from_connection_string(CONNECTION_STRING) as service_bus:
        for sample in (send, peek_and_receive, defer, schedule, dead_letter):
            sample(service_bus)
            print(f"{sample.__name__}: done")  # noqa: T201
