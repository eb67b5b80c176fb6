"""One client's connection: its bytes in and out, and the handlers of its links."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import ClassVar, Final, cast

from sbnotebook.emulator.amqp.connection import AmqpConnection
from sbnotebook.emulator.amqp.held import HeldMemory
from sbnotebook.emulator.amqp.link import (
    DispositionReceived,
    Event,
    Link,
    LinkState,
    ReceivingLink,
    SendingLink,
    TransferReceived,
)
from sbnotebook.emulator.amqp.performatives import Error, Rejected
from sbnotebook.emulator.entities.refusals import Condition, RefusedError
from sbnotebook.emulator.faults import EntityFaults
from sbnotebook.emulator.logs import clean_logger
from sbnotebook.emulator.service.access import ConnectionAccess
from sbnotebook.emulator.service.attaching import attach, authorize
from sbnotebook.emulator.service.broker import Broker
from sbnotebook.emulator.service.conditions import error_of, new_error
from sbnotebook.emulator.service.links import LinkHandler
from sbnotebook.emulator.service.requests import ReplyLink, RequestLink
from sbnotebook.emulator.service.transactions import Transactions
from sbnotebook.errors import AmqpDecodeError, ProtocolViolationError

_LOGGER: Final = clean_logger(__name__)
_SHORTEST_BEAT: Final = 0.05  # The least time in seconds between two signs of life, even if the client asks for less
_SLICE: Final = 0.002  # Seconds for which a connection is handled before it is the turn of the others
_MAX_UNSENT: Final = 134_217_728  # Bytes that one read may make us write. Small requests can have large answers.
_MAX_UNSENT_TO_A_STRANGER: Final = 4_194_304  # The same for a client without a token


class AmqpPeer(asyncio.Protocol):
    """An AMQP connection.

    A failure to handle an event is answered with ``amqp:internal-error`` and logged. Other links and connections
    continue.
    """

    open_timeout: ClassVar = 30.0  # Seconds that a client has to open its connection
    # Seconds that a client has to send a token after that. Azure, too, ends a connection that is not used.
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
        idle_timeout_ms = round(1000 * self.idle_timeout)
        self._connection = AmqpConnection(idle_timeout_ms=idle_timeout_ms, log_in=self.access.log_in, held=self.held)
        self._heartbeat: asyncio.TimerHandle | None = None
        self._is_full = self._is_frozen = self._is_busy = self._is_cut = False
        self._unheard = b""
        self._deadline: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._idle_check: asyncio.TimerHandle | None = None
        self._was_heard = True
        self._silent_since = 0.0

    @property
    def handlers(self) -> list[LinkHandler]:
        """Return the handlers of all links that are attached, or wait for a session."""
        return [link.handler for link in self.held.links.values() if link.handler is not None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.broker.peers.add(self)
        self._deadline = asyncio.get_running_loop().call_later(self.open_timeout, self._expect_open)
        if self.broker.freezes_new:
            self.freeze()
        self._check_idle()

    def data_received(self, data: bytes) -> None:
        if self._is_frozen or self._is_busy:
            self._unheard += data  # Bytes that arrived before reading was paused.
            return
        self._was_heard = True
        self.broker.advance()
        self._connection.receive_data(data)
        self._read()
        self.broker.touch(self)
        if self._heartbeat is None and self._connection.peer_idle_timeout_ms:
            self._beat()

    def _go_on(self) -> None:
        self._is_busy = False
        if not self._is_frozen:
            self._adjust()
            self._hear_the_rest()

    def _hear_the_rest(self) -> None:
        unheard, self._unheard = self._unheard, b""
        self.data_received(unheard)

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up, because the connection is gone. The client's locks stay until they end."""
        del exc
        self.broker.peers.discard(self)
        self.access.close()
        self._connection.receive_eof()
        self._handle_events()
        if self._connection.error is not None:
            _LOGGER.info("A client's connection ended: %s", self._connection.error.description)
        for timer in (self._heartbeat, self._deadline, self._idle_check):
            if timer is not None:
                timer.cancel()

    def pause_writing(self) -> None:
        """Stop reading, because the client does not read its answers as fast as it asks."""
        self._is_full = True
        self._adjust()

    def resume_writing(self) -> None:
        """Read again, because the client has caught up."""
        self._is_full = False
        self._count_unsent()
        self._adjust()

    def freeze(self) -> None:
        self._is_frozen = True
        self._adjust()

    def thaw(self) -> None:
        """Read and answer again, starting with the bytes that came in meanwhile."""
        self._is_frozen = False
        self._adjust()
        self._hear_the_rest()
        self.broker.touch(self)

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
        """Drop a connection whose client cannot be served, and log the reason."""
        _LOGGER.warning("A connection was dropped: %s", reason)
        self.abort()

    def detach_from(
        self, entities: Collection[object], condition: Condition, sentence: str, *, is_node: bool = False
    ) -> None:
        """Detach the links to these entities, or only those to their management nodes."""
        for link in list(self.held.links.values()):
            handler: LinkHandler | None = link.handler
            is_meant = handler is not None and handler.attached_to in entities
            if is_meant and (not is_node or isinstance(handler, RequestLink | ReplyLink)):
                self.detach(link, new_error(condition, sentence))

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
        idle = self._connection.peer_idle_timeout_ms or 0
        self._connection.heartbeat()
        self.broker.touch(self)
        self._heartbeat = asyncio.get_running_loop().call_later(max(idle / 2000, _SHORTEST_BEAT), self._beat)

    def _check_idle(self) -> None:
        # Twice in the idle time-out, instead of one timer for each read.
        loop = asyncio.get_running_loop()
        if self._was_heard or self._is_frozen:
            self._was_heard = False
            self._silent_since = loop.time()
        elif loop.time() - self._silent_since > 2 * self.idle_timeout:
            milliseconds = round(1000 * self.idle_timeout)
            self.close(
                f"The connection was inactive for more than the allowed {milliseconds} milliseconds and is closed."
            )
        self._idle_check = loop.call_later(self.idle_timeout / 2, self._check_idle)

    def _expect_open(self) -> None:
        if not (self._connection.is_open or self._is_frozen):
            self.drop(f"the client did not open it in {self.open_timeout:g} seconds.")
            return
        self._deadline = asyncio.get_running_loop().call_later(self.token_timeout, self._expect_token)

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
        most = _MAX_UNSENT if self.is_trusted else _MAX_UNSENT_TO_A_STRANGER
        if self._connection.unsent_bytes > most and not self._is_cut:
            self.drop("the client asked for too much at once.")

    def _handle_link(self, link: ReceivingLink | SendingLink) -> None:
        if link.state in (LinkState.DETACHING, LinkState.DETACHED):
            _leave(link)
            return
        if self._is_cut:
            return
        if link.handler is None:
            link.handler = attach(self, link)
        link.handler.credit_changed()

    def _tell(self, handler: LinkHandler, event: TransferReceived | DispositionReceived) -> None:
        # A fault on demand may drop the connection before or after the event is handled. Messages that a client gives
        # back when it closes are not settlements.
        faults: EntityFaults = self.broker.faults
        if self.broker.faults.entities:
            faults = self.broker.faults.at(handler.path or "")
        drop = None
        if faults.drop_before_nth or faults.drop_after_nth:
            is_given_back = isinstance(event, DispositionReceived) and event.settled
            drop = None if is_given_back or handler.path is None else faults.drop()
        if drop == "before":
            self.abort()
            return
        if isinstance(event, TransferReceived):
            handler.transfer_received(event, faults)
        else:
            handler.disposition_received(event, faults)
        if drop == "after":
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
