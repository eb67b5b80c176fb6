"""The only place that reaches below the SDK's public interface, and why each time.

``azure-servicebus`` offers no public way to release a locked message without raising its delivery count, to see a
message's bytes with their types, to send bytes that are encoded already, or to renew many locks at once. Written
against 7.15; each function is covered by tests that run the SDK against the emulator and fail when a later version
moves what is used here.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from azure.servicebus._common import mgmt_handlers
from azure.servicebus.exceptions import ServiceBusError

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusMessageBatch, ServiceBusReceivedMessage
    from azure.servicebus.aio import ServiceBusReceiver, ServiceBusSender

__all__ = [
    "condition_of",
    "fill_batch",
    "keep_payloads",
    "max_batch_bytes",
    "max_message_bytes",
    "payload_of_received",
    "peek_payloads",
    "release",
    "renew_locks",
]

_OK, _ACCEPTED, _NO_CONTENT = 200, 202, 204
_PEEK: Final = b"com.microsoft:peek-message"
_PAYLOAD: Final = "_sbnotebook_payload"
# What one more message costs in a batch beside its own bytes: the data section's head.
_DATA_HEAD: Final = 8


async def peek_payloads(receiver: ServiceBusReceiver, from_sequence_number: int, count: int) -> list[bytes]:
    """The AMQP bytes of up to ``count`` messages from a sequence number on; none when there are no more.

    ``peek_messages`` decodes them and drops the types.
    """
    transport = receiver._amqp_transport

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
    receiver._populate_message_properties(request)
    return await receiver._mgmt_request_response_with_retry(_PEEK, request, answer)


def keep_payloads(receiver: ServiceBusReceiver) -> None:
    """Make a receiver keep the AMQP bytes of each message that it builds, for :func:`payload_of_received`."""
    build: Any = receiver._build_received_message

    def build_with_payload(received: Any) -> ServiceBusReceivedMessage:
        message = build(received)
        frame = received[0]
        # Field 5 of a transfer is "more": then these are only the first of the message's bytes.
        setattr(message, _PAYLOAD, None if frame[5] else bytes(frame[11]))
        return message

    receiver._build_received_message = build_with_payload


def payload_of_received(message: ServiceBusReceivedMessage) -> bytes | None:
    """The AMQP bytes of a received message; None when it came in several frames, then it has to be peeked."""
    return getattr(message, _PAYLOAD, None)


async def release(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage, answer_within: float) -> None:
    """Give a locked message back without raising its delivery count, and wait for the confirmation.

    The outcome ``released`` of AMQP 1.0 section 3.4.4; the SDK sends it only by itself and does not wait.

    Args:
        receiver: the one that received the message.
        message: still locked.
        answer_within: seconds to wait for the confirmation.
    """
    if receiver._handler is None:
        raise ServiceBusError("The receiver is closed.")
    await receiver._handler.settle_messages_async(
        message._delivery_id, message._delivery_tag, "released", await_outcome=True, outcome_timeout=answer_within
    )
    message._settled = True


async def renew_locks(receiver: ServiceBusReceiver, messages: Sequence[ServiceBusReceivedMessage]) -> datetime:
    """Renew the locks of several messages in one request.

    Returns:
        When the first of the renewed locks ends.

    Raises:
        MessageLockLostError: at least one of the locks is lost.
    """
    tokens: Any = [message.lock_token for message in messages]
    answer = await receiver._renew_locks(*tokens)
    ends = [datetime.fromtimestamp(stamp / 1000, UTC) for stamp in answer[b"expirations"]]
    for message, end in zip(messages, ends, strict=True):
        message._expiry = end
    return min(ends)


def fill_batch(batch: ServiceBusMessageBatch, payloads: Iterable[bytes], envelope: tuple[str | None, ...]) -> None:
    """Put encoded messages into an empty batch.

    Args:
        batch: from ``sender.create_message_batch()``.
        payloads: the messages' AMQP bytes; the caller has seen to it that they fit.
        envelope: message id, session id and partition key of the batch itself.
    """
    content: list[Any] = batch._message
    content[5] = list(payloads)
    batch._count = len(content[5])
    batch._size += sum(len(payload) + _DATA_HEAD for payload in content[5])
    batch._amqp_transport.set_batch_envelope_properties(content, *envelope)


def max_batch_bytes(sender: ServiceBusSender) -> int:
    """How large a batch may be on this sender's link, in bytes; the sender must be open."""
    return int(sender._max_batch_size_on_link)


def max_message_bytes(sender: ServiceBusSender) -> int:
    """How large one message may be on this sender's link, in bytes; the sender must be open."""
    return int(sender._max_message_size_on_link)


def condition_of(error: BaseException) -> tuple[str | None, bool | None]:
    """The AMQP condition of an SDK exception, and whether the SDK holds a retry to be useful."""
    condition = getattr(error, "_condition", None)
    return (str(condition) if condition else None), getattr(error, "_retryable", None)
