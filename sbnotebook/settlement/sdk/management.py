"""Requests to the management node of an entity, which the SDK's public methods do not make, or not once.

They see a message's bytes with their types, renew many locks at once, settle without trying again behind one's back,
and peek where sessions are required.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from azure.servicebus._common import mgmt_handlers
from azure.servicebus._common.constants import (
    MESSAGE_DEAD_LETTER,
    MESSAGE_MGMT_SETTLEMENT_TERM_MAP,
    MGMT_REQUEST_DEAD_LETTER_ERROR_DESCRIPTION,
    MGMT_REQUEST_DEAD_LETTER_REASON,
)
from azure.servicebus.aio._session_browser_async import _SessionBrowserAsync

from sbnotebook.settlement.sdk.errors import answered_within, as_service_bus_error
from sbnotebook.settlement.sdk.receivers import received_deferred

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage
    from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

__all__ = [
    "Browser",
    "ToSchedule",
    "browser",
    "cancel_scheduled",
    "delete_deferred",
    "peek_payloads",
    "receive_deferred",
    "renew_locks",
    "schedule_payloads",
    "settle_by_token",
]

Browser = _SessionBrowserAsync
"""Asks the management node of an entity; safe for one task at a time."""

_OK, _ACCEPTED, _NO_CONTENT = 200, 202, 204
_PEEK: Final = b"com.microsoft:peek-message"
_RECEIVE_BY_NUMBER: Final = b"com.microsoft:receive-by-sequence-number"
_RENEW: Final = b"com.microsoft:renew-lock"
_SCHEDULE: Final = b"com.microsoft:schedule-message"
_RECEIVE_AND_DELETE, _PEEK_LOCK = 0, 1
_DEFERRED_WITHIN: Final = 30.0
"""Seconds; many large messages may come in one answer."""


def browser(client: ServiceBusClient, path: str) -> Browser:
    """What asks the management node of an entity without a link to the entity itself; it is opened by its first use.

    An entity that requires sessions refuses a receiver without a session, also for peeking.
    """
    return client._create_session_browser(path)


async def peek_payloads(
    browser: Browser, from_sequence_number: int, count: int, session_id: str | None = None
) -> list[bytes]:
    """The AMQP bytes of up to ``count`` messages from a sequence number on; none when there are no more.

    ``peek_messages`` decodes them and drops the types.

    Args:
        browser: of the entity.
        from_sequence_number: where to begin, included.
        count: how many at most.
        session_id: of this session only, which is not locked by that; None for all.
    """
    transport = browser._amqp_transport

    def answer(status_code: int, message: Any, description: Any, amqp_transport: Any) -> list[bytes]:
        if status_code == _OK:
            return [bytes(item[b"message"]) for item in message.value[b"messages"]]
        if status_code in (_ACCEPTED, _NO_CONTENT):
            return []
        # Raises the exception that stands for the status.
        mgmt_handlers.default(status_code, message, description, amqp_transport)
        return []

    request = {
        "from-sequence-number": transport.AMQP_LONG_VALUE(from_sequence_number),
        "message-count": count,
    }
    if session_id is not None:
        request["session-id"] = session_id
    return await browser._mgmt_request_response_with_retry(_PEEK, request, answer)


async def receive_deferred(
    receiver: ServiceBusReceiver, sequence_numbers: Sequence[int]
) -> list[ServiceBusReceivedMessage]:
    """Lock deferred messages by their numbers, and keep their bytes for :func:`payload_of_received`.

    ``receive_deferred_messages`` drops the types, and when one of the messages is not there it tries for 13 seconds.

    Raises:
        MessageNotFoundError: at least one of them cannot be had; then none is locked.
        TimeoutError: no answer came; what is locked by then is so until its locks end.
        ServiceBusError: the service refused it, or the connection was lost.
    """
    transport = receiver._amqp_transport

    def answer(status_code: int, message: Any, description: Any, amqp_transport: Any) -> list[Any]:
        if status_code == _OK and message.value:
            return [received_deferred(receiver, item) for item in message.value[b"messages"]]
        return mgmt_handlers.deferred_message_op(status_code, message, description, receiver, amqp_transport) or []

    request = {
        "sequence-numbers": transport.AMQP_ARRAY_VALUE([transport.AMQP_LONG_VALUE(n) for n in sequence_numbers]),
        "receiver-settle-mode": transport.AMQP_UINT_VALUE(_PEEK_LOCK),
    }
    receiver._populate_message_properties(request)
    with as_service_bus_error(receiver), answered_within(_DEFERRED_WITHIN):
        received: Any = await receiver._mgmt_request_response(_RECEIVE_BY_NUMBER, request, answer)
    return received


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
    with as_service_bus_error(receiver), answered_within(_DEFERRED_WITHIN):
        removed: Any = await receiver._mgmt_request_response(_RECEIVE_BY_NUMBER, request, answer)
    return removed


async def renew_locks(receiver: ServiceBusReceiver, messages: Sequence[ServiceBusReceivedMessage]) -> list[datetime]:
    """Renew the locks of several messages in one request, once: the SDK's own method tries again for many seconds.

    Args:
        receiver: open; not necessarily the one that they came from.
        messages: still locked.

    Returns:
        When each of the locks ends, by the service's clock.

    Raises:
        MessageLockLostError: at least one of the locks is lost.
        ServiceBusError: the service refused it, or the connection was lost.
    """
    tokens = receiver._amqp_transport.AMQP_ARRAY_VALUE([message.lock_token for message in messages])
    request = {"lock-tokens": tokens}
    receiver._populate_message_properties(request)
    with as_service_bus_error(receiver):
        answer: Any = await receiver._mgmt_request_response(_RENEW, request, mgmt_handlers.message_lock_renew_op)
    ends = [datetime.fromtimestamp(stamp / 1000, UTC) for stamp in answer[b"expirations"]]
    for message, end in zip(messages, ends, strict=True):
        message._expiry = end
    return ends


async def settle_by_token(
    receiver: ServiceBusReceiver,
    lock_token: Any,
    operation: str,
    reason: str | None = None,
    description: str | None = None,
    *,
    answer_within: float,
) -> None:
    """Settle a message once by its lock token, over the management node, and wait for the confirmation.

    The SDK's own methods try again by opening the receiver again, each by itself: of many that are under way when a
    connection breaks, each closes what another has just opened, and none can tell what the first attempt did.

    Args:
        receiver: open, see :func:`reopen`; not necessarily the one that the message came from.
        lock_token: of the message's lock.
        operation: ``complete``, ``abandon``, ``defer`` or ``dead-letter``.
        reason: why it is dead-lettered.
        description: what explains that.
        answer_within: seconds to wait for the confirmation.

    Raises:
        TimeoutError: no answer came.
        ServiceBusError: the service refused it, or the connection was lost.
    """
    details = None
    if operation == MESSAGE_DEAD_LETTER:
        details = {
            MGMT_REQUEST_DEAD_LETTER_REASON: reason or "",
            MGMT_REQUEST_DEAD_LETTER_ERROR_DESCRIPTION: description or "",
        }
    disposition = MESSAGE_MGMT_SETTLEMENT_TERM_MAP[operation]
    with as_service_bus_error(receiver), answered_within(answer_within):
        await receiver._settle_message_via_mgmt_link(disposition, [lock_token], dead_letter_details=details)


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
