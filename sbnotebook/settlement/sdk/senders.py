"""Sends of AMQP bytes as they are: the SDK's own messages drop the types of received values."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError

from sbnotebook.settlement.sdk.private import (
    MESSAGE_DELIVERY_DONE_STATES,
    AuthenticationException,
    MessageDelivery,
    private,
)
from sbnotebook.settlement.sdk.sharing import Encoded

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusSender

_GLANCE: Final = 0.005
"""Seconds between two looks whether the token is confirmed."""


async def make_ready(sender: ServiceBusSender) -> None:
    """Wait until a sender's link is open and its token is confirmed, which the SDK renews here when that is due.

    Nothing is sent: an error here says for certain that the next message has not left the client.
    """
    parts = private(sender)
    parts._check_live()
    await parts._do_retryable_operation(_open_with_token, sender=parts)


async def _open_with_token(sender: Any) -> None:
    if not sender._running:
        await sender._open()
    handler = sender._handler
    try:
        while not await handler.client_ready_async():  # noqa: ASYNC110 (the SDK has no event for it)
            await asyncio.sleep(_GLANCE)
    except TimeoutError as error:
        raise OperationTimeoutError(message="The token was not confirmed in time.") from error


async def send_payload(sender: ServiceBusSender, payload: bytes, *, batch: bool = False) -> None:
    """Send AMQP bytes once and wait for the confirmation.

    The SDK's ``send_messages`` does more around it, for messages of its own, which takes as long as all of this.
    """
    parts = private(sender)
    parts._check_live()
    await parts._do_retryable_operation(_transfer, sender=parts, message=Encoded(payload, is_batch=batch))


async def _transfer(sender: Any, message: Encoded) -> None:
    handler = sender._handler
    delivery = MessageDelivery(message)
    # Send the message, and listen until the confirmation comes.
    try:
        await _until_confirmed(handler, delivery)
    except (AuthenticationException, TimeoutError) as error:
        # The token is refused only now: the message was on its way before.
        said = f"The token could not be renewed before the confirmation came: {error}"
        raise ServiceBusConnectionError(message=said) from error
    if delivery.error is not None:
        raise delivery.error


async def _until_confirmed(handler: Any, delivery: MessageDelivery) -> None:
    await handler._transfer_message_async(delivery)
    await handler._link.update_pending_deliveries()  # which sends it
    if handler._connection is not None:
        await handler._connection.listen(wait=handler._socket_timeout)
    while delivery.state not in MESSAGE_DELIVERY_DONE_STATES:
        if not await handler.do_work_async():
            raise ServiceBusConnectionError(message="The sender was closed before the confirmation came.")


def max_message_bytes(sender: ServiceBusSender) -> int:
    return int(private(sender)._max_message_size_on_link)


def max_batch_bytes(sender: ServiceBusSender) -> int:
    return int(private(sender)._max_batch_size_on_link)
