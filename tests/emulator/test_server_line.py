"""A client's line; what ends it early is in ``test_server``, what the SDK sees of its length in ``test_faults``."""

from __future__ import annotations

import socket
import time

import pytest

from sbnotebook.emulator import running


@pytest.mark.parametrize("pieces", [(b"AMQP", b"\x00\x01\x00\x00"), (b"A", b"MQP\x00", b"\x01", b"\x00\x00")])
def test_pieces_arrive_in_order_over_a_long_line(pieces: tuple[bytes, ...]) -> None:
    with running(queues=["orders"]) as emulator:
        emulator.faults.network_delay_ms = 100
        port = int(emulator.http_url.rpartition(":")[2])
        begun = time.monotonic()
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for piece in pieces:
                client.sendall(piece)
                time.sleep(0.01)
            assert client.recv(8, socket.MSG_WAITALL) == b"".join(pieces)
            assert time.monotonic() - begun >= 0.4
