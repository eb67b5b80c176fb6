"""The connections of all clients: how many there may be, and which one makes room for another.

A client that has shown that it may be here, by a token or the proof of a lease, keeps its place. Of the others the
oldest one goes when there are too many: a client needs much less than a second to show it, so who keeps others out has
to connect again and again.
"""

from __future__ import annotations

import asyncio
from typing import Final

_MOST: Final = 5000  # Connections, as a namespace has at most (Service Bus documentation, "Service Bus quotas")
# Connections over HTTP that have shown nothing. Each may hold the body of a request, or a WebSocket message.
_MOST_HTTP: Final = 128
_OTHER_FILES: Final = 64  # Files that the process needs beside its connections


class ConnectionLimit:
    def __init__(self) -> None:
        self._all: set[asyncio.Transport] = set()
        # In the order in which they came.
        self._strangers: dict[asyncio.Transport, None] = {}
        self._http: dict[asyncio.Transport, None] = {}

    def __len__(self) -> int:
        return len(self._all)

    def arrive(self, transport: asyncio.Transport) -> None:
        """Count a new connection. If there are too many, the oldest that has shown nothing is dropped."""
        self._all.add(transport)
        self._strangers[transport] = None
        most = _most()
        while self._strangers and (len(self._all) > most or len(self._strangers) > most // 2):
            self._drop(next(iter(self._strangers)))

    def speak_http(self, transport: asyncio.Transport) -> None:
        """Note that a connection is one over HTTP, of which there may be fewer."""
        if transport in self._strangers:
            self._http[transport] = None
        while len(self._http) > _MOST_HTTP:
            self._drop(next(iter(self._http)))

    def settle(self, transport: asyncio.Transport) -> None:
        self._strangers.pop(transport, None)
        self._http.pop(transport, None)

    def leave(self, transport: asyncio.Transport) -> None:
        self._all.discard(transport)
        self.settle(transport)

    def _drop(self, transport: asyncio.Transport) -> None:
        self.leave(transport)
        transport.abort()


def _most() -> int:
    try:
        import resource
    except ImportError:  # Windows, which has no such limit.
        return _MOST
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if files == resource.RLIM_INFINITY else min(_MOST, max(files - _OTHER_FILES, files // 2))
