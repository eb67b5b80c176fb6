"""Sending to and receiving from every kind of entity, and what entities refuse, by the real SDK."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusMessageBatch, ServiceBusReceiver
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)

from sbnotebook.amqp import Symbol, encode
from sbnotebook.emulator import (
    EntityStatus,
    QueueOptions,
    RunningEmulator,
    SubscriptionOptions,
    Tier,
    TopicOptions,
    running,
)
from sbnotebook.emulator.amqp.performatives import (
    RECEIVER,
    Accepted,
    Detach,
    Disposition,
    Error,
    Modified,
    Outcome,
    Rejected,
    Transfer,
)
from tests.emulator.service.conftest import Connect
from tests.emulator.service.management_client import ask, described
from tests.emulator.service.transaction_client import refusal

X = ServiceBusMessage("x")
BATCH = 0x80013700


@pytest.fixture
def receive(client: ServiceBusClient) -> Callable[..., list[Any]]:
    """Receive and complete all messages of an entity."""

    def receive(name: str, subscription: str | None = None, **options: Any) -> list[Any]:
        receiver: ServiceBusReceiver
        if subscription is None:
            receiver = client.get_queue_receiver(name, **options)
        else:
            receiver = client.get_subscription_receiver(name, subscription, **options)
        with receiver:
            got = receiver.receive_messages(10, max_wait_time=0.5)
            for message in got:
                receiver.complete_message(message)
            return list(got)

    return receive


@pytest.fixture
def small() -> Iterator[ServiceBusClient]:
    """A client of a namespace of the tier Standard, which has the queue ``orders``."""
    with (
        running(queues=["orders"], tier=Tier.STANDARD) as emulator,
        ServiceBusClient.from_connection_string(emulator.connection_string, retry_total=0) as client,
    ):
        yield client


def send(client: ServiceBusClient, queue: str, *messages: ServiceBusMessage) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(list(messages))


@pytest.mark.parametrize(
    ("options", "keys", "words"),
    [
        ({}, "ab", "distinct SessionId or PartitionKey is not supported"),
        ({}, "aa", None),
        ({}, [None, None], None),
        ({"requires_duplicate_detection": True}, "ab", "PartitionKey, or MessageId  is not supported"),
        ({"requires_duplicate_detection": True}, "aa", None),
        (
            {"requires_duplicate_detection": True},
            [None, None],
            "PartitionKey, or MessageId  is not supported",
        ),
        ({"enable_partitioning": False, "requires_duplicate_detection": True}, "ab", None),
    ],
)
def test_a_batch_for_a_partitioned_queue_has_one_key(
    client: ServiceBusClient, emulator: RunningEmulator, options: dict[str, Any], keys: Any, words: str | None
) -> None:
    given: dict[str, Any] = {"enable_partitioning": True} | options
    emulator.create_queue("parts", QueueOptions(**given))
    messages = [ServiceBusMessage("", message_id=str(n), partition_key=key) for n, key in enumerate(keys)]
    if words is None:
        send(client, "parts", *messages)
    else:
        with pytest.raises(ServiceBusError, match=words):
            send(client, "parts", *messages)
    assert emulator.counts("parts").active == (2 if words is None else 0)


def test_a_missing_subscription_is_named_as_in_azure(client: ServiceBusClient, emulator: RunningEmulator) -> None:
    emulator.create_topic("Shop")
    words = r"The messaging entity '127\.0\.0\.1:Topic:shop\|nobody' could not be found\. To know more visit"
    receiver = client.get_subscription_receiver("Shop", "Nobody")
    with pytest.raises(MessagingEntityNotFoundError, match=words), receiver:
        receiver.receive_messages(max_wait_time=1)
    # Also by its management node.
    with pytest.raises(MessagingEntityNotFoundError, match=words):
        list(client.list_subscription_sessions("Shop", "Nobody"))
    # Where there is no topic either, the token is refused.
    with pytest.raises(ServiceBusAuthenticationError), client.get_subscription_receiver("No", "Nobody") as lost:
        lost.receive_messages(max_wait_time=1)


def change(emulator: RunningEmulator, path: str, kind: str, content: str) -> None:
    """Change an entity as the administration client does."""
    status, answer = ask(emulator, "PUT", f"/{path}", described(kind, content), "application/xml", **{"If-Match": "*"})
    assert status == 200, answer


def test_a_topic_is_sent_to_and_a_subscription_received_from(
    client: ServiceBusClient, connect: Connect, emulator: RunningEmulator
) -> None:
    emulator.create_topic("events")
    emulator.create_subscription("events", "audit")
    with (
        pytest.raises(ServiceBusError, match="cannot be received from the topic"),
        client.get_queue_receiver("events") as receiver,
    ):
        receiver.receive_messages(max_wait_time=1)
    raw = connect()
    raw.sender("events/Subscriptions/audit")
    assert "amqp:not-allowed" in raw.refusal()


@pytest.mark.parametrize(
    ("status", "sends", "receives"),
    [
        (EntityStatus.DISABLED, False, False),
        (EntityStatus.SEND_DISABLED, False, True),
        (EntityStatus.RECEIVE_DISABLED, True, False),
    ],
)
def test_a_disabled_entity_says_so(
    client: ServiceBusClient, emulator: RunningEmulator, status: EntityStatus, *, sends: bool, receives: bool
) -> None:
    emulator.create_queue("closed", QueueOptions(status=status))
    sender, receiver = client.get_queue_sender("closed"), client.get_queue_receiver("closed")
    for allowed, act in ((sends, lambda: sender.send_messages(X)), (receives, lambda: receiver.receive_messages(1, 1))):
        if allowed:
            act()
        else:
            with pytest.raises(MessagingEntityDisabledError, match="currently disabled"):
                act()
    sender.close()
    receiver.close()


def test_an_entity_that_is_disabled_detaches_its_links(client: ServiceBusClient, emulator: RunningEmulator) -> None:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(X)
        change(emulator, "orders", "QueueDescription", "<Status>SendDisabled</Status>")
        with pytest.raises(ServiceBusError):
            sender.send_messages(X)
        with pytest.raises(MessagingEntityDisabledError):
            sender.send_messages(X)
    assert emulator.counts("orders").active == 1


def test_a_changed_entity_detaches_its_links_and_loses_its_locks(
    client: ServiceBusClient, connect: Connect, emulator: RunningEmulator
) -> None:
    raw = connect()
    for handle, address in enumerate(("orders", "orders/$DeadLetterQueue", "orders/$management")):
        raw.receiver(address, handle)
    send(client, "orders", X)
    with client.get_queue_receiver("orders") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=5)
        change(emulator, "orders", "QueueDescription", "<MaxDeliveryCount>5</MaxDeliveryCount>")
        errors = [raw.read(Detach).error for _ in range(3)]
        assert {error and error.condition for error in errors} == {"amqp:link:detach-forced"}
        # Either, as the client has noticed already that its link is gone, or not.
        with pytest.raises((MessageLockLostError, ServiceBusConnectionError)):
            receiver.complete_message(message)
    assert emulator.counts("orders").locked == 0
    with client.get_queue_receiver("orders") as receiver:
        (again,) = receiver.receive_messages(max_wait_time=5)
        assert again.delivery_count == 0


def test_a_deleted_topic_detaches_the_links_of_its_subscriptions(connect: Connect, emulator: RunningEmulator) -> None:
    emulator.create_topic("events")
    emulator.create_subscription("events", "audit")
    client = connect()
    client.sender("events", 0)
    client.receiver("events/Subscriptions/audit", 1)
    emulator.delete("events")
    errors = [client.read(Detach).error for _ in range(2)]
    assert {error and error.condition for error in errors} == {"amqp:not-found"}


def test_a_subscription_has_the_message_limit_of_its_topic(connect: Connect, emulator: RunningEmulator) -> None:
    emulator.create_topic("large", TopicOptions(max_message_size_kb=102_400))
    emulator.create_subscription("large", "all")
    assert connect().receiver("large/Subscriptions/all").max_message_size == 102_400 * 1024


def test_a_batch_has_a_limit_of_its_own(client: ServiceBusClient, connect: Connect, emulator: RunningEmulator) -> None:
    emulator.create_queue("large", QueueOptions(max_message_size_kb=5_000))
    with client.get_queue_sender("large") as sender:
        assert sender.create_message_batch().max_size_in_bytes == 1_048_576
        sender.send_messages(ServiceBusMessage(b"x" * 4_000_000))
        with pytest.raises(MessageSizeExceededError):
            sender.send_messages(ServiceBusMessage(b"x" * 5_200_000))
    raw = connect()
    raw.sender("large")
    body = b"\x00\x53\x75" + encode(b"\x00\x53\x75" + encode(b"x" * 600_000))
    raw.push(body, 0, message_format=BATCH, more=True)
    answer = raw.transfer(body, 0, message_format=BATCH).state
    assert refusal(answer).startswith("amqp:link:message-size-exceeded")
    assert raw.transfer(body, 1, message_format=BATCH).state == Accepted()
    assert emulator.counts("large").active == 2


def test_the_limits_of_the_tier_standard(small: ServiceBusClient) -> None:
    with small.get_queue_sender("orders") as sender:
        batch = sender.create_message_batch()
        assert isinstance(batch, ServiceBusMessageBatch)
        assert batch.max_size_in_bytes == 262_144
        sender.send_messages(ServiceBusMessage(b"x" * 260_000))
        with pytest.raises(MessageSizeExceededError, match="the limit is 262144"):
            sender.send_messages(ServiceBusMessage(b"x" * 263_000))


def test_a_full_entity_takes_nothing_more(client: ServiceBusClient, emulator: RunningEmulator) -> None:
    emulator.create_queue("full", QueueOptions(max_size_mb=1))
    with client.get_queue_sender("full") as sender:
        sender.send_messages(ServiceBusMessage(b"x" * 900_000))
        with pytest.raises(ServiceBusQuotaExceededError, match="maximum size of 1 MB"):
            sender.send_messages(ServiceBusMessage(b"x" * 200_000))
        sender.send_messages(X)
    assert emulator.counts("full").active == 2


def test_a_forwarded_message_is_received_where_it_has_come(
    client: ServiceBusClient, emulator: RunningEmulator, receive: Callable[..., list[Any]]
) -> None:
    emulator.create_queue("front", QueueOptions(forward_to="orders"))
    send(client, "front", ServiceBusMessage("1"))
    with (
        pytest.raises(ServiceBusError, match="it forwards its messages"),
        client.get_queue_receiver("front") as receiver,
    ):
        receiver.receive_messages(max_wait_time=1)
    assert [str(message) for message in receive("orders")] == ["1"]


def test_dead_letters_are_forwarded_and_tell_their_source(
    client: ServiceBusClient, emulator: RunningEmulator, receive: Callable[..., list[Any]]
) -> None:
    emulator.create_topic("events")
    options = SubscriptionOptions(forward_dead_letters_to="orders")
    emulator.create_subscription("events", "audit", options)
    with client.get_topic_sender("events") as sender:
        sender.send_messages(X)
    with client.get_subscription_receiver("events", "audit") as receiver:
        receiver.dead_letter_message(receiver.receive_messages(max_wait_time=5)[0], reason="Bad")
    (dead,) = receive("orders")
    assert (dead.dead_letter_reason, dead.dead_letter_source) == ("Bad", "events/Subscriptions/audit")
    with (
        pytest.raises(ServiceBusError, match="it forwards its messages"),
        client.get_subscription_receiver("events", "audit", sub_queue="deadletter") as receiver,
    ):
        receiver.receive_messages(max_wait_time=1)


@pytest.mark.parametrize(
    ("outcome", "path"),
    [
        (Modified(message_annotations={Symbol("color"): "red"}), "orders"),
        (Modified(undeliverable_here=True, message_annotations={Symbol("color"): "red"}), "orders"),
        (Rejected(Error("com.microsoft:dead-letter", None, {Symbol("color"): "red"})), "orders/$DeadLetterQueue"),
    ],
)
def test_a_settlement_changes_properties(
    connect: Connect, client: ServiceBusClient, outcome: Outcome, path: str
) -> None:
    """As the SDK for .NET sends it."""
    send(client, "orders", ServiceBusMessage("x", application_properties={"color": "blue", "size": 3}))
    raw = connect()
    raw.receiver("orders")
    raw.flow(1, 1)
    transfer = raw.read(Transfer)
    raw.write(Disposition(role=RECEIVER, first=transfer.delivery_id or 0, settled=False, state=outcome))
    echo = raw.read(Disposition).state
    assert echo == (Rejected() if isinstance(outcome, Rejected) else replace(outcome, message_annotations=None))
    raw.write(Detach(handle=1, closed=True))
    with client.get_queue_receiver(path) as receiver:
        (message,) = receiver.peek_messages(10)
    assert message.application_properties == {b"color": b"red", b"size": 3}
