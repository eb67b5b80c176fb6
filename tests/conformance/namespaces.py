"""Namespaces as the SDK's tests expect them in Azure: NAME.servicebus.windows.net over TLS, each an emulator.

Neither the SDK nor its tests are touched. Only the network is replaced: host names resolve to this machine, and the
trusted certificates come from an authority that lives as long as this process.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import tempfile
import threading
from collections.abc import Coroutine
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import certifi
import trustme

from sbnotebook.emulator import RunningEmulator, Tier, running
from sbnotebook.emulator.entities.options import AuthorizationRule

if TYPE_CHECKING:
    from sbnotebook.emulator.server import EmulatorServer


__all__ = ["KEY", "KEY_NAME", "SUFFIX", "Namespaces", "here"]

SUFFIX: Final = ".servicebus.windows.net"
KEY_NAME: Final = "RootManageSharedAccessKey"
KEY: Final = "SAS_KEY_VALUE"
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost", None)
_CHUNK: Final = 1 << 16

_T = TypeVar("_T")


class Namespaces:
    """The namespaces of this process; each has an emulator of its own and a TLS front before it."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[RunningEmulator, ExitStack]] = {}
        self._ports: dict[str, int] = {}
        self._real_look_up = socket.getaddrinfo
        authority = trustme.CA()
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        certificate: Any = authority.issue_cert(f"*{SUFFIX}")
        certificate.configure_cert(self._tls)
        # Removed with this object, at the end of the process.
        self._folder = tempfile.TemporaryDirectory(prefix="conformance-")
        self._trusted = Path(self._folder.name, "authority.pem")
        authority.cert_pem.write_to_path(self._trusted)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="tls-fronts", daemon=True).start()

    def take_over_the_network(self) -> None:
        """Lead every look-up of a host name here, and trust this process's authority only."""
        certifi.where = certifi.core.where = lambda: str(self._trusted)
        for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "WEBSOCKET_CLIENT_CA_BUNDLE"):
            os.environ[name] = str(self._trusted)
        socket.getaddrinfo = self._look_up

    def create(self, name: str) -> None:
        """Start a namespace, empty."""
        stack = ExitStack()
        emulator = stack.enter_context(running(tier=Tier.STANDARD))
        front = self._run(self._serve(int(emulator.http_url.rpartition(":")[2])))
        stack.callback(lambda: self._run(_close(front)))
        self._running[name] = (emulator, stack)
        self._ports[name + SUFFIX] = front.sockets[0].getsockname()[1]

    def delete(self, name: str) -> None:
        """End a namespace with all that is in it."""
        del self._ports[name + SUFFIX]
        _, stack = self._running.pop(name)
        stack.close()

    def add_rule(self, name: str, rule: AuthorizationRule) -> None:
        """Give a namespace one more key."""
        server: EmulatorServer = self._running[name][0]._server  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        server.broker.access.rules += (rule,)

    def connection_string(self, name: str, key_name: str = KEY_NAME, key: str = KEY) -> str:
        """What clients of a namespace are made with."""
        return f"Endpoint=sb://{name}{SUFFIX}/;SharedAccessKeyName={key_name};SharedAccessKey={key}"

    def _look_up(self, host: str | None, port: Any, *args: Any, **options: Any) -> Any:
        if host in self._ports:
            return self._real_look_up("127.0.0.1", self._ports[host], *args, **options)
        if host not in _LOOPBACK:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self._real_look_up(host, port, *args, **options)

    async def _serve(self, port: int) -> asyncio.Server:
        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            inward, outward = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(_pump(reader, outward), _pump(inward, writer))

        return await asyncio.start_server(forward, "127.0.0.1", 0, ssl=self._tls)

    def _run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _close(front: asyncio.Server) -> None:
    front.close()


here: Final = Namespaces()
"""Those of this process."""
