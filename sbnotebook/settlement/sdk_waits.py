"""Where the SDK waits for nothing, and how it is spared; see :mod:`sdk_internals` for what else is below its surface.

Half a second to open a client, half a second to close it and 0.4 seconds to end a search are much where somebody waits
for one message. And after 10,000 requests on one link it waits for an answer that never comes. Written against
azure-servicebus 7.15; each function is covered by tests that run the SDK against the emulator and fail when a later
version moves what is used here.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, Final

from azure.servicebus._pyamqp.aio import _transport_async

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusReceiver, ServiceBusSender

    from sbnotebook.settlement.sdk_internals import Browser

__all__ = ["drain", "spare_waits", "withdraw_credit"]

_LOOKS: Final = 20
"""Frames that may come before a client is open: twice as many as do."""
_DRAINED_WITHIN: Final = 0.4
"""Seconds after which nothing is on its way any more from a service that does not say so; the SDK's."""


async def _receive_frame(transport: Any, timeout: float | None = None, **options: Any) -> tuple[Any, Any]:  # noqa: ASYNC109 (the SDK's)
    try:
        async with asyncio.timeout(timeout):
            header, channel, payload = await transport.read(**options)
    except (TimeoutError, asyncio.IncompleteReadError):
        return None, None
    decoded: Any = _transport_async.decode_frame(payload) if payload else _transport_async.decode_empty_frame(header)
    return channel, decoded


# The SDK waits for each frame by asyncio.wait_for, which up to Python 3.11 makes a task of it: that takes longer than
# to read the frame. This is the same without one.
_transport_async.AsyncTransportMixin.receive_frame = _receive_frame

# Positions in a flow frame (AMQP 1.0 section 2.7.4).
_FLOW_HANDLE, _FLOW_CREDIT = 4, 6


def spare_waits(client: ServiceBusReceiver | ServiceBusSender | Browser) -> None:
    """Have a client opened and closed without the time that the SDK sleeps meanwhile, and its socket closed, too.

    The SDK sleeps after each frame that comes until the client is open. When it closes one, it waits up to a second
    until the task that keeps the connection alive has slept, and forgets the socket of a connection that is broken.
    Requests to the management node are answered for as long as the client is open, however many they are.
    """
    create: Any = client._create_handler
    close: Any = client._close_handler

    def create_ready(auth: Any) -> None:
        create(auth)
        _look_often(client._handler)
        _take_more_answers(client._handler)

    async def close_all() -> None:
        handler: Any = client._handler
        transport: Any = None
        if handler is not None:
            transport = getattr(handler._connection, "_transport", None)
            _end_keeping_alive(handler)
        try:
            await close()
        finally:
            if transport is not None:
                with contextlib.suppress(Exception):  # it is closed already
                    await transport.close()

    client._create_handler = create_ready
    client._close_handler = close_all


def _look_often(handler: Any) -> None:
    look: Any = handler.client_ready_async

    async def look_often() -> bool:
        for _ in range(_LOOKS):
            if await look():  # which waits for a frame if it is not
                vars(handler).pop("client_ready_async", None)  # from now on it is asked with every send
                return True
        return False

    handler.client_ready_async = look_often


def _take_more_answers(handler: Any) -> None:
    """Let the service answer again before it has sent as many answers as the SDK says once that it takes, 10,000."""
    ask: Any = handler.mgmt_request_async

    async def ask_for_more(*request: Any, **options: Any) -> Any:
        for node in tuple(handler._mgmt_links.values()):
            answers = node._mgmt_link._response_link
            if answers.current_link_credit < answers.link_credit // 2:
                answers._received_delivery_tags.clear()  # the SDK keeps those of all answers, and needs none of them
                await answers.flow()
        return await ask(*request, **options)

    handler.mgmt_request_async = ask_for_more


def _end_keeping_alive(handler: Any) -> None:
    if handler._keep_alive_thread is not None:
        handler._keep_alive_thread.cancel()
        handler._keep_alive_thread = None


async def withdraw_credit(receiver: ServiceBusReceiver) -> None:
    """Take back what is left of the last request for messages, and release what still came for it.

    Otherwise messages that arrive later are sent to this receiver, and are locked although nobody asks for them.
    Takes a round trip, at most 0.4 seconds, and nothing when all that was asked for has come.
    """
    handler: Any = receiver._handler
    if handler is not None:
        await drain(handler, credit=0, answer_within=_DRAINED_WITHIN)
        await receiver._amqp_transport.drain_and_release_messages_async(handler)


async def drain(handler: Any, *, credit: int, answer_within: float) -> bool:
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
