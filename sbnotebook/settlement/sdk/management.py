"""Requests to the management node of an entity that the SDK's public methods do not make, or repeat by themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from azure.servicebus.exceptions import ServiceBusConnectionError

from sbnotebook.model import DeadLetter, Decision
from sbnotebook.settlement.sdk.clients import adopt
from sbnotebook.settlement.sdk.errors import answered_within, as_service_bus_error
from sbnotebook.settlement.sdk.private import (
    AMQPException,
    AmqpLinkError,
    Answer,
    Browser,
    constants,
    mgmt_handlers,
    private,
)
from sbnotebook.settlement.sdk.receivers import ReceivedLock
from sbnotebook.settlement.wire.decoding import lock_of

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

_OK, _ACCEPTED, _NO_CONTENT = 200, 202, 204
_NOT_FOUND = 404
_DELETE: Final = b"com.microsoft:batch-delete-messages"
_PEEK: Final = b"com.microsoft:peek-message"
_RECEIVE_BY_NUMBER: Final = b"com.microsoft:receive-by-sequence-number"
_RENEW: Final = b"com.microsoft:renew-lock"
_SCHEDULE: Final = b"com.microsoft:schedule-message"
_RECEIVE_AND_DELETE, _PEEK_LOCK = 0, 1
_PEEKED_WITHIN: Final = 30.0
"""Seconds to wait for messages that are peeked once."""
_DEFERRED_WITHIN: Final = 30.0
"""Seconds to wait for deferred messages: one answer may hold many large ones."""
_DELETED_WITHIN: Final = 60.0
"""Seconds to wait for the removal of thousands of messages."""


def browser(client: ServiceBusClient, path: str, **listeners: Any) -> Browser:
    """Return a client of an entity's management node that opens no link to the entity. Its first use opens it.

    An entity that requires sessions refuses a receiver without a session, also for peeking. One task at a time may open
    it, or repeat requests. See :func:`adopt` for the listeners.
    """
    factory: Any = client
    made: Browser = factory._create_session_browser(path)
    adopt(made, **listeners)
    return made


async def token_status(browser: Browser) -> tuple[int | None, object]:
    """Open a browser once, and return what the service answers to its token."""
    try:
        await private(browser)._open()
    except AMQPException as error:
        # A refused token, or a refused $cbs link; any other ended the connection.
        status: object = getattr(error, "status_code", None)
        if isinstance(status, int):
            return status, getattr(error, "status_description", None) or error
        if isinstance(error, AmqpLinkError):
            return None, error
        raise
    return _ACCEPTED, ""


async def peek_payloads(
    browser: Browser | ServiceBusReceiver,
    from_sequence_number: int,
    count: int,
    session_id: str | None = None,
    *,
    with_bodies: bool = True,
    once: bool = False,
) -> list[bytes]:
    """Peek the AMQP bytes of messages; ``peek_messages`` decodes them and drops the types."""
    parts = private(browser)
    request: dict[str, Any] = {
        "from-sequence-number": parts._amqp_transport.AMQP_LONG_VALUE(from_sequence_number),
        "message-count": count,
    }
    if session_id is not None:
        request["session-id"] = session_id
    if not with_bodies:
        request["omit-message-body"] = True
    if once:
        with answered_within(_PEEKED_WITHIN):
            found = await parts._mgmt_request_response(_PEEK, request, _messages)
    else:
        found = await parts._mgmt_request_response_with_retry(_PEEK, request, _messages)
    return [bytes(item[b"message"]) for item in found]


def _messages(status_code: int, message: Any, description: Any, amqp_transport: Any) -> list[Any]:
    """Return the messages of an answer; raise the exception of a status that is a failure."""
    if status_code == _OK and message.value:
        return message.value[b"messages"]
    if status_code not in (_OK, _ACCEPTED, _NO_CONTENT):
        mgmt_handlers.default(status_code, message, description, amqp_transport)
    return []


async def receive_deferred(receiver: ServiceBusReceiver, sequence_numbers: Sequence[int]) -> list[ReceivedLock]:
    """Lock deferred messages, and return their locks with their bytes.

    ``receive_deferred_messages`` drops the types, and when one of the messages is missing it tries for 13 seconds.
    """
    found = await _receive_by_number(receiver, sequence_numbers, _PEEK_LOCK)
    payloads = [(item[b"lock-token"], bytes(item[b"message"])) for item in found]
    return [ReceivedLock(token, payload, lock_of(payload)[0]) for token, payload in payloads]


async def delete_deferred(receiver: ServiceBusReceiver, sequence_numbers: Sequence[int]) -> int:
    """Remove deferred messages, and return how many the service removed.

    ``receive_deferred_messages`` in receive-and-delete mode decodes every message, and when one of them is missing it
    tries for 13 seconds.
    """
    return len(await _receive_by_number(receiver, sequence_numbers, _RECEIVE_AND_DELETE))


async def delete_messages(browser: Browser, count: int, before: datetime, *, beside: bool = False) -> int:
    """Ask once for the removal of the oldest messages enqueued before a time, and return how many were removed.

    Sources: azure-servicebus 7.13.0b1, ``batch_delete_op``; azure-sdk-for-net pull request 62625, whose request is sent
    once and whose count must be plausible; azure-sdk-for-go pull request 27499, where 'not found' has a count, too.
    """

    def answer(status_code: int, message: Any, description: Any, amqp_transport: Any) -> int:
        removed: Any = dict[Any, Any](message.value or {}).get(b"message-count")
        is_counted = isinstance(removed, int) and 0 <= removed <= count
        if status_code in (_OK, _NOT_FOUND) and is_counted:
            return removed
        if status_code not in (_OK, _ACCEPTED, _NO_CONTENT):
            mgmt_handlers.default(status_code, message, description, amqp_transport)  # raises the status's exception
        if status_code == _OK:
            raise ServiceBusConnectionError(message="Service Bus did not say how many messages it removed.")
        return 0

    request = {"message-count": count, "enqueued-time-utc": before}
    parts = private(browser)
    # Beside other requests, it must neither open nor close the browser.
    ask = parts._mgmt_request_response if beside else parts._mgmt_request_response_with_retry
    with answered_within(_DELETED_WITHIN), as_service_bus_error(parts):
        return await ask(_DELETE, request, answer)


async def _receive_by_number(
    receiver: ServiceBusReceiver, sequence_numbers: Sequence[int], settle_mode: int
) -> list[Any]:
    transport = private(receiver)._amqp_transport
    request = {
        "sequence-numbers": transport.AMQP_ARRAY_VALUE([transport.AMQP_LONG_VALUE(n) for n in sequence_numbers]),
        "receiver-settle-mode": transport.AMQP_UINT_VALUE(settle_mode),
    }
    with answered_within(_DEFERRED_WITHIN):
        return await _request_once(receiver, _RECEIVE_BY_NUMBER, request, _messages)


async def _request_once(receiver: ServiceBusReceiver, operation: bytes, request: dict[str, Any], answer: Answer) -> Any:
    """Make a request about messages of a receiver, without the SDK's repetitions."""
    parts = private(receiver)
    parts._populate_message_properties(request)
    with as_service_bus_error(receiver):
        return await parts._mgmt_request_response(operation, request, answer)


async def renew_locks(receiver: ServiceBusReceiver, locks: Sequence[ReceivedLock]) -> list[datetime]:
    """Renew the locks of several messages in one request, once: the SDK's method repeats it for many seconds."""
    tokens = private(receiver)._amqp_transport.AMQP_ARRAY_VALUE([lock.lock_token for lock in locks])
    answer = await _request_once(receiver, _RENEW, {"lock-tokens": tokens}, mgmt_handlers.message_lock_renew_op)
    return [datetime.fromtimestamp(stamp / 1000, UTC) for stamp in answer[b"expirations"]]


async def settle_by_tokens(
    receiver: ServiceBusReceiver,
    lock_tokens: Sequence[Any],
    decision: Decision,
    *,
    answer_within: float,
) -> None:
    """Settle messages once by their lock tokens, in one request, and wait for the confirmation.

    When the service refuses a request with several tokens, no source says whether it settled some of the messages.

    The SDK's own methods try again by opening the receiver again, each by itself. When a connection breaks, many of
    them close what another has just opened, and none can tell what the first attempt did.
    """
    details = None
    if isinstance(decision, DeadLetter):
        details = {
            constants.MGMT_REQUEST_DEAD_LETTER_REASON: decision.reason or "",
            constants.MGMT_REQUEST_DEAD_LETTER_ERROR_DESCRIPTION: decision.description or "",
        }
    disposition = constants.MESSAGE_MGMT_SETTLEMENT_TERM_MAP[decision.verb]
    with as_service_bus_error(receiver), answered_within(answer_within):
        await private(receiver)._settle_message_via_mgmt_link(
            disposition, list(lock_tokens), dead_letter_details=details
        )


async def schedule_payloads(sender: ServiceBusSender, messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """Schedule messages in one request; the SDK schedules only messages of its own classes.

    The bytes under ``message`` hold the time. The service wants ``message-id``, ``session-id`` and ``partition-key``
    beside them; those that are None are left out, but for the first.
    """
    entries = [
        {name: value for name, value in each.items() if value is not None or name == "message-id"} for each in messages
    ]
    answer = await private(sender)._mgmt_request_response_with_retry(
        _SCHEDULE, {"messages": entries}, mgmt_handlers.schedule_op
    )
    return [int(number) for number in answer]
