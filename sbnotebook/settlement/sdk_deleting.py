"""Receiving and deleting, below the SDK's public interface, as :mod:`sbnotebook.settlement.sdk_internals` is.

In this mode a message is gone from the service when it is sent. ``receive_messages`` loses what arrived when it is
cancelled, when the connection breaks, or when it comes after the call; here each message is taken down as it arrives.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from sbnotebook.settlement import sdk_waits

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusReceiver

__all__ = ["take_down", "withdraw_credit"]

_FRAME_PAYLOAD: Final = 11


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


async def withdraw_credit(receiver: ServiceBusReceiver, answer_within: float) -> bool:
    """Take back what is left of the last request, and wait for what is on its way already.

    Args:
        receiver: open.
        answer_within: seconds to wait for that answer.

    Returns:
        Whether the answer came; False when messages may still have been on their way.
    """
    handler: Any = receiver._handler
    credit = handler._link.current_link_credit if handler is not None and handler._link is not None else 0
    return await sdk_waits.drain(handler, credit=credit, answer_within=answer_within)
