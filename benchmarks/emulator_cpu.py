"""CPU time that the emulator spends on a message of 1 kB, and what keeping messages on disk costs.

The emulator runs in a process of its own, and a client that only shovels prepared bytes drives it from this one: the
SDK's own CPU time would hide the emulator's. A CPU time is the emulator's process time over the messages of one phase:
the least of the rounds, because what else runs on the machine only adds to it, with the median beside it. Phases in
memory and on disk take turns; the ratio of their throughputs is the median of the rounds' ratios.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, NamedTuple
from urllib.parse import quote_plus

from rich.console import Console
from rich.table import Table

from benchmarks.emulators import QUEUE, Emulator, emulator
from sbnotebook.amqp import AmqpValue, Int, Long, encode
from sbnotebook.emulator import running
from sbnotebook.emulator.amqp.frames import FrameWriter
from sbnotebook.emulator.amqp.performatives import (
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    Disposition,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
    encode_composite,
)

COUNT = 20_000
ROUNDS = 7
IN_FLIGHT = 100
MESSAGE = b"\x00\x53\x73" + encode(["id", None, "bench"]) + b"\x00\x53\x75" + encode(b"x" * 1000)
BATCHED = 50  # as many as fit into one frame
BATCH = (b"\x00\x53\x75" + encode(MESSAGE)) * BATCHED
BATCH_FORMAT = 0x80013700
FLOW, TRANSFER, DISPOSITION = 0x13, 0x14, 0x15
WINDOW = 2**31 - 1
PACKAGE = f"{os.sep}sbnotebook{os.sep}"


class Cost(NamedTuple):
    """What a phase has cost for one message: microseconds of the emulator's CPU, and of the clock."""

    cpu: float
    elapsed: float


class Round(NamedTuple):
    """A phase in memory, and right after it on disk."""

    in_memory: Cost
    on_disk: Cost


def main() -> None:
    """Measure and print."""
    calls = calls_of_a_send()
    Console().print(f"One send makes {len(calls)} calls in {len(set(calls))} files of sbnotebook.")
    with TemporaryDirectory() as directory, emulator() as in_memory, emulator(Path(directory)) as on_disk:
        show(measure(in_memory, on_disk))


def calls_of_a_send() -> list[str]:
    """Return the file of each function of sbnotebook that an emulator in memory calls for one message."""
    calls: list[str] = []
    is_counting = threading.Event()

    def note(called: FrameType, event: str, _argument: object) -> None:
        if event == "call" and is_counting.is_set() and PACKAGE in called.f_code.co_filename:
            calls.append(called.f_code.co_filename)

    # It is inherited by the emulator's thread, which begins after this.
    threading.setprofile(note)
    with running(queues=[QUEUE]) as started:
        threading.setprofile(None)
        client = Client(started.connection_string)
        handle = client.sender(QUEUE)
        for number in range(1, 4):  # the last one counts
            time.sleep(0.1)
            if number == 3:
                is_counting.set()
            client.write(frame(transfer_of(handle, number, 0), MESSAGE))
            client.read(1, DISPOSITION)
        time.sleep(0.1)
        is_counting.clear()
        client.close()
    return calls


class Client:
    """Prepared bytes out, frames counted by their sizes in."""

    def __init__(self, connection_string: str) -> None:
        parts = dict(part.split("=", 1) for part in connection_string.strip(";").split(";"))
        host, port = parts["Endpoint"].removeprefix("sb://").rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self._socket.sendall(b"AMQP\x00\x01\x00\x00")
        self.send(Open(container_id="bench"), Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW))
        self._socket.recv(8, socket.MSG_WAITALL)  # the protocol header
        self._next_handle = 0
        self._authorize(f"sb://{host}:{port}/{QUEUE}", parts["SharedAccessKeyName"], parts["SharedAccessKey"])

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def sender(self, address: str) -> int:
        """Attach a link to send on, and wait for credit; its handle."""
        handle = self._attach(SENDER, Source("bench"), Target(address))
        self.read(1, FLOW)
        return handle

    def receiver(self, address: str, target: str = "bench") -> int:
        """Attach a link to receive on; its handle."""
        return self._attach(RECEIVER, Source(address), Target(target))

    def send(self, *performatives: Any, payload: bytes = b"") -> None:
        """Send performatives; the payload goes with the last one."""
        *others, last = performatives
        self.write(b"".join([frame(each) for each in others]) + frame(last, payload))

    def write(self, data: bytes) -> None:
        """Send bytes that were prepared."""
        self._socket.sendall(data)

    def flow(self, handle: int, credit: int, delivery_count: int = 0) -> None:
        """Grant credit."""
        link: dict[str, Any] = {"handle": handle, "delivery_count": delivery_count, "link_credit": credit}
        session: dict[str, Any] = {"next_incoming_id": delivery_count, "incoming_window": WINDOW, "next_outgoing_id": 0}
        self.send(Flow(**session, **link, outgoing_window=WINDOW))

    def read(self, count: int, code: int, found: Callable[[bytes, int], None] | None = None) -> None:
        """Wait for frames of a performative; call ``found`` with the offset of the body of each."""
        while count:
            data, at = self._buffer, 0
            while count and len(data) - at >= 4:
                size = int.from_bytes(data[at : at + 4])
                if len(data) - at < size:
                    break
                if size > 8 and data[at + 10] == code:
                    count -= 1
                    if found is not None:
                        found(data, at + 8)
                at += size
            self._buffer = data[at:]
            if count:
                more = self._socket.recv(1 << 18)
                if not more:
                    raise ConnectionError(f"The emulator has closed the connection: {data!r}.")
                self._buffer += more

    def _attach(self, role: bool, source: Source, target: Target) -> int:
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        modes: dict[str, Any] = {"snd_settle_mode": 0, "rcv_settle_mode": 1, "initial_delivery_count": 0}
        self.send(Attach(name=f"link {handle}", handle=handle, role=role, source=source, target=target, **modes))
        return handle

    def _authorize(self, audience: str, key_name: str, key: str) -> None:
        resource, expiry = quote_plus(audience), int(time.time()) + 3600
        mac = hmac.new(key.encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256).digest()
        signature = quote_plus(base64.b64encode(mac))
        token = f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={key_name}"
        request: AmqpValue = {"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": audience}
        sender = self.sender("$cbs")
        self.flow(self.receiver("$cbs"), 1)
        ask(self, sender, 0, encode(["token"]), encode(request), encode(token))
        self.read(1, TRANSFER)


def ask(client: Client, handle: int, number: int, properties: bytes, application: bytes, body: bytes) -> None:
    """Send a request."""
    payload = b"\x00\x53\x73" + properties + b"\x00\x53\x74" + application + b"\x00\x53\x77" + body
    client.send(transfer_of(handle, number, 0, settled=True), payload=payload)


def transfer_of(handle: int, number: int, message_format: int, *, settled: bool = False) -> Transfer:
    """Return the performative of a message in one frame."""
    tag = number.to_bytes(4)
    return Transfer(handle=handle, delivery_id=number, delivery_tag=tag, message_format=message_format, settled=settled)


def frame(performative: Any, payload: bytes = b"") -> bytes:
    """Return one frame on channel 0."""
    writer = FrameWriter()
    writer.write(0, encode_composite(performative), payload)
    return writer.take()


def measure(in_memory: Emulator, on_disk: Emulator) -> dict[str, list[Round]]:
    """Measure the rounds of each phase."""
    phases: dict[str, Callable[[Client], Callable[[], None]]] = {
        "send, one after the other": lambda client: sending(client, MESSAGE, 0, COUNT, 1),
        "send, 100 in flight": lambda client: sending(client, MESSAGE, 0, COUNT, IN_FLIGHT),
        f"send, batches of {BATCHED}": lambda client: sending(client, BATCH, BATCH_FORMAT, COUNT // BATCHED, 2),
        "peek, 250 at once": peeking,
        "receive and complete": receiving,
        "receive and delete": deleting,
    }
    rounds: dict[str, list[Round]] = {name: [] for name in phases}
    for _ in range(ROUNDS):
        for name, prepare in phases.items():
            rounds[name].append(Round(*(timed(running, prepare) for running in (in_memory, on_disk))))
    return rounds


def timed(running: Emulator, prepare: Callable[[Client], Callable[[], None]]) -> Cost:
    """Run a phase over all messages."""
    client = Client(running.connection_string)
    phase = prepare(client)
    started, cpu = time.perf_counter(), running.cpu_time()
    phase()
    spent = running.cpu_time() - cpu, time.perf_counter() - started
    client.close()
    return Cost(*(1e6 * seconds / COUNT for seconds in spent))


def sending(client: Client, payload: bytes, message_format: int, count: int, in_flight: int) -> Callable[[], None]:
    """Send, with a number of transfers that are not settled yet."""
    handle = client.sender(QUEUE)
    frames = [frame(transfer_of(handle, number, message_format), payload) for number in range(1, count + 1)]
    step = max(in_flight // 2, 1)
    parts = [b"".join(frames[at : at + step]) for at in range(0, count, step)]

    def run() -> None:
        waiting = 0
        for part in parts:
            client.write(part)
            waiting += step
            while waiting >= in_flight:
                client.read(step, DISPOSITION)
                waiting -= step
        client.read(waiting, DISPOSITION)

    return run


def peeking(client: Client) -> Callable[[], None]:
    """Look at all messages, page by page."""
    node = f"{QUEUE}/$management"
    handle, reply = client.sender(node), client.receiver(node)
    client.flow(reply, 1000)
    operation = encode({"operation": "com.microsoft:peek-message"})
    first = [0]

    def found(data: bytes, at: int) -> None:
        # The number of the page's last message: behind its annotation.
        key = data.rindex(b"x-opt-sequence-number") + len(b"x-opt-sequence-number")
        del at
        width = {0x55: 1, 0x81: 8}[data[key]]
        first[0] = int.from_bytes(data[key + 1 : key + 1 + width]) + 1

    def run() -> None:
        for number in range(COUNT // 250):
            arguments = encode({"from-sequence-number": Long(first[0]), "message-count": Int(250)})
            ask(client, handle, number + 1, encode([f"peek {number}"]), operation, arguments)
            client.read(1, TRANSFER, found)

    return run


def receiving(client: Client) -> Callable[[], None]:
    """Receive in peek-lock mode and complete each message, and wait until that is confirmed."""
    handle = client.receiver(QUEUE)
    settle = frame(Disposition(role=RECEIVER, first=0x77777777, last=0x77777777, settled=False, state=Accepted()))
    pieces = settle.split(struct.pack(">I", 0x77777777))

    def run() -> None:
        for at in range(0, COUNT, IN_FLIGHT):
            client.flow(handle, IN_FLIGHT, at)
            client.read(IN_FLIGHT, TRANSFER)
            numbers = [struct.pack(">I", number) for number in range(at + 1, at + IN_FLIGHT + 1)]
            client.write(b"".join([number.join(pieces) for number in numbers]))
            client.read(IN_FLIGHT, DISPOSITION)

    return run


def deleting(client: Client) -> Callable[[], None]:
    """Receive in receive-and-delete mode."""
    source, target = Source(QUEUE), Target("bench")
    modes: dict[str, Any] = {"snd_settle_mode": 1, "rcv_settle_mode": 0, "initial_delivery_count": 0}
    client.send(Attach(name="deleting", handle=9, role=RECEIVER, source=source, target=target, **modes))

    def run() -> None:
        for at in range(0, COUNT, IN_FLIGHT):
            client.flow(9, IN_FLIGHT, at)
            client.read(IN_FLIGHT, TRANSFER)

    return run


def show(phases: dict[str, list[Round]]) -> None:
    """Print a row for each phase."""
    table = Table(f"{COUNT} messages of 1 kB", "in memory, CPU µs each", "on disk, CPU µs each", "throughput on disk")
    for name, rounds in phases.items():
        ratio = median(each.in_memory.elapsed / each.on_disk.elapsed for each in rounds)
        costs = (_text([each.in_memory.cpu for each in rounds]), _text([each.on_disk.cpu for each in rounds]))
        table.add_row(name, *costs, f"{ratio:.2f} of that in memory")
    Console().print(table)


def _text(microseconds: list[float]) -> str:
    return f"{min(microseconds):.1f} (median {median(microseconds):.1f})"


if __name__ == "__main__":
    main()
