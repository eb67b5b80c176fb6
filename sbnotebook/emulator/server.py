"""The emulator as a server: one port for AMQP and HTTP, in one event loop."""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, Final, Self, TypeVar, cast

from aiohttp import web

from sbnotebook.emulator.clock import Clock, SystemClock
from sbnotebook.emulator.config import Wanted, apply_config
from sbnotebook.emulator.entities.options import AuthorizationRule, QueueOptions, SubscriptionOptions, TopicOptions
from sbnotebook.emulator.entities.quotas import Tier
from sbnotebook.emulator.entities.registry import Registry
from sbnotebook.emulator.entities.snapshot import restore
from sbnotebook.emulator.line import Line
from sbnotebook.emulator.logs import clean_logger
from sbnotebook.emulator.service.access import ROOT_RULE
from sbnotebook.emulator.service.broker import Broker
from sbnotebook.emulator.service.http_app import application
from sbnotebook.emulator.store import Store
from sbnotebook.emulator.tls import tls_context
from sbnotebook.errors import ConfigurationError, EmulatorError, EmulatorStartError

_LOGGER: Final = clean_logger(__name__)
_T = TypeVar("_T")
_Factory = Callable[[], asyncio.Protocol]
_BACKLOG: Final = 1024  # Connections that may wait to be accepted: a cluster's workers all connect at once
_LOOPBACK: Final = "127.0.0.1"
_EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - read, not listened on; not every system lets clients connect to it
_HANDSHAKE: Final = 10.0  # Seconds for the handshake of TLS
_KEEP_ALIVE: Final = 75.0  # Seconds that a connection over HTTP stays without a request
_POLL: Final = 0.5  # Seconds after which a server looks again whether it is used


class EmulatorServer:
    """A namespace that clients reach over TCP.

    ::

        async with EmulatorServer(queues=["orders"]) as server:
            client = ServiceBusClient.from_connection_string(server.connection_string)
    """

    def __init__(  # noqa: PLR0913 - all that a namespace can be started with
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        http_port: int | None = None,
        data_dir: Path | None = None,
        queues: Iterable[str] | Mapping[str, QueueOptions | None] = (),
        topics: Mapping[str, Iterable[str]] | None = None,
        clock: Clock | None = None,
        tier: Tier = Tier.PREMIUM,
        keys: Sequence[AuthorizationRule] = (),
        key: str | None = None,
        host_names: Iterable[str] = (),
        tls_port: int | None = None,
        tls_dir: Path | None = None,
    ) -> None:
        if ":" in host:
            raise ConfigurationError(
                f"The emulator does not listen at the IPv6 address {host[:60]}, which azure-servicebus cannot read in "
                "a connection string: use localhost, 0.0.0.0 or a host name of this machine."
            )
        self._host, self._data_dir = host, data_dir
        self._wanted_ports = [port] if http_port is None else [port, http_port]
        self._entities = _wanted(queues, topics or {})
        self._clock = clock or SystemClock()
        root = ROOT_RULE if key is None else replace(ROOT_RULE, primary_key=key)
        self._keys = (root, *keys)
        self._host_names = tuple(host_names)
        self._tls_port, self._tls_dir = tls_port, tls_dir
        self._tls_listener: asyncio.Server | None = None
        self.certificate: Path | None = None  # what clients of the port with TLS have to trust; None without TLS
        self._registry = Registry(tier)
        self.secret: Final = secrets.token_hex()
        self._exit = AsyncExitStack()
        self._listeners: list[asyncio.Server] = []
        self._stopping = asyncio.Event()
        self._failure: Exception | None = None

    @property
    def host(self) -> str:
        """Return the address at which programs of this machine reach it, even if it listens on all addresses."""
        return _LOOPBACK if self._host == _EVERYWHERE else self._host

    @property
    def port(self) -> int:
        return self._listeners[0].sockets[0].getsockname()[1]

    @property
    def http_url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def connection_string(self) -> str:
        return f"{self._address(self.host, self.port)};UseDevelopmentEmulator=true;"

    def _address(self, host: str, port: int) -> str:
        key = self._keys[0]
        return f"Endpoint=sb://{host}:{port};SharedAccessKeyName={key.key_name};SharedAccessKey={key.primary_key}"

    @property
    def tls_connection_string(self) -> str | None:
        """Return the connection string for clients that speak TLS; None without TLS."""
        if self._tls_listener is None:
            return None
        host = "localhost" if self.host == _LOOPBACK else self.host
        return self._address(host, self._tls_listener.sockets[0].getsockname()[1])

    @property
    def broker(self) -> Broker:
        """Return the namespace, which may only be used in the server's event loop."""
        return self._broker

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            # Load the messages.
            store = None
            if self._data_dir is not None:
                store = Store(self._data_dir)
                stack.callback(store.close)
                now = self._clock.now()
                restore(self._registry, store.load(now), store, now=now)
            # Create the namespace.
            self._broker = Broker(self._registry, self._clock, store, self._on_store_failure)
            self._broker.access.rules = self._keys
            apply_config(self._registry, self._entities, self._clock.now())
            # Listen, HTTP first: every port speaks both protocols.
            http = await self._start_http()
            stack.push_async_callback(http.cleanup)
            stack.callback(self._broker.stop)
            for port in self._wanted_ports:
                listener = await self._listen(port, cast("_Factory", http.server))
                stack.callback(listener.close)
                self._listeners.append(listener)
            if self._tls_port is not None and self._tls_dir is not None:
                context, self.certificate = tls_context(self._tls_dir, self._host_names)
                self._tls_listener = await self._listen(self._tls_port, cast("_Factory", http.server), context)
                stack.callback(self._tls_listener.close)
            self._broker.schedule_turn()
            self._exit = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping.set()
        await self._exit.aclose()

    def request_stop(self) -> None:
        """Let ``serve`` return."""
        self._stopping.set()

    async def serve(self, *, end_after_unused: float = inf) -> None:
        """Wait until the server has to stop, or was not used for some seconds."""
        last_used = time.monotonic()
        while not self._stopping.is_set() and time.monotonic() - last_used < end_after_unused:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), min(_POLL, end_after_unused))
            if self._broker.leases or self._broker.peers:
                last_used = time.monotonic()
        if self._failure is not None:
            raise EmulatorError(f"The emulator has ended, its data could not be kept: {self._failure}.")

    async def _start_http(self) -> web.AppRunner:
        # A handler is cancelled when its client is gone: so a lease ends.
        app = application(
            self._broker,
            secret=self.secret,
            host_names=(self._host, socket.gethostname(), *self._host_names),
        )
        runner = web.AppRunner(
            app,
            access_log=None,
            logger=_LOGGER,
            handler_cancellation=True,
            shutdown_timeout=0,
            keepalive_timeout=_KEEP_ALIVE,
        )
        await runner.setup()
        return runner

    async def _listen(self, port: int, http: _Factory, tls: ssl.SSLContext | None = None) -> asyncio.Server:
        within = None if tls is None else _HANDSHAKE
        try:
            return await asyncio.get_running_loop().create_server(
                lambda: Line(self._broker, http),
                self._host,
                port,
                backlog=_BACKLOG,
                ssl=tls,
                ssl_handshake_timeout=within,
            )
        except (OSError, OverflowError, UnicodeError) as error:
            raise EmulatorStartError(f"The emulator cannot listen on {self._host}, port {port}: {error}.") from None

    def _on_store_failure(self, error: Exception) -> None:
        self._failure = error
        self._stopping.set()


def _wanted(
    queues: Iterable[str] | Mapping[str, QueueOptions | None], topics: Mapping[str, Iterable[str]]
) -> list[Wanted]:
    given: dict[str, QueueOptions | None] = dict.fromkeys(queues)
    if isinstance(queues, Mapping):
        given.update(cast("Mapping[str, QueueOptions | None]", queues))
    wanted = [Wanted(QueueOptions, name, options) for name, options in given.items()]
    for topic, subscriptions in topics.items():
        wanted.append(Wanted(TopicOptions, topic))
        wanted += [Wanted(SubscriptionOptions, each, topic=topic) for each in subscriptions]
    return wanted


def run_loop(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine as ``asyncio.run`` does, in uvloop's event loop where there is one.

    In uvloop an emulator needs less CPU time for each read and write. There is no uvloop for Windows.
    """
    with asyncio.Runner(loop_factory=_new_event_loop) as runner:
        return runner.run(main)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
