"""Messages as the SDK's receivers take them in: with their bytes, or their locks alone, and no more than asked for."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Awaitable, Callable, Container
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from uuid import UUID

from sbnotebook.settlement.sdk.protocol import AmqpMessage, Frame, ReceiveHandler, Receiver, ReceiverLink, private
from sbnotebook.settlement.wire.service_part import lock_annotations, moment

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage
    from azure.servicebus.aio import ServiceBusReceiver

# Attributes that sbnotebook adds to the SDK's messages, links and receivers.
_PAYLOAD: Final = "_sbnotebook_payload"
_WANTED: Final = "_sbnotebook_wanted"
_KEEPS: Final = "_sbnotebook_keeps"
_NUMBER: Final = b"x-opt-sequence-number"
_LOCKED_UNTIL: Final = b"x-opt-locked-until"
# Positions in a transfer frame (AMQP 1.0 section 2.7.5), and the payload at its end.
_FRAME_ID, _FRAME_TAG, _FRAME_MORE, _FRAME_PAYLOAD = 1, 2, 5, 11
# Positions in a flow frame (AMQP 1.0 section 2.7.4).
_FLOW_HANDLE, _FLOW_CREDIT = 4, 6
_DRAINED_WITHIN: Final = 0.4
"""Seconds after which a service that does not answer a drain has nothing on its way any more; the SDK's."""

_MORE_WITHIN: Final = 0.2
"""Seconds in which the next of several messages comes; the SDK's."""
_FRAMES: Final = 100
"""Frames to read in one turn at most."""

_Arrived: TypeAlias = Callable[[Frame, Any], Awaitable[None]]


def keep_payloads(receiver: ServiceBusReceiver) -> None:
    """Make a receiver keep the AMQP bytes of each message that it builds, for :func:`payload_of_received`."""
    parts = private(receiver)
    build, open_once = parts._build_received_message, parts._open

    def build_with_payload(received: tuple[Frame, Any]) -> ServiceBusReceivedMessage:
        message = build(received)
        setattr(message, _PAYLOAD, bytes(received[0][_FRAME_PAYLOAD]))
        return message

    async def open_and_join(*options: Any) -> None:
        await open_once(*options)
        if parts._handler is not None and parts._handler._link is not None:
            _join_frames(parts._handler._link)

    parts._build_received_message = build_with_payload
    parts._open = open_and_join


def _join_frames(link: ReceiverLink) -> None:
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
        message = AmqpMessage(message_annotations=lock_annotations(whole))
        await link._process_incoming_message([*first[:_FRAME_PAYLOAD], whole], message)

    link._incoming_transfer = take_and_join


def payload_of_received(message: ServiceBusReceivedMessage) -> bytes | None:
    """Return the AMQP bytes of a received message, None of a lock without its message."""
    return getattr(message, _PAYLOAD, None)


def token_of(message: ServiceBusReceivedMessage) -> UUID:
    """Return the lock token of a received message, which may be a text by the SDK's types."""
    token = message.lock_token
    return token if isinstance(token, UUID) else UUID(str(token))


def drop_payload(message: ServiceBusReceivedMessage) -> None:
    """Free the AMQP bytes of a received message, whose lock can still be renewed and settled."""
    setattr(message, _PAYLOAD, None)


class _LockByToken:
    """A lock of which only the token is known, with those attributes of the SDK's message that locks need."""

    def __init__(self, lock_token: UUID, payload: bytes | None) -> None:
        self.lock_token = lock_token
        self._delivery_tag = None
        self._expiry: datetime | None = None
        setattr(self, _PAYLOAD, payload)


def lock_by_token(lock_token: UUID, payload: bytes | None) -> ServiceBusReceivedMessage:
    """Return a lock that is on no link of ours as a message to renew, or to settle over the management node."""
    return cast("ServiceBusReceivedMessage", _LockByToken(lock_token, payload))


class BareLock:
    """A lock without its message, with those attributes of the SDK's message that locks need."""

    __slots__ = ("_delivery_id", "_delivery_tag", "_expiry", _PAYLOAD, "lock_token", "sequence_number")

    def __init__(self, frame: Frame, annotations: dict[bytes, Any]) -> None:
        stamp = annotations.get(_LOCKED_UNTIL)
        self._delivery_id: int = frame[_FRAME_ID]
        self._delivery_tag: bytes = frame[_FRAME_TAG]
        self._expiry = moment(stamp) if stamp else None
        self.lock_token = UUID(bytes_le=self._delivery_tag)
        self.sequence_number: int = annotations.get(_NUMBER) or 0

    @property
    def locked_until_utc(self) -> datetime | None:
        """Return when the lock ends, as it was renewed last."""
        return self._expiry


def keep_locks_alone(receiver: ServiceBusReceiver) -> None:
    """Prepare a receiver for :func:`keep_bodies_of` and :func:`keep_between_calls`."""
    parts = private(receiver)
    build = parts._build_received_message
    setattr(receiver, _WANTED, None)
    setattr(receiver, _KEEPS, False)

    def keep_or_drop(handler: ReceiveHandler, arrived: _Arrived) -> _Arrived:
        async def take(frame: Frame, message: Any) -> None:
            wanted: Container[int] | None = getattr(receiver, _WANTED)
            annotations: dict[bytes, Any] = message.message_annotations or {}
            if wanted is not None and annotations.get(_NUMBER, 0) not in wanted:
                # Drop the body now, before the next one arrives.
                frame, message = frame[:_FRAME_PAYLOAD], BareLock(frame, annotations)
            keeps = wanted is not None or getattr(receiver, _KEEPS)
            if keeps and not parts._receive_context.is_set():
                # The SDK would release messages that arrive between two calls, and they would come again behind later
                # ones.
                handler._received_messages.put((frame, message))
            else:
                await arrived(frame, message)

        return take

    def build_unless_bare(received: tuple[Frame, Any]) -> Any:
        _, message = received
        return message if isinstance(message, BareLock) else build(received)

    _on_arrival(parts, keep_or_drop)
    parts._build_received_message = build_unless_bare


def build_bare_locks(receiver: ServiceBusReceiver) -> None:
    """Build a :class:`BareLock` with its AMQP bytes for each message, which takes a third of the SDK's time."""

    def build_bare(received: tuple[Frame, Any]) -> ServiceBusReceivedMessage:
        frame, message = received
        if isinstance(message, BareLock):
            return cast("ServiceBusReceivedMessage", message)
        lock = BareLock(frame, message.message_annotations or {})
        setattr(lock, _PAYLOAD, bytes(frame[_FRAME_PAYLOAD]))
        return cast("ServiceBusReceivedMessage", lock)

    private(receiver)._build_received_message = build_bare


def keep_bodies_of(receiver: ServiceBusReceiver, wanted: Container[int] | None) -> None:
    """Drop the body of each unwanted message as it arrives from now on, and keep its lock.

    While ``wanted`` is not None, messages that arrive between two calls wait for the next one, in their order.
    """
    setattr(receiver, _WANTED, wanted)


def keep_between_calls(receiver: ServiceBusReceiver) -> None:
    """Keep what arrives between two calls, such as while a lock is renewed: it waits for the next one, in its order.

    The SDK would release it while later messages are on their way. Service Bus may place released messages behind
    messages that arrive meanwhile (azure-sdk-for-net issue 35846).
    """
    setattr(receiver, _KEEPS, True)


def waiting(receiver: ServiceBusReceiver) -> int:
    """Return how many messages have arrived between two calls, and wait for the next one.

    A call that asks for more than these takes them, waits, and loses them when it is cancelled.
    """
    handler = private(receiver)._handler
    return 0 if handler is None else handler._received_messages.qsize()


async def take(receiver: ServiceBusReceiver, count: int, max_wait: float) -> list[Any]:
    """Receive messages, and those first that have arrived between two calls.

    ``receive_messages`` ends 0.2 seconds after the first message, in which not all can come over a long line. It reads
    one frame in a turn, and loses messages if it is cancelled. This ends 0.2 seconds after the last message, and loses
    none.
    """
    parts = private(receiver)
    parts._check_live()
    return await parts._do_retryable_operation(_take, receiver=parts, count=count, max_wait=max_wait)


async def _take(receiver: Receiver, count: int, max_wait: float) -> list[Any]:
    await receiver._open()
    handler = receiver._handler
    if handler is None or handler._link is None:
        return []
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
    return [receiver._build_received_message(arrived.get()) for _ in range(min(count, arrived.qsize()))]


def has_more_coming(receiver: ServiceBusReceiver) -> bool:
    """Return whether messages that were asked for have not been taken: they wait here, or may be on their way."""
    handler = private(receiver)._handler
    if handler is None or handler._link is None:
        return False
    return handler._link.current_link_credit > 0 or not handler._received_messages.empty()


def take_down(receiver: ServiceBusReceiver, sink: Callable[[bytes], None]) -> None:
    """Pass on the AMQP bytes of each message as it arrives.

    In receive-and-delete mode a message is gone from the service when it is sent. ``receive_messages`` loses messages
    that have arrived if it is cancelled, if the connection breaks, or if a message arrives after the call.
    """

    def pass_on(_: ReceiveHandler, arrived: _Arrived) -> _Arrived:
        async def take(frame: Frame, message: Any) -> None:
            sink(bytes(frame[_FRAME_PAYLOAD]))
            await arrived(frame, message)

        return take

    _on_arrival(private(receiver), pass_on)


class _Arrivals(queue.SimpleQueue[Any]):
    """A queue in place of the SDK's, whose lock takes longer than all else; one task at a time uses a receiver."""

    def task_done(self) -> None:
        """Do nothing, when the SDK says that it has taken a message: nothing waits for that."""


def _on_arrival(parts: Receiver, wrap: Callable[[ReceiveHandler, _Arrived], _Arrived]) -> None:
    """Wrap what a receiver does with each message that arrives, every time that it is opened."""
    create = parts._create_handler

    def create_wrapped(auth: Any) -> None:
        create(auth)
        if parts._handler is not None:
            parts._handler._received_messages = _Arrivals()
            parts._handler._message_received_async = wrap(parts._handler, parts._handler._message_received_async)

    parts._create_handler = create_wrapped


async def withdraw_credit(receiver: ServiceBusReceiver) -> None:
    """Take back the rest of the last request for messages, and release messages that still arrived for it.

    Otherwise messages that arrive later are sent to this receiver, and are locked although nothing asks for them.
    It takes a round trip, at most 0.4 seconds, and no time when everything asked for has arrived. A receiver of
    :func:`keep_between_calls` releases nothing.
    """
    parts = private(receiver)
    if parts._handler is not None:
        await _drain(parts._handler, credit=0, answer_within=_DRAINED_WITHIN)
        if not getattr(receiver, _KEEPS):
            await parts._amqp_transport.drain_and_release_messages_async(parts._handler)


async def drain_credit(receiver: ServiceBusReceiver, answer_within: float) -> bool:
    """Take back the rest of the last request for messages, and keep messages that still arrive for it."""
    handler = private(receiver)._handler
    if handler is None or handler._link is None:
        return False
    return await _drain(handler, credit=handler._link.current_link_credit, answer_within=answer_within)


async def _drain(handler: ReceiveHandler, *, credit: int, answer_within: float) -> bool:
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
    until = time.monotonic() + answer_within
    with contextlib.suppress(Exception):  # a broken connection brings no more messages
        await link.flow(link_credit=credit, drain=True)
        while not answers and (left := until - time.monotonic()) > 0 and connection._can_read():
            await connection.listen(wait=left)
    return bool(answers)
