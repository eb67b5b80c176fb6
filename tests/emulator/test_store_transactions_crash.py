"""A real emulator is killed amid transactions: of each original and its clone, exactly one is there afterwards.

``SBNOTEBOOK_CRASHES`` says how often (3 unless said); ``SBNOTEBOOK_SEED`` repeats a run's random choices.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbnotebook.emulator.amqp import Accepted, TransactionalState
from sbnotebook.emulator.amqp.composites import decode_composite
from sbnotebook.emulator.amqp.performatives import Transfer
from sbnotebook.model.sections import PROPERTIES, section_value, split
from tests.emulator.service.conftest import RawClient
from tests.emulator.service.transaction_client import Delivery, TransactionClient, body

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")

CRASHES: Final = int(os.environ.get("SBNOTEBOOK_CRASHES", "3"))
SEED: Final = int(os.environ.get("SBNOTEBOOK_SEED") or random.SystemRandom().getrandbits(32))
ORIGINALS: Final = 300


@contextmanager
def emulator(directory: Path) -> Generator[tuple[subprocess.Popen[bytes], str]]:
    """A process with its own data, and its connection string; killed at the end if it still runs."""
    command = [sys.executable, "-m", "sbnotebook.emulator", "--port", "0", "--queue", "orders", "--queue", "bills"]
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--data-dir", str(directory / "data")], stdout=subprocess.PIPE, stderr=log
        )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().decode().strip()
    finally:
        process.kill()
        process.communicate()


def fill(client: ServiceBusClient, names: range) -> None:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages([ServiceBusMessage(b"x", message_id=str(name)) for name in names])


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


def move_all(client: TransactionClient, confirmed: set[str]) -> None:
    """Move one original after the other, until the connection breaks."""
    client.receiver("orders")
    client.sender("bills")
    for given in range(1, ORIGINALS):
        client.credit("orders", given)
        delivery, name = received(client)
        txn_id = client.declare()
        assert client.send("bills", body(name), txn_id) == TransactionalState(txn_id, Accepted())
        assert client.settle(delivery, Accepted(), txn_id).state == TransactionalState(txn_id, Accepted())
        client.commit(txn_id)
        confirmed.add(name)


def test_a_kill_leaves_all_of_a_transaction_or_nothing(tmp_path: Path) -> None:
    print(f"SBNOTEBOOK_SEED={SEED}")  # noqa: T201 - pytest shows it if the test fails
    chance = random.Random(SEED)  # noqa: S311 - no secrets
    confirmed: set[str] = set()
    for crash in range(CRASHES):
        with emulator(tmp_path) as (process, connection_string):
            with ServiceBusClient.from_connection_string(connection_string) as sdk:
                fill(sdk, range(crash * ORIGINALS, (crash + 1) * ORIGINALS))
            raw = RawClient(connection_string)
            timer = threading.Timer(chance.uniform(0.02, 0.3), process.send_signal, (signal.SIGKILL,))
            timer.start()
            with suppress(AssertionError, ConnectionError, TimeoutError):
                move_all(TransactionClient(raw), confirmed)
            timer.join()
            raw.socket.close()
        with emulator(tmp_path) as (_, again), ServiceBusClient.from_connection_string(again) as sdk:
            originals, clones = found(sdk, "orders"), found(sdk, "bills")
        assert sorted(originals + clones, key=int) == [str(name) for name in range((crash + 1) * ORIGINALS)]
        assert confirmed <= {*clones}
        # At most the last transaction was committed without an answer.
        assert len(clones) - len(confirmed) <= crash + 1
    assert len(confirmed) > CRASHES, "the client did next to nothing"
