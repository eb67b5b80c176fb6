"""Clients that attack an emulator: ``python -m tests.security.attackers PORT SECONDS SEED``.

They send damaged conversations over AMQP and HTTP, with and without a token, and leave connections open. At the end the
number of connections that they made is printed.
"""

from __future__ import annotations

import random
import socket
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import repeat

from sbnotebook.amqp import AmqpValue, encode
from sbnotebook.emulator.amqp.performatives import RECEIVER, SENDER, Attach, Begin, Source, Target
from tests.emulator.corpus.generate import BEGUN, attach, corpus, flow, frame, request, signed, transfer
from tests.emulator.service.conftest import token, token_request

_THREADS = 4
_OPEN = 60
"""Connections that each of them leaves open."""
_WAIT = 0.5


def with_token() -> bytes:
    """The frames of a client up to its token, and a session 2 for the attack."""
    put = transfer(token_request(token()), settled=True)
    return (
        BEGUN
        + attach(0, SENDER, "$cbs")
        + put
        + frame(Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9), channel=2)
    )


def conversations() -> list[bytes]:
    """Whole conversations, to be damaged."""
    trusted, empty = with_token(), encode([[] for _ in range(8000)])
    message = b"\x00\x53\x75" + encode(b"x" * 100)
    given: dict[str, AmqpValue] = {"x": [[] for _ in range(60_000)]}
    large = frame(
        Attach(name="large", handle=9, role=SENDER, source=Source("x", filter=given), target=Target("orders"))
    )
    send = attach(3, SENDER, "orders") + transfer(message, handle=3, delivery_id=1) * 3
    begin = transfer(bytes(60_000), handle=3, delivery_id=1, more=True) * 10
    receive = attach(4, RECEIVER, "orders") + flow(handle=4, delivery_count=0, link_credit=50)
    ask = attach(5, SENDER, "orders/$management") + attach(6, RECEIVER, "orders/$management")
    peek = b"\x00\x53\x74" + encode({"operation": "com.microsoft:peek-message"}) + b"\x00\x53\x77"
    names = b"".join(attach(at, SENDER, "orders", f"{at}".zfill(50_000)) for at in range(10, 40))
    admin = [
        request(b"GET /orders?api-version=2021-05", b"", headers=signed()),
        request(b"GET /$Resources/queues", b"", headers=signed()),
        request(b"PUT /orders", b"<entry><content><QueueDescription/></content></entry>", headers=signed()),
        request(b"POST /faults", b'{"entities": [' + b"[" * 50_000, b""),
        b"GET /lease HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /entities HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20,
    ]
    return [
        *corpus().values(),
        *admin,
        *[trusted + part for part in (send, begin, receive, names, large, ask, send + receive)] * 10,
        *[trusted + ask + transfer(peek + body, handle=5) for body in (empty, encode({"from-sequence-number": 1}))] * 5,
        *[BEGUN + large, BEGUN + names] * 5,
    ]


def damaged(data: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    """A conversation with some of its bytes changed, left out, repeated, or taken from another."""
    changed = bytearray(data)
    for _ in range(chance.choice((0, 1, 1, 2, 8, 50))):
        at, kind = chance.randrange(len(changed) or 1), chance.randrange(5)
        if kind < 2 and changed:
            changed[at] = chance.randrange(256)
        elif kind == 2:
            del changed[at : at + chance.randrange(20)]
        elif kind == 3:
            changed[at:at] = changed[at : at + chance.randrange(200)]
        else:
            other = chance.choice(others)
            start = chance.randrange(len(other) or 1)
            changed[at:at] = other[start : start + chance.randrange(2000)]
    return bytes(changed)


def attack(port: int, seconds: float, seed: int) -> int:
    """Attack with one thread, and return the number of connections."""
    chance, whole, count = random.Random(seed), conversations(), 0  # noqa: S311 - to be repeated
    still_open: deque[socket.socket] = deque()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(OSError):
            client = socket.create_connection(("127.0.0.1", port), timeout=_WAIT)
            still_open.append(client)
            count += 1
            client.sendall(damaged(chance.choice(whole), chance, whole))
            if chance.random() < 0.2:
                client.recv(1 << 16)
        if len(still_open) > _OPEN:
            still_open.popleft().close()
    for client in still_open:
        client.close()
    return count


if __name__ == "__main__":
    port, seconds, seed = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    with ThreadPoolExecutor(_THREADS) as threads:
        seeds = [1000 * seed + number for number in range(_THREADS)]
        print(sum(threads.map(attack, repeat(port), repeat(seconds), seeds)))  # noqa: T201
