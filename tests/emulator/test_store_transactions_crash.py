"""A real emulator is killed amid transactions: of each original and its clone, exactly one is there afterwards."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbnotebook.amqp.sections import PROPERTIES, section_value, split
from sbnotebook.emulator.amqp.performatives import Accepted, TransactionalState, Transfer, decode_composite
from tests.chances import chance, rounds
from tests.emulator.service.conftest import RawClient
from tests.emulator.service.transaction_client import Delivery, TransactionClient, body
from tests.kills import Emulator, Ledger

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")

CRASHES: Final = rounds(2, 10)
ORIGINALS: Final = 300
ORDERS, BILLS = "orders", "bills"


def fill(client: ServiceBusClient, ledger: Ledger) -> None:
    names = [str(len(ledger.entries) + n) for n in range(ORIGINALS)]
    with client.get_queue_sender(ORDERS) as sender:
        sender.send_messages([ServiceBusMessage(b"x", message_id=name) for name in names])
    for name in names:
        ledger.enter(name, b"x", ORDERS)


def found(client: ServiceBusClient, queue: str) -> list[str]:
    ids: list[str] = []
    number = 0
    with client.get_queue_receiver(queue) as receiver:
        while messages := receiver.peek_messages(250, sequence_number=number):
            ids += [str(message.message_id) for message in messages]
            number = (messages[-1].sequence_number or 0) + 1
    return ids


def received(client: TransactionClient) -> tuple[Delivery, str]:
    """The next original, and its id."""
    while True:
        frame = client.raw.read_frame()
        performative, end = decode_composite(frame)
        if isinstance(performative, Transfer):
            payload = frame[end:]
            (properties,) = (section for section in split(payload) if section.code == PROPERTIES)
            values = section_value(payload, properties)
            assert isinstance(values, list)
            number, tag = performative.delivery_id or 0, performative.delivery_tag or b""
            return Delivery(number, tag), str(values[0])


def move_all(client: TransactionClient, ledger: Ledger) -> None:
    """Move one original after the other, until the connection breaks."""
    client.receiver(ORDERS)
    client.sender(BILLS)
    for given in range(1, ORIGINALS):
        client.credit(ORDERS, given)
        delivery, name = received(client)
        txn_id = client.declare()
        with ledger.moving([name], BILLS):
            assert client.send(BILLS, body(name), txn_id) == TransactionalState(txn_id, Accepted())
            assert client.settle(delivery, Accepted(), txn_id).state == TransactionalState(txn_id, Accepted())
            client.commit(txn_id)


def test_a_kill_leaves_all_of_a_transaction_or_nothing(tmp_path: Path) -> None:
    dice, ledger = chance("transactions"), Ledger()
    emulator = Emulator(tmp_path, {ORDERS: {}, BILLS: {}})
    for _ in range(CRASHES):
        with emulator:
            with ServiceBusClient.from_connection_string(emulator.connection_string) as sdk:
                fill(sdk, ledger)
            raw = RawClient(emulator.connection_string)
            timer = threading.Timer(dice.uniform(0.02, 0.3), emulator.process.kill)
            timer.start()
            with suppress(AssertionError, ConnectionError, TimeoutError):
                move_all(TransactionClient(raw), ledger)
            timer.join()
            raw.socket.close()
        with emulator, ServiceBusClient.from_connection_string(emulator.connection_string) as sdk:
            ledger.count({queue: found(sdk, queue) for queue in (ORDERS, BILLS)})
    assert len(ledger.at(BILLS)) > CRASHES, "the client did next to nothing"
