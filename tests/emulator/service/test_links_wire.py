"""What the SDK never does, frame by frame."""

from __future__ import annotations

import time

import pytest

from sbnotebook.amqp import encode
from sbnotebook.emulator import RunningEmulator
from sbnotebook.emulator.amqp.performatives import (
    RECEIVER,
    Accepted,
    Detach,
    Disposition,
    Flow,
    Modified,
    Rejected,
    Released,
    Transfer,
)
from sbnotebook.emulator.entities.box import Counts
from tests.emulator.service.conftest import Connect
from tests.emulator.service.transaction_client import refusal

MESSAGE = b"\x00\x53\x75\xa0\x00"
BATCH = 0x80013700


def data(payload: bytes) -> bytes:
    return b"\x00\x53\x75" + encode(payload)


def test_a_message_that_was_sent_settled_is_kept(connect: Connect, emulator: RunningEmulator) -> None:
    client = connect()
    client.sender("orders")
    client.push(MESSAGE, 0, settled=True)
    assert client.transfer(MESSAGE, 1).state == Accepted()
    assert emulator.counts("orders").active == 2


@pytest.mark.parametrize("delay", [0, 20])
def test_all_that_a_client_wrote_before_its_end_counts(connect: Connect, emulator: RunningEmulator, delay: int) -> None:
    client = connect()
    client.sender("orders")
    emulator.faults.network_delay_ms = delay
    for number in range(1_000):  # more than the emulator handles of one connection at once
        client.push(MESSAGE, number, settled=True)
    client.socket.close()
    deadline = time.monotonic() + 30
    while emulator.counts("orders").active < 1_000:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_batch_is_accepted_or_refused_as_a_whole(connect: Connect, emulator: RunningEmulator) -> None:
    client = connect()
    client.sender("orders")
    answer = client.transfer(data(MESSAGE) + data(b"garbage"), 0, message_format=BATCH)
    assert refusal(answer.state).startswith("amqp:decode-error")
    assert emulator.counts("orders").active == 0
    assert client.transfer(data(MESSAGE) * 3, 1, message_format=BATCH).state == Accepted()
    assert emulator.counts("orders").active == 3


@pytest.mark.parametrize(
    ("payload", "message_format"),
    [
        (data(MESSAGE) + b"\x00\x53\x75" + encode("no bytes"), BATCH),
        (b"\x00\x53\x77" + encode("no data section"), BATCH),
        (data(b""), BATCH),
        (b"", BATCH),
        (b"", 0),
    ],
)
def test_a_transfer_without_a_message_is_not_accepted(
    connect: Connect, emulator: RunningEmulator, payload: bytes, message_format: int
) -> None:
    client = connect()
    client.sender("orders")
    answer = client.transfer(payload, message_format=message_format)
    assert refusal(answer.state).startswith("amqp:decode-error")
    assert emulator.counts("orders").active == 0


def test_credit_is_topped_up(connect: Connect) -> None:
    client = connect()
    client.sender("orders")
    first = client.read(Flow)
    for number in range(1_100):
        client.push(MESSAGE, number, settled=True)
    second = client.read(Flow)
    assert (first.link_credit, second.link_credit) == (2_000, 2_000)
    assert second.delivery_count is not None
    assert 1_001 <= second.delivery_count <= 1_100


def test_a_drain_is_answered(connect: Connect) -> None:
    client = connect()
    client.sender("orders")
    client.transfer(MESSAGE)
    client.receiver("orders")
    client.flow(1, 5, drain=True)
    client.read(Transfer)
    flow = client.read(Flow)
    assert (flow.link_credit, flow.delivery_count, flow.drain) == (0, 5, True)
    client.flow(1, 0, delivery_count=5, drain=True)
    assert client.read(Flow).drain


def test_receivers_get_messages_in_turn(connect: Connect) -> None:
    client = connect()
    client.sender("orders")
    for handle, credit in ((1, 2), (2, 10)):
        client.receiver("orders", handle)
        client.flow(handle, credit)
    for number in range(5):
        client.push(MESSAGE, number, settled=True)
    assert [client.read(Transfer).handle for _ in range(5)] == [1, 2, 1, 2, 2]


def test_a_shut_session_window_locks_nothing(connect: Connect, emulator: RunningEmulator) -> None:
    client = connect()
    client.sender("orders")
    for number in range(5):
        client.transfer(MESSAGE, number)
    client.receiver("orders", 1)
    client.receiver("orders", 2)
    client.flow(1, 10, incoming_window=0)
    client.flow(2, 10, incoming_window=0)
    client.receiver("orders/$management", 3)  # answered after the turn that would have delivered
    assert emulator.counts("orders").locked == 0
    client.flow(3, 0, incoming_window=2)  # the window is all links'
    assert sorted(client.read(Transfer).handle for _ in range(2)) == [1, 2]
    assert emulator.counts("orders").locked == 2


def test_every_outcome_has_its_echo(connect: Connect, emulator: RunningEmulator) -> None:
    client = connect()
    client.sender("orders")
    client.receiver("orders")
    outcomes = [Released(), Modified(delivery_failed=True), Modified(undeliverable_here=True), Rejected(), Accepted()]
    for number in range(3):
        client.transfer(MESSAGE, number)
    for delivery_id, outcome in enumerate(outcomes):
        client.flow(1, 1, delivery_count=delivery_id)
        assert client.read(Transfer).delivery_id == delivery_id
        client.write(Disposition(role=RECEIVER, first=delivery_id, settled=False, state=outcome))
        echo = client.read(Disposition)
        assert (echo.first, echo.settled, echo.state) == (delivery_id, True, outcome)
    # Released and abandoned, the first message came again both times; then it was deferred.
    assert emulator.counts("orders") == Counts(0, 0, 1, 0, 1)


def test_a_deleted_queue_detaches_its_links(connect: Connect, emulator: RunningEmulator) -> None:
    client = connect()
    for handle, address in enumerate(("orders", "orders/$DeadLetterQueue", "orders/$management", "$cbs")):
        client.receiver(address, handle)
    emulator.delete("orders")
    assert sorted(client.read(Detach).handle for _ in range(3)) == [0, 1, 2]
    emulator.create_queue("orders")
    client.sender("orders", 0)
    assert client.transfer(MESSAGE).state == Accepted()
