"""Sending AMQP bytes as they are, over the SDK's senders: its own messages drop the types of what was received."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from azure.servicebus._pyamqp.aio import _sender_async, _session_async
from azure.servicebus._pyamqp.constants import MESSAGE_DELIVERY_DONE_STATES
from azure.servicebus._pyamqp.error import AuthenticationException
from azure.servicebus._pyamqp.message import _MessageDelivery
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusSender

__all__ = ["listen_alone", "max_batch_bytes", "max_message_bytes", "send_payload"]

_MESSAGE_FORMAT, _BATCH_FORMAT = 0, 0x80013700
"""Of a message as it is, and of a batch (the SDK's ``Message`` and ``BatchMessage``)."""
_GLANCE: Final = 0.005
"""Seconds to look for frames that have come already."""


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


def max_message_bytes(sender: ServiceBusSender) -> int:
    """How large one message may be on this sender's link, in bytes; the sender must be open."""
    return int(sender._max_message_size_on_link)


def max_batch_bytes(sender: ServiceBusSender) -> int:
    """How large a batch may be on this sender's link, in bytes; the sender must be open."""
    return int(sender._max_batch_size_on_link)
