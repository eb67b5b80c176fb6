"""The emulator as a server: one port for AMQP and HTTP, in one event loop, and the lines of its clients."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
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
_DELAYS_TO_FIRST_BYTE: Final = 3  # Opening a connection takes two before the client sends it


class Line(asyncio.Protocol, asyncio.Transport):
    """The protocol of a socket, and the transport of AMQP or HTTP behind it: it passes everything on, later.

    The first byte shows which of the two it is; HTTP begins once the request's head is complete. A connection that
    stays silent, never completes a head, or does not read what it asked for over HTTP, is ended: it would keep its
    place for ever.
    """

    _socket: asyncio.Transport  # it ignores calls after its end

    def __init__(self, broker: Broker, http: Callable[[], asyncio.Protocol]) -> None:
        super().__init__()
        self._broker = broker
        self._new_http = http
        self._protocol: asyncio.Protocol | None = None
        self._hear: Callable[[bytes], None] = self._sniff
        self._inward, self._outward = _Lane(broker), _Lane(broker)
        self._is_closing = False
        self._end: asyncio.TimerHandle | None = None
        self._head = bytearray()

    # ---------------------------------------------------------------- from the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        for name in ("get_extra_info", "pause_reading", "resume_reading", "get_write_buffer_size"):
            setattr(self, name, getattr(transport, name))
        if self._broker.faults.network_delay_ms:
            delays = _DELAYS_TO_FIRST_BYTE * self._broker.faults.network_delay_ms / 1000
            self._inward.free_at = asyncio.get_running_loop().time() + delays
        self._end_after(_SILENCE)
        self._broker.connections.arrive(self)

    def data_received(self, data: bytes) -> None:
        self._inward.carry(self._hear, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._inward.carry(self._lose, exc)

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()
            self._end_after(None if isinstance(self._protocol, AmqpPeer) else _DEAF)

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
            self._broker.connections.speak_http(self)
            self._speak(self._new_http())  # which refuses a head that is too long

    def _speak(self, protocol: asyncio.Protocol) -> None:
        if not self.is_closing():
            self._end_after(None)
            self._protocol, self._hear = protocol, protocol.data_received
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

    def is_closing(self) -> bool:
        return self._is_closing or self._socket.is_closing()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._outward.carry(self._send, bytes(data))

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._outward.carry(self._socket.close)

    def abort(self) -> None:
        self._is_closing = True
        self._socket.abort()

    def _send(self, data: bytes | bytearray | memoryview) -> None:
        if not self._socket.is_closing():
            self._socket.write(data)


class _Lane:
    """One direction: calls that happen after the delay, in the order in which they were asked for."""

    def __init__(self, broker: Broker) -> None:
        self.free_at = 0.0  # until when it carries something; 0 for nothing
        self._broker = broker
        self._under_way: deque[tuple[Callable[..., None], Any]] = deque()

    def carry(self, act: Callable[..., None], *arguments: Any) -> None:
        """Call ``act`` after the delay; at once where there is none."""
        delay = self._broker.faults.network_delay_ms
        if not (self.free_at or delay):
            act(*arguments)
            return
        loop = asyncio.get_running_loop()
        self.free_at = max(self.free_at, loop.time() + delay / 1000)
        self._under_way.append((act, arguments))
        loop.call_at(self.free_at, self._arrive)

    def _arrive(self) -> None:
        act, arguments = self._under_way.popleft()
        if not (self._under_way or self._broker.faults.network_delay_ms):
            self.free_at = 0.0
        act(*arguments)


_LOGGER: Final = clean_logger(__name__)
_T = TypeVar("_T")
_LOOPBACK: Final = "127.0.0.1"
_EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - read, not listened on; not every system lets clients connect to it
_POLL: Final = 0.5  # Seconds after which a server looks again whether it is used


class EmulatorServer:
    """A namespace that clients reach over TCP.

    ::

        async with EmulatorServer(queues=["orders"]) as server:
            client = ServiceBusClient.from_connection_string(server.connection_string)
    """

    broker: Broker  # the namespace, which may only be used in the server's event loop
    port: int

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
        entities: Iterable[Wanted] = (),
    ) -> None:
        if ":" in host:
            raise ConfigurationError(
                f"The emulator does not listen at the IPv6 address {host[:60]}, which azure-servicebus cannot read in "
                "a connection string: use localhost, 0.0.0.0 or a host name of this machine."
            )
        self._host, self._data_dir = host, data_dir
        # At which programs of this machine reach it, even if it listens on all addresses
        self.host = _LOOPBACK if host == _EVERYWHERE else host
        self._wanted_ports = [port] if http_port is None else [port, http_port]
        self._entities = [*_wanted(queues, topics or {}), *entities]
        self._clock = clock or SystemClock()
        self._keys = (ROOT_RULE if key is None else replace(ROOT_RULE, primary_key=key), *keys)
        self._host_names = tuple(host_names)
        self._tls_port, self._tls_dir = tls_port, tls_dir
        # For clients that speak TLS, and what they have to trust; None without TLS
        self.tls_connection_string: str | None = None
        self.certificate: Path | None = None
        self._registry = Registry(tier)
        self._exit = AsyncExitStack()
        self._stopping = asyncio.Event()
        self._failure: Exception | None = None

    @property
    def http_url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def connection_string(self) -> str:
        return f"{self._address(self.host, self.port)};UseDevelopmentEmulator=true;"

    def _address(self, host: str, port: int) -> str:
        key = self._keys[0]
        return f"Endpoint=sb://{host}:{port};SharedAccessKeyName={key.key_name};SharedAccessKey={key.primary_key}"

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            store = None
            if self._data_dir is not None:
                store = Store(self._data_dir)
                stack.callback(store.close)
                now = self._clock.now()
                restore(self._registry, store.load(now), store, now=now)
            self.broker = Broker(self._registry, self._clock, store, self._on_store_failure)
            self.broker.access.rules = self._keys
            apply_config(self._registry, self._entities, self._clock.now())
            # Listen, HTTP first: every port speaks both protocols.
            http = await self._start_http()
            stack.push_async_callback(http.cleanup)
            stack.callback(self.broker.stop)
            self.port, *_ = [await self._listen(stack, port, http) for port in self._wanted_ports]
            if self._tls_port is not None and self._tls_dir is not None:
                context, self.certificate = tls_context(self._tls_dir, self._host_names)
                tls_port = await self._listen(stack, self._tls_port, http, context)
                host = "localhost" if self.host == _LOOPBACK else self.host
                self.tls_connection_string = self._address(host, tls_port)
            self.broker.schedule_turn()
            self._exit = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping.set()
        await self._exit.aclose()

    def request_stop(self) -> None:
        self._stopping.set()

    async def serve(self, *, end_after_unused: float = inf) -> None:
        last_used = time.monotonic()
        while not self._stopping.is_set() and time.monotonic() - last_used < end_after_unused:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), min(_POLL, end_after_unused))
            if self.broker.leases or self.broker.peers:
                last_used = time.monotonic()
        if self._failure is not None:
            raise EmulatorError(f"The emulator has ended, its data could not be kept: {self._failure}.")

    async def _start_http(self) -> web.AppRunner:
        runner = web.AppRunner(
            application(self.broker, (self._host, socket.gethostname(), *self._host_names)),
            access_log=None,
            logger=_LOGGER,
            handler_cancellation=True,  # When its client is gone: so a lease ends.
            shutdown_timeout=0,
            keepalive_timeout=75,
        )
        await runner.setup()
        return runner

    async def _listen(
        self, stack: AsyncExitStack, port: int, http: web.AppRunner, tls: ssl.SSLContext | None = None
    ) -> int:
        """Listen until the stack ends, and return the port, which the system chooses for 0."""
        try:
            listener = await asyncio.get_running_loop().create_server(
                lambda: Line(self.broker, cast("Callable[[], asyncio.Protocol]", http.server)),
                self._host,
                port,
                backlog=1024,  # A cluster's workers all connect at once.
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else 10,
            )
        except (OSError, OverflowError, UnicodeError) as error:
            raise EmulatorStartError(f"The emulator cannot listen on {self._host}, port {port}: {error}.") from None
        stack.callback(listener.close)
        return listener.sockets[0].getsockname()[1]

    def _on_store_failure(self, error: Exception) -> None:
        self._failure = error
        self._stopping.set()


def _wanted(
    queues: Iterable[str] | Mapping[str, QueueOptions | None], topics: Mapping[str, Iterable[str]]
) -> Iterator[Wanted]:
    given = cast("Any", queues if isinstance(queues, Mapping) else dict.fromkeys(queues))
    yield from (Wanted(QueueOptions, name, options) for name, options in given.items())
    for topic, subscriptions in topics.items():
        yield Wanted(TopicOptions, topic)
        yield from (Wanted(SubscriptionOptions, each, topic=topic) for each in subscriptions)


def run_loop(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine as ``asyncio.run`` does, in uvloop's event loop where there is one.

    In uvloop an emulator needs less CPU time for each read and write. There is no uvloop for Windows.
    """
    try:
        from uvloop import new_event_loop
    except ImportError:
        from asyncio import new_event_loop
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
