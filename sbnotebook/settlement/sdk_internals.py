"""The place that reaches below the SDK's public interface, and why each time.

``azure-servicebus`` offers no public way to release a locked message without raising its delivery count, to see a
message's bytes with their types, to renew many locks at once, to settle without trying again behind one's back, or
to peek where sessions are required. Written against 7.15; each function is covered by tests that run the SDK against
the emulator and fail when a later version moves what is used here. What sending needs is in
:mod:`sbnotebook.settlement.sdk_senders`, and where the SDK waits for nothing in
:mod:`sbnotebook.settlement.sdk_waits`.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

import anyio
from azure.servicebus import ServiceBusReceivedMessage, ServiceBusReceiveMode
from azure.servicebus._common import mgmt_handlers
from azure.servicebus._common.constants import (
    MESSAGE_DEAD_LETTER,
    MESSAGE_MGMT_SETTLEMENT_TERM_MAP,
    MGMT_REQUEST_DEAD_LETTER_ERROR_DESCRIPTION,
    MGMT_REQUEST_DEAD_LETTER_REASON,
)
from azure.servicebus._pyamqp._decode import decode_payload
from azure.servicebus._pyamqp.constants import LinkState
from azure.servicebus._pyamqp.error import AMQPException
from azure.servicebus._pyamqp.message import Message as AmqpMessage
from azure.servicebus.aio._session_browser_async import _SessionBrowserAsync
from azure.servicebus.exceptions import ServiceBusConnectionError, SessionLockLostError

from sbnotebook.settlement.wire.service_part import what_can_be_read

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

__all__ = [
    "Browser",
    "answered_within",
    "as_service_bus_error",
    "browser",
    "catch_up",
    "condition_of",
    "is_on_link",
    "is_open",
    "keep_payloads",
    "lock_by_token",
    "payload_of_received",
    "peek_payloads",
    "receive_deferred",
    "renew_locks",
    "reopen",
    "settle_by_token",
]

Browser = _SessionBrowserAsync
"""Asks the management node of an entity; safe for one task at a time."""

_LOGGER: Final = logging.getLogger(__name__)

_OK, _ACCEPTED, _NO_CONTENT = 200, 202, 204
_PEEK: Final = b"com.microsoft:peek-message"
_RECEIVE_BY_NUMBER: Final = b"com.microsoft:receive-by-sequence-number"
_RENEW: Final = b"com.microsoft:renew-lock"
_PEEK_LOCK: Final = 1
_DEFERRED_WITHIN: Final = 30.0
"""Seconds; many large messages may come in one answer."""
_PAYLOAD: Final = "_sbnotebook_payload"
_WHOLE: Final = "_sbnotebook_whole"
# Positions in a transfer frame (AMQP 1.0 section 2.7.5), and the payload at its end.
_FRAME_MORE, _FRAME_PAYLOAD = 5, 11
_GLANCE: Final = 0.005
"""Seconds to look for frames that have come already."""
_MANY_FRAMES: Final = 100


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
            return [_deferred(receiver, item) for item in message.value[b"messages"]]
        return mgmt_handlers.deferred_message_op(status_code, message, description, receiver, amqp_transport) or []

    request = {
        "sequence-numbers": transport.AMQP_ARRAY_VALUE([transport.AMQP_LONG_VALUE(n) for n in sequence_numbers]),
        "receiver-settle-mode": transport.AMQP_UINT_VALUE(_PEEK_LOCK),
    }
    receiver._populate_message_properties(request)
    with as_service_bus_error(receiver), answered_within(_DEFERRED_WITHIN):
        received: Any = await receiver._mgmt_request_response(_RECEIVE_BY_NUMBER, request, answer)
    return received


def _deferred(receiver: ServiceBusReceiver, item: Any) -> ServiceBusReceivedMessage:
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


def is_on_link(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> bool:
    """Whether a message can be settled on the link that is open now: it came on it, and nothing was tried yet."""
    handler = receiver._handler
    return handler is not None and _is_attached(handler) and message._delivery_tag in _tags(handler._link)


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


def is_open(receiver: ServiceBusReceiver) -> bool:
    """Whether a receiver's connection and link stand, as far as the SDK has noticed."""
    handler = receiver._handler
    return handler is not None and receiver._running and _is_attached(handler)


async def catch_up(receiver: ServiceBusReceiver) -> None:
    """Let the SDK read what the service has said meanwhile, such as that the link is detached, for :func:`is_open`."""
    handler: Any = receiver._handler
    if handler is not None and handler._connection is not None:
        with contextlib.suppress(Exception):  # what is wrong with it, is_open tells
            await handler._connection.listen(wait=_GLANCE, batch=_MANY_FRAMES)


async def reopen(receiver: ServiceBusReceiver) -> None:
    """Open a receiver again whose connection or link was lost; nothing when it is open.

    Raises:
        ServiceBusError: it could not be opened.
        SessionLockLostError: it is a session's, whose lock is lost with the link.
    """
    if is_open(receiver):
        return
    _refuse_lost_session(receiver)
    with contextlib.suppress(Exception):  # it is broken: what matters is the new one
        await receiver._close_handler()
    receiver._handler, receiver._running = None, False
    await receiver._open_with_retry()


def _refuse_lost_session(receiver: ServiceBusReceiver) -> None:
    # The SDK would lock the session again, and the locks of what was received before are none any more.
    if receiver.session:
        raise SessionLockLostError(message=f"The link of session {receiver.session.session_id!r} is gone.")


@contextlib.contextmanager
def as_service_bus_error(receiver: ServiceBusReceiver) -> Generator[None]:
    """Raise what a request to the management node raises as an error that users know.

    Args:
        receiver: whose request it is.
    """
    try:
        yield
    except AMQPException as error:
        raise receiver._amqp_transport.create_servicebus_exception(_LOGGER, error) from error
    except ValueError as error:
        if "Management Operation" not in str(error):
            raise
        # So the SDK says that the link is detached, as the service does where nothing goes for ten minutes.
        raise ServiceBusConnectionError(message="The link to the management node is gone.") from error


@contextlib.contextmanager
def answered_within(seconds: float) -> Generator[None]:
    """Wait so long for an answer, and no longer.

    Raises:
        TimeoutError: it did not come; says so, unlike anyio's own.
    """
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError:
        raise TimeoutError(f"No answer came within {seconds:g} second{'s' if seconds != 1 else ''}.") from None


def _is_attached(handler: Any) -> bool:
    link, connection = handler._link, handler._connection
    if link is None or link.state is not LinkState.ATTACHED or connection is None or connection._error is not None:
        return False
    # A connection that the other side has ended is seen here before the SDK reads from it.
    reader = getattr(connection._transport, "reader", None)
    return reader is None or not (reader.at_eof() or reader.exception())


def _tags(link: Any) -> set[bytes]:
    return link._received_delivery_tags


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


def condition_of(error: BaseException) -> tuple[str | None, bool | None]:
    """The AMQP condition of an SDK exception, and whether the SDK holds a retry to be useful."""
    condition = getattr(error, "_condition", None)
    return (str(condition) if condition else None), getattr(error, "_retryable", None)
