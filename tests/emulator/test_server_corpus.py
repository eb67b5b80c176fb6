"""The corpus of bad input over a real socket, while another client works on."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender

from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.emulator.amqp.frames import FrameReader
from sbnotebook.emulator.amqp.performatives import Close, decode_composite
from tests.emulator.corpus.generate import FOLDER, HEADER, corpus

FILES = sorted(FOLDER.glob("*.bin"))


def answer_to(data: bytes, port: int, *, hangs_up: bool) -> bytes:
    """What the emulator says to a client that sends this and nothing more; it may wait for the end, or say its own."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        answer = b""
        try:
            client.sendall(data)
            if hangs_up:
                client.shutdown(socket.SHUT_WR)
            while received := client.recv(1 << 16):
                answer += received
        except ConnectionError:
            pass  # It is closed before everything was sent, or read.
        return answer


def ending(answer: bytes) -> str:
    """How the connection ended, in the words of the corpus."""
    if answer.startswith(b"HTTP/"):
        return answer[9:12].decode()
    _, header, frames_sent = answer.rpartition(HEADER)
    if not header:
        return "silence"
    reader = FrameReader(2**31)
    reader.receive(frames_sent)
    frames = list(iter(reader.next_frame, None))
    last = decode_composite(frames[-1][2])[0] if frames else None
    if not isinstance(last, Close):
        return "stays"
    return "closed" if last.error is None else last.error.condition.removeprefix("amqp:").replace(":", "-")


def test_the_files_are_those_that_are_made() -> None:
    made = corpus()
    found = {path.name: path.read_bytes() for path in FILES}
    assert {name: found.get(name) == data for name, data in made.items()} == dict.fromkeys(made, True)


class Bystander:
    """A client that sends a message after each file, on an older connection."""

    def __init__(self, emulator: RunningEmulator, sender: ServiceBusSender) -> None:
        self.port = int(emulator.connection_string.split(";")[0].rsplit(":", 1)[1])
        self._emulator = emulator
        self._sender = sender
        self._sent = 0

    def send(self) -> None:
        self._sender.send_messages(ServiceBusMessage("x"))
        self._sent += 1
        assert self._emulator.counts("orders").active == self._sent


@pytest.fixture(scope="module")
def bystander() -> Iterator[Bystander]:
    with (
        running(queues=["orders"]) as emulator,
        ServiceBusClient.from_connection_string(emulator.connection_string, retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):
        yield Bystander(emulator, sender)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_bad_input_ends_only_its_own_connection(path: Path, bystander: Bystander) -> None:
    expected = path.stem.split("--")[0]
    answer = answer_to(path.read_bytes(), bystander.port, hangs_up=expected in ("stays", "silence"))
    assert ending(answer) == expected
    bystander.send()
