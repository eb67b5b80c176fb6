"""Servers in the place of an emulator that is not sbnotebook's, such as Microsoft's."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager, suppress

from sbnotebook.settlement import Connection

__all__ = ["silent", "stranger"]


def connection_to(server: socket.socket) -> Connection:
    key = "SharedAccessKeyName=n;SharedAccessKey=a2V5"
    return Connection(f"Endpoint=sb://127.0.0.1:{server.getsockname()[1]};{key};UseDevelopmentEmulator=true;")


@contextmanager
def stranger(answer: bytes) -> Generator[Connection]:
    """A server that gives every client one answer, and closes."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client:
                client.recv(8)
                client.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield connection_to(server)


@contextmanager
def silent(*, speaks: bytes = b"", at_once: bool = False) -> Generator[Connection]:
    """A server that keeps every connection open, and answers HTTP with nothing, or with its AMQP header at once."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server, ExitStack() as clients:

        def serve() -> None:
            with suppress(OSError):  # the server was closed
                while True:
                    client = clients.enter_context(server.accept()[0])
                    if client.recv(8).startswith(b"AMQP") or at_once:
                        client.sendall(speaks)

        threading.Thread(target=serve, daemon=True).start()
        yield connection_to(server)
