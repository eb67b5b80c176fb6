"""Where sending reaches below the SDK's public interface, and why each time; see :mod:`sdk_internals` for the rest.

The SDK encodes its own message classes only, which drop the types of what was received; schedules such messages only;
and does not tell whether a sender's connection stands. Written against azure-servicebus 7.15; each function is covered
by tests that run the SDK against the emulator and fail when a later version moves what is used here.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from azure.servicebus._common import mgmt_handlers
from azure.servicebus._pyamqp.aio import _sender_async, _session_async
from azure.servicebus._pyamqp.constants import MESSAGE_DELIVERY_DONE_STATES, LinkState
from azure.servicebus._pyamqp.error import AuthenticationException
from azure.servicebus._pyamqp.message import _MessageDelivery
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusSender

__all__ = [
    "ToSchedule",
    "cancel_scheduled",
    "catch_up",
    "hang_up",
    "is_open",
    "line_of",
    "listen_alone",
    "max_batch_bytes",
    "max_message_bytes",
    "reopen",
    "schedule_payloads",
    "send_payload",
]

_SCHEDULE: Final = b"com.microsoft:schedule-message"
_CANCEL: Final = b"com.microsoft:cancel-scheduled-message"
_MESSAGE_FORMAT, _BATCH_FORMAT = 0, 0x80013700
"""Of a message as it is, and of a batch (the SDK's ``Message`` and ``BatchMessage``)."""


_GLANCE: Final = 0.005
"""Seconds to look for frames that have come already."""
_MANY_FRAMES: Final = 100


class _Encoded:
    """Bytes that are sent as they are, in the place of one of the SDK's messages."""

    def __init__(self, payload: bytes, *, batch: bool) -> None:
        self.payload = payload
        self._code = _BATCH_FORMAT if batch else _MESSAGE_FORMAT


_encode_payload: Final[Any] = _sender_async.encode_payload


def _encode(output: bytearray, message: Any) -> Any:
    if not isinstance(message, _Encoded):
        return _encode_payload(output, message)
    output += message.payload
    return output


# The SDK's link encodes what it is given at the last moment, by this function. Messages of the SDK are none the wiser;
# and if a later version encodes elsewhere, an _Encoded raises there instead of being sent as something else.
_sender_async.encode_payload = _encode

_FRAME_ROOM: Final = bytes(64)
"""As much as a transfer takes in a frame beside the message at most, with what the SDK says in one (AMQP 2.7.5)."""


def _measure(frame: Any) -> Any:  # noqa: ARG001 (whatever it says)
    return None, _FRAME_ROOM


# The SDK's session encodes each transfer twice, the first time only for how long it is.
_session_async.encode_frame = _measure


async def send_payload(sender: ServiceBusSender, payload: bytes, *, batch: bool = False) -> None:
    """Send AMQP bytes once and wait for the confirmation.

    What the SDK's own ``send_messages`` does around this, for messages of its own, takes as long as all of this.

    Args:
        sender: open, see :func:`reopen`.
        payload: a message, or a batch of them.
        batch: whether it is a batch.

    Raises:
        ServiceBusError: the service refused it, or nobody knows whether it arrived.
    """
    sender._check_live()
    await sender._do_retryable_operation(_transfer, sender=sender, message=_Encoded(payload, batch=batch))


async def _transfer(sender: Any, message: _Encoded) -> None:
    await sender._open()
    handler: Any = sender._handler
    delivery = _MessageDelivery(message)
    try:
        while not await handler.client_ready_async():  # noqa: ASYNC110 (which asks for a new token when that is due)
            await asyncio.sleep(_GLANCE)
    except TimeoutError as error:
        raise OperationTimeoutError(message="The token was not confirmed in time.") from error
    try:
        await handler._transfer_message_async(delivery)
        await handler._link.update_pending_deliveries()  # which sends it
        await handler._connection.listen(wait=handler._socket_timeout)
        while delivery.state not in MESSAGE_DELIVERY_DONE_STATES:
            if not await handler.do_work_async():
                raise ServiceBusConnectionError(message="The sender was closed before the confirmation came.")
    except (AuthenticationException, TimeoutError) as error:
        # It is refused now, and the message was on its way before.
        said = f"The token could not be renewed before the confirmation came: {error}"
        raise ServiceBusConnectionError(message=said) from error
    if delivery.error is not None:
        raise delivery.error


def listen_alone(sender: ServiceBusSender) -> None:
    """Have no other task listen on a sender's connection than the one that sends; before it is opened.

    The SDK keeps a connection alive by a task that listens every 30 seconds. Where that one hears of room for more
    while a message waits for its turn to be written, it writes it, too, and the message is there twice. Who waits for
    a confirmation keeps the connection alive, and one that is idle for long is opened anew.
    """
    sender._config.keep_alive = None


class ToSchedule(NamedTuple):
    """A message that is scheduled: its bytes say when, and the rest is what the service wants beside them."""

    payload: bytes
    message_id: str | None
    session_id: str | None
    partition_key: str | None


async def schedule_payloads(sender: ServiceBusSender, messages: Sequence[ToSchedule]) -> list[int]:
    """Schedule messages in one request.

    Returns:
        Their sequence numbers, in the same order.

    Raises:
        ServiceBusError: the service refused them, or nobody knows whether they arrived.
    """
    entries = [
        {name: value for name, value in _entry(message).items() if value is not None or name == "message-id"}
        for message in messages
    ]
    answer = await sender._mgmt_request_response_with_retry(_SCHEDULE, {"messages": entries}, mgmt_handlers.schedule_op)
    return [int(number) for number in answer]


def _entry(message: ToSchedule) -> dict[str, Any]:
    return {
        "message-id": message.message_id,
        "session-id": message.session_id,
        "partition-key": message.partition_key,
        "message": bytearray(message.payload),
    }


async def cancel_scheduled(sender: ServiceBusSender, sequence_number: int) -> None:
    """Cancel one scheduled message.

    One at a time: of several numbers of which one is gone nobody says what became of the others.

    Raises:
        MessageNotFoundError: it is active already, cancelled, or unknown.
        ServiceBusError: the service refused it, or nobody knows whether it was cancelled.
    """
    await sender.cancel_scheduled_messages(sequence_number)


def is_open(sender: ServiceBusSender) -> bool:
    """Whether a sender's connection and link stand, as far as it can be seen from here; see :func:`catch_up`."""
    handler: Any = sender._handler
    if handler is None or not sender._running or handler._link is None or handler._connection is None:
        return False
    if handler._link.state is not LinkState.ATTACHED or handler._connection._error is not None:
        return False
    # A connection that the other side has ended is seen here before the SDK reads from it.
    reader = getattr(handler._connection._transport, "reader", None)
    return reader is None or not (reader.at_eof() or reader.exception())


async def catch_up(sender: ServiceBusSender) -> None:
    """Let the SDK read what the service has said since the last send, such as that the link is closed."""
    handler: Any = sender._handler
    if handler is not None and handler._connection is not None:
        with contextlib.suppress(Exception):  # what is wrong with it, is_open tells
            await handler._connection.listen(wait=_GLANCE, batch=_MANY_FRAMES)


async def reopen(sender: ServiceBusSender) -> None:
    """Open a sender, or open it again when its connection or link was lost; nothing when it is open.

    Raises:
        ServiceBusError: it could not be opened, and nothing was sent.
    """
    if is_open(sender):
        return
    await hang_up(line_of(sender))
    with contextlib.suppress(Exception):  # it is broken: what matters is the new one
        await sender._close_handler()
    sender._handler, sender._running = None, False
    await sender._open_with_retry()


def line_of(sender: ServiceBusSender) -> Any:
    """The transport of a sender, for :func:`hang_up`; the SDK forgets it without closing it when it is broken."""
    handler: Any = sender._handler
    connection = None if handler is None else handler._connection
    return None if connection is None else connection._transport


async def hang_up(line: Any) -> None:
    """Close a transport; nothing when it is closed."""
    if line is not None:
        with contextlib.suppress(Exception):
            await line.close()


def max_message_bytes(sender: ServiceBusSender) -> int:
    """How large one message may be on this sender's link, in bytes; the sender must be open."""
    return int(sender._max_message_size_on_link)


def max_batch_bytes(sender: ServiceBusSender) -> int:
    """How large a batch may be on this sender's link, in bytes; the sender must be open."""
    return int(sender._max_batch_size_on_link)
