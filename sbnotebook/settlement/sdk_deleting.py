"""Receiving and deleting, below the SDK's public interface, as :mod:`sbnotebook.settlement.sdk_internals` is.

In this mode a message is gone from the service when it is sent. ``receive_messages`` loses what arrived when it is
cancelled, when the connection breaks, or when it comes after the call; here each message is taken down as it arrives.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from azure.servicebus._common import mgmt_handlers

from sbnotebook.settlement import sdk_internals, sdk_waits

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusReceiver

__all__ = ["delete_deferred", "take_down", "withdraw_credit"]

_FRAME_PAYLOAD: Final = 11
_RECEIVE_BY_NUMBER: Final = b"com.microsoft:receive-by-sequence-number"
_RECEIVE_AND_DELETE: Final = 0
_OK, _ACCEPTED, _NO_CONTENT = 200, 202, 204
_ANSWER_WITHIN: Final = 30.0
"""Seconds; many large messages may come in one answer."""


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


async def delete_deferred(receiver: ServiceBusReceiver, sequence_numbers: Sequence[int]) -> int:
    """Remove deferred messages of one partition by their numbers; gives how many the service sent, and so removed.

    ``receive_deferred_messages`` would do it in receive-and-delete mode, but reads every message that it is sent, and
    tries for 13 seconds when one of them is not there.

    Args:
        receiver: open, in any mode.
        sequence_numbers: which ones.

    Raises:
        MessageNotFoundError: at least one of them cannot be had; then none is removed.
        TimeoutError: no answer came.
        ServiceBusError: the service refused it, or the connection was lost.
    """
    transport = receiver._amqp_transport

    def answer(status_code: int, message: Any, description: Any, amqp_transport: Any) -> int:
        if status_code == _OK:
            return len(message.value[b"messages"])
        if status_code not in (_ACCEPTED, _NO_CONTENT):
            mgmt_handlers.default(status_code, message, description, amqp_transport)  # raises what it stands for
        return 0

    request = {
        "sequence-numbers": transport.AMQP_ARRAY_VALUE([transport.AMQP_LONG_VALUE(n) for n in sequence_numbers]),
        "receiver-settle-mode": transport.AMQP_UINT_VALUE(_RECEIVE_AND_DELETE),
    }
    receiver._populate_message_properties(request)
    with sdk_internals.as_service_bus_error(receiver), sdk_internals.answered_within(_ANSWER_WITHIN):
        removed: Any = await receiver._mgmt_request_response(_RECEIVE_BY_NUMBER, request, answer)
    return removed
