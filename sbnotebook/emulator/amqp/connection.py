"""One connection from a client, without I/O.

The owner of a socket gives its bytes to ``receive_data`` (or calls ``close`` at their end), and then calls ``read`` as
long as there may be more. After each call it handles the ``events``, and takes them out. Then it writes
``data_to_send()``, and again whenever it called a method of a link. Once ``is_closed``, it writes the remaining bytes
and closes the socket.

Source: AMQP 1.0 part 2, transport, sections 2.2 and 2.4.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from sbnotebook.emulator.amqp import frames
from sbnotebook.emulator.amqp.frames import (
    AMQP_FRAME,
    EMPTY_FRAME,
    HEADER_SIZE,
    MIN_MAX_FRAME_SIZE,
    SASL_FRAME,
    FrameReader,
    FrameWriter,
    HeldMemory,
    SharedMemory,
)
from sbnotebook.emulator.amqp.link import AmqpSession, Event, Link, LinkState
from sbnotebook.emulator.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Performative,
    Transfer,
    decode_composite,
    encode_within,
)
from sbnotebook.errors import AmqpDecodeError, ProtocolViolationError

_AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
_SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
_CHANNEL_MAX: Final = 4095
# Frames of one call of ``read``: to read some and then to handle them takes a fifth less CPU time than to take turns
_FRAMES_AT_ONCE: Final = 64


class _State(Enum):
    """The next thing that the peer has to send."""

    HEADER = auto()
    SASL_INIT = auto()
    OPEN = auto()
    FRAME = auto()
    NOTHING = auto()


class AmqpConnection:
    """The server's end of one AMQP 1.0 connection.

    No I/O, no clock, no thread. No method raises because of the bytes that come in: a peer that
    breaks the protocol gets a close frame with the reason, which ``error`` keeps.
    """

    def __init__(
        self,
        *,
        max_frame_size: int = 65_536,
        idle_timeout_ms: int | None = None,
        log_in: Callable[[str, str], bool] = lambda _name, _password: False,
        held: HeldMemory | None = None,
    ) -> None:
        self.events: list[Event] = []
        self._max_frame_size = max_frame_size  # bytes; the default is that of every trace of Azure
        self._idle_timeout_ms = idle_timeout_ms
        self._log_in = log_in
        self.peer_idle_timeout_ms = (
            0  # in which the peer expects a frame, 0 for ever: call ``heartbeat`` twice as often
        )
        self._reader = FrameReader(max_frame_size)
        self.writer = FrameWriter()
        self._sessions: dict[int, AmqpSession] = {}
        self._begun: set[int] = set()
        self._held = held or HeldMemory(SharedMemory(), lambda _reason: None)
        self._unread = 0
        self._state = _State.HEADER
        self._authenticated = False
        self.is_closed = False  # nothing more is read: write ``data_to_send()`` and close the socket
        self.error: Error | None = None  # the reason for the end, if the peer or we have given one
        self.data_to_send = self.writer.take  # the bytes since the last call

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the socket, cut anywhere. After the end they are dropped."""
        if self._state is not _State.NOTHING:
            self._reader.receive(data)

    def read(self) -> bool:
        """Read some frames, add what they say to ``events``, and return whether there may be more."""
        try:
            for _ in range(_FRAMES_AT_ONCE):
                if not self._receive_next():
                    before, self._unread = self._unread, self._reader.unread
                    if self._unread != before:
                        self._held.add_messages(self._unread - before)
                    return False
                # Not beyond an attach: what follows on the link makes sense only once its owner has answered it.
                last = self.events[-1] if self.events else None
                if isinstance(last, Link) and last.state is LinkState.ATTACHING:
                    return True
        except ProtocolViolationError as error:
            self._fail(Error(error.condition, str(error)))
        except AmqpDecodeError as error:
            self._fail(Error("amqp:decode-error", str(error)))
        return True

    def heartbeat(self) -> None:
        if self._state is _State.FRAME:
            self.writer.write_bytes(EMPTY_FRAME)

    def close(self, error: Error | None = None) -> None:
        """Close the connection from our side. Frames that the peer still sends are not read."""
        if self._state is _State.FRAME:
            self._write(Close(error=error))
        self._end(error)

    def _receive_next(self) -> bool:
        """Handle the next header or frame; return false if there is none yet, or none is expected."""
        if self._state is _State.NOTHING:
            return False
        # A protocol header is due at first, and again after SASL.
        if self._state is _State.HEADER:
            header = self._reader.next_header()
            if header is not None:
                self._receive_header(header)
            return header is not None
        # From here on there are frames only. An empty body is a sign of life.
        frame = self._reader.next_frame()
        if frame is None:
            return False
        kind, channel, body = frame
        if kind != (SASL_FRAME if self._state is _State.SASL_INIT else AMQP_FRAME):
            raise ProtocolViolationError(f"A frame of type {kind} is not allowed here.")
        if kind == SASL_FRAME:
            self._receive_sasl(body)
        elif body:
            self._receive_performative(channel, body)
        return True

    def _receive_header(self, header: bytes) -> None:
        if header == _SASL_HEADER and not self._authenticated:
            self.writer.write_bytes(header)
            self.writer.write(0, frames.OFFER, kind=SASL_FRAME)
            self._state = _State.SASL_INIT
        elif header == _AMQP_HEADER:
            self.writer.write_bytes(header)
            self._state = _State.OPEN
        else:
            # The answer to an unknown protocol is the header of one that we speak.
            self.writer.write_bytes(_SASL_HEADER)
            raise ProtocolViolationError("The peer does not speak AMQP 1.0.")

    def _receive_sasl(self, body: bytes) -> None:
        self._authenticated = frames.is_accepted(body, self._log_in)
        self.writer.write(0, frames.OUTCOMES[self._authenticated], kind=SASL_FRAME)
        if not self._authenticated:
            raise ProtocolViolationError("The peer chose a SASL mechanism that was not offered, or has no key.")
        self._state = _State.HEADER

    def _receive_performative(self, channel: int, body: bytes) -> None:
        performative, end = decode_composite(body)
        session, receive = self._sessions.get(channel), AmqpSession.RECEIVERS.get(performative.__class__)
        if session is not None and receive is not None:
            receive(session, performative, body[end:])
        elif self._state is _State.OPEN:
            self._receive_open(performative)
        else:
            self._receive_of_connection(channel, performative)

    def _receive_of_connection(self, channel: int, performative: object) -> None:
        match performative:
            case Begin():
                self._receive_begin(channel, performative)
            case End():
                session = self._sessions.pop(channel, None)
                if session is not None:
                    session.end()
                    session.write(End())
            case Close():
                self._write(Close())
                self._end(performative.error)
            case Open():
                raise ProtocolViolationError("The connection is open already.", "amqp:not-allowed")
            case Attach() | Flow() | Transfer() | Disposition() if channel not in self._begun:
                # Service Bus is built on Azure's library for .NET, whose AmqpConnection answers like this.
                raise ProtocolViolationError(f"The session channel {channel} cannot be found.", "amqp:not-found")
            case Attach() | Flow() | Transfer() | Disposition() | Detach():
                pass  # For a session that has ended: the peer may not have known.
            case _:
                raise ProtocolViolationError(f"{type(performative).__name__} is not a performative.")

    def _receive_open(self, performative: Performative) -> None:
        if not isinstance(performative, Open):
            raise ProtocolViolationError("The first frame of a connection must be an open.", "amqp:not-allowed")
        if performative.max_frame_size < MIN_MAX_FRAME_SIZE:
            raise ProtocolViolationError(f"max-frame-size must be at least {MIN_MAX_FRAME_SIZE}.", "amqp:invalid-field")
        self.writer.max_body_size = min(performative.max_frame_size, self._max_frame_size) - HEADER_SIZE
        self.peer_idle_timeout_ms = performative.idle_time_out or 0
        self._write_open()

    def _receive_begin(self, channel: int, begin: Begin) -> None:
        if begin.remote_channel is not None or channel in self._sessions or channel > _CHANNEL_MAX:
            raise ProtocolViolationError(f"No session can begin on channel {channel}.", "amqp:not-allowed")
        self._begun.add(channel)
        self._sessions[channel] = AmqpSession(channel, begin, self.writer, self.events.append, self._held)

    def _write_open(self) -> None:
        self._write(
            Open(
                container_id="emulator",
                max_frame_size=self._max_frame_size,
                channel_max=_CHANNEL_MAX,
                idle_time_out=self._idle_timeout_ms,
            )
        )
        self._state = _State.FRAME

    def _write(self, performative: Performative) -> None:
        self.writer.write(0, encode_within(self.writer.max_body_size, performative))

    def _fail(self, error: Error) -> None:
        # A close must follow an open; before the AMQP header there is no frame to close with.
        if self._state is _State.OPEN:
            self._write_open()
        self.close(error)

    def _end(self, error: Error | None) -> None:
        if self._state is _State.NOTHING:
            return
        self._state, self.is_closed, self.error = _State.NOTHING, True, error
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            session.end()
        self._reader = FrameReader(self._max_frame_size)  # what it holds would wait for the garbage collector
        self._held.leave()
