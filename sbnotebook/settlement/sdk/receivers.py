"""Messages as our receivers take them in: as locks, with or without their bytes, and no more than asked for."""

# The SDK's classes are untyped.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Container
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import UUID

from azure.servicebus.aio import ServiceBusReceiver
from azure.servicebus.exceptions import ServiceBusConnectionError

from sbnotebook.settlement.sdk.clients import client_class
from sbnotebook.settlement.sdk.connections import reopen
from sbnotebook.settlement.sdk.private import Frame, private
from sbnotebook.settlement.wire.decoding import lock_of

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage

# Positions in a transfer frame (AMQP 1.0 section 2.7.5), and the payload at its end.
_FRAME_ID, _FRAME_TAG, _FRAME_MORE, _FRAME_PAYLOAD = 1, 2, 5, 11
# Positions in a flow frame (AMQP 1.0 section 2.7.4).
_FLOW_HANDLE, _FLOW_CREDIT = 4, 6
_DRAINED_WITHIN: Final = 0.4
"""Seconds without a message after which a service that does not answer a drain has nothing more to send; the SDK's."""

_MORE_WITHIN: Final = 0.2
"""Seconds in which the next of several messages comes; the SDK's."""
_FRAMES: Final = 100
"""Frames to read in one turn at most."""


@dataclass(slots=True, eq=False)
class ReceivedLock:
    """The lock of one message, with the message's AMQP bytes where they are kept."""

    lock_token: UUID
    payload: bytes | None = None
    sequence_number: int = 0
    locked_until: datetime | None = None
    delivery_id: int = -1
    """Its number on the link that it came on; -1 if it came on none of ours."""
    delivery_tag: bytes | None = None

    @classmethod
    def of_message(cls, message: ServiceBusReceivedMessage) -> ReceivedLock:
        parts: Any = message
        number, until = message.sequence_number or 0, message.locked_until_utc
        return cls(UUID(str(message.lock_token)), None, number, until, parts._delivery_id, parts._delivery_tag)


class _Arrivals(queue.SimpleQueue[Any]):
    """A queue in place of the SDK's, whose lock takes longer than all else; one task at a time uses a receiver."""

    def task_done(self) -> None:
        """Do nothing, when the SDK says that it has taken a message: nothing waits for that."""


_Receiver: type[ServiceBusReceiver] = client_class(ServiceBusReceiver)


class LockReceiver(_Receiver):
    """A receiver that gives a :class:`ReceivedLock` for each message.

    Messages that arrive between two calls, such as while a lock is renewed, wait for the next one in their order. The
    SDK would release them while later messages are on their way, and Service Bus may place released messages behind
    those (azure-sdk-for-net issue 35846).
    """

    _asks = False
    """True while requested messages may still come."""

    wanted: Container[int] | None = None
    """Sequence numbers of the messages of which the bytes are kept; None for all."""
    sink: Callable[[bytes], None] | None = None
    """Gets the AMQP bytes of each message as it arrives.

    In receive-and-delete mode a message is gone from the service when it is sent. ``receive_messages`` loses messages
    that have arrived if it is cancelled, if the connection breaks, or if a message arrives after the call.
    """

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        return self

    async def _open(self, *given: Any, **options: Any) -> None:
        await super()._open(*given, **options)
        _join_frames(private(self)._handler._link)

    def _create_handler(self, auth: Any) -> None:
        super()._create_handler(auth)
        handler = private(self)._handler
        handler._received_messages = _Arrivals()
        handler._message_received_async = self._take_in

    async def _take_in(self, frame: Frame, said: tuple[int, datetime | None]) -> None:
        handler = private(self)._handler
        if not (self._asks or self.session or self.sink):
            await handler.settle_messages_async(frame[_FRAME_ID], frame[_FRAME_TAG], "released")
            return
        taken: ReceivedLock | None = None
        if self.sink is not None:
            self.sink(frame[_FRAME_PAYLOAD])
        else:
            # A body that is not wanted is dropped now, before the next one arrives.
            tag, (number, until) = frame[_FRAME_TAG], said
            payload = frame[_FRAME_PAYLOAD] if self.wanted is None or number in self.wanted else None
            taken = ReceivedLock(UUID(bytes_le=tag), payload, number, until, frame[_FRAME_ID], tag)
        handler._received_messages.put((frame[:_FRAME_PAYLOAD], taken))

    @property
    def waiting(self) -> int:
        """Return how many messages have arrived between two calls, and wait for the next one."""
        handler = private(self)._handler
        return 0 if handler is None else handler._received_messages.qsize()

    @property
    def has_more_coming(self) -> bool:
        """Return whether messages that were asked for have not been taken: they wait here, or may be on their way."""
        handler = private(self)._handler
        if handler is None or handler._link is None:
            return False
        return handler._link.current_link_credit > 0 or not handler._received_messages.empty()

    async def take(self, count: int, max_wait: float) -> list[ReceivedLock]:
        """Receive messages, and those first that have arrived between two calls.

        ``receive_messages`` ends 0.2 seconds after the first message, in which not all can come over a long line. It
        reads one frame in a turn, and loses messages if it is cancelled. This ends 0.2 seconds after the last message,
        and loses none. It tries once more over a new link if the receiver loses its own meanwhile.
        """
        private(self)._check_live()
        self._asks = True
        try:
            return await private(self)._do_retryable_operation(self._take, count=count, max_wait=max_wait)
        except ServiceBusConnectionError:
            if self.sink is not None:  # messages on their way are lost, and that must not stay hidden
                raise
            await reopen(self)
            return await private(self)._do_retryable_operation(self._take, count=count, max_wait=max_wait)

    async def _take(self, count: int, max_wait: float) -> list[ReceivedLock]:
        await self._open()
        handler = private(self)._handler
        arrived, end = handler._received_messages, time.monotonic() + max_wait
        had = arrived.qsize()
        until = min(time.monotonic() + _MORE_WITHIN, end) if had else end
        if had < count:
            await handler._link.flow(link_credit=count - had)
        while had < count and time.monotonic() < until:
            if not await handler.do_work_async(batch=min(count - had, _FRAMES)):
                break
            if arrived.qsize() > had:
                had, until = arrived.qsize(), min(time.monotonic() + _MORE_WITHIN, end)
        return [arrived.get()[1] for _ in range(min(count, arrived.qsize()))]

    async def withdraw_credit(self, answer_within: float = _DRAINED_WITHIN) -> bool:
        """Take back the rest of the last request for messages; return whether the service has answered.

        Otherwise messages that arrive later are sent to this receiver, and are locked although nothing asks for them.
        It takes a round trip, and no time when everything asked for has arrived. Messages that have arrived for it are
        released. Those of a session wait for the next call, so that they keep their order. A sink takes all.
        """
        parts = private(self)
        handler = parts._handler
        if handler is None or handler._link is None:
            return False
        credit = 0 if self.sink is None else handler._link.current_link_credit
        is_answered = await _drain(handler, credit=credit, answer_within=answer_within)
        if not (self.session or self.sink):
            self._asks = False
            await parts._amqp_transport.drain_and_release_messages_async(handler)
        return is_answered


def _join_frames(link: Any) -> None:
    """Have a link pass on the bytes of all frames of a message, and decode only what the service wrote in it.

    A sender chooses the rest. The SDK would decode it without a limit on its size in memory, and receive nothing more
    after bytes that it cannot decode. All else is as in its ``ReceiverLink._incoming_transfer``; the messages of these
    links are settled later, and not by what the callback returns.
    """
    if "_incoming_transfer" in vars(link):  # it does already
        return
    joined = bytearray()

    async def take_and_join(frame: Frame) -> None:
        if frame[_FRAME_ID] is not None:
            link._first_frame = frame
        if frame[_FRAME_MORE]:
            joined.extend(frame[_FRAME_PAYLOAD])
            return
        whole = bytes(frame[_FRAME_PAYLOAD])
        if joined:
            whole = bytes(joined + whole)
            joined.clear()
        first = link._first_frame
        link.delivery_count += 1
        link.current_link_credit -= 1
        link._received_delivery_tags.add(first[_FRAME_TAG])
        await link._process_incoming_message([*first[:_FRAME_PAYLOAD], whole], lock_of(whole))

    link._incoming_transfer = take_and_join


async def _drain(handler: Any, *, credit: int, answer_within: float) -> bool:
    """Ask for no more messages, and wait for those that are on their way.

    The service answers with a flow when it has sent all that it will (AMQP 1.0 section 2.6.7, "drain"). The SDK
    ignores that answer, and waits until nothing has come for 0.4 seconds.
    """
    link, connection = handler._link, handler._connection
    if link is None or connection is None or link._is_closed:
        return False
    if link.current_link_credit <= 0:
        return True
    answers: list[Frame] = []

    async def note(frame: Frame) -> None:
        if frame[_FLOW_HANDLE] is not None and not frame[_FLOW_CREDIT]:
            answers.append(frame)

    link._incoming_flow = note
    had, until = link.delivery_count, time.monotonic() + answer_within
    with contextlib.suppress(Exception):  # a broken connection brings no more messages
        await link.flow(link_credit=credit, drain=True)
        while not answers and (left := until - time.monotonic()) > 0 and connection._can_read():
            await connection.listen(wait=left)
            if link.delivery_count != had:  # over a slow line the answer comes after many messages
                had, until = link.delivery_count, time.monotonic() + answer_within
    return bool(answers)
