"""The same samples with the SDK's asynchronous client."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, timedelta

from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient

CONNECTION_STRING = os.environ["SERVICEBUS_CONNECTION_STR"]
QUEUE = os.environ["SERVICEBUS_QUEUE_NAME"]


async def send(client: ServiceBusClient) -> None:
    async with client.get_queue_sender(QUEUE) as sender:
        await sender.send_messages(ServiceBusMessage("Single message"))
        await sender.send_messages([ServiceBusMessage("Message in list") for _ in range(10)])
        batch = await sender.create_message_batch()
        for _ in range(10):
            batch.add_message(ServiceBusMessage("Message inside a ServiceBusMessageBatch"))
        await sender.send_messages(batch)


async def peek_and_receive(client: ServiceBusClient) -> None:
    async with client.get_queue_receiver(QUEUE, max_wait_time=1) as receiver, AutoLockRenewer() as renewer:
        assert len(await receiver.peek_messages(max_message_count=2)) == 2
        received = 0
        async for message in receiver:
            renewer.register(receiver, message, max_lock_renewal_duration=60)
            await receiver.complete_message(message)
            received += 1
        assert received == 21, received


async def defer(client: ServiceBusClient) -> None:
    async with client.get_queue_sender(QUEUE) as sender, client.get_queue_receiver(QUEUE) as receiver:
        await sender.send_messages([ServiceBusMessage(f"Message to be deferred {n}") for n in range(3)])
        numbers: list[int] = []
        while len(numbers) < 3:
            for message in await receiver.receive_messages(max_message_count=3, max_wait_time=2):
                numbers.append(message.sequence_number or 0)
                await receiver.defer_message(message)
        deferred = await receiver.receive_deferred_messages(sequence_numbers=numbers)
        assert len(deferred) == 3
        await asyncio.gather(*(receiver.complete_message(message) for message in deferred))


async def schedule(client: ServiceBusClient) -> None:
    async with client.get_queue_sender(QUEUE) as sender, client.get_queue_receiver(QUEUE) as receiver:
        soon = datetime.now(UTC) + timedelta(seconds=1)
        numbers = await sender.schedule_messages([ServiceBusMessage("Message to be scheduled")] * 2, soon)
        await sender.cancel_scheduled_messages(numbers[0])
        (message,) = await receiver.receive_messages(max_wait_time=5)
        assert datetime.now(UTC) >= soon
        await receiver.complete_message(message)


async def dead_letter(client: ServiceBusClient) -> None:
    async with client.get_queue_sender(QUEUE) as sender, client.get_queue_receiver(QUEUE) as receiver:
        await sender.send_messages(ServiceBusMessage("Message to be dead-lettered"))
        (message,) = await receiver.receive_messages(max_wait_time=2)
        await receiver.dead_letter_message(message, reason="Invalid", error_description="It is not valid.")
    async with client.get_queue_receiver(
        QUEUE, sub_queue=ServiceBusSubQueue.DEAD_LETTER, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
    ) as receiver:
        (message,) = await receiver.receive_messages(max_wait_time=2)
        assert message.dead_letter_reason == "Invalid"


async def main() -> None:
    async with ServiceBusClient.from_connection_string(CONNECTION_STRING) as service_bus:
        for sample in (send, peek_and_receive, defer, schedule, dead_letter):
            await sample(service_bus)
            print(f"{sample.__name__}: done")  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main())
