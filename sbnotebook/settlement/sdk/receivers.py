"""What the SDK's receivers keep of the messages that arrive: their bytes, or their locks alone."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Container
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from azure.servicebus import ServiceBusReceivedMessage, ServiceBusReceiveMode
from azure.servicebus._pyamqp._decode import decode_payload
from azure.servicebus._pyamqp.error import AMQPException
from azure.servicebus._pyamqp.message import Message as AmqpMessage

from sbnotebook.settlement.wire.service_part import what_can_be_read

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusReceiver

__all__ = [
    "BareLock",
    "drain_credit",
    "keep_bodies_of",
    "keep_locks_alone",
    "keep_payloads",
    "lock_by_token",
    "payload_of_received",
    "received_deferred",
    "take_down",
    "waiting",
    "withdraw_credit",
]

_PAYLOAD: Final = "_sbnotebook_payload"
_WHOLE: Final = "_sbnotebook_whole"
_WANTED: Final = "_sbnotebook_wanted"
_NUMBER: Final = b"x-opt-sequence-number"
_LOCKED_UNTIL: Final = b"x-opt-locked-until"
# Positions in a transfer frame (AMQP 1.0 section 2.7.5), and the payload at its end.
_FRAME_MORE, _FRAME_PAYLOAD = 5, 11
# Positions in a flow frame (AMQP 1.0 section 2.7.4).
_FLOW_HANDLE, _FLOW_CREDIT = 4, 6
_DRAINED_WITHIN: Final = 0.4
"""Seconds after which nothing is on its way any more from a service that does not say so; the SDK's."""


def keep_payloads(receiver: ServiceBusReceiver) -> None:
    """Make a receiver keep the AMQP bytes of each message that it builds, for :func:`payload_of_received`."""
    build: Any = receiver._build_received_message
    open_once: Any = receiver._open

    def build_with_payload(received: Any) -> ServiceBusReceivedMessage:
        message = build(received)
        setattr(message, _PAYLOAD, bytes(received[0][_FRAME_PAYLOAD]))
        return message

    async def open_and_join(*options: Any) -> None:
        await open_once(*options)
        _join_frames(receiver._handler._link)

    receiver._build_received_message = build_with_payload
    receiver._open = open_and_join


def _join_frames(link: Any) -> None:
    """Have the first frame of a message in several carry the bytes of all; the SDK keeps the bytes of only one."""
    if hasattr(link, _WHOLE):
        return
    take: Any = link._incoming_transfer
    pass_on: Any = link._on_transfer
    setattr(link, _WHOLE, b"")

    async def take_and_join(frame: Any) -> None:
        if not frame[_FRAME_MORE]:  # this is the last frame of its message
            setattr(link, _WHOLE, bytes(link._received_payload) + bytes(frame[_FRAME_PAYLOAD]))
        try:
            await take(frame)
        except (OSError, AMQPException):
            raise
        except Exception:  # noqa: BLE001 (it cannot be decoded, and the SDK would receive nothing more, without a word)
            link._received_payload = bytearray()
            await link._process_incoming_message(link._first_frame, _without_content(getattr(link, _WHOLE)))

    async def pass_whole(frame: Any, message: Any) -> Any:
        whole = [*frame]
        whole[_FRAME_PAYLOAD] = getattr(link, _WHOLE)
        return await pass_on(whole, message)

    link._incoming_transfer, link._on_transfer = take_and_join, pass_whole


def _without_content(payload: bytes) -> AmqpMessage:
    """What the service says of a message whose bytes the SDK cannot decode, such as lists that are 65 deep."""
    said = what_can_be_read(payload)
    annotations: dict[str | bytes, Any] = {b"x-opt-sequence-number": said["sequence_number"]}
    if said["locked_until"] is not None:
        annotations[b"x-opt-locked-until"] = round(said["locked_until"].timestamp() * 1000)
    return AmqpMessage(message_annotations=annotations)


def received_deferred(receiver: ServiceBusReceiver, item: Any) -> ServiceBusReceivedMessage:
    """Return a deferred message as the management node gave it, with its bytes for :func:`payload_of_received`."""
    payload, mode = bytes(item[b"message"]), ServiceBusReceiveMode.PEEK_LOCK
    try:
        decoded = decode_payload(memoryview(payload))
    except Exception:  # noqa: BLE001 (it must not hide those that were locked with it)
        decoded = _without_content(payload)
    message = ServiceBusReceivedMessage(
        decoded, lock_token=item[b"lock-token"], receiver=receiver, receive_mode=mode, is_deferred_message=True
    )
    setattr(message, _PAYLOAD, payload)
    return message


def payload_of_received(message: ServiceBusReceivedMessage) -> bytes | None:
    """The AMQP bytes of a received message; None of what is a lock alone."""
    return getattr(message, _PAYLOAD, None)


class _LockByToken:
    """Stands in for the SDK's received message where there is only the lock token of one."""

    def __init__(self, lock_token: UUID, payload: bytes | None) -> None:
        self.lock_token = lock_token
        self._delivery_tag = None
        self._expiry: datetime | None = None
        setattr(self, _PAYLOAD, payload)


def lock_by_token(lock_token: UUID, payload: bytes | None) -> ServiceBusReceivedMessage:
    """What stands for a lock that another receiver has: it can be renewed, and settled over the management node.

    Args:
        lock_token: of the lock.
        payload: the message's AMQP bytes as they were peeked, None when it is not there.
    """
    return cast("ServiceBusReceivedMessage", _LockByToken(lock_token, payload))


class BareLock:
    """What is kept of a message that nobody asked for: enough to renew its lock and to give it back.

    It stands in for the SDK's received message, and has those of its attributes that locks are about.
    """

    __slots__ = ("_delivery_id", "_delivery_tag", "_expiry", "lock_token", "sequence_number")

    def __init__(self, frame: Any, annotations: dict[bytes, Any]) -> None:
        stamp = annotations.get(_LOCKED_UNTIL)
        self._delivery_id: int = frame[1]
        self._delivery_tag: bytes = frame[2]
        self._expiry = datetime.fromtimestamp(stamp / 1000, UTC) if stamp else None
        self.lock_token = UUID(bytes_le=frame[2])
        self.sequence_number: int = annotations.get(_NUMBER) or 0

    @property
    def locked_until_utc(self) -> datetime | None:
        """When the lock ends, as it was renewed last."""
        return self._expiry


def keep_locks_alone(receiver: ServiceBusReceiver) -> None:
    """Prepare a receiver, before it is opened, for :func:`keep_bodies_of`."""
    create: Any = receiver._create_handler
    build: Any = receiver._build_received_message
    setattr(receiver, _WANTED, None)

    def create_with_filter(auth: Any) -> None:
        create(auth)
        handler: Any = receiver._handler
        arrived = handler._message_received_async

        async def keep_or_drop(frame: Any, message: Any) -> None:
            wanted: Container[int] | None = getattr(receiver, _WANTED)
            annotations: dict[bytes, Any] = message.message_annotations or {}
            if wanted is not None and annotations.get(_NUMBER, 0) not in wanted:
                frame, message = frame[:11], BareLock(frame, annotations)
            if wanted is not None and not receiver._receive_context.is_set():
                # The SDK would release what comes between two calls, and it would come again behind later ones.
                handler._received_messages.put((frame, message))
            else:
                await arrived(frame, message)

        handler._message_received_async = keep_or_drop

    def build_unless_bare(received: Any) -> Any:
        _, message = received
        return message if isinstance(message, BareLock) else build(received)

    receiver._create_handler = create_with_filter
    receiver._build_received_message = build_unless_bare


def keep_bodies_of(receiver: ServiceBusReceiver, wanted: Container[int] | None) -> None:
    """From now on keep only the locks of messages whose number is not among the wanted; None keeps everything.

    As long as it is not None, what comes between two calls waits for the next one, so that the order is kept.
    """
    setattr(receiver, _WANTED, wanted)


def waiting(receiver: ServiceBusReceiver) -> int:
    """How many messages have come between two calls, and wait for the next one.

    A call that asks for more than these takes them, waits, and loses them when it is cancelled.
    """
    handler: Any = receiver._handler
    return 0 if handler is None else handler._received_messages.qsize()


def take_down(receiver: ServiceBusReceiver, sink: Callable[[bytes], None]) -> None:
    """Have the AMQP bytes of each message given away as it arrives, whoever waits for it.

    Args:
        receiver: not open yet, made by :meth:`sbnotebook.settlement.connecting.connection.Connection.receiver`.
        sink: is given the bytes.
    """
    create: Any = receiver._create_handler

    def create_with_sink(auth: Any) -> None:
        create(auth)
        handler: Any = receiver._handler
        arrived = handler._message_received_async

        async def take(frame: Any, message: Any) -> None:
            sink(bytes(frame[_FRAME_PAYLOAD]))
            await arrived(frame, message)

        handler._message_received_async = take

    receiver._create_handler = create_with_sink


async def withdraw_credit(receiver: ServiceBusReceiver) -> None:
    """Take back what is left of the last request for messages, and release what still came for it.

    Otherwise messages that arrive later are sent to this receiver, and are locked although nobody asks for them.
    Takes a round trip, at most 0.4 seconds, and nothing when all that was asked for has come.
    """
    handler: Any = receiver._handler
    if handler is not None:
        await _drain(handler, credit=0, answer_within=_DRAINED_WITHIN)
        await receiver._amqp_transport.drain_and_release_messages_async(handler)


async def drain_credit(receiver: ServiceBusReceiver, answer_within: float) -> bool:
    """Take back what is left of the last request, and wait for what is on its way already.

    Args:
        receiver: open.
        answer_within: seconds to wait for that answer.

    Returns:
        Whether the answer came; False when messages may still have been on their way.
    """
    handler: Any = receiver._handler
    credit = handler._link.current_link_credit if handler is not None and handler._link is not None else 0
    return await _drain(handler, credit=credit, answer_within=answer_within)


async def _drain(handler: Any, *, credit: int, answer_within: float) -> bool:
    """Ask for no more messages, and wait for what is on its way already.

    The service answers with a flow when it has sent all that it will (AMQP 1.0 section 2.6.7, "drain"). The SDK does
    not look at that: it waits until nothing has come for 0.4 seconds.

    Args:
        handler: a receiver's.
        credit: messages that may still be sent.
        answer_within: seconds to wait for that answer.

    Returns:
        Whether the answer came; False when messages may still have been on their way.
    """
    link: Any = None if handler is None else handler._link
    if handler is None or link is None or link._is_closed:
        return False
    if link.current_link_credit <= 0:
        return True
    answers: list[Any] = []

    async def note(frame: Any) -> None:
        if frame[_FLOW_HANDLE] is not None and not frame[_FLOW_CREDIT]:
            answers.append(frame)

    link._incoming_flow = note
    until = time.monotonic() + answer_within
    with contextlib.suppress(Exception):  # a connection that is broken brings no more messages
        await link.flow(link_credit=credit, drain=True)
        while not answers and (left := until - time.monotonic()) > 0 and handler._connection._can_read():
            await handler._connection.listen(wait=left)
    return bool(answers)
