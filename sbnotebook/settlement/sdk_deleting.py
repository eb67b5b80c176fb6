"""Receiving and deleting, below the SDK's public interface, as :mod:`sbnotebook.settlement.sdk_internals` is.

In this mode a message is gone from the service when it is sent. ``receive_messages`` loses what arrived when it is
cancelled, when the connection breaks, or when it comes after the call; here each message is taken down as it arrives.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusReceiver

__all__ = ["take_down", "withdraw_credit"]

_FRAME_PAYLOAD: Final = 11
_LISTEN: Final = 0.1


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

    The service answers with a flow when it has sent all that it will (AMQP 1.0 section 2.6.7, "drain").

    Args:
        receiver: open.
        answer_within: seconds to wait for that answer.

    Returns:
        Whether the answer came; False when messages may still have been on their way.
    """
    handler: Any = receiver._handler
    link = handler._link if handler is not None else None
    if link is None or link._is_closed:
        return False
    if link.current_link_credit <= 0:
        return True
    answers: list[Any] = []
    pass_on: Any = link._incoming_flow

    async def note(frame: Any) -> None:
        answers.append(frame)
        await pass_on(frame)

    link._incoming_flow = note
    until = time.monotonic() + answer_within
    with contextlib.suppress(Exception):  # a connection that is broken brings no more messages
        await link.flow(link_credit=link.current_link_credit, drain=True)
        while not answers and time.monotonic() < until:
            await handler._connection.listen(wait=_LISTEN)
    return bool(answers)
