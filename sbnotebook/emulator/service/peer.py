"""One client's connection, over TCP or a WebSocket: its bytes in and out, and its links with their handlers.

In a WebSocket, every binary message holds bytes of the AMQP connection, cut anywhere.

Source: Service Bus documentation, "AMQP 1.0 in Azure Service Bus and Event Hubs protocol guide",
"Connections and sessions"; OASIS, "AMQP WebSocket Binding".
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, ClassVar, Final, cast

from aiohttp import WSMsgType, web

from sbnotebook.amqp import AmqpValue, Int, Symbol
from sbnotebook.emulator.amqp.connection import AmqpConnection
from sbnotebook.emulator.amqp.frames import HeldMemory
from sbnotebook.emulator.amqp.link import (
    DispositionReceived,
    Event,
    Link,
    LinkState,
    ReceivingLink,
    SendingLink,
    TransferReceived,
)
from sbnotebook.emulator.amqp.performatives import Coordinator, Error, Rejected
from sbnotebook.emulator.entities.box import Receivable
from sbnotebook.emulator.entities.queue import Queue, Topic
from sbnotebook.emulator.entities.refusals import Condition, RefusedError, error_of, new_error
from sbnotebook.emulator.entities.registry import AnyEntity
from sbnotebook.emulator.entities.transaction import SPANS_ENTITIES, root_of
from sbnotebook.emulator.logs import clean_logger
from sbnotebook.emulator.service.access import LISTEN, MANAGEMENT, SEND, ConnectionAccess
from sbnotebook.emulator.service.broker import Broker
from sbnotebook.emulator.service.links import (
    SESSION_FILTER,
    LinkHandler,
    ReceiverLink,
    SenderLink,
    Transactions,
    attach_coordinator,
    attach_session,
)
from sbnotebook.emulator.service.management import CBS, ReplyLink, RequestLink
from sbnotebook.errors import AmqpDecodeError, ProtocolViolationError

_MAX_TOKEN_SIZE: Final = 65_536  # Bytes of one request to ``$cbs``, which anyone can send: some times the longest token
_MAX_REQUEST_SIZE: Final = 16 * 1_048_576
"""Bytes of one request. Much more than a request needs that can be carried out: azure-servicebus never forgets that
the link rejected a request, while it raises what a reply says once. So the reply says that a message is too large."""

# On a link to the entity that takes the messages in a transaction: where they go from there. A path or an address.
_DESTINATION: Final = Symbol("com.microsoft:transfer-destination-address")


def attach(peer: AmqpPeer, link: ReceivingLink | SendingLink) -> LinkHandler[Any]:
    if isinstance(link.target, Coordinator) and isinstance(link, ReceivingLink):
        return attach_coordinator(peer, link)
    authorize(peer, link)
    # Nodes take requests; all other links are on entities. A token for a missing subscription is accepted, so that its
    # node refuses the request. Azure gives no answer (azure-sdk-for-net 43492).
    path = _path(link.address)
    address = path.casefold()
    is_node = address == CBS or address.endswith(MANAGEMENT)
    entity = peer.broker.registry.find(address.removesuffix(MANAGEMENT))
    if entity is None and not (is_node and (address == CBS or "/subscriptions/" in address)):
        raise peer.access.missing(path)
    if entity is not None and (is_node or isinstance(link, SendingLink)):
        root = root_of(entity)
        if via_entity(link, root) not in (None, root):
            raise RefusedError(Condition.NOT_ALLOWED, SPANS_ENTITIES)
    if entity is None or is_node:
        link.accept(max_message_size=_MAX_TOKEN_SIZE if address == CBS else _MAX_REQUEST_SIZE)
        if isinstance(link, ReceivingLink):
            return RequestLink(peer, link, address, entity)
        return ReplyLink(peer, link, address, entity)
    if isinstance(link, ReceivingLink):
        return _attach_sender(peer, link, path, entity)
    return _attach_receiver(peer, link, path, entity)


def authorize(peer: AmqpPeer, link: Link) -> None:
    path = _path(link.address)
    if path.casefold().endswith(MANAGEMENT):
        peer.access.require(path, LISTEN, SEND)  # The node asks for the one that an operation needs.
    elif path.casefold() != CBS and not isinstance(link.target, Coordinator):
        peer.access.require(path, SEND if isinstance(link, ReceivingLink) else LISTEN)


def _path(address: object) -> str:
    """Return the entity path of an address such as ``amqps://host:port/orders``."""
    text = str(address or "")
    if "://" in text:
        text = text.split("://", 1)[1].partition("/")[2]
    return text.strip("/")


def _attach_sender(peer: AmqpPeer, link: ReceivingLink, path: str, entity: AnyEntity | Receivable) -> LinkHandler[Any]:
    if not isinstance(entity, Queue | Topic):
        raise RefusedError(Condition.NOT_ALLOWED, f"Messages cannot be sent to '{entity.path}', only received from it.")
    if not entity.options.status.can_send:
        raise _disabled(path)
    properties: dict[str, AmqpValue] = {
        Symbol("com.microsoft:max-message-batch-size"): Int(peer.broker.registry.tier.quotas.max_batch_size)
    }
    destination, via = entity, via_entity(link, entity)
    # A link via this entity names the one to which it sends in a property.
    address = link.properties.get(_DESTINATION)
    if address is not None:
        path = _path(address)
        peer.access.require(path, SEND)
        found = peer.broker.registry.find(path)
        if not isinstance(found, Queue | Topic):
            raise peer.access.missing(path)
        destination, via = found, entity
        properties[_DESTINATION] = address
    elif via is not None and via is not entity:
        peer.access.require(via.path, SEND)
    limit = peer.broker.max_message_size(destination)
    peer.broker.memory.expect(limit)
    link.accept(max_message_size=limit, properties=properties)
    return SenderLink(peer, link, destination, via)


def via_entity(link: Link, root: Queue | Topic) -> Queue | Topic | None:
    """Return the entity that takes the messages of transactions on a session and sends them on; None for none.

    That is the one of the session's first link to an entity, if a control link came before it. So a transaction can
    cover several entities.

    Source: azure-sdk-for-net, AmqpConnectionScope ("EnableCrossEntityTransactions"); azure-sdk-for-java 19137.
    """
    via: list[Queue | Topic] | None = link.session.notes.setdefault("via", None)
    if via is not None and not via:
        via.append(root)
    return None if via is None else via[0]


def _attach_receiver(peer: AmqpPeer, link: SendingLink, path: str, entity: AnyEntity | Receivable) -> LinkHandler[Any]:
    wants_session = link.source is not None and SESSION_FILTER in (link.source.filter or {})
    if not isinstance(entity, Receivable):
        raise RefusedError(Condition.NOT_ALLOWED, f"Messages cannot be received from the topic '{entity.path}'.")
    _check_receiver(path, entity, wants_session=wants_session)
    if wants_session:
        return attach_session(peer, link, entity.owner)
    link.accept(max_message_size=peer.broker.max_message_size(entity.owner))
    return ReceiverLink(peer, link, entity)


def _check_receiver(path: str, entity: Receivable, *, wants_session: bool) -> None:
    if not entity.owner.options.status.can_receive:
        raise _disabled(path)
    # An entity that forwards its messages keeps none for receivers.
    if (entity.owner is entity and entity.owner.options.forward_to) or (
        entity is entity.owner.dead_letter and entity.owner.options.forward_dead_letters_to
    ):
        raise RefusedError(
            Condition.NOT_ALLOWED, f"Cannot create a message receiver on '{path[:260]}': it forwards its messages."
        )
    # An entity with sessions needs a session receiver, and only it does.
    if wants_session and entity.sessions is None:
        raise RefusedError(
            Condition.NOT_ALLOWED,
            f"A sessionful message receiver cannot be created on '{path[:260]}': the entity does not have sessions.",
        )
    if not wants_session and entity.sessions is not None:
        raise RefusedError(
            Condition.NOT_ALLOWED,
            "It is not possible for an entity that requires sessions to create a non-sessionful message receiver: "
            f"'{path[:260]}'.",
        )


def _disabled(path: str) -> RefusedError:
    return RefusedError(Condition.ENTITY_DISABLED, f"Messaging entity '{path[:260]}' is currently disabled.")


_LOGGER: Final = clean_logger(__name__)
_SHORTEST_BEAT: Final = 0.05  # The least time in seconds between two signs of life, even if the client asks for less
_MOST_SILENT: Final = 4  # Halves of the idle time-out
_SLICE: Final = 0.002  # Seconds for which a connection is handled before it is the turn of the others
_MAX_UNSENT: Final = 134_217_728  # Bytes that one read may make us write. Small requests can have large answers.


class AmqpPeer(asyncio.Protocol):
    """An AMQP connection.

    A failure to handle an event is answered with ``amqp:internal-error`` and logged. Other links and connections
    continue.
    """

    # Seconds that a client has to send a token. Azure, too, ends a connection that is not used.
    token_timeout: ClassVar = 60.0
    # Seconds within which a client has to send something, as in Azure. One that is silent for twice as long is gone.
    idle_timeout: ClassVar = 240.0

    _transport: asyncio.Transport  # it ignores calls after its end

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.access = ConnectionAccess(broker.access, self._detach_unauthorized, self._trust)
        self.held = HeldMemory(broker.memory, self.drop)
        self.is_trusted = False
        self.transactions = Transactions(broker)
        self.is_writable = True
        idle_ms = round(1000 * self.idle_timeout)
        self._connection = AmqpConnection(idle_timeout_ms=idle_ms, log_in=self.access.log_in, held=self.held)
        self._is_full = self._is_frozen = self._is_busy = self._is_cut = False
        self._unheard = b""
        self._unsent = 0
        self._silent = 0  # checks since something was heard
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}

    @property
    def handlers(self) -> list[LinkHandler[Any]]:
        """Return the handlers of all links that are attached, or wait for a session."""
        return [link.handler for link in self.held.links.values() if link.handler is not None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.broker.peers.add(self)
        self._wake_after(self.token_timeout, self._expect_token)
        if self.broker.freezes_new:
            self.freeze()
        self._check_idle()

    def data_received(self, data: bytes) -> None:
        if self._is_frozen or self._is_busy:
            self._unheard += data  # Bytes that arrived before reading was paused.
            return
        self._silent = 0
        self.broker.advance()
        self._connection.receive_data(data)
        self._read()
        self.broker.touch(self)
        if self._connection.peer_idle_timeout_ms and self._beat not in self._timers:
            self._beat()

    def _wake_after(self, seconds: float, wake: Callable[[], None]) -> None:
        self._timers[wake] = asyncio.get_running_loop().call_later(seconds, wake)

    def _go_on(self) -> None:
        self._is_busy = False
        self._hear_the_rest()

    def _hear_the_rest(self) -> None:
        self._adjust()
        unheard, self._unheard = self._unheard, b""
        self.data_received(unheard)

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up, because the connection is gone. The client's locks stay until they end."""
        if self._is_busy and not self._is_cut:  # what the client sent before its end counts
            asyncio.get_running_loop().call_soon(self.connection_lost, exc)
            return
        self.broker.peers.discard(self)
        self.access.close()
        self._connection.close()
        self._handle_events()
        if self._connection.error is not None:
            _LOGGER.info("A client's connection ended: %s", self._connection.error.description)
        for timer in self._timers.values():
            timer.cancel()

    def pause_writing(self) -> None:
        """Stop reading, because the client does not read its answers as fast as it asks."""
        self._is_full = True
        self._adjust()

    def resume_writing(self) -> None:
        self._is_full = False
        self._count_unsent()
        self._adjust()

    def freeze(self) -> None:
        self._is_frozen = True
        self._adjust()

    def thaw(self) -> None:
        """Read and answer again, starting with the bytes that came in meanwhile."""
        self._is_frozen = False
        self._hear_the_rest()

    def flush(self) -> None:
        if self._is_frozen:
            return
        data = self._connection.data_to_send()
        if data:
            self._transport.write(data)
            self._count_unsent()
        if self._connection.is_closed:
            self._transport.close()

    def close(self, reason: str = "The emulator ends.") -> None:
        if self._connection.is_closed or not self.is_writable:
            self.abort()  # A client that does not read would not get the close, either.
            return
        self._connection.close(Error("amqp:connection:forced", reason))
        self._handle_events()
        self.flush()

    def abort(self) -> None:
        self._is_cut = True
        self._transport.abort()

    def drop(self, reason: str) -> None:
        _LOGGER.warning("A connection was dropped: %s", reason)
        self.abort()

    def detach_from(
        self, entities: Collection[object], condition: Condition, sentence: str, *, is_node: bool = False
    ) -> None:
        for handler in self.handlers:
            if handler.attached_to in entities and (not is_node or isinstance(handler, RequestLink | ReplyLink)):
                handler.detach(condition, sentence)

    def detach(self, link: Link, error: Error) -> None:
        """Detach a link, or refuse it if it is not attached yet."""
        _leave(link)
        link.detach(error)
        self.broker.touch(self)

    def is_attached_to(self, entities: Collection[object]) -> bool:
        return any(handler.attached_to in entities for handler in self.handlers)

    def _adjust(self) -> None:
        self.is_writable = not (self._is_full or self._is_frozen)
        if self._is_busy or not self.is_writable:
            self._transport.pause_reading()
            return
        self._transport.resume_reading()
        for handler in self.handlers:
            handler.credit_changed()
        self.broker.schedule_turn()

    def _detach_unauthorized(self) -> None:
        for link in list(self.held.links.values()):
            try:
                authorize(self, link)
            except RefusedError as error:
                self.detach(link, error_of(error))

    def _beat(self) -> None:
        self._connection.heartbeat()
        self.broker.touch(self)
        self._wake_after(max(self._connection.peer_idle_timeout_ms / 2000, _SHORTEST_BEAT), self._beat)

    def _check_idle(self) -> None:
        # Twice in the idle time-out, instead of one timer for each read.
        self._silent = 0 if self._is_frozen else self._silent + 1
        if self._silent > _MOST_SILENT:
            idle_ms = round(1000 * self.idle_timeout)
            self.close(f"The connection was inactive for more than the allowed {idle_ms} milliseconds and is closed.")
        self._wake_after(self.idle_timeout / 2, self._check_idle)

    def _expect_token(self) -> None:
        if not (self.is_trusted or self._is_frozen):
            self.drop(f"the client sent no token in {self.token_timeout:g} seconds.")

    def _trust(self) -> None:
        if not self.is_trusted:
            self.is_trusted = True
            self.held.trust()
            self.broker.connections.settle(self._transport.get_extra_info("line", self._transport))

    def _count_unsent(self) -> None:
        # What the client does not take is in the transport, which is small unless it reads nothing at all.
        before, self._unsent = self._unsent, self._transport.get_write_buffer_size()
        if self._unsent != before:
            self.held.add_answers(self._unsent - before)

    def _read(self) -> None:
        end = time.monotonic() + _SLICE
        has_more = True
        while has_more and not self._is_busy:
            has_more = self._connection.read()
            self._handle_events()
            if has_more and time.monotonic() > end:
                # The rest after the other connections.
                self._is_busy = True
                self._adjust()
                asyncio.get_running_loop().call_soon(self._go_on)

    def _handle_events(self) -> None:
        events = self._connection.events[:]
        self._connection.events.clear()
        for event in events:
            self._handle(event)

    def _handle(self, event: Event) -> None:
        try:
            if isinstance(event, Link):
                self._handle_link(event)
            elif not self._is_cut and event.link.handler is not None:  # a link may be refused or detached meanwhile
                self._tell(event.link.handler, event)
        except (RefusedError, AmqpDecodeError) as error:
            _refuse(event, error_of(error))
        except ProtocolViolationError as error:  # the answer does not fit into the peer's frames
            self._connection.close(Error(error.condition, str(error)))
        except Exception:
            _LOGGER.exception("An event was not handled: %s", type(event).__name__)
            _refuse(event, new_error(Condition.INTERNAL_ERROR, "The emulator failed to handle this; its log says why."))
        # Handle the other events nevertheless: a client that gave a session back must not hold it.
        if self._connection.writer.size > _MAX_UNSENT and not self._is_cut:
            self.drop("the client asked for too much at once.")

    def _handle_link(self, link: ReceivingLink | SendingLink) -> None:
        if link.state is LinkState.ENDED:
            _leave(link)
        elif not self._is_cut:
            link.handler = link.handler or attach(self, link)
            link.handler.credit_changed()

    def _tell(self, handler: LinkHandler[Any], event: TransferReceived | DispositionReceived) -> None:
        # A fault on demand may drop the connection before or after the event is handled. Messages that a client gives
        # back when it closes are not settlements.
        faults = self.broker.faults.at(handler.path or "")
        before = after = False
        if (
            (faults.drop_before_nth or faults.drop_after_nth)
            and handler.path is not None
            and not (isinstance(event, DispositionReceived) and event.settled)
        ):
            before, after = (faults.count_down(name) == 1 for name in ("drop_before_nth", "drop_after_nth"))
        if not before:
            handler.received(event, faults)
        if before or after:
            self.abort()


def _refuse(event: Event, error: Error) -> None:
    if isinstance(event, TransferReceived):
        event.link.settle(event.delivery_id, Rejected(error))
    elif isinstance(event, DispositionReceived):
        event.link.settle(event.delivery_tag, Rejected(error))
    elif event.handler is None:
        event.detach(error)


def _leave(link: Link) -> None:
    handler, link.handler = link.handler, None
    if handler is not None:
        handler.detached()


WEBSOCKET_PATH: Final = "/$servicebus/websocket"
_SUBPROTOCOL: Final = "AMQPWSB10"
_MAX_PIECE: Final = 65_536  # Bytes of one WebSocket message. Clients limit them, regardless of AMQP's frames.
_MAX_MESSAGE: Final = 524_288  # Bytes of one WebSocket message of a client, which may hold several frames
_HIGH_WATER: Final = 65_536  # Bytes that may wait to be written before reading stops, as in asyncio's own transports


async def answer_websocket(broker: Broker, request: web.Request) -> web.StreamResponse:
    """Answer a request for ``WEBSOCKET_PATH``: with an AMQP connection for as long as the socket lasts.

    Keys are checked as on any other AMQP connection, not by HTTP. Pages in a browser are refused: no page of another
    origin may reach the emulator, under any name.
    """
    socket = web.WebSocketResponse(protocols=[_SUBPROTOCOL], compress=False, max_msg_size=_MAX_MESSAGE)
    # A browser always names the origin of the page and itself. The synchronous azure-servicebus names an origin, too,
    # the host that it connects to, but not itself.
    origin = request.headers.get("Origin")
    if origin is not None and ("User-Agent" in request.headers or origin.partition("://")[2] != request.host):
        raise web.HTTPForbidden(text="A page in a browser cannot use the emulator.")
    if not socket.can_prepare(request):
        raise web.HTTPBadRequest(text=f"Ask for a WebSocket with the subprotocol {_SUBPROTOCOL}.")
    await socket.prepare(request)
    peer = AmqpPeer(broker)
    transport = _WebSocketTransport(request, peer)
    peer.connection_made(transport)
    writing = asyncio.create_task(transport.write_to(socket))
    try:
        await transport.read_from(socket)
    finally:
        writing.cancel()
        peer.connection_lost(None)
    return socket


class _WebSocketTransport(asyncio.Transport):
    def __init__(self, request: web.Request, peer: AmqpPeer) -> None:
        super().__init__()
        self._request = request
        self._peer = peer
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()  # None is the end
        self._waiting = 0
        self._may_read = asyncio.Event()
        self._may_read.set()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._request.transport if name == "line" else default

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def get_write_buffer_size(self) -> int:
        return self._waiting

    def write(self, data: bytes | bytearray | memoryview) -> None:
        for at in range(0, len(data), _MAX_PIECE):
            self._pieces.put_nowait(bytes(data[at : at + _MAX_PIECE]))
        self._waiting += len(data)
        if self._waiting > _HIGH_WATER:
            self._peer.pause_writing()

    def close(self) -> None:
        self._pieces.put_nowait(None)

    def abort(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()

    async def read_from(self, socket: web.WebSocketResponse) -> None:
        async for message in socket:
            if message.type is not WSMsgType.BINARY:
                return
            self._peer.data_received(message.data)
            await self._may_read.wait()

    async def write_to(self, socket: web.WebSocketResponse) -> None:
        with suppress(ConnectionError):
            while (piece := await self._pieces.get()) is not None:
                await socket.send_bytes(piece)
                self._waiting -= len(piece)
                if not (self._waiting or self._peer.is_writable):
                    self._peer.resume_writing()
            await socket.close()
