"""One connection from a client, without I/O.

The owner of a socket gives what it read to ``receive_data`` (or ``receive_eof``), then handles
``events_received()``, then writes ``data_to_send()``; and again ``data_to_send()`` whenever it called
a method of a link. After ``closed`` it writes what is left and closes the socket::

    connection.receive_data(data)
    for event in connection.events_received():
        match event:
            case LinkAttaching(link): link.accept()
            case TransferReceived(link=link, delivery_id=delivery_id): link.settle(delivery_id, Accepted())
    writer.write(connection.data_to_send())
"""

from __future__ import annotations

from sbnotebook.emulator.amqp.events import Event
from sbnotebook.emulator.amqp.outcomes import Error

__all__ = ["Connection"]


class Connection:
    """The server's end of one AMQP 1.0 connection.

    No I/O, no clock, no thread. Whatever bytes come in, no method raises because of them: a peer that
    breaks the protocol gets a close frame with the reason, and ``ConnectionClosed`` tells of it.

    Args:
        container_id: our name.
        max_frame_size: bytes of the largest frame that is accepted; sent to the peer.
        idle_timeout_ms: how long the peer may stay silent, sent to the peer; None for no limit. The
            owner has to watch the time.
    """

    closed: bool

    def __init__(
        self, *, container_id: str = "emulator", max_frame_size: int = 1_048_576, idle_timeout_ms: int | None = None
    ) -> None:
        raise NotImplementedError

    @property
    def peer_idle_timeout_ms(self) -> int | None:
        """The peer wants to hear something within this time: call ``heartbeat`` twice as often."""
        raise NotImplementedError

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the socket, cut anywhere."""
        raise NotImplementedError

    def receive_eof(self) -> None:
        """Take note that the peer's socket has ended."""
        raise NotImplementedError

    def events_received(self) -> list[Event]:
        """What happened since the last call, in order."""
        raise NotImplementedError

    def data_to_send(self) -> bytes:
        """Bytes to write to the socket, since the last call."""
        raise NotImplementedError

    def heartbeat(self) -> None:
        """Send an empty frame, so that the peer knows that we are alive."""
        raise NotImplementedError

    def close(self, error: Error | None = None) -> None:
        """Close the connection from our side."""
        raise NotImplementedError
