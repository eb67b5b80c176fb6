"""The emulator as a server: one port for AMQP and HTTP, in one event loop, and the lines of its clients."""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, Final, Self, TypeVar, cast

from aiohttp import web

from sbnotebook.emulator.clock import Clock, SystemClock
from sbnotebook.emulator.config import Wanted, apply_config
from sbnotebook.emulator.entities.options import (
    AuthorizationRule,
    QueueOptions,
    SubscriptionOptions,
    Tier,
    TopicOptions,
)
from sbnotebook.emulator.entities.registry import Registry, restore
from sbnotebook.emulator.logs import clean_logger
from sbnotebook.emulator.service.access import ROOT_RULE
from sbnotebook.emulator.service.broker import Broker
from sbnotebook.emulator.service.http_app import application
from sbnotebook.emulator.service.peer import AmqpPeer
from sbnotebook.emulator.store import Store
from sbnotebook.emulator.tls import tls_context
from sbnotebook.errors import ConfigurationError, EmulatorError, EmulatorStartError

# The first letters of the methods of HTTP; AMQP begins with an A, and TLS with a control character
_HTTP_INITIALS: Final = frozenset(b"CDGHOPT")
_SILENCE: Final = 30.0  # Seconds that a client may take to its first byte, or to the end of its first request's head
_DEAF: Final = 30.0  # Seconds that a client over HTTP may take to read what fills its connection
_END_OF_HEAD: Final = b"\r\n\r\n"
_MAX_HEAD: Final = 65_536  # The most bytes of a head to wait for; more than the server for HTTP accepts
_ROUND_TRIP: Final = 2  # Delays that opening a connection takes before the client sends its first byte


class Line(asyncio.Protocol, asyncio.Transport):
    """The protocol of a socket, and the transport of AMQP or HTTP behind it: it passes everything on, later.

    The first byte shows which of the two it is; HTTP begins once the request's head is complete. A connection that
    stays silent, never completes a head, or does not read what it asked for over HTTP, is ended: it would keep its
    place for ever.
    """

    def __init__(self, broker: Broker, http: Callable[[], asyncio.Protocol]) -> None:
        super().__init__()
        self._broker = broker
        self._new_http = http
        self._protocol: asyncio.Protocol | None = None
        self._hear: Callable[[bytes], None] = self._sniff
        self._inward, self._outward = _Lane(broker), _Lane(broker)
        self._socket: asyncio.Transport | None = None
        self._is_http = self._is_closing = False
        self._end: asyncio.TimerHandle | None = None
        self._head = bytearray()

    # ---------------------------------------------------------------- from the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        self._inward.hold(_ROUND_TRIP)
        self._end_after(_SILENCE)
        self._broker.connections.arrive(self)

    def data_received(self, data: bytes) -> None:
        if self._inward.free_at or self._broker.faults.network_delay_ms:
            self._inward.carry(self._hear, data)
        else:
            self._hear(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._socket = None
        self._inward.carry(self._lose, exc)

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()
            self._end_after(_DEAF if self._is_http else None)

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()
            self._end_after(None)

    def _sniff(self, data: bytes) -> None:
        if self._protocol is not None:  # its delay began before the first byte arrived
            self._protocol.data_received(data)
            return
        searched = max(len(self._head) - len(_END_OF_HEAD), 0)
        self._head += data
        if self._head.startswith(b"A"):
            self._speak(AmqpPeer(self._broker))
        elif self._head[0] not in _HTTP_INITIALS:
            _LOGGER.info("A client speaks neither AMQP nor HTTP. TLS has a port of its own: --tls.")
            self.abort()
        elif self._head.find(_END_OF_HEAD, searched) >= 0 or len(self._head) > _MAX_HEAD:
            self._speak(self._new_http(), is_http=True)  # which refuses a head that is too long

    def _speak(self, protocol: asyncio.Protocol, *, is_http: bool = False) -> None:
        if not self.is_closing():
            self._end_after(None)
            self._protocol, self._hear, self._is_http = protocol, protocol.data_received, is_http
            if is_http:
                self._broker.connections.speak_http(self)
            protocol.connection_made(self)
            protocol.data_received(bytes(self._head))
            self._head.clear()

    def _lose(self, exc: Exception | None) -> None:
        self._end_after(None)
        self._broker.connections.leave(self)
        if self._protocol is not None:
            self._protocol.connection_lost(exc)

    def _end_after(self, seconds: float | None) -> None:
        if self._end is not None:
            self._end.cancel()
        self._end = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self.abort)

    # ---------------------------------------------------------------- to the socket

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if self._socket is None else self._socket.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._is_closing or self._socket is None or self._socket.is_closing()

    def pause_reading(self) -> None:
        if self._socket is not None:
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        if self._socket is not None:
            self._socket.resume_reading()

    def get_write_buffer_size(self) -> int:
        return 0 if self._socket is None else self._socket.get_write_buffer_size()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._outward.free_at or self._broker.faults.network_delay_ms:
            self._outward.carry(self._send, bytes(data))
        elif self._socket is not None and not self._socket.is_closing():
            self._socket.write(data)

    def close(self) -> None:
        self._is_closing = True
        self._outward.carry(self._hang_up)

    def abort(self) -> None:
        self._is_closing = True
        if self._socket is not None:
            self._socket.abort()

    def _send(self, data: bytes) -> None:
        if self._socket is not None and not self._socket.is_closing():
            self._socket.write(data)

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()


class _Lane:
    """One direction: calls that happen after the delay, in the order in which they were asked for."""

    def __init__(self, broker: Broker) -> None:
        self.free_at = 0.0  # until when it carries something; 0 for nothing
        self._broker = broker
        self._under_way: deque[tuple[Callable[..., None], Any]] = deque()

    def _delay(self) -> float:
        return self._broker.faults.network_delay_ms / 1000

    def hold(self, delays: int) -> None:
        """Carry nothing for so many delays, in addition to the first."""
        if self._delay():
            self.free_at = asyncio.get_running_loop().time() + (delays + 1) * self._delay()

    def carry(self, act: Callable[..., None], *arguments: Any) -> None:
        """Call ``act`` after the delay; at once where there is none."""
        if not (self.free_at or self._broker.faults.network_delay_ms):
            act(*arguments)
            return
        loop = asyncio.get_running_loop()
        self.free_at = max(self.free_at, loop.time() + self._delay())
        self._under_way.append((act, arguments))
        loop.call_at(self.free_at, self._arrive)

    def _arrive(self) -> None:
        act, arguments = self._under_way.popleft()
        if not (self._under_way or self._delay()):
            self.free_at = 0.0
        act(*arguments)


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
