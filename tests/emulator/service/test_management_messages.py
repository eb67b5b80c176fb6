"""Requests that this SDK never sends, or not like this."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbnotebook.amqp import AmqpValue, Array, Int, Long, Symbol, Timestamp
from sbnotebook.amqp.sections import DATA, DELIVERY_ANNOTATIONS, PROPERTIES, section_value, split
from sbnotebook.emulator import ManualClock, RunningEmulator
from sbnotebook.emulator.entities.box import Counts
from tests.emulator.service.conftest import Connect
from tests.emulator.service.management_node import Node


@pytest.fixture
def lock(client: ServiceBusClient) -> Callable[[int], list[Any]]:
    """Send messages and lock them; their lock tokens."""

    def lock(count: int) -> list[Any]:
        with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
            message = ServiceBusMessage("x", application_properties={"color": "blue", "size": 3})
            sender.send_messages([message] * count)
            return [each.lock_token for each in receiver.receive_messages(count, max_wait_time=5)]

    return lock


@pytest.mark.parametrize(
    ("status", "path", "state"),
    [("abandoned", "orders", 0), ("defered", "orders", 1), ("suspended", "orders/$DeadLetterQueue", 0)],
)
def test_a_settlement_changes_properties(
    connect: Connect,
    client: ServiceBusClient,
    lock: Callable[[int], list[Any]],
    status: str,
    path: str,
    state: int,
) -> None:
    properties: AmqpValue = {Symbol("color"): "red", "new": Int(5)}
    body: AmqpValue = {
        "disposition-status": status,
        "lock-tokens": Array(lock(1)),
        "properties-to-modify": properties,
        "deadletter-reason": "Bad" if status == "suspended" else None,
    }
    assert Node(connect(), "orders").ask("update-disposition", body) == (200, "", None)
    with client.get_queue_receiver(path) as receiver:
        (message,) = receiver.peek_messages(10)
    expected = {b"color": b"red", b"size": 3, b"new": 5}
    if status == "suspended":
        expected[b"DeadLetterReason"] = b"Bad"
    assert (message.application_properties, message.state.value) == (expected, state)


def test_several_settlements_are_carried_out_as_a_whole(
    connect: Connect, client: ServiceBusClient, lock: Callable[[int], list[Any]], emulator: RunningEmulator
) -> None:
    tokens = lock(2)
    node = Node(connect(), "orders")
    body: dict[str, AmqpValue] = {"disposition-status": "abandoned", "lock-tokens": Array(tokens[1:])}
    assert (
        node.ask(
            "update-disposition",
            {**body, "properties-to-modify": {Symbol("big"): "x" * 30_000, Symbol("other"): "x" * 30_000}},
        )[0]
        == 200
    )
    tokens[1:] = [message.lock_token for message in client.get_queue_receiver("orders").receive_messages()]
    body["lock-tokens"] = Array(tokens)
    status, condition, _ = node.ask("update-disposition", {**body, "properties-to-modify": {Symbol("b"): "x" * 9000}})
    assert (status, condition) == (413, "amqp:link:message-size-exceeded")
    assert emulator.counts("orders").locked == 2


@pytest.mark.parametrize("status", ["released", "unlocked"])
def test_a_message_is_given_back_uncounted(
    connect: Connect,
    client: ServiceBusClient,
    lock: Callable[[int], list[Any]],
    status: str,
) -> None:
    body: AmqpValue = {"disposition-status": status, "lock-tokens": Array(lock(1))}
    assert Node(connect(), "orders").ask("update-disposition", body)[0] == 200
    with client.get_queue_receiver("orders") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=5)
    assert message.delivery_count == 0


def test_many_are_settled_at_once_or_none(
    connect: Connect, emulator: RunningEmulator, lock: Callable[[int], list[Any]]
) -> None:
    tokens = lock(3)
    node = Node(connect(), "orders")

    def complete(*which: Any) -> tuple[int, str, Any]:
        return node.ask("update-disposition", {"disposition-status": "completed", "lock-tokens": Array(which)})

    assert complete(tokens[0])[0] == 200
    assert complete(tokens[1], tokens[0]) == (410, "com.microsoft:message-lock-lost", None)
    assert emulator.counts("orders").locked == 2
    assert complete(tokens[1], tokens[2])[0] == 200
    assert emulator.counts("orders") == Counts(0, 0, 0, 0, 0)


def test_messages_are_deleted_in_batches(
    connect: Connect, client: ServiceBusClient, clock: ManualClock, emulator: RunningEmulator
) -> None:
    def send(count: int) -> None:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages([ServiceBusMessage("x")] * count)

    send(3)
    with client.get_queue_receiver("orders") as receiver:
        receiver.receive_messages(1, max_wait_time=5)
        before = clock.now() + 1
        clock.advance(1)
        send(1)
        node = Node(connect(), "orders")
        body: AmqpValue = {"message-count": Int(4_000), "enqueued-time-utc": Timestamp(before)}
        assert node.ask("batch-delete-messages", body) == (200, "", {"message-count": 2})
        assert node.ask("batch-delete-messages", body)[0] == 204
        assert emulator.counts("orders") == Counts(2, 1, 0, 0, 0)  # locked messages, and later ones


@pytest.mark.parametrize(("omit", "has_body"), [(True, False), (False, True), (None, True)])
def test_a_peek_can_omit_the_bodies(
    connect: Connect, client: ServiceBusClient, omit: bool | None, has_body: bool
) -> None:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("x" * 5_000, subject="large"))
    body: dict[str, AmqpValue] = {"from-sequence-number": Long(0), "message-count": Int(1)}
    answer = Node(connect(), "orders").ask(
        "peek-message", body if omit is None else {**body, "omit-message-body": omit}
    )
    payload = answer[2]["messages"][0]["message"]
    sections: dict[int, Any] = {section.code: section_value(payload, section) for section in split(payload)}
    assert (DATA in sections, "omitted-message-body-size" in sections[DELIVERY_ANNOTATIONS]) == (has_body, not has_body)
    assert sections[PROPERTIES][3] == "large"
