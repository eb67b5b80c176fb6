"""One client's connection: its bytes in and out, and who handles its links."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, cast

from sbnotebook.emulator.amqp import (
    Connection,
    ConnectionClosed,
    CreditChanged,
    DispositionReceived,
    Error,
    Event,
    Link,
    LinkAttaching,
    LinkDetached,
    ReceivingLink,
    Rejected,
    SendingLink,
    TransferReceived,
)
from sbnotebook.emulator.entities import Receivable
from sbnotebook.emulator.service.attaching import LinkHandler, attach
from sbnotebook.emulator.service.broker import Broker
from sbnotebook.emulator.service.conditions import Condition

__all__ = ["AmqpPeer"]

_LOGGER: Final = logging.getLogger(__name__)
_NOBODY: Final = LinkHandler(None)
"""Handles the events of a link that was refused or detached while they were under way."""


class AmqpPeer(asyncio.Protocol):
    """An AMQP connection.

    Whatever goes wrong while one event is handled is answered with ``amqp:internal-error`` and logged;
    the other links and connections go on.
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.is_writable = True
        self.handlers: dict[Link, LinkHandler] = {}
        self._connection = Connection()
        self._transport: asyncio.Transport | None = None
        self._heartbeat: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast("asyncio.Transport", transport)
        self.broker.peers.add(self)

    def data_received(self, data: bytes) -> None:
        """Bytes have come in."""
        self.broker.moment()
        self._connection.receive_data(data)
        self._handle_events()
        self.broker.touch(self)
        if self._heartbeat is None and self._connection.peer_idle_timeout_ms:
            self._beat()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone; the locks that the client holds stay until they end."""
        del exc
        self.broker.peers.discard(self)
        self._connection.receive_eof()
        self._handle_events()
        if self._heartbeat is not None:
            self._heartbeat.cancel()

    def pause_writing(self) -> None:
        """The client does not read as fast as it asks."""
        self.is_writable = False

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.is_writable = True
        for handler in self.handlers.values():
            handler.credit_changed()
        self.broker.schedule_turn()

    def flush(self) -> None:
        """Write what waits to be written."""
        data = self._connection.data_to_send()
        if self._transport is None:
            return
        if data:
            self._transport.write(data)
        if self._connection.closed:
            self._transport.close()

    def close(self) -> None:
        """Close the connection because the emulator ends."""
        self._connection.close(Error("amqp:connection:forced", "The emulator ends."))
        self.flush()

    def abort(self) -> None:
        """Drop the connection without writing what waits."""
        if self._transport is not None:
            self._transport.abort()

    def entity_deleted(self, entity: Receivable) -> None:
        """Detach the links to an entity."""
        for link, handler in list(self.handlers.items()):
            if handler.attached_to is entity:
                handler.detached()
                del self.handlers[link]
                link.detach(Condition.NOT_FOUND.error(f"The entity '{entity.path}' was deleted."))
                self.broker.touch(self)

    def _beat(self) -> None:
        idle = self._connection.peer_idle_timeout_ms or 0
        self._connection.heartbeat()
        self.broker.touch(self)
        self._heartbeat = asyncio.get_running_loop().call_later(idle / 2000, self._beat)

    def _handle_events(self) -> None:
        for event in self._connection.events_received():
            try:
                self._handle(event)
            except Exception:
                _LOGGER.exception("An event was not handled: %s", type(event).__name__)
                _apologise(event)

    def _handle(self, event: Event) -> None:
        match event:
            case LinkAttaching(link=link):
                self._attach(link)
            case LinkDetached(link=link):
                self.handlers.pop(link, _NOBODY).detached()
            case ConnectionClosed(error=error):
                if error is not None:
                    _LOGGER.info("A client's connection ended: %s", error.description)
            case _:
                self._tell(self.handlers.get(event.link, _NOBODY), event)

    def _tell(self, handler: LinkHandler, event: TransferReceived | DispositionReceived | CreditChanged) -> None:
        match event:
            case TransferReceived():
                handler.transfer_received(event)
            case DispositionReceived():
                handler.disposition_received(event)
            case CreditChanged():
                handler.credit_changed()

    def _attach(self, link: ReceivingLink | SendingLink) -> None:
        handler = attach(self, link)
        if handler is not None:
            self.handlers[link] = handler
            handler.credit_changed()


def _apologise(event: Event) -> None:
    error = Condition.INTERNAL_ERROR.error("The emulator failed to handle this; its log says why.")
    match event:
        case TransferReceived(link=link, delivery_id=delivery_id):
            link.settle(delivery_id, Rejected(error))
        case DispositionReceived(link=link, delivery_tag=delivery_tag):
            link.settle(delivery_tag, Rejected(error))
        case LinkAttaching(link=link):
            link.detach(error)
        case _:
            pass
