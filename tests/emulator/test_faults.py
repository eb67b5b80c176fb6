"""Every fault, met by the real SDK: the exception that its user sees, and the state of the message."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPConnection
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import (
    MessageLockLostError,
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from sbnotebook.emulator import ManualClock, QueueOptions, RunningEmulator
from sbnotebook.emulator.faults import Faults
from sbnotebook.errors import ConfigurationError

pytestmark = [
    pytest.mark.usefixtures("broken_connections"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

X = ServiceBusMessage("x")


@pytest.fixture
def sender(client: ServiceBusClient) -> Iterator[ServiceBusSender]:
    """A sender that is connected already."""
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(X)
        yield sender


@pytest.fixture
def receiver(client: ServiceBusClient, sender: ServiceBusSender) -> Iterator[ServiceBusReceiver]:
    """A receiver that is connected already; there is a message for it."""
    del sender
    with client.get_queue_receiver("orders") as receiver:
        receiver.peek_messages()
        yield receiver


def seconds(act: Callable[[], object]) -> float:
    begun = time.monotonic()
    act()
    return time.monotonic() - begun


def send_once(client: ServiceBusClient) -> None:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(X)


def active(emulator: RunningEmulator, count: int) -> bool:
    """Whether so many messages are there before long; a connection that was broken may still be heard."""
    deadline = time.monotonic() + 60
    while emulator.counts("orders").active != count and time.monotonic() < deadline:
        time.sleep(0.01)
    return emulator.counts("orders").active == count


def test_every_byte_is_under_way_in_both_directions(
    client: ServiceBusClient, sender: ServiceBusSender, emulator: RunningEmulator
) -> None:
    emulator.faults.network_delay_ms = 100
    assert seconds(lambda: sender.send_messages(X)) >= 0.2
    # Its connection, SASL, a token, a link, and the message.
    assert seconds(lambda: send_once(client)) >= 5 * 0.2
    over_http = HTTPConnection(emulator.http_url.partition("://")[2])
    assert seconds(lambda: (over_http.request("GET", "/health"), over_http.getresponse())) >= 2 * 0.2
    over_http.close()
    assert emulator.counts("orders").active == 3


def test_no_byte_overtakes_another_when_the_delay_changes(client: ServiceBusClient, emulator: RunningEmulator) -> None:
    emulator.faults.network_delay_ms = 50
    with client.get_queue_sender("orders") as sender:
        for delay in (50, 0, 50, 0, 0):
            emulator.faults.network_delay_ms = delay
            sender.send_messages([X] * 3)
    with client.get_queue_receiver("orders") as receiver:
        assert len(receiver.receive_messages(15, max_wait_time=5)) == 15


def test_the_confirmation_of_a_settlement_is_held_back(receiver: ServiceBusReceiver, emulator: RunningEmulator) -> None:
    (message,) = receiver.receive_messages(max_wait_time=5)
    emulator.faults.settle_delay_ms = 300
    assert seconds(lambda: receiver.complete_message(message)) >= 0.3
    assert emulator.counts("orders").active == 0


@pytest.mark.parametrize(
    ("effect", "left", "condition"),
    [("kept", 1, "internal-error"), ("settled", 0, "internal-error"), ("busy", 1, "server-busy")],
)
def test_a_settlement_is_broken_off_before_or_after_its_effect(
    receiver: ServiceBusReceiver, emulator: RunningEmulator, effect: Any, left: int, condition: str
) -> None:
    (message,) = receiver.receive_messages(max_wait_time=5)
    emulator.faults.broken_off, emulator.faults.broken_off_is = 1, effect
    with pytest.raises(ServiceBusError, match=condition):
        receiver.complete_message(message)
    assert emulator.counts("orders").active == left
    assert emulator.faults.broken_off == 0


def test_a_message_arrives_late_and_its_lock_runs_already(
    receiver: ServiceBusReceiver, sender: ServiceBusSender, emulator: RunningEmulator
) -> None:
    sender.send_messages([X] * 2)
    emulator.faults.delivery_delay_ms = 300
    begun = time.monotonic()
    got = receiver.receive_messages(2, max_wait_time=5)
    assert time.monotonic() - begun >= 0.3
    assert [message.sequence_number for message in got] == [1, 2]
    assert emulator.counts("orders").locked == 2


def test_a_late_message_for_a_gone_receiver_is_released(
    receiver: ServiceBusReceiver, emulator: RunningEmulator
) -> None:
    emulator.faults.delivery_delay_ms = 1000
    assert receiver.receive_messages(max_wait_time=0.2) == []
    assert emulator.counts("orders").locked == 1
    emulator.drop_connections("orders")
    deadline = time.monotonic() + 60
    while emulator.counts("orders").locked:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_busy_server_refuses_the_next_sends(sender: ServiceBusSender, emulator: RunningEmulator) -> None:
    emulator.faults.server_busy = 2
    for _ in range(2):
        with pytest.raises(ServiceBusServerBusyError, match="throttled"):
            sender.send_messages(X)
    sender.send_messages(X)
    assert emulator.counts("orders").active == 2


def test_a_busy_server_refuses_requests_too(receiver: ServiceBusReceiver, emulator: RunningEmulator) -> None:
    emulator.faults.server_busy = 1
    with pytest.raises(ServiceBusServerBusyError):
        receiver.peek_messages()
    assert len(receiver.peek_messages(sequence_number=1)) == 1


def test_a_namespace_does_so_many_operations_a_second(
    sender: ServiceBusSender, receiver: ServiceBusReceiver, emulator: RunningEmulator, clock: ManualClock
) -> None:
    emulator.faults.operations_per_second = 10
    sender.send_messages([X] * 8)  # each message counts
    assert len(receiver.peek_messages(5)) == 5
    for ask in (receiver.peek_messages, partial(sender.send_messages, X)):
        with pytest.raises(ServiceBusServerBusyError, match="throttled"):
            ask()
    clock.advance(1)
    sender.send_messages([X] * 20)
    with pytest.raises(ServiceBusServerBusyError):
        sender.send_messages(X)
    emulator.faults.operations_per_second = 0
    sender.send_messages(X)


def test_the_nth_message_is_rejected_with_its_batch(sender: ServiceBusSender, emulator: RunningEmulator) -> None:
    emulator.faults.reject_nth = 4
    sender.send_messages([X] * 2)
    with pytest.raises(ServiceBusError, match="rejected on demand"):
        sender.send_messages([X] * 3)
    sender.send_messages(X)
    assert emulator.counts("orders").active == 4


def test_a_message_is_rejected_with_any_condition(sender: ServiceBusSender, emulator: RunningEmulator) -> None:
    emulator.faults.reject_nth, emulator.faults.reject_condition = 1, "amqp:resource-limit-exceeded"
    with pytest.raises(ServiceBusQuotaExceededError):
        sender.send_messages(X)


@pytest.mark.parametrize(("fault", "kept"), [("drop_before_nth", 2), ("drop_after_nth", 3)])
def test_the_outcome_of_a_send_is_unknown(
    sender: ServiceBusSender, emulator: RunningEmulator, fault: str, kept: int
) -> None:
    setattr(emulator.faults, fault, 2)
    sender.send_messages(X)
    with pytest.raises(ServiceBusConnectionError):
        sender.send_messages(X)
    assert emulator.counts("orders").active == kept
    sender.send_messages(X)
    assert emulator.counts("orders").active == kept + 1


@pytest.mark.parametrize(("fault", "left"), [("drop_before_nth", 1), ("drop_after_nth", 0)])
def test_the_outcome_of_a_settlement_is_unknown(
    receiver: ServiceBusReceiver, emulator: RunningEmulator, fault: str, left: int
) -> None:
    (message,) = receiver.receive_messages(max_wait_time=5)
    setattr(emulator.faults, fault, 1)
    with pytest.raises(ServiceBusConnectionError):
        receiver.complete_message(message)
    assert emulator.counts("orders").active == left


def test_a_slow_disk_holds_up_everybody(sender: ServiceBusSender, emulator: RunningEmulator) -> None:
    emulator.faults.slow_disk_ms = 300
    assert seconds(lambda: sender.send_messages(X)) >= 0.3


def test_a_fault_of_one_entity_leaves_the_others_alone(
    client: ServiceBusClient, sender: ServiceBusSender, emulator: RunningEmulator
) -> None:
    emulator.create_queue("invoices")
    emulator.faults.entity("Invoices").server_busy = 1
    sender.send_messages(X)
    with client.get_queue_sender("invoices") as other:
        with pytest.raises(ServiceBusServerBusyError):
            other.send_messages(X)
        emulator.faults.server_busy = 1
        other.send_messages(X)  # It has faults of its own, so those of all others do not count.
    with pytest.raises(ServiceBusServerBusyError):
        sender.send_messages(X)


def test_lost_locks_cost_no_delivery(
    client: ServiceBusClient, receiver: ServiceBusReceiver, emulator: RunningEmulator
) -> None:
    (message,) = receiver.receive_messages(max_wait_time=5)
    emulator.lose_locks("orders")
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(message)
    with client.get_queue_receiver("orders") as other:
        (again,) = other.receive_messages(max_wait_time=5)
    assert (again.sequence_number, again.delivery_count) == (message.sequence_number, 0)


def test_closed_links_are_attached_again_by_the_next_call(
    receiver: ServiceBusReceiver, sender: ServiceBusSender, emulator: RunningEmulator
) -> None:
    emulator.close_links("orders")
    with pytest.raises(ServiceBusConnectionError):
        sender.send_messages(X)
    with pytest.raises(ServiceBusConnectionError, match="'orders' was changed"):
        receiver.receive_messages(max_wait_time=5)
    sender.send_messages(X)
    assert len(receiver.receive_messages(2, max_wait_time=5)) == 2


def test_connections_are_dropped(sender: ServiceBusSender, emulator: RunningEmulator) -> None:
    emulator.create_queue("invoices")
    emulator.drop_connections("invoices")
    sender.send_messages(X)
    emulator.drop_connections("orders")
    with pytest.raises(ServiceBusConnectionError):
        sender.send_messages(X)
    assert emulator.counts("orders").active == 2


def test_a_frozen_connection_is_read_once_it_is_thawed(sender: ServiceBusSender, emulator: RunningEmulator) -> None:
    emulator.freeze()
    with pytest.raises(OperationTimeoutError):
        sender.send_messages(X, timeout=0.5)
    assert emulator.counts("orders").active == 1
    emulator.thaw()
    assert active(emulator, 2)


def test_a_frozen_receiver_gets_nothing(
    client: ServiceBusClient, sender: ServiceBusSender, emulator: RunningEmulator
) -> None:
    emulator.create_queue("invoices")
    with client.get_queue_receiver("orders") as receiver, client.get_queue_sender("invoices") as other:
        assert len(receiver.receive_messages(max_wait_time=5)) == 1
        other.send_messages(X)
        emulator.freeze("orders")
        other.send_messages(X)  # another entity's connection continues
        assert receiver.receive_messages(max_wait_time=0.3) == []
        emulator.thaw()
        sender.send_messages(X)
        assert len(receiver.receive_messages(max_wait_time=5)) == 1


def test_a_new_connection_waits_until_it_is_thawed(
    client: ServiceBusClient, sender: ServiceBusSender, emulator: RunningEmulator
) -> None:
    emulator.freeze_new()
    sender.send_messages(X)
    other = client.get_queue_sender("orders")
    thread = threading.Thread(target=other.send_messages, args=[X], daemon=True)
    thread.start()
    thread.join(0.5)
    assert (thread.is_alive(), emulator.counts("orders").active) == (True, 2)
    emulator.thaw()
    thread.join(20)
    other.close()
    assert emulator.counts("orders").active == 3


def test_an_emulator_ends_though_it_is_frozen(sender: ServiceBusSender, emulator: RunningEmulator) -> None:
    emulator.freeze()
    emulator.stop()
    with pytest.raises(ServiceBusError):
        sender.send_messages(X, timeout=5)


def test_faults_of_an_unknown_entity_are_refused(emulator: RunningEmulator) -> None:
    for act in (emulator.lose_locks, emulator.close_links, emulator.drop_connections, emulator.freeze):
        with pytest.raises(ConfigurationError, match="There is no entity 'nobody'"):
            act("nobody")


def test_an_empty_peek_hides_messages(receiver: ServiceBusReceiver, emulator: RunningEmulator) -> None:
    emulator.faults.entity("orders").empty_peeks = 1
    assert [len(receiver.peek_messages(sequence_number=1)) for _ in range(2)] == [0, 1]


def test_a_short_answer_leaves_deferred_messages_out(receiver: ServiceBusReceiver, emulator: RunningEmulator) -> None:
    (message,) = receiver.receive_messages(max_wait_time=5)
    receiver.defer_message(message)
    emulator.faults.entity("orders").short_answers = 1
    number = message.sequence_number
    assert number is not None
    assert len(receiver.receive_deferred_messages([number, number + 1])) == 1, "the second is not even looked for"


def test_a_link_refuses_a_settlement_after_minutes_of_renewal(
    receiver: ServiceBusReceiver, emulator: RunningEmulator, clock: ManualClock
) -> None:
    emulator.faults.link_settles_minutes = 17
    (message,) = receiver.receive_messages(max_wait_time=5)
    for _ in range(17 * 60 // 20):
        clock.advance(20)
        receiver.renew_message_lock(message)
    # The SDK tries the management node by itself only when the link is gone.
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(message)
    receiver.renew_message_lock(message)
    assert emulator.counts("orders").locked == 1


def test_too_many_unsettled_messages_detach_a_link(
    client: ServiceBusClient, sender: ServiceBusSender, emulator: RunningEmulator
) -> None:
    emulator.faults.max_unsettled = 3
    sender.send_messages([X] * 4)
    with client.get_queue_receiver("orders") as receiver:
        for message in receiver.receive_messages(3, max_wait_time=5):
            receiver.complete_message(message)
        assert len(receiver.receive_messages(2, max_wait_time=5)) == 2, "what is settled does not count"
        sender.send_messages([X] * 2)
        assert len(receiver.receive_messages(2, max_wait_time=5)) == 2, "they came before the link was detached"
        with pytest.raises(ServiceBusConnectionError):
            receiver.receive_messages(1, max_wait_time=5)


def test_too_many_unsettled_messages_stop_a_link(
    client: ServiceBusClient, sender: ServiceBusSender, emulator: RunningEmulator, clock: ManualClock
) -> None:
    emulator.faults.max_unsettled, emulator.faults.over_max_unsettled = 3, "stop"
    sender.send_messages([X] * 4)
    with client.get_queue_receiver("orders") as receiver, client.get_queue_receiver("orders") as other:
        received = receiver.receive_messages(5, max_wait_time=2)
        assert len(received) == 3
        assert len(other.receive_messages(5, max_wait_time=2)) == 2, "it is a limit of each link"
        # Locks that have ended still count, until the link settles them.
        clock.advance(60)
        assert receiver.receive_messages(1, max_wait_time=1) == []
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(received[0])
        assert len(receiver.receive_messages(1, max_wait_time=5)) == 1


@pytest.mark.parametrize("session_id", ["a", None])
@pytest.mark.parametrize(("order", "expected"), [("front", [2, 1, 3]), ("place", [1, 2, 3]), ("back", [3, 1, 2])])
def test_messages_come_again_where_the_fault_says(
    client: ServiceBusClient, emulator: RunningEmulator, session_id: str | None, order: Any, expected: list[int]
) -> None:
    emulator.create_queue("flights", QueueOptions(requires_session=session_id is not None))
    emulator.faults.entity("flights").order_after_release = order
    with client.get_queue_sender("flights") as sender:
        for _ in range(3):
            sender.send_messages(ServiceBusMessage("x", session_id=session_id))
    with client.get_queue_receiver("flights", session_id=session_id, max_wait_time=2) as receiver:
        first, second, *_ = receiver.receive_messages(2, max_wait_time=5)
        receiver.abandon_message(first)
        receiver.abandon_message(second)
        assert [message.sequence_number for message in receiver.receive_messages(3)] == expected


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"order_after_release": "side"}, "'order_after_release' must be"),
        ({"fly": 1}, "There is no fault 'fly': choose among accept_delay_ms"),
        ({"accept_delay_ms": True}, "'accept_delay_ms' must be a number from 0 to 600000"),
        ({"settle_delay_ms": 600_001}, "'settle_delay_ms' must be a number from 0 to 600000"),
        ({"server_busy": -1}, "'server_busy' must be a number from 0 to 1000000"),
        ({"reject_nth": 1.5}, "'reject_nth' must be a number from 0 to 1000000"),
        ({"reject_condition": ""}, "'reject_condition' must be"),
        ({"reject_condition": "ü"}, "'reject_condition' must be"),
        ({"unconfirmed": "all"}, "'unconfirmed' must be one of '', 'released', 'ranges'"),
        ({"over_max_unsettled": 1}, "'over_max_unsettled' must be one of 'detach', 'stop'"),
        ({"mixed_partitions": True}, "'mixed_partitions' must be one of 'taken', 'refused'"),
        ({"entities": []}, "'entities' must be an object"),
        ({"entities": {"orders": 5}}, "'orders' must be an object of faults"),
        ({"entities": {"": {}}}, "'' must be an object of faults"),
        ({"entities": {"orders": {"slow_disk_ms": 5}}}, "There is no fault 'slow_disk_ms'"),
    ],
)
def test_an_invalid_fault_is_reported(document: dict[str, object], sentence: str) -> None:
    faults = Faults()
    with pytest.raises(ConfigurationError, match=sentence):
        faults.change({"accept_delay_ms": 5, **document})
    assert faults == Faults()
